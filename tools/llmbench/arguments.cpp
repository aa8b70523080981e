#include "tools/llmbench/arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"
#include "tools/llmsynth/synthetic_model.h"

namespace llm {
namespace {

/// Replaces `list` by the numbers of all of `typed`, "512,2048" being two; leaves it alone when
/// nothing was typed.
template <typename T>
Status read_list(std::string_view option, const std::vector<std::string>& typed,
                 std::int64_t lowest, std::int64_t highest, std::vector<T>& list) {
  if (!typed.empty()) list.clear();
  for (const std::string& text : typed) {
    for (const std::string& part : split_at_commas(text)) {
      const auto number = parse_integer(part);
      if (!number || *number < lowest || *number > highest) {
        return usage_error(std::string(option),
                           fmt::format("found \"{}\", need integers in {}..{}, separated by commas",
                                       text, lowest, highest));
      }
      list.push_back(static_cast<T>(*number));
    }
  }
  return Ok{};
}

void add_test_options(OptionTable& table, BenchArguments& a) {
  table.group("Tests (N may be a list such as 512,2048; all combinations are run)");
  table.texts("p,n-prompt", "N", &a.typed.prompt, "measure prefill of N tokens; 0: skip this test")
      .shown_default("512");
  table.texts("n,n-gen", "N", &a.typed.generate, "measure decode of N tokens; 0: skip this test")
      .shown_default("128");
  table
      .texts("d,n-depth", "N", &a.typed.depth,
             "number of tokens in the KV cache when a test starts")
      .shown_default("0");
  table
      .texts("b,batch-size", "N", &a.typed.batch,
             "maximum number of prompt tokens in one forward pass")
      .shown_default("512");
  table
      .texts("t,threads", "N", &a.typed.threads,
             "number of threads; 0: all CPUs that this process may use")
      .shown_default("the number of CPUs this process may use");
  table.integer("r,repetitions", "ROUNDS", &a.repetitions, 1, 10000,
                "number of rounds. Each round runs every test once, so that changes of the "
                "machine's speed affect all tests equally");
  table.flag("no-load", &a.no_load, "load the model only once, and skip the tests load and ttft");
  table.texts("tokens-per-pass", "N", &a.typed.steps,
              "also measure decode with N tokens in each pass, as speculative decoding would do if "
              "all N - 1 proposed tokens were accepted");
  table.flag("no-cache", &a.lists.no_cache,
             "also measure decode without a KV cache, for comparison (slow)");
}

void add_engine_options(OptionTable& table, BenchArguments& a) {
  table.group("Engine");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
  table.file("packed-cache", "DIR", &a.packed_cache,
             "also measure load and ttft with a packed cache in DIR (see llmrun); the other tests "
             "then use its weights");
}

void add_output_options(OptionTable& table, BenchArguments& a) {
  table.group("Output");
  table.choice("o,output", "FORMAT", &a.format,
               {{"md", BenchFormat::kMarkdown}, {"json", BenchFormat::kJson}},
               "print a Markdown table or a JSON array");
  table.flag("peaks", &a.show_peaks,
             "also print the measured read bandwidth and dot-product rate of the machine; without "
             "a model, print only these");
  table.flag("profile", &a.profile,
             "also print the time of each operation, and its percentage of the machine's read "
             "bandwidth or dot-product rate");
  table.flag("no-peaks", &a.no_peaks,
             "do not measure the read bandwidth and dot-product rate of the machine, and print no "
             "percentages of them; the measurement needs 512 MiB of memory");
  table.file("compare", "OLD.json", &a.compare,
             "also print the ratio of each result to that of an earlier run, whose -o json output "
             "is in OLD.json");
}

Status find_model(BenchArguments& a, const OptionTable& table) {
  const bool synthetic = table.given("synthetic");
  if (synthetic && !a.model.empty())
    return usage_error("MODEL", "found with --synthetic, need one of them");
  if (!synthetic && a.model.empty() && !a.show_peaks) {
    return usage_error("MODEL", "found nothing, need a GGUF file, --synthetic or --peaks",
                       "llmbench --help shows the usage");
  }
  if (synthetic && !a.packed_cache.empty())
    return usage_error("--packed-cache", "found with --synthetic, need a model file");
  if (table.given("type") && !synthetic) {
    return usage_error("--type", "found without --synthetic, need a model to make",
                       "llmquant converts a file");
  }
  if (synthetic && !find_synthetic_shape(a.synthetic)) {
    return usage_error("--synthetic", fmt::format("found \"{}\", need one of {}", a.synthetic,
                                                  synthetic_shape_names()));
  }
  if (find_recipe(a.type) == nullptr) {
    return usage_error("--type", fmt::format("found \"{}\", need a type of llmquant", a.type));
  }
  return Ok{};
}

}  // namespace

OptionTable make_bench_table(BenchArguments& a) {
  OptionTable table("llmbench",
                    "Measure the speed of a model, and compare it with the machine's limits");
  table.positional("MODEL", &a.model, false, "GGUF file (see also -m and -hf)");
  table.group("Model");
  table.file("m,model", "FILE", &a.model, "the same as MODEL").in_place_of("MODEL");
  add_hub_option(table, &a.hub_model);
  table.text("synthetic", "SHAPE", &a.synthetic,
             "instead of MODEL: make a model with random weights in a temporary file; SHAPE: a "
             "NAME of llmsynth --shape, such as tinyllama");
  table.text("type", "TYPE", &a.type, "weight type of the synthetic model: a TYPE of llmquant");
  add_test_options(table, a);
  add_engine_options(table, a);
  add_output_options(table, a);
  table.example("llmbench -m model.gguf -p 512 -n 64", "measure prefill and decode speed");
  table.example("llmbench -m model.gguf -t 1,2,4 -o json",
                "measure with 1, 2 and 4 threads, and print JSON");
  return table;
}

Status complete_bench(BenchArguments& a, const ToolContext& context) {
  const OptionTable& table = context.options;
  LLM_RETURN_IF_ERROR(read_list("-p", a.typed.prompt, 0, 1 << 20, a.lists.prompt));
  LLM_RETURN_IF_ERROR(read_list("-n", a.typed.generate, 0, 1 << 20, a.lists.generate));
  LLM_RETURN_IF_ERROR(read_list("-d", a.typed.depth, 0, 1 << 20, a.lists.depth));
  LLM_RETURN_IF_ERROR(read_list("-b", a.typed.batch, 1, 65536, a.lists.batch));
  LLM_RETURN_IF_ERROR(read_list("-t", a.typed.threads, 0, 256, a.lists.threads));
  LLM_RETURN_IF_ERROR(read_list("--tokens-per-pass", a.typed.steps, 1, 512, a.lists.steps));
  a.lists.load = !a.no_load;
  a.lists.packed = !a.packed_cache.empty();
  LLM_RETURN_IF_ERROR(fetch_hub_model(a.hub_model, context, a.model));
  LLM_RETURN_IF_ERROR(find_model(a, table));
  if (a.show_peaks && a.no_peaks)
    return usage_error("--peaks", "found with --no-peaks, need one of them");
  const bool measures = !a.model.empty() || table.given("synthetic");
  if (measures && make_plan(a.lists).empty()) {
    return usage_error("-p", "found no test at all, need tokens in -p or -n, or no --no-load");
  }
  return Ok{};
}

}  // namespace llm
