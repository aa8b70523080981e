// Types of the values that loaders read.

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/shown_text.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

using Keys = HyperParameterKeys;

constexpr std::array kCounts = {
    &Keys::n_layers,         &Keys::d_model,          &Keys::n_vocab,
    &Keys::context,          &Keys::value_dim,        &Keys::rope_dims,
    &Keys::original_context, &Keys::sliding_window,   &Keys::window_period,
    &Keys::pooling,          &Keys::n_mtp_layers,     &Keys::full_attention_period,
    &Keys::window_value_dim, &Keys::window_rope_dims, &Keys::shared_kv_layers,
    &Keys::layer_input,      &Keys::n_dense_layers,   &Keys::router,
    &Keys::n_shared_experts};
/// One number, or an array of one for each layer.
constexpr std::array kLayerCounts = {&Keys::d_ff,
                                     &Keys::n_heads,
                                     &Keys::n_kv_heads,
                                     &Keys::head_dim,
                                     &Keys::n_experts,
                                     &Keys::n_experts_used,
                                     &Keys::d_shared,
                                     &Keys::conv_width,
                                     &Keys::delta_k_dim,
                                     &Keys::delta_k_heads,
                                     &Keys::delta_v_heads,
                                     &Keys::delta_v_rows,
                                     &Keys::window_head_dim,
                                     &Keys::d_expert};
constexpr std::array kNumbers = {
    &Keys::norm_eps,        &Keys::rope_theta,      &Keys::rope_scale,
    &Keys::old_rope_scale,  &Keys::rope_magnitude,  &Keys::window_rope_theta,
    &Keys::embedding_scale, &Keys::attention_scale, &Keys::residual_scale,
    &Keys::logit_scale,     &Keys::logit_cap,       &Keys::query_growth,
    &Keys::yarn_fast_turns, &Keys::yarn_slow_turns, &Keys::yarn_log_multiplier,
    &Keys::yarn_magnitude,  &Keys::score_cap,       &Keys::experts_scale};
constexpr std::array<std::string_view, 3> kSwitches = {"tokenizer.ggml.add_bos_token",
                                                       "tokenizer.ggml.add_eos_token",
                                                       "tokenizer.ggml.add_space_prefix"};

bool is_token_id(std::string_view key) {
  return key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id");
}

/// A number, exactly: every integer type and float fits into a long double of 64 bits of mantissa.
using Number = long double;

std::optional<Number> number_of(GgufType type, std::span<const std::byte> bytes) {
  if (gguf_fixed_size(type) == 0 || type == GgufType::kBool) return std::nullopt;
  return visit_gguf_number(type, bytes, [](auto found) { return static_cast<Number>(found); });
}

/// `number` as T where it is one, encoded.
template <typename T>
std::optional<std::string> encoded(Number number) {
  T value{};
  if constexpr (std::is_same_v<T, float>) {
    // A double is rounded, as the loader does it; an integer must be one of float's.
    value = static_cast<float>(number);
    if (!std::isfinite(value)) return std::nullopt;
    if (number == std::floor(number) && static_cast<Number>(value) != number) return std::nullopt;
  } else {
    const bool fits = number >= static_cast<Number>(std::numeric_limits<T>::min()) &&
                      number <= static_cast<Number>(std::numeric_limits<T>::max()) &&
                      number == std::floor(number);
    if (!fits) return std::nullopt;
    value = static_cast<T>(number);
  }
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::optional<std::string> encoded_as(GgufType type, Number number) {
  if (type == GgufType::kUint32) return encoded<std::uint32_t>(number);
  if (type == GgufType::kInt32) return encoded<std::int32_t>(number);
  if (type == GgufType::kBool) return encoded<bool>(number);
  return encoded<float>(number);
}

std::string shown_value(const GgufValue& value) {
  if (value.type == GgufType::kArray)
    return fmt::format("{} of n = {}", value.type_name(), value.count);
  if (value.type == GgufType::kString) {
    return fmt::format("STRING {}",
                       quoted(std::string_view(reinterpret_cast<const char*>(value.bytes.data()),
                                               value.bytes.size())));
  }
  return visit_gguf_number(value.type, value.bytes, [&](auto found) {
    return fmt::format("{} {}", value.type_name(), found);
  });
}

/// What this engine reads, and programs that go by the type do not.
bool is_read_by_some(const GgufValue& value, GgufType need) {
  const bool is_unsigned = value.type == GgufType::kUint8 || value.type == GgufType::kUint16 ||
                           value.type == GgufType::kUint64;
  return (need == GgufType::kUint32 && is_unsigned) ||
         (need == GgufType::kFloat32 && value.type == GgufType::kFloat64);
}

class Values {
 public:
  explicit Values(LintContext& patient) : patient_(patient) {}

  void run() {
    std::vector<std::string> keys;
    for (const GgufEntry& entry : patient_.gguf().entries()) keys.emplace_back(entry.key);
    for (const std::string& key : keys)
      if (is_token_id(key)) scalar(key, GgufType::kUint32);
    for (const std::string_view key : {"general.file_type", "general.quantization_version"})
      scalar(key, GgufType::kUint32);
    for (const std::string_view key : kSwitches) scalar(key, GgufType::kBool);
    array("tokenizer.ggml.token_type", GgufType::kInt32);
    array("tokenizer.ggml.scores", GgufType::kFloat32);
    const Architecture* architecture = patient_.architecture();
    if (architecture == nullptr) return;
    const auto key = [architecture](std::string_view Keys::*member) {
      return architecture->key(architecture->keys.*member);
    };
    for (const auto member : {&Keys::has_rope, &Keys::experts_add_up})
      scalar(key(member), GgufType::kBool);
    for (const auto member : kCounts) scalar(key(member), GgufType::kUint32);
    for (const auto member : kNumbers) scalar(key(member), GgufType::kFloat32);
    for (const auto member : kLayerCounts) {
      const GgufValue* value = patient_.gguf().find(key(member));
      if (value == nullptr) continue;
      if (value->type != GgufType::kArray) {
        scalar(key(member), GgufType::kUint32);
      } else if (value->element_type != GgufType::kInt32) {
        array(key(member), GgufType::kUint32);
      }
    }
  }

 private:
  static FileFinding finding(std::string_view key, const GgufValue& value, GgufType need) {
    const bool is_array = value.type == GgufType::kArray;
    return {.severity = is_read_by_some(value, need) ? Severity::kWarning : Severity::kError,
            .where = std::string(key),
            .what = fmt::format("found {}, need {}{}", shown_value(value),
                                is_array ? "ARRAY of " : "", gguf_type_name(need)),
            .why = "programs check the type and reject the file",
            .remedy = fmt::format("write it as {}", gguf_type_name(need))};
  }

  void scalar(std::string_view key, GgufType need) {
    const GgufValue* value = patient_.gguf().find(key);
    if (value == nullptr || value->type == need) return;
    const auto number = number_of(value->type, value->bytes);
    // An array may be what newer programs read: the loader's own words say what it is not.
    if (!number && value->type == GgufType::kArray) return;
    FileFinding found = finding(key, *value, need);
    const auto bytes = number ? encoded_as(need, *number) : std::nullopt;
    if (bytes) {
      patient_.set_bytes(std::move(found), key, need, *bytes,
                         fmt::format("{} as {}", key, gguf_type_name(need)));
    } else if (!number || *number != std::floor(*number)) {
      found.remedy = "take it from the original config.json";
      patient_.report(std::move(found));
    }
    // An integer out of range is what the checks of that key are about.
  }

  void array(std::string_view key, GgufType need) {
    const GgufValue* value = patient_.gguf().find(key);
    if (value == nullptr || value->type != GgufType::kArray || value->element_type == need ||
        value->count == 0)
      return;
    const std::size_t size = gguf_fixed_size(value->element_type);
    FileFinding found = finding(key, *value, need);
    std::string bytes;
    for (std::uint64_t i = 0; i < value->count && size > 0; ++i) {
      const auto number =
          number_of(value->element_type, value->bytes.subspan(static_cast<std::size_t>(i) * size));
      const auto element = number ? encoded_as(need, *number) : std::nullopt;
      if (!element) {
        bytes.clear();
        break;
      }
      bytes += *element;
    }
    if (bytes.empty()) return patient_.report(std::move(found));
    patient_.set_array(std::move(found), key, need, std::move(bytes),
                       fmt::format("{} as ARRAY of {}", key, gguf_type_name(need)));
  }

  LintContext& patient_;
};

}  // namespace

void check_values(LintContext& patient) { Values(patient).run(); }

}  // namespace llm
