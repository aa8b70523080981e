#include "validate/diff/limits_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace llm {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFormat = "llmcheck-limits/1";
constexpr int kCalibratedLayers = 4;

Error malformed(std::string field, std::string message) {
  return Error{
      .code = ErrorCode::kMalformed, .field = std::move(field), .message = std::move(message)};
}

Result<Limit> parse_rule(const Json& json, std::size_t index) {
  const auto bad = [&](const char* key, const char* rule) {
    return malformed(fmt::format("limits[{}] {}", index, key), rule);
  };
  if (!json.is_object()) return bad("", "need an object");
  for (const char* key : {"probe", "metric", "source"}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return bad(key, "need a string");
  }
  Limit limit;
  limit.probe = json["probe"].get<std::string>();
  limit.source = json["source"].get<std::string>();
  const auto metric = metric_from_name(json["metric"].get<std::string>());
  if (!metric) return bad("metric", "need nmse, max_abs or cos_loss");
  limit.metric = *metric;
  const auto bound = json.find("limit");
  if (bound == json.end() || !bound->is_number()) return bad("limit", "need a number");
  limit.bound = bound->get<double>();
  if (!std::isfinite(limit.bound) || limit.bound < 0) return bad("limit", "need 0 or more");
  return limit;
}

}  // namespace

Result<Limits> parse_limits(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return malformed("limits file", "need a JSON object");
  if (json.value("format", Json()) != kFormat)
    return malformed("format", fmt::format("need \"{}\"", kFormat));
  const auto rules = json.find("limits");
  if (rules == json.end() || !rules->is_array() || rules->empty())
    return malformed("limits", "need an array with at least one rule");
  std::vector<Limit> out;
  for (std::size_t i = 0; i < rules->size(); ++i) {
    LLM_TRY(Limit limit, parse_rule((*rules)[i], i));
    out.push_back(std::move(limit));
  }
  return Limits(std::move(out));
}

Limits default_limits(Compute compute, KvType kv, std::size_t n_layers,
                      ActivationFormat activations) {
  const bool rounded = compute == Compute::kInt8 && activations != ActivationFormat::kF32;
  if (!rounded && kv == KvType::kF32)
    return Limits({{"*", Metric::kNmse, 1e-9, "f32 rounding noise"}});
  if (!rounded)
    return Limits({{"*", Metric::kNmse, 1e-6, "f32 rounding noise, keys and values in f16"}});
  // Each layer adds error of its own to the residual stream, so bounds grow with depth.
  const double depth = std::max(1.0, static_cast<double>(n_layers) / kCalibratedLayers);
  const bool by_256 = activations == ActivationFormat::kQ8_K;
  const std::string source =
      fmt::format("activations in int8, {} with one scale, calibrated on {} layers, for {}",
                  activation_block_size(activations), kCalibratedLayers, n_layers);
  return Limits({{"*", Metric::kNmse, (by_256 ? 2.5e-3 : 1.2e-3) * depth, source},
                 {"embd", Metric::kNmse, 1e-9, "no activation is quantized yet"},
                 {"ffn_act", Metric::kNmse, (by_256 ? 3e-3 : 1.5e-3) * depth, source},
                 {"ffn_out", Metric::kNmse, (by_256 ? 3e-3 : 1.5e-3) * depth, source}});
}

Limits exact_limits() {
  return Limits({{"*", Metric::kMaxAbs, 0, "the numeric contract: equal bits"}});
}

}  // namespace llm
