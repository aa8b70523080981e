#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"
#include "validate/selftest/text_path.h"

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
                             std::size_t n_layers = 0) const;
  std::string title(Isa isa, const std::string& what) const {
    return name + ", " + std::string(isa_name(isa)) + ": " + what;
  }
  void report(std::size_t done, std::size_t total) const {
    if (progress) progress(name, done, total);
  }
};

/// The plan of a mode, by what its title names: "int8", and "int8, q8 cache" where the cache is not
/// the usual one.
ModePlan mode_plan(ModelPointer base, Compute compute, KvType kv, Progress progress);

/// What a part of the self check found, and what it left out.
struct PartOutcome {
  std::vector<CheckResult> results;
  std::vector<std::string> not_covered;
  bool anchored = true;  ///< prefill gave the definition's logits
};

/// Products of weights and activations in `n_layers` layers and the output, for one token.
double products_per_token(const HyperParameters& config, std::size_t n_layers);

/// Of a call of many tokens the last row of logits is asked for where a row costs more than what it
/// follows from, on the first `n_layers`: the others are seen by what follows, which reads their
/// keys and values.
LogitRows rows_of_long_call(const HyperParameters& config, std::size_t n_layers);

/// Instruction sets that run here, but the model's own.
std::vector<Isa> other_isas(Isa own);

/// Products that the definition, in plain loops, may take of a mode: one to two seconds.
inline constexpr double kDefinitionWork = 2e9;

/// Positions [begin, end) of a text. `begin` is a multiple of KvGroups::kPagePositions.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The definition's logits in `windows`: what every path must give. A window that begins at 0 owes
/// nothing to the fast paths; a later one reads the keys and values of earlier pages as the fast
/// prefill stored them, and computes all else by itself, so it costs its own tokens only.
/// Errors: as evaluate().
Result<LogitTable> by_definition(const ModelPointer& model, KvType kv,
                                 std::span<const TokenId> tokens, std::span<const Window> windows);

/// Paths over one text, each held against the definition's logits, and where it computed none
/// against prefill's. Where prefill leaves the definition, that is the one check that says so, with
/// the first op that differs, and paths that give prefill's wrong bits are counted there.
/// Errors: those of Executor and Sequence but kNonFinite, which is a failed check.
class PathCheck {
 protected:
  explicit PathCheck(const ModePlan& plan) : plan_(plan) {}

  std::string title(const ModelPointer& model, const std::string& what) const {
    return plan_.title(model->isa(), scope_ + what);
  }
  /// Takes what is compared with. @return whether it is finite; if not, a check has failed
  Result<bool> expect(const std::string& what, Result<LogitTable> table);
  /// Expects the definition's logits, then prefill's. @return whether the definition's are finite
  Result<bool> anchor(const std::string& what, std::span<const Window> windows,
                      const Path& prefill);
  Result<Judged> judge_path(const ModelPointer& model, const Path& path) const;
  /// Adds a path's verdict. @return its logits
  Result<LogitTable> check(const ModelPointer& model, const Path& path);
  PartOutcome finish();

  const ModePlan& plan_;
  std::string scope_;  ///< what stands before a path's name
  std::vector<TokenId> tokens_;
  ModelPointer model_;
  LogitTable expected_;
  std::size_t anchor_result_ = 0;  ///< index of prefill's
  std::size_t done_ = 0;
  std::size_t n_paths_ = 1;
  PartOutcome out_;

 private:
  Status locate(Judged& judged, std::span<const Window> windows) const;

  PrefillFault fault_;
};

}  // namespace llm
