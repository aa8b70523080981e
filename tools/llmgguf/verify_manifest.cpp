#include <fmt/core.h>

#include <functional>

#include "base/json.h"
#include "base/shown_text.h"
#include "engine/gguf/gguf_manifest.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

std::string differences_text(const std::vector<GgufDifference>& differences) {
  std::string out;
  for (const GgufDifference& difference : differences) {
    out +=
        fmt::format("! {}{}{}: {}\n", shown(difference.file), difference.file.empty() ? "" : ": ",
                    shown(difference.title), shown(difference.message));
  }
  return out;
}

std::string verdict_json(const GgufArguments& arguments, const GgufManifest& manifest,
                         const std::vector<GgufDifference>& differences) {
  OrderedJson list = OrderedJson::array();
  for (const GgufDifference& difference : differences) {
    OrderedJson entry = {{"kind", difference.kind},
                         {"name", difference.name},
                         {"file", difference.file},
                         {"message", difference.message}};
    if (difference.chunks) entry["chunks"] = *difference.chunks;
    if (difference.bytes) {
      entry["begin"] = difference.bytes->first;
      entry["end"] = difference.bytes->second;
    }
    list.push_back(std::move(entry));
  }
  const OrderedJson all = {
      {"schema_version", kGgufSchemaVersion}, {"file", arguments.file},
      {"manifest", arguments.manifest},       {"ok", differences.empty()},
      {"promised", summary(manifest)},        {"differences", std::move(list)}};
  return json_text(all, 2) + "\n";
}

}  // namespace

Result<int> verify_manifest(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const GgufManifest manifest, read_gguf_manifest(arguments.manifest));
  guard_mapped_file(arguments.file);
  std::vector<GgufDifference> differences;
  {
    ProgressBar progress(!context.quiet(), "B");
    LLM_TRY(differences,
            compare_manifest(arguments.file, manifest,
                             {arguments.threads, std::bind_front(std::ref(progress), "compare")}));
  }
  FirstError error;
  if (arguments.json) {
    error.add(write_stdout(verdict_json(arguments, manifest, differences)));
  } else if (differences.empty()) {
    error.add(write_stdout(fmt::format("{}: ok, {}\n", shown(arguments.file), summary(manifest))));
  } else {
    error.add(write_stdout(differences_text(differences)));
  }
  LLM_RETURN_IF_ERROR(error.status());
  if (!differences.empty()) return in_file(integrity_error(differences), arguments.file);
  return 0;
}

}  // namespace llm
