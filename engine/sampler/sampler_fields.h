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
     "draw from the K most likely; 0 disables"},
    {"top_p", "top-p", "P", &SamplerOptions::top_p, 0, 1, 0, 100, 100,
     "draw from the most likely that make up P; 1 disables"},
    {"min_p", "min-p", "P", &SamplerOptions::min_p, 0, 1, 0, 100, 100,
     "draw from those at least P times as likely as the first; 0 disables"},
    {"repeat_penalty", "repeat-penalty", "X", &SamplerOptions::repeat_penalty, 0.01, 100, 50, 200,
     100, "divide the logits of recent tokens; 1 disables"},
    {"repeat_last_n", "repeat-last-n", "N", &SamplerOptions::repeat_last_n, -1, kMostSampled, -1,
     1024, 1, "how many tokens are recent; 0 none, -1 all"},
    {"presence_penalty", "presence-penalty", "X", &SamplerOptions::presence_penalty, -2, 2, 0, 200,
     100, "take X from the logits of tokens that were generated before; 0 disables",
     /*may_be_absent=*/true},
    {"frequency_penalty", "frequency-penalty", "X", &SamplerOptions::frequency_penalty, -2, 2, 0,
     200, 100, "take X from them for each time that they were; 0 disables",
     /*may_be_absent=*/true},
};

inline constexpr const char* kSeedText = "seed of the draws; -1 is random";

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
