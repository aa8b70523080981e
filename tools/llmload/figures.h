#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/llmload/load_run.h"

namespace llm {

/// Of times in seconds; all 0 when there are none.
struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};

/// What a run was like for its requests. Times count from the moment a request was due to arrive,
/// not from when the loop saw it.
struct LoadFigures {
  Percentiles queue;        ///< arrival to the begin of its first step
  Percentiles first_token;  ///< TTFT: arrival to the first token
  Percentiles between;      ///< TBT: gaps between the tokens of a request
  Percentiles whole;        ///< arrival to the last token
  double mean_queue = 0;
  std::size_t requests = 0;
  std::size_t finished = 0;
  std::size_t queue_full = 0;
  std::size_t too_long = 0;
  std::size_t prompt_tokens = 0;  ///< of finished requests
  std::size_t output_tokens = 0;
  double seconds = 0;  ///< from the first arrival to the end of the last step
  double output_per_second = 0;
  double tokens_per_second = 0;  ///< prompt and output
  std::size_t steps = 0;
  double step_seconds = 0;  ///< all steps together
  double tokens_per_step = 0;
  double sequences_per_step = 0;
  std::uint64_t preemptions = 0;
};

LoadFigures figures_of(const LoadTrace& trace);

/// A figure of several runs, by its name, for tables and JSON ("ttft p50"); times in milliseconds.
struct NamedFigure {
  std::string name;
  double value;  ///< median of the runs
  int decimals;
  bool gated;  ///< real and simulated must agree in it
  double least = value;
  double most = value;
};

/// @pre there is a run
std::vector<NamedFigure> named_figures(std::span<const LoadFigures> runs);

/// Names of gated figures in which `simulated` differs from `real` by more than `limit`, a share of
/// `real`. @pre both are of named_figures()
std::vector<std::string> disagreements(const std::vector<NamedFigure>& real,
                                       const std::vector<NamedFigure>& simulated, double limit);

}  // namespace llm
