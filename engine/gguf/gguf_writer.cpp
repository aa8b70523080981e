#include "engine/gguf/gguf_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/checked_size.h"

namespace llm {
namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint32_t kVersion = 3;

void append_bytes(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

template <typename T>
void append_number(std::vector<std::byte>& out, T value) {
  append_bytes(out, &value, sizeof(value));
}

std::optional<std::string> repeated(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return std::nullopt;
  return *twin;
}

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  LLM_CHECK(alignment >= GgufLimits::kMinAlignment && alignment <= GgufLimits::kMaxAlignment &&
            (alignment & (alignment - 1)) == 0);
  if (alignment != GgufLimits::kDefaultAlignment) add_number(kAlignmentKey, alignment);
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  begin_entry(key, GgufType::kString);
  append_string(value);
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufType::kString, values.size());
  for (const std::string& value : values) append_string(value);
}

void GgufWriter::add_entry(const GgufEntry& entry) {
  if (entry.key == kAlignmentKey) return;
  const GgufValue& value = entry.value;
  if (value.type == GgufType::kArray) {
    begin_array(entry.key, value.element_type, value.count);
  } else {
    begin_entry(entry.key, value.type);
    if (value.type == GgufType::kString) append_number<std::uint64_t>(entries_, value.bytes.size());
  }
  append(value.bytes.data(), value.bytes.size());
}

void GgufWriter::add_tensor(std::string_view name, WeightType type,
                            std::span<const std::uint64_t> dims) {
  if (name.empty() || name.size() > GgufLimits::kMaxTensorNameBytes || !is_printable_ascii(name)) {
    return fail(name, "found a bad tensor name, need 1 to 63 printable ASCII characters");
  }
  if (dims.empty() || dims.size() > GgufLimits::kMaxDims) {
    return fail(name, fmt::format("found {} dims, need 1 to 4", dims.size()));
  }
  const BlockTraits& traits = block_traits(type);
  CheckedSize elements(1);
  for (const std::uint64_t dim : dims) elements = elements * dim;
  if (!elements.value() || *elements.value() == 0) {
    return fail(name, "found an empty or overflowing shape, need at least one element");
  }
  if (dims[0] % traits.block_weights != 0) {
    return fail(name, fmt::format("found rows of {} weights, need a multiple of the block size {}",
                                  dims[0], traits.block_weights));
  }
  const auto bytes =
      (CheckedSize(*elements.value() / traits.block_weights) * traits.block_bytes).value();
  const auto end = (CheckedSize(next_offset_) + bytes.value_or(UINT64_MAX)).align_up(alignment_);
  if (!bytes || !end.value()) return fail(name, "byte size overflows, need fewer than 2^64 bytes");

  append_number<std::uint64_t>(tensor_infos_, name.size());
  append_bytes(tensor_infos_, name.data(), name.size());
  append_number(tensor_infos_, static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) append_number(tensor_infos_, dim);
  append_number(tensor_infos_, static_cast<std::uint32_t>(type));
  append_number(tensor_infos_, next_offset_);
  names_.emplace_back(name);
  tensor_bytes_.push_back(*bytes);
  next_offset_ = *end.value();
}

Result<std::vector<std::byte>> GgufWriter::header() const {
  if (error_) return *error_;
  if (const auto key = repeated(keys_)) {
    return malformed(*key, "found a duplicate key, need unique keys");
  }
  if (const auto name = repeated(names_)) {
    return malformed(*name, "found a duplicate tensor name, need unique names");
  }
  std::vector<std::byte> out;
  append_bytes(out, "GGUF", 4);
  append_number(out, kVersion);
  append_number<std::uint64_t>(out, names_.size());
  append_number(out, n_entries_);
  append_bytes(out, entries_.data(), entries_.size());
  append_bytes(out, tensor_infos_.data(), tensor_infos_.size());
  out.resize(static_cast<std::size_t>(*CheckedSize(out.size()).align_up(alignment_).value()));
  return out;
}

void GgufWriter::begin_entry(std::string_view key, GgufType type) {
  if (key.empty() || key.size() > GgufLimits::kMaxKeyBytes || !is_printable_ascii(key)) {
    fail(key, "found a bad key, need 1 to 65535 printable ASCII characters");
  }
  append_string(key);
  append_number(entries_, static_cast<std::uint32_t>(type));
  keys_.emplace_back(key);
  ++n_entries_;
}

void GgufWriter::begin_array(std::string_view key, GgufType element, std::uint64_t count) {
  begin_entry(key, GgufType::kArray);
  append_number(entries_, static_cast<std::uint32_t>(element));
  append_number(entries_, count);
}

void GgufWriter::append(const void* data, std::size_t size) { append_bytes(entries_, data, size); }

void GgufWriter::append_string(std::string_view text) {
  append_number<std::uint64_t>(entries_, text.size());
  append(text.data(), text.size());
}

void GgufWriter::fail(std::string_view field, std::string message) {
  if (!error_) error_ = malformed(std::string(field), std::move(message));
}

Status GgufStream::begin() {
  LLM_TRY(const std::vector<std::byte> header, writer_.header());
  return sink_(header);
}

Status GgufStream::write(std::span<const std::byte> bytes) {
  const auto sizes = writer_.tensor_bytes();
  LLM_CHECK(tensor_ < sizes.size() && bytes.size() <= sizes[tensor_] - written_);
  LLM_RETURN_IF_ERROR(sink_(bytes));
  written_ += bytes.size();
  if (written_ < sizes[tensor_]) return Ok{};
  LLM_RETURN_IF_ERROR(pad());
  ++tensor_;
  written_ = 0;
  return Ok{};
}

Status GgufStream::finish() const {
  LLM_CHECK(tensor_ == writer_.tensor_bytes().size());
  return Ok{};
}

Status GgufStream::pad() {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  const std::uint64_t alignment = writer_.alignment();
  std::uint64_t left = (alignment - written_ % alignment) % alignment;
  while (left > 0) {
    const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(left, kZeros.size()));
    LLM_RETURN_IF_ERROR(sink_(std::span(kZeros).first(n)));
    left -= n;
  }
  return Ok{};
}

ByteSink sink_to(std::vector<std::byte>& bytes) {
  return [&bytes](std::span<const std::byte> more) -> Status {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return Ok{};
  };
}

}  // namespace llm
