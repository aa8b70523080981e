#include <fmt/core.h>

#include <string>

#include "engine/forward/activation_points.h"
#include "validate/reference/fault_localization/op_replay.h"
#include "validate/reference/gates/layer_check.h"

namespace llm {
namespace {

Status check_tokens(const Dump& reference, const HyperParameters& config) {
  const auto tokens = reference.tokens();
  if (tokens.size() > config.context) {
    return malformed("tokens", fmt::format("found {}, need at most {}, the model's context",
                                           tokens.size(), config.context));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < config.n_vocab) continue;
    return malformed("tokens", fmt::format("found {} at index {}, need 0..{}", tokens[i], i,
                                           config.n_vocab - 1));
  }
  return Ok{};
}

Status check_logits(const Dump& reference) {
  constexpr std::string_view kLogits = "logits";
  if (reference.has(ProbeSink::kGlobal, kLogits)) return Ok{};
  const auto declared = reference.meta().taps_absent.find(std::string(kLogits));
  Error error = malformed(tap_label(ProbeSink::kGlobal, kLogits),
                          "found none, need at least the logits of every token");
  if (declared != reference.meta().taps_absent.end())
    error.message += fmt::format(" (declared absent: {})", declared->second);
  return error;
}

}  // namespace

Status check_positions(const Dump& reference) {
  for (std::size_t i = 0; i < reference.positions().size(); ++i) {
    if (reference.positions()[i] == static_cast<std::int32_t>(i)) continue;
    return Error{
        ErrorCode::kUnsupported, "positions",
        fmt::format("found {} at index {}, need 0, 1, 2, ...", reference.positions()[i], i)};
  }
  return Ok{};
}

Status check_reference(const Dump& reference, const HyperParameters& config) {
  LLM_RETURN_IF_ERROR(check_tokens(reference, config));
  LLM_RETURN_IF_ERROR(check_logits(reference));
  for (const auto& [tap, layer] : taps_of_model(config))
    LLM_RETURN_IF_ERROR(engine_order_tap(reference, layer, tap->name, config));
  return Ok{};
}

}  // namespace llm
