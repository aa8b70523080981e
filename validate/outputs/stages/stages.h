#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/report/report.h"

namespace llm {

/// The steps in which a new engine is made right, each one's input being the output of those before
/// it.
enum class Stage { kEmbedding, kFirstLayer, kAllLayers, kSecondToken, kLogits, kText };
inline constexpr std::size_t kStages = 6;

/// Where to look when this stage is the first that fails.
std::string_view stage_hint(Stage stage);

struct StagesOptions {
  std::vector<ComputeMode> modes;  ///< not empty; the text is generated in the first
  std::string model_sha256;
  Progress progress;  ///< may be empty
};

/// What the stages found: one check for each that the reference can judge, in order. Where those
/// are fewer than three, one more check, which is undecided.
struct StagesOutcome {
  std::vector<CheckResult> checks;
  FigureTable table;
  std::vector<std::string> not_covered;
};

/// The model in that mode of computing.
using LoadMode = std::function<Result<std::shared_ptr<const Model>>(Compute)>;

/// Holds a model against a reference dump stage by stage (docs/verify.md). Embedding, layers and
/// logits are those of one prefill of all tokens; the second token is evaluated by itself after
/// the first. Both are judged op by op and as runs, as by check_layers(). The text is what a greedy
/// run makes after the reference's tokens, held to those that have the reference's largest logits.
///
/// The first stage that fails is the FAIL, with the first tap, the op at fault and where to look. A
/// later one that fails as well is undecided: its input is wrong.
/// @pre the reference's positions are 0, 1, 2, ...
/// Errors: those of check_layers() and `load`. Cost: twice check_layers() in each mode.
Result<StagesOutcome> check_stages(const LoadMode& load, const Dump& reference,
                                   const StagesOptions& options);

/// What a greedy run must give: `prompt`, then `tokens`, by the reference's own logits.
struct GreedyText {
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;  ///< those of the dump that have the largest logit, and one more
};

/// The longest end of the dump's tokens that a greedy run would have given, and the token that its
/// last row of logits chooses; of equal logits the lower id. Nothing without logits.
/// Errors: those of reading the dump.
Result<std::optional<GreedyText>> greedy_text(const Dump& reference);

}  // namespace llm
