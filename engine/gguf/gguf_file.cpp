#include "engine/gguf/gguf_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace llm {

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = std::lower_bound(
      entry_order_.begin(), entry_order_.end(), key,
      [&](std::uint32_t i, std::string_view wanted) { return entries_[i].key < wanted; });
  if (it == entry_order_.end() || entries_[*it].key != key) return nullptr;
  return &entries_[*it].value;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = std::lower_bound(
      tensor_order_.begin(), tensor_order_.end(), name,
      [&](std::uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  if (it == tensor_order_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

std::span<const std::byte> GgufFile::tensor_data(const GgufTensor& tensor) const {
  return bytes_.subspan(static_cast<std::size_t>(data_offset_ + tensor.offset),
                        static_cast<std::size_t>(tensor.n_bytes));
}

GgufFile GgufFile::with_entries(std::deque<GgufEntry> entries) const {
  GgufFile other = *this;
  other.entries_ = std::move(entries);
  auto& order = other.entry_order_;
  order.resize(other.entries_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return other.entries_[i].key; });
  return other;
}

Error GgufFile::value_error(ErrorCode code, std::string_view key, std::string message) const {
  Error error{.code = code, .field = std::string(key), .message = std::move(message)};
  if (const GgufValue* value = find(key)) error.offset = value->offset;
  return error;
}

Result<const GgufValue*> GgufFile::require(std::string_view key, std::string_view expected) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    return value_error(ErrorCode::kMalformed, key, fmt::format("key is absent, need {}", expected));
  }
  return value;
}

Result<const GgufValue*> GgufFile::require_array(std::string_view key, GgufType element) const {
  const std::string expected = fmt::format("ARRAY of {}", gguf_type_name(element));
  LLM_TRY(const GgufValue* value, require(key, expected));
  if (value->type != GgufType::kArray || value->element_type != element) {
    return value_error(ErrorCode::kMalformed, key,
                       fmt::format("found {}, need {}", value->type_name(), expected));
  }
  return value;
}

Result<std::uint64_t> GgufFile::get_unsigned(std::string_view key) const {
  LLM_TRY(const GgufValue* value, require(key, "UINT32"));
  std::optional<std::uint64_t> found;
  if (gguf_fixed_size(value->type) > 0) {
    visit_gguf_number(value->type, value->bytes, [&](auto number) {
      if constexpr (std::is_same_v<decltype(number), std::uint64_t>) found = number;
    });
  }
  if (found) return *found;
  return value_error(ErrorCode::kMalformed, key,
                     fmt::format("found {}, need UINT32", value->type_name()));
}

Result<std::uint64_t> GgufFile::get_unsigned_or(std::string_view key, std::uint64_t absent) const {
  if (find(key) == nullptr) return absent;
  return get_unsigned(key);
}

Result<float> GgufFile::get_float(std::string_view key) const {
  LLM_TRY(const GgufValue* value, require(key, "FLOAT32"));
  if (value->type == GgufType::kFloat32) return load_unaligned<float>(value->bytes);
  if (value->type == GgufType::kFloat64) {
    // A double beyond float's range becomes Inf, which callers refuse; the cast alone would be
    // undefined.
    const double wide = load_unaligned<double>(value->bytes);
    constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
    if (wide > kLargest) return std::numeric_limits<float>::infinity();
    if (wide < -kLargest) return -std::numeric_limits<float>::infinity();
    return static_cast<float>(wide);
  }
  return value_error(ErrorCode::kMalformed, key,
                     fmt::format("found {}, need FLOAT32", value->type_name()));
}

Result<float> GgufFile::get_float_or(std::string_view key, float absent) const {
  if (find(key) == nullptr) return absent;
  return get_float(key);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool absent) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return absent;
  if (value->type != GgufType::kBool) {
    return value_error(ErrorCode::kMalformed, key,
                       fmt::format("found {}, need BOOL", value->type_name()));
  }
  return value->bytes[0] != std::byte{0};
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  LLM_TRY(const GgufValue* value, require(key, "STRING"));
  if (value->type != GgufType::kString) {
    return value_error(ErrorCode::kMalformed, key,
                       fmt::format("found {}, need STRING", value->type_name()));
  }
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Result<std::string_view> GgufFile::get_string_or(std::string_view key,
                                                 std::string_view absent) const {
  if (find(key) == nullptr) return absent;
  return get_string(key);
}

Result<GgufStrings> GgufFile::get_strings(std::string_view key) const {
  LLM_TRY(const GgufValue* value, require_array(key, GgufType::kString));
  return GgufStrings(value->bytes, static_cast<std::size_t>(value->count));
}

Result<GgufArray<float>> GgufFile::get_floats(std::string_view key) const {
  LLM_TRY(const GgufValue* value, require_array(key, GgufType::kFloat32));
  return GgufArray<float>(value->bytes);
}

Result<GgufArray<std::int32_t>> GgufFile::get_ints(std::string_view key) const {
  LLM_TRY(const GgufValue* value, require_array(key, GgufType::kInt32));
  return GgufArray<std::int32_t>(value->bytes);
}

}  // namespace llm
