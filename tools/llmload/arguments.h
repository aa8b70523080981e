#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/batching/scheduler.h"
#include "engine/engine.h"
#include "engine/sampler/sampler.h"
#include "tools/common/options.h"
#include "tools/llmload/workload.h"

namespace llm {

enum class LoadMode { kReal, kSimulate, kBoth };

/// llmload's command line, with its defaults.
struct LoadArguments {
  std::string model;
  std::string hub_model;
  LoadMode mode = LoadMode::kBoth;

  float rate = 1;   ///< requests a second, when given
  float load = 50;  ///< else this percentage of what can be served
  Arrivals arrivals = Arrivals::kPoisson;
  std::size_t burst = 8;
  std::size_t requests = 100;
  float duration = 10;  ///< seconds of arrivals, when given
  std::string lengths = LengthDistribution::kUsual;
  std::uint64_t seed = 1;

  SchedulerOptions scheduler;  ///< context from the lengths, kv_pages 0: enough for all
  SamplerOptions sampling = {.temperature = 0};
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;
  std::optional<Isa> isa;
  int threads = 0;

  std::size_t training = 100;
  std::size_t rounds = 5;  ///< 1 with kReal, unless given
  float agree = 15;
  bool check = false;
  bool json = false;
};

OptionTable make_load_table(LoadArguments& arguments);

/// Errors: kUsage for options that exclude each other.
Status check_load_arguments(const LoadArguments& arguments, const OptionTable& table);

}  // namespace llm
