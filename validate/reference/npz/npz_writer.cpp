#include <algorithm>
#include <type_traits>

#include "base/check.h"
#include "validate/reference/npz/npz.h"
#include "validate/reference/npz/zip_member.h"

namespace llm {
namespace {

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
