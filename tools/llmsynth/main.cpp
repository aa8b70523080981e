// llmsynth: writes a GGUF of a known shape with seeded weights, for tests and measurements.

#include <fmt/core.h>

#include <string>

#include "base/atomic_file.h"
#include "base/thread_team.h"
#include "tools/common/options.h"
#include "tools/common/progress.h"
#include "tools/common/tool.h"
#include "tools/llmsynth/synthetic_model.h"

namespace llm {
namespace {

struct Arguments {
  std::string out;
  std::string shape = "tinyllama";
  std::string type = "Q4_K_M";
  std::uint64_t seed = 1;
  int threads = 0;
};

OptionTable make_table(Arguments& arguments) {
  OptionTable table("llmsynth", "Write a GGUF model with given dimensions and random weights");
  table.positional("OUT", &arguments.out, true, "GGUF file to write");
  table.text("shape", "NAME", &arguments.shape,
             "dimensions of the model. A NAME that ends in -Nl has only N layers; -small: a small "
             "model for tests; odd80, odd96: heads of 80 or 96 values; mqa: one KV head; tied: the "
             "output matrix is the embedding matrix. One of " +
                 synthetic_shape_names());
  table.text("type", "TYPE", &arguments.type, "weight type: a TYPE of llmquant");
  table.integer("s,seed", "N", &arguments.seed, 0, INT64_MAX, "seed of the random weights");
  table.integer("t,threads", "N", &arguments.threads, 0, 1024,
                "number of threads; 0: all CPUs that this process may use");
  table.example("llmsynth --shape tinyllama --type Q4_K_M model.gguf",
                "make a model with the dimensions of TinyLlama, to measure speed");
  return table;
}

Result<int> run(const Arguments& arguments, const ToolContext& context) {
  const auto shape = find_synthetic_shape(arguments.shape);
  if (!shape) {
    return usage_error("--shape", fmt::format("found \"{}\", need one of {}", arguments.shape,
                                              synthetic_shape_names()));
  }
  const Recipe* recipe = find_recipe(arguments.type);
  if (recipe == nullptr) {
    return usage_error("--type",
                       fmt::format("found \"{}\", need a type of llmquant", arguments.type));
  }
  LLM_TRY(AtomicFile file, AtomicFile::create(arguments.out));
  ProgressBar bar(!context.quiet(), "weights");
  const SyntheticOptions options{
      .shape = *shape,
      .recipe = recipe,
      .seed = arguments.seed,
      .threads = arguments.threads > 0 ? arguments.threads : available_cpus(),
      .progress = [&](std::uint64_t done, std::uint64_t total) { bar("synthesize", done, total); }};
  LLM_RETURN_IF_ERROR(
      write_synthetic_model(options, [&](auto bytes) { return file.write(bytes); }));
  LLM_RETURN_IF_ERROR(file.commit());
  return 0;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) { return llm::run_tool(argc, argv, llm::make_table, llm::run); }
