#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "engine/sampler/sampler.h"

namespace llm {

/// A number of SamplerOptions as every front end has it: command lines, requests, receipts. Its
/// default is the member's, in whatever options the front end starts from.
struct SamplerField {
  const char* name;    ///< in JSON
  const char* option;  ///< its names on a command line, with commas
  const char* value;   ///< placeholder there
  std::variant<float SamplerOptions::*, std::size_t SamplerOptions::*,
               std::int64_t SamplerOptions::*>
      member;
  double lowest;
  double highest;
  // What a replay tries in its place: whole numbers in [first, last], divided by `unit`.
  int first;
  int last;
  int unit;
  const char* text;  ///< without a full stop
  /// Receipts have it where it is not the default of SamplerOptions: those made before it was there
  /// stay what they are.
  bool may_be_absent = false;

  /// f(the member of `options`), a float or an integer.
  template <typename Options, typename F>
  decltype(auto) visit(Options& options, F&& f) const {
    return std::visit([&](auto at) { return f(options.*at); }, member);
  }
  bool is_whole() const { return !std::holds_alternative<float SamplerOptions::*>(member); }
  /// @pre in range, and whole where it must be
  void set(SamplerOptions& options, double number) const {
    visit(options, [number](auto& target) {
      target = static_cast<std::remove_reference_t<decltype(target)>>(number);
    });
  }
};

inline constexpr double kMostSampled = std::numeric_limits<std::int32_t>::max();

/// All of them but the seed, which some front ends draw themselves.
inline constexpr SamplerField kSamplerFields[] = {
    {"temperature", "temp,temperature", "T", &SamplerOptions::temperature, 0, 100, 0, 300, 100,
     "temperature; 0 always takes the most likely token"},
    {"top_k", "top-k", "K", &SamplerOptions::top_k, 0, kMostSampled, 0, 200, 1,
     "sample from the K most likely tokens; 0 disables"},
    {"top_n_sigma", "top-nsigma,top-n-sigma", "N", &SamplerOptions::top_n_sigma, -1, 100, -100, 300,
     100,
     "sample from the tokens whose logits are at most N standard deviations below the largest; 0 "
     "or "
     "less disables",
     /*may_be_absent=*/true},
    {"top_p", "top-p", "P", &SamplerOptions::top_p, 0, 1, 0, 100, 100,
     "sample from the most likely tokens whose probabilities add up to P; 1 disables"},
    {"min_p", "min-p", "P", &SamplerOptions::min_p, 0, 1, 0, 100, 100,
     "sample from the tokens at least P times as likely as the most likely one; 0 disables"},
    {"repeat_penalty", "repeat-penalty", "X", &SamplerOptions::repeat_penalty, 0.01, 100, 50, 200,
     100,
     "repetition penalty: divide the positive logits of recent tokens by X, and multiply their "
     "negative logits by X; 1 disables"},
    {"repeat_last_n", "repeat-last-n", "N", &SamplerOptions::repeat_last_n, -1, kMostSampled, -1,
     1024, 1, "repetition penalty: number of recent tokens; 0: none, -1: all"},
    {"presence_penalty", "presence-penalty", "X", &SamplerOptions::presence_penalty, -2, 2, 0, 200,
     100,
     "presence penalty: subtract X from the logits of tokens that were generated before; 0 "
     "disables",
     /*may_be_absent=*/true},
    {"frequency_penalty", "frequency-penalty", "X", &SamplerOptions::frequency_penalty, -2, 2, 0,
     200, 100,
     "frequency penalty: subtract X from the logit of a token for each time that the token was "
     "generated; 0 disables",
     /*may_be_absent=*/true},
    {"dry_multiplier", "dry-multiplier", "X", &SamplerOptions::dry_multiplier, 0, 100, 0, 200, 100,
     "DRY: subtract X from the logit of a token that would continue a repetition; 0 disables",
     /*may_be_absent=*/true},
    {"dry_base", "dry-base", "X", &SamplerOptions::dry_base, 1, 100, 100, 400, 100,
     "DRY: multiply the penalty by X for each token beyond the allowed length",
     /*may_be_absent=*/true},
    {"dry_allowed_length", "dry-allowed-length", "N", &SamplerOptions::dry_allowed_length, 0,
     kMostSampled, 0, 64, 1, "DRY: allowed length of a repetition", /*may_be_absent=*/true},
    {"dry_penalty_last_n", "dry-penalty-last-n", "N", &SamplerOptions::dry_penalty_last_n, -1,
     kMostSampled, -1, 1024, 1, "DRY: number of recent tokens that are searched; 0: none, -1: all",
     /*may_be_absent=*/true},
    {"typical_p", "typical,typical-p", "P", &SamplerOptions::typical_p, 0, 1, 0, 100, 100,
     "typical sampling: sample from the most typical tokens whose probabilities add up to P; 1 "
     "disables",
     /*may_be_absent=*/true},
    {"xtc_probability", "xtc-probability", "P", &SamplerOptions::xtc_probability, 0, 1, 0, 100, 100,
     "XTC: probability with which the most likely tokens are excluded; 0 disables",
     /*may_be_absent=*/true},
    {"xtc_threshold", "xtc-threshold", "P", &SamplerOptions::xtc_threshold, 0, 1, 0, 100, 100,
     "XTC: exclude all tokens with probability P or more, except the least likely of them; a value "
     "above 0.5 disables XTC",
     /*may_be_absent=*/true},
    {"dynatemp_range", "dynatemp-range", "T", &SamplerOptions::dynatemp_range, 0, 100, 0, 300, 100,
     "dynamic temperature: vary the temperature by up to T, depending on the entropy; 0 disables",
     /*may_be_absent=*/true},
    {"dynatemp_exponent", "dynatemp-exp,dynatemp-exponent", "X", &SamplerOptions::dynatemp_exponent,
     0, 10, 0, 300, 100, "dynamic temperature: exponent of the entropy",
     /*may_be_absent=*/true},
    {"min_tokens", "min-tokens", "N", &SamplerOptions::min_tokens, 0, kMostSampled, 0, 1024, 1,
     "minimum number of tokens before the output may end; ignored with a grammar, schema or "
     "regular expression",
     /*may_be_absent=*/true},
};

inline constexpr const char* kSeedText = "sampling seed; -1: random";

/// The orders' names, everywhere.
inline constexpr std::pair<const char*, SamplerOrder> kSamplerOrders[] = {
    {"hf", SamplerOrder::kHf}, {"llamacpp", SamplerOrder::kLlamaCpp}};

constexpr std::string_view sampler_order_name(SamplerOrder order) {
  for (const auto& [name, value] : kSamplerOrders) {
    if (value == order) return name;
  }
  return "";
}

}  // namespace llm
