#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "validate/reference/npz/npz.h"
#include "validate/reference/npz/zip_directory.h"

namespace llm {
namespace {

constexpr std::string_view kSuffix = ".npy";

Status check_size(const ZipEntry& entry, const NpzLimits& limits) {
  if (entry.uncompressed > limits.max_member_bytes) {
    return zip_member_error(ErrorCode::kResource, entry,
                            fmt::format("declares {} bytes, the cap is {} a member",
                                        entry.uncompressed, limits.max_member_bytes));
  }
  if (entry.uncompressed > limits.free_bytes &&
      entry.uncompressed / limits.max_expansion > entry.compressed) {
    return zip_member_error(
        ErrorCode::kResource, entry,
        fmt::format("expands {} bytes to {}, the cap is {} times", entry.compressed,
                    entry.uncompressed, limits.max_expansion));
  }
  return Ok{};
}

constexpr std::uint16_t kVersion = 20;    // 2.0: directories and deflate; what NumPy writes
constexpr std::uint16_t kVersion64 = 45;  // 4.5: zip64
// 1980-01-01 00:00:00, the earliest a ZIP can say: files depend on their content only.
constexpr std::uint16_t kTime = 0;
constexpr std::uint16_t kDate = (1U << 5) | 1U;

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

/// Little-endian fields, appended.
class Fields {
 public:
  template <typename... Values>
  requires(std::is_integral_v<Values>&&...) Fields& put(Values... values) {
    (append(&values, sizeof(values)), ...);
    return *this;
  }
  Fields& put(std::string_view text) {
    append(text.data(), text.size());
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

 private:
  void append(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<std::byte> bytes_;
};

std::uint16_t u16(std::size_t value) { return static_cast<std::uint16_t>(value); }

}  // namespace

Result<NpzReader> NpzReader::open(const std::string& path, const NpzLimits& limits) {
  LLM_TRY(MappedFile file, MappedFile::open(path));
  auto entries = read_zip_directory(file.bytes());
  if (!entries.ok()) return in_file(std::move(entries).error(), path);
  NpzReader reader(std::move(file), std::move(entries).value());
  for (std::size_t i = 0; i < reader.entries_.size(); ++i) {
    const ZipEntry& entry = reader.entries_[i];
    if (auto status = check_size(entry, limits); !status.ok())
      return in_file(std::move(status).error(), path);
    if (!entry.name.ends_with(kSuffix)) continue;
    reader.keys_.push_back(entry.name.substr(0, entry.name.size() - kSuffix.size()));
    reader.index_.emplace(reader.keys_.back(), i);
  }
  return reader;
}

bool NpzReader::contains(std::string_view key) const { return index_.find(key) != index_.end(); }

Result<NpyArray> NpzReader::read(std::string_view key) const {
  const std::string& path = file_.path();
  const auto found = index_.find(key);
  if (found == index_.end()) {
    return in_file(Error{ErrorCode::kMalformed, std::string(key), "no such array in the archive"},
                   path);
  }
  auto array = read_member(found->second);
  if (!array.ok()) return in_file(std::move(array).error(), path);
  return array;
}

Result<NpyArray> NpzReader::read_member(std::size_t index) const {
  const ZipEntry& entry = entries_[index];
  ZipMemberReader member(file_.bytes(), entry);
  if (entry.uncompressed < kNpyPrefixBytes)
    return zip_member_error(ErrorCode::kMalformed, entry, "shorter than an NPY header");
  std::vector<std::byte> header(kNpyPrefixBytes);
  LLM_RETURN_IF_ERROR(member.read(header));
  LLM_TRY(const std::size_t header_bytes, npy_header_bytes(header, entry.name));
  if (header_bytes < kNpyPrefixBytes || header_bytes > entry.uncompressed)
    return zip_member_error(ErrorCode::kMalformed, entry, "NPY header_len does not fit the member");
  header.resize(header_bytes);
  LLM_RETURN_IF_ERROR(member.read(std::span(header).subspan(kNpyPrefixBytes)));
  LLM_TRY(const NpyHeader parsed, parse_npy_header(header, entry.name));
  if (parsed.data_bytes != entry.uncompressed - header_bytes) {
    return zip_member_error(ErrorCode::kMalformed, entry,
                            fmt::format("shape needs {} bytes of data, the member has {}",
                                        parsed.data_bytes, entry.uncompressed - header_bytes));
  }
  std::vector<std::byte> data;
  try {
    data.resize(static_cast<std::size_t>(parsed.data_bytes));
  } catch (const std::bad_alloc&) {
    return zip_member_error(ErrorCode::kResource, entry,
                            fmt::format("needs {} MiB of memory", parsed.data_bytes >> 20));
  }
  LLM_RETURN_IF_ERROR(member.read(data));
  LLM_RETURN_IF_ERROR(member.finish());
  return to_npy_array(parsed, std::move(data));
}

Result<NpzWriter> NpzWriter::create(const std::string& path, std::uint64_t zip64_from) {
  LLM_TRY(AtomicFile file, AtomicFile::create(path));
  return NpzWriter(std::move(file), std::min<std::uint64_t>(zip64_from, ZipEntry::kIn64));
}

Status NpzWriter::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) LLM_RETURN_IF_ERROR(flush());
  if (bytes.size() > kBufferBytes) return file_.write(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return Ok{};
}

Status NpzWriter::flush() {
  LLM_RETURN_IF_ERROR(file_.write(buffer_));
  buffer_.clear();
  return Ok{};
}

Status NpzWriter::add(std::string_view key, NpyType type, std::span<const std::uint64_t> shape,
                      std::span<const std::byte> data) {
  const std::string header = encode_npy_header(type, shape);
  const auto header_bytes = std::as_bytes(std::span(header));
  const std::uint32_t crc = zip_crc32(zip_crc32(0, header_bytes), data);
  Member member{std::string(key) + ".npy", crc, header.size() + data.size(), size()};
  LLM_CHECK(member.name.size() <= 0xFFFF);

  const bool wide = member.size >= zip64_from_;
  const auto size32 = wide ? ZipEntry::kIn64 : static_cast<std::uint32_t>(member.size);
  Fields local;
  local.put(std::uint32_t{0x04034B50}, wide ? kVersion64 : kVersion)
      .put(std::uint16_t{0}, std::uint16_t{0}, kTime, kDate)  // flags, method stored
      .put(member.crc, size32, size32)
      .put(u16(member.name.size()), u16(wide ? 20 : 0))
      .put(std::string_view(member.name));
  if (wide) local.put(ZipEntry::kExtra64, std::uint16_t{16}, member.size, member.size);
  LLM_RETURN_IF_ERROR(append(local.bytes()));
  LLM_RETURN_IF_ERROR(append(header_bytes));
  LLM_RETURN_IF_ERROR(append(data));
  members_.push_back(std::move(member));
  return Ok{};
}

Status NpzWriter::finish() {
  const std::uint64_t directory = size();
  for (const Member& member : members_) {
    const bool wide_size = member.size >= zip64_from_;
    const bool wide_offset = member.offset >= zip64_from_;
    const auto size32 = wide_size ? ZipEntry::kIn64 : static_cast<std::uint32_t>(member.size);
    const bool wide = wide_size || wide_offset;
    const std::size_t extra = (wide_size ? 16U : 0U) + (wide_offset ? 8U : 0U);
    Fields entry;
    entry.put(std::uint32_t{0x02014B50}, wide ? kVersion64 : kVersion)
        .put(wide ? kVersion64 : kVersion)
        .put(std::uint16_t{0}, std::uint16_t{0}, kTime, kDate)
        .put(member.crc, size32, size32)
        .put(u16(member.name.size()), u16(wide ? extra + 4 : 0), std::uint16_t{0})
        .put(std::uint16_t{0}, std::uint16_t{0}, std::uint32_t{0})  // disk, attributes
        .put(wide_offset ? ZipEntry::kIn64 : static_cast<std::uint32_t>(member.offset))
        .put(std::string_view(member.name));
    if (wide) entry.put(ZipEntry::kExtra64, u16(extra));
    if (wide_size) entry.put(member.size, member.size);
    if (wide_offset) entry.put(member.offset);
    LLM_RETURN_IF_ERROR(append(entry.bytes()));
  }
  LLM_RETURN_IF_ERROR(write_end(directory));
  LLM_RETURN_IF_ERROR(flush());
  return file_.commit();
}

Status NpzWriter::write_end(std::uint64_t directory_offset) {
  const std::uint64_t end = size();
  const std::uint64_t size = end - directory_offset;
  const std::uint64_t entries = members_.size();
  const bool wide = entries >= 0xFFFF || directory_offset >= zip64_from_ || size >= zip64_from_;
  Fields fields;
  if (wide) {
    fields.put(std::uint32_t{0x06064B50}, std::uint64_t{44}, kVersion64, kVersion64)
        .put(std::uint32_t{0}, std::uint32_t{0}, entries, entries, size, directory_offset)
        .put(std::uint32_t{0x07064B50}, std::uint32_t{0}, end, std::uint32_t{1});
  }
  const auto entries16 = wide ? std::uint16_t{0xFFFF} : u16(entries);
  fields.put(std::uint32_t{0x06054B50}, std::uint16_t{0}, std::uint16_t{0})
      .put(entries16, entries16)
      .put(wide ? ZipEntry::kIn64 : static_cast<std::uint32_t>(size))
      .put(wide ? ZipEntry::kIn64 : static_cast<std::uint32_t>(directory_offset))
      .put(std::uint16_t{0});
  return append(fields.bytes());
}

}  // namespace llm
