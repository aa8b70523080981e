#include "engine/gguf/gguf_parser.h"

#include <fmt/core.h>

#include <algorithm>

namespace llm {
namespace {

constexpr std::uint64_t kTensorCountOffset = 8;
constexpr std::uint64_t kEntryCountOffset = 16;
constexpr std::string_view kAlignmentKey = "general.alignment";

std::uint32_t byte_swapped(std::uint32_t value) { return __builtin_bswap32(value); }

Error malformed(std::string_view field, std::uint64_t offset, std::string message) {
  return Error{ErrorCode::kMalformed, std::string(field), std::move(message), offset};
}

}  // namespace

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).run();
}

Result<GgufFile> GgufParser::run() {
  file_.bytes_ = bytes_;
  file_.file_bytes_ = bytes_.size();
  LLM_RETURN_IF_ERROR(parse_header());
  LLM_RETURN_IF_ERROR(parse_entries());
  LLM_RETURN_IF_ERROR(index_entries());
  LLM_RETURN_IF_ERROR(read_alignment());
  LLM_RETURN_IF_ERROR(parse_tensors());
  LLM_RETURN_IF_ERROR(file_.index_tensors());
  LLM_RETURN_IF_ERROR(check_nothing_follows());
  LLM_RETURN_IF_ERROR(check_layout());
  return std::move(file_);
}

Status GgufParser::parse_header() {
  if (bytes_.empty()) {
    return malformed("header", 0, "found 0 bytes: the file is empty, need >= 24 B");
  }
  constexpr std::string_view kMagic = "GGUF";
  const std::size_t n = std::min(bytes_.size(), kMagic.size());
  if (std::memcmp(bytes_.data(), kMagic.data(), n) != 0) return foreign_file_error(bytes_);
  reader_.read_bytes(kMagic.size(), "magic");
  const auto version = reader_.read<std::uint32_t>("version");
  if (!reader_.ok()) return reader_.error();
  LLM_RETURN_IF_ERROR(check_version(version));
  n_tensors_ = reader_.read<std::uint64_t>("n_tensors");
  n_entries_ = reader_.read<std::uint64_t>("n_kv");
  if (!reader_.ok()) return reader_.error();
  LLM_RETURN_IF_ERROR(check_count("n_tensors", kTensorCountOffset, n_tensors_,
                                  GgufLimits::kMinTensorInfoBytes, GgufLimits::kMaxTensors));
  return check_count("n_kv", kEntryCountOffset, n_entries_, GgufLimits::kMinEntryBytes,
                     GgufLimits::kMaxEntries);
}

Status GgufParser::check_version(std::uint32_t version) {
  file_.version_ = version;
  if (version == 2 || version == 3) return Ok{};
  Error error{.code = ErrorCode::kUnsupported,
              .field = "version",
              .message = fmt::format("found {}, need 2 or 3", version),
              .offset = reader_.field_offset()};
  const std::uint32_t swapped = byte_swapped(version);
  if (swapped >= 1 && swapped <= 3) {
    error.message =
        fmt::format("found a big-endian GGUF of version {}, need little-endian", swapped);
    error.hint = "convert it with gguf_convert_endian.py of the gguf Python package";
  } else if (version == 1) {
    error.hint = "version 1 was replaced in 2023; convert the original model again";
  }
  return error;
}

Status GgufParser::check_count(std::string_view field, std::uint64_t offset, std::uint64_t count,
                               std::uint64_t min_bytes, std::uint64_t cap) {
  const std::uint64_t fit = reader_.remaining() / min_bytes;
  if (count > fit) {
    return malformed(
        field, offset,
        fmt::format("found {}, need at most {}: the file has {} bytes", count, fit, bytes_.size()));
  }
  if (count > cap) {
    return malformed(field, offset, fmt::format("found {}, need at most {} (cap)", count, cap));
  }
  return Ok{};
}

Status GgufParser::parse_entries() {
  for (std::uint64_t i = 0; i < n_entries_; ++i) {
    LLM_TRY(GgufEntry entry, parse_entry(reader_, i));
    file_.entries_.push_back(entry);
  }
  return Ok{};
}

Result<GgufEntry> GgufParser::parse_entry(ByteReader& reader, std::uint64_t index) {
  const std::string field = fmt::format("key of KV {}", index);
  GgufEntry entry;
  entry.key = reader.read_string(GgufLimits::kMaxKeyBytes, field);
  if (!reader.ok()) return reader.error();
  if (entry.key.empty()) {
    return malformed(field, reader.field_offset(), "found length 0, need 1 to 65535");
  }
  if (!is_printable_ascii(entry.key)) {
    return malformed(field, reader.field_offset(),
                     "found NUL, control or non-ASCII characters, need printable ASCII");
  }
  LLM_TRY(entry.value, parse_value(reader, entry.key));
  return entry;
}

Result<GgufValue> GgufParser::parse_value(ByteReader& reader, std::string_view key) {
  GgufValue value;
  const auto type = reader.read<std::uint32_t>(key);
  if (!reader.ok()) return reader.error();
  if (type >= kGgufTypeCount) {
    return malformed(key, reader.field_offset(),
                     fmt::format("found value type {}, need 0 to {}", type, kGgufTypeCount - 1));
  }
  value.type = value.element_type = static_cast<GgufType>(type);
  if (value.type == GgufType::kArray) {
    LLM_RETURN_IF_ERROR(parse_array(reader, key, value));
    return value;
  }
  value.offset = reader.offset();
  if (value.type == GgufType::kString) {
    const std::string_view text = reader.read_string(GgufLimits::kMaxStringBytes, key);
    value.bytes = std::as_bytes(std::span(text.data(), text.size()));
    value.offset += sizeof(std::uint64_t);
  } else {
    value.bytes = reader.read_bytes(gguf_fixed_size(value.type), key);
  }
  if (!reader.ok()) return reader.error();
  if (value.type == GgufType::kBool && static_cast<unsigned>(value.bytes[0]) > 1) {
    return malformed(
        key, value.offset,
        fmt::format("found BOOL {}, need 0 or 1", static_cast<unsigned>(value.bytes[0])));
  }
  return value;
}

Status GgufParser::parse_array(ByteReader& reader, std::string_view key, GgufValue& value) {
  const auto type = reader.read<std::uint32_t>(key);
  if (!reader.ok()) return reader.error();
  if (type >= kGgufTypeCount) {
    return malformed(
        key, reader.field_offset(),
        fmt::format("found array element type {}, need 0 to {}", type, kGgufTypeCount - 1));
  }
  value.element_type = static_cast<GgufType>(type);
  if (value.element_type == GgufType::kArray) {
    return Error{ErrorCode::kUnsupported, std::string(key),
                 "found nested arrays, need arrays of numbers or strings", reader.field_offset()};
  }
  value.count = reader.read<std::uint64_t>(key);
  if (!reader.ok()) return reader.error();
  const bool strings = value.element_type == GgufType::kString;
  const std::uint64_t min_bytes = strings ? 8 : gguf_fixed_size(value.element_type);
  const std::uint64_t fit = reader.remaining() / min_bytes;
  if (value.count > GgufLimits::kMaxArrayElements) {
    return malformed(key, reader.field_offset(),
                     fmt::format("found an array of n = {}, need at most {} (cap)", value.count,
                                 GgufLimits::kMaxArrayElements));
  }
  if (value.count > fit) {
    return malformed(key, reader.field_offset(),
                     fmt::format("found an array of n = {}, need at most {}: {} bytes remain",
                                 value.count, fit, reader.remaining()));
  }
  value.offset = reader.offset();
  if (strings) return walk_strings(reader, key, value);
  value.bytes = reader.read_bytes(value.count * min_bytes, key);
  if (value.element_type == GgufType::kBool) {
    for (std::size_t i = 0; i < value.bytes.size(); ++i) {
      const auto element = static_cast<unsigned>(value.bytes[i]);
      if (element <= 1) continue;
      return malformed(key, value.offset + i,
                       fmt::format("found BOOL {} at index {}, need 0 or 1", element, i));
    }
  }
  return Ok{};
}

Status GgufParser::walk_strings(ByteReader& reader, std::string_view key, GgufValue& value) {
  const std::size_t begin = reader.offset();
  ByteReader walker = reader;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    walker.read_string(GgufLimits::kMaxStringBytes, key);
    if (walker.ok()) continue;
    Error error = walker.error();
    error.message += fmt::format(" (string {} of {})", i, value.count);
    return error;
  }
  value.bytes = reader.read_bytes(walker.offset() - begin, key);
  return Ok{};
}

Status GgufParser::index_entries() {
  const auto twins = order_by_name(file_.entries_, &GgufEntry::key, file_.entry_order_);
  if (!twins) return Ok{};
  const auto [first, second] = *twins;
  return malformed(
      file_.entries_[second].key, file_.entries_[second].value.offset,
      fmt::format("found a duplicate key: KV {} and KV {}, need unique keys", first, second));
}

Status GgufParser::read_alignment() {
  const GgufValue* value = file_.find(kAlignmentKey);
  if (value == nullptr) return Ok{};
  if (value->type != GgufType::kUint32) {
    return malformed(kAlignmentKey, value->offset,
                     fmt::format("found {}, need UINT32", value->type_name()));
  }
  const auto alignment = load_unaligned<std::uint32_t>(value->bytes);
  const bool power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (!power_of_two || alignment < GgufLimits::kMinAlignment ||
      alignment > GgufLimits::kMaxAlignment) {
    return malformed(kAlignmentKey, value->offset,
                     fmt::format("found {}, need a power of two from {} to {}", alignment,
                                 GgufLimits::kMinAlignment, GgufLimits::kMaxAlignment));
  }
  file_.alignment_ = alignment;
  return Ok{};
}

// A count that is one too small leaves a description of a tensor (or an entry) unread. Data never
// parses as one by chance: it would have to hold a short length, so many printable characters,
// then type, dims and offset in range.
Status GgufParser::check_nothing_follows() {
  ByteReader peek = reader_;
  if (const auto next = parse_tensor_info(peek, n_tensors_); next.ok()) {
    return malformed("n_tensors", kTensorCountOffset,
                     fmt::format("found {}, need more: the tensor \"{}\" follows the last one",
                                 n_tensors_, next.value().name));
  }
  peek = reader_;
  if (n_tensors_ != 0) return Ok{};
  if (const auto next = parse_entry(peek, n_entries_); next.ok()) {
    return malformed("n_kv", kEntryCountOffset,
                     fmt::format("found {}, need more: the key \"{}\" follows the last one",
                                 n_entries_, next.value().key));
  }
  return Ok{};
}

}  // namespace llm
