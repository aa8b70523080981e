#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"
#include "tools/llmbench/measurement.h"

namespace llm {

enum class BenchFormat { kMarkdown, kJson };

/// llmbench's command line, with its defaults.
struct BenchArguments {
  std::string model;
  std::string hub_model;
  std::string synthetic;  ///< name of a SyntheticShape, instead of a model
  std::string type = "Q4_K_M";

  BenchLists lists;
  int repetitions = 5;

  std::optional<Isa> isa;
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;

  std::string packed_cache;

  bool no_load = false;
  bool show_peaks = false;
  bool profile = false;
  bool no_peaks = false;
  BenchFormat format = BenchFormat::kMarkdown;
  std::string compare;

  /// Lists as they were typed; complete_bench() reads them.
  struct Typed {
    std::vector<std::string> prompt, generate, depth, batch, threads, steps;
  } typed;
};

OptionTable make_bench_table(BenchArguments& arguments);

/// What parsing one option at a time cannot see: the lists, the model, options that exclude each
/// other. Without a model only `--peaks` makes sense; `arguments.model` is then empty.
/// Errors: kUsage.
Status complete_bench(BenchArguments& arguments, const ToolContext& context);

}  // namespace llm
