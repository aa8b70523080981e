#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"
#include "validate/self/text_path.h"

namespace llm {

/// What all checks of one mode (compute and type of the cache) of one model share.
struct ModePlan {
  ModelPointer base;
  Compute compute = Compute::kInt8;
  KvType kv = KvType::kF16;
  std::string name;  ///< "int8", "f32", "int8, f32 cache", "f32, q8 cache", ...
  int threads = 1;
  Progress progress;

  /// The model in this mode; `n_layers` 0: all.
  Result<ModelPointer> model(int n_threads, std::optional<Isa> isa = {},
                             std::size_t n_layers = 0) const {
    LoadOptions how;
    how.compute = compute;
    how.isa = isa;
    how.threads = n_threads;
    LLM_TRY(ModelPointer model, base->variant(how));
    return n_layers == 0 ? model : model->first_layers(n_layers);
  }
  std::string title(Isa isa, const std::string& what) const {
    return name + ", " + std::string(isa_name(isa)) + ": " + what;
  }
  void report(std::size_t done, std::size_t total) const {
    if (progress) progress(name, done, total);
  }
};

/// What a part of the self check found, and what it left out.
struct PartOutcome {
  std::vector<CheckResult> results;
  std::vector<std::string> not_covered;
  bool anchored = true;  ///< prefill gave the definition's logits
};

/// Products of weights and activations in `n_layers` layers and the output, for one token.
inline double products_per_token(const HyperParameters& config, std::size_t n_layers) {
  const auto d = static_cast<double>(config.d_model);
  const double layer = d * static_cast<double>(2 * config.q_rows() + 2 * config.kv_rows()) +
                       3 * d * static_cast<double>(config.d_ff);
  return layer * static_cast<double>(n_layers) + d * static_cast<double>(config.n_vocab);
}

/// Whether a row of logits costs more than what it follows from, on the first `n_layers`. Of a call
/// of many tokens the last row is asked for then: the others are seen by what follows, which reads
/// their keys and values.
inline bool logits_are_dear(const HyperParameters& config, std::size_t n_layers) {
  return products_per_token(config, n_layers) < 2 * products_per_token(config, 0);
}

/// Instruction sets that run here, but the model's own.
inline std::vector<Isa> other_isas(Isa own) {
  std::vector<Isa> others;
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa) && isa != own) others.push_back(isa);
  }
  return others;
}

/// Products that the definition, in plain loops, may take of a mode: one to two seconds.
inline constexpr double kDefinitionWork = 2e9;

/// Sizes of teams of threads that every mode is run with.
inline constexpr int kTeams[] = {1, 2, 3, 7};

inline constexpr const char* kDecode = "one token per call (decode)";

}  // namespace llm
