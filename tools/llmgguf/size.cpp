#include <fmt/core.h>

#include <charconv>
#include <fstream>

#include "base/json.h"
#include "base/shown_text.h"
#include "engine/executor.h"
#include "engine/model/model_file.h"
#include "engine/model/weight_store.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

/// What the system could give without swapping; 0 where it does not tell.
std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    const std::size_t digits = line.find_first_of("0123456789");
    if (digits != std::string::npos)
      std::from_chars(line.data() + digits, line.data() + line.size(), kib);
  }
  return kib * 1024;
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

Result<int> show_size(const GgufArguments& arguments, const ToolContext&) {
  LLM_TRY(const ModelFile model, open_model_file(arguments.file));
  auto plan = plan_weights(model);
  if (!plan.ok()) return in_file(plan.error(), arguments.file);
  const HyperParameters& config = model.config;
  const std::size_t context = arguments.context > 0 ? arguments.context : config.context;
  const std::size_t batch = std::min(arguments.batch, context);
  const KvGroups groups(config, arguments.kv);
  const std::uint64_t kv = std::uint64_t{groups.most_pages(context, batch)} * groups.page_bytes();
  const std::uint64_t activations = activation_bytes(config, batch, 1);
  const std::uint64_t total = plan->bytes + kv + activations;
  const std::uint64_t available = available_memory();
  const bool fits = available == 0 || total <= available;
  std::string text;
  if (arguments.json) {
    text = json_text(OrderedJson{{"schema_version", kGgufSchemaVersion},
                                 {"file", arguments.file},
                                 {"context", context},
                                 {"kv", kv_name(arguments.kv)},
                                 {"batch", batch},
                                 {"weights_bytes", plan->bytes},
                                 {"kv_bytes", kv},
                                 {"activations_bytes", activations},
                                 {"total_bytes", total},
                                 {"available_bytes", available},
                                 {"fits", fits}},
                     2) +
           "\n";
  } else {
    text = fmt::format(
        "{}: context {}, KV cache {}, batch {}\n  weights      {:>10.1f} MiB\n"
        "  KV cache     {:>10.1f} MiB\n  activations  {:>10.1f} MiB, about\n"
        "  total        {:>10.1f} MiB\n",
        shown(arguments.file), context, kv_name(arguments.kv), batch, mib(plan->bytes), mib(kv),
        mib(activations), mib(total));
    if (available > 0)
      text += fmt::format("  available    {:>10.1f} MiB: it {}\n", mib(available),
                          fits ? "fits" : "does not fit");
  }
  LLM_RETURN_IF_ERROR(write_stdout(text));
  return fits ? 0 : kExitVerdictFailed;
}

}  // namespace llm
