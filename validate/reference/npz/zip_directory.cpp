#include "validate/reference/npz/zip_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/byte_reader.h"

namespace llm {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034B50;
constexpr std::uint32_t kCentralSignature = 0x02014B50;
constexpr std::uint32_t kEndSignature = 0x06054B50;
constexpr std::uint32_t kEnd64Signature = 0x06064B50;
constexpr std::uint32_t kLocator64Signature = 0x07064B50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocator64Bytes = 20;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kLongestComment = 0xFFFF;
constexpr std::uint16_t kIn64Short = 0xFFFF;
constexpr std::uint16_t kFlagEncrypted = 1U << 0;
constexpr std::uint16_t kFlagDescriptor = 1U << 3;

/// Where the directory lies and how many entries it has.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t entries = 0;
};

// The end record is last but for a comment whose length it states, so its place is the one whose
// length field leads exactly to the end of the file.
Result<std::size_t> find_end(std::span<const std::byte> file) {
  if (file.empty()) return malformed("zip", "empty file, need a ZIP archive", 0);
  for (std::size_t comment = 0; comment <= kLongestComment; ++comment) {
    if (file.size() < kEndBytes + comment) break;
    const std::size_t at = file.size() - kEndBytes - comment;
    ByteReader reader(file.subspan(at));
    if (reader.read<std::uint32_t>("signature") != kEndSignature) continue;
    reader.read_bytes(16, "end record");
    if (reader.read<std::uint16_t>("comment") == comment) return at;
  }
  return malformed("zip end of central directory",
                   "not found, need it at the end of the file (not a ZIP file, or cut off)",
                   file.size());
}

Result<Directory> read_end64(std::span<const std::byte> file, std::size_t end) {
  const auto bad = [&](const char* field, std::uint64_t at) {
    return malformed(field, "missing or damaged", at);
  };
  if (end < kLocator64Bytes) return bad("zip64 locator", 0);
  ByteReader locator(file.subspan(end - kLocator64Bytes));
  const bool found = locator.read<std::uint32_t>("signature") == kLocator64Signature;
  const auto disk = locator.read<std::uint32_t>("disk");
  const auto at = locator.read<std::uint64_t>("offset");
  if (!found || disk != 0) return bad("zip64 locator", end - kLocator64Bytes);
  if (at > end - kLocator64Bytes || end - kLocator64Bytes - at != kEnd64Bytes)
    return bad("zip64 end record", std::min<std::uint64_t>(at, end));
  ByteReader reader(file.subspan(static_cast<std::size_t>(at)));
  const auto signature = reader.read<std::uint32_t>("signature");
  reader.read_bytes(8 + 2 + 2, "size and versions");
  const auto disks = reader.read<std::uint32_t>("disk") | reader.read<std::uint32_t>("disk");
  const auto here = reader.read<std::uint64_t>("entries");
  Directory out;
  out.entries = reader.read<std::uint64_t>("entries");
  out.size = reader.read<std::uint64_t>("size");
  out.offset = reader.read<std::uint64_t>("offset");
  if (signature != kEnd64Signature || disks != 0 || here != out.entries || out.offset > at ||
      at - out.offset != out.size)
    return bad("zip64 end record", at);
  return out;
}

Result<Directory> find_directory(std::span<const std::byte> file) {
  LLM_TRY(const std::size_t end, find_end(file));
  ByteReader reader(file.subspan(end));
  reader.read<std::uint32_t>("signature");
  const auto disk = reader.read<std::uint16_t>("disk");
  const auto start_disk = reader.read<std::uint16_t>("disk");
  const auto here = reader.read<std::uint16_t>("entries");
  Directory out;
  out.entries = reader.read<std::uint16_t>("entries");
  out.size = reader.read<std::uint32_t>("size");
  out.offset = reader.read<std::uint32_t>("offset");
  if (out.entries == kIn64Short || out.size == ZipEntry::kIn64 || out.offset == ZipEntry::kIn64) {
    LLM_TRY(out, read_end64(file, end));
  } else if (disk != 0 || start_disk != 0 || here != out.entries) {
    return malformed("zip end record", "parts on other disks, need a single file", end);
  } else if (out.offset > end || end - out.offset != out.size) {
    return malformed("zip central directory",
                     fmt::format("offset {} and size {} do not lead to its end at {}", out.offset,
                                 out.size, end),
                     end);
  }
  if (out.entries > out.size / kCentralBytes) {
    return malformed("zip entries",
                     fmt::format("{} do not fit in {} bytes of directory", out.entries, out.size),
                     end);
  }
  return out;
}

// Replaces the fields that read all ones by their values in the zip64 extra field, in its order.
bool apply_extra64(std::span<const std::byte> extra, ZipEntry& entry) {
  const bool any = entry.uncompressed == ZipEntry::kIn64 || entry.compressed == ZipEntry::kIn64 ||
                   entry.local_offset == ZipEntry::kIn64;
  if (!any) return true;
  ByteReader reader(extra);
  while (reader.remaining() >= 4) {
    const auto id = reader.read<std::uint16_t>("extra id");
    const auto body = reader.read_bytes(reader.read<std::uint16_t>("extra size"), "extra");
    if (!reader.ok()) return false;
    if (id != ZipEntry::kExtra64) continue;
    ByteReader wide(body);
    for (auto* value : {&entry.uncompressed, &entry.compressed, &entry.local_offset})
      if (*value == ZipEntry::kIn64) *value = wide.read<std::uint64_t>("zip64 value");
    return wide.ok();
  }
  return false;
}

Status check_supported(const ZipEntry& entry) {
  const auto unsupported = [&](std::string message) {
    return Error{ErrorCode::kUnsupported, entry.name, std::move(message), entry.local_offset};
  };
  // 99 is the method of AES encryption, which hides the real one.
  if ((entry.flags & kFlagEncrypted) != 0 || entry.method == 99)
    return unsupported("encrypted (AES or ZipCrypto), need a plain member");
  if (entry.method == ZipEntry::kStored || entry.method == ZipEntry::kDeflated) return Ok{};
  const char* name = entry.method == 12 ? " (bzip2)" : entry.method == 14 ? " (lzma)" : "";
  return unsupported(
      fmt::format("compression method {}{}, need 0 (stored) or 8 (deflate)", entry.method, name));
}

/// What both headers of a member have alike.
struct Header {
  ZipEntry entry;
  std::uint16_t name_size = 0;
  std::uint16_t extra_size = 0;
};

Header read_header(ByteReader& reader) {
  Header out;
  out.entry.flags = reader.read<std::uint16_t>("flags");
  out.entry.method = reader.read<std::uint16_t>("method");
  reader.read<std::uint32_t>("time");
  out.entry.crc = reader.read<std::uint32_t>("crc");
  out.entry.compressed = reader.read<std::uint32_t>("compressed");
  out.entry.uncompressed = reader.read<std::uint32_t>("uncompressed");
  out.name_size = reader.read<std::uint16_t>("name length");
  out.extra_size = reader.read<std::uint16_t>("extra length");
  return out;
}

Result<ZipEntry> read_central(ByteReader& reader, std::uint64_t base) {
  const auto at = base + reader.offset();
  const auto signature = reader.read<std::uint32_t>("signature");
  reader.read<std::uint32_t>("versions");
  auto [entry, name_size, extra_size] = read_header(reader);
  const auto comment_size = reader.read<std::uint16_t>("comment length");
  const auto disk = reader.read<std::uint16_t>("disk");
  reader.read_bytes(6, "attributes");
  entry.local_offset = reader.read<std::uint32_t>("local header offset");
  const auto name = reader.read_bytes(name_size, "name");
  const auto extra = reader.read_bytes(extra_size, "extra");
  reader.read_bytes(comment_size, "comment");
  if (!reader.ok()) {
    return malformed(fmt::format("zip central directory {}", reader.error().field), "cut off", at);
  }
  entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  if (signature != kCentralSignature)
    return malformed("zip central directory", "bad signature of an entry", at);
  if (disk != 0) return malformed(entry.name, "lies on another disk", at);
  if (!apply_extra64(extra, entry))
    return malformed(entry.name, "zip64 sizes promised, extra field missing or short", at);
  return entry;
}

// Checks the local header against the central entry and sets data_offset.
Status check_local(std::span<const std::byte> file, std::uint64_t limit, ZipEntry& entry) {
  const auto bad = [&](std::string message) {
    return malformed(entry.name, std::move(message), entry.local_offset);
  };
  if (entry.local_offset >= limit) return bad("local header lies beyond the members");
  ByteReader reader(file.first(static_cast<std::size_t>(limit))
                        .subspan(static_cast<std::size_t>(entry.local_offset)));
  const auto signature = reader.read<std::uint32_t>("signature");
  reader.read<std::uint16_t>("version");
  auto [local, name_size, extra_size] = read_header(reader);
  const auto name = reader.read_bytes(name_size, "name");
  const auto extra = reader.read_bytes(extra_size, "extra");
  if (!reader.ok() || signature != kLocalSignature) return bad("no local header at its offset");
  if (entry.name != std::string_view(reinterpret_cast<const char*>(name.data()), name.size()))
    return bad("local header and central directory differ in the name");
  if (!apply_extra64(extra, local)) return bad("zip64 extra field of the local header is damaged");
  // With a data descriptor the local header may leave CRC and sizes zero.
  const bool deferred = (local.flags & kFlagDescriptor) != 0 && local.crc == 0 &&
                        local.compressed == 0 && local.uncompressed == 0;
  if (local.method != entry.method || local.flags != entry.flags ||
      (!deferred && (local.crc != entry.crc || local.compressed != entry.compressed ||
                     local.uncompressed != entry.uncompressed)))
    return bad("local header and central directory differ in method, sizes or CRC");
  entry.data_offset = entry.local_offset + reader.offset();
  if (entry.compressed > limit - entry.data_offset)
    return bad(fmt::format("{} compressed bytes reach beyond the members", entry.compressed));
  if (entry.method == ZipEntry::kStored && entry.compressed != entry.uncompressed)
    return bad("stored, yet its two sizes differ");
  return Ok{};
}

Status check_disjoint(const std::vector<ZipEntry>& entries) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return entries[i].local_offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const ZipEntry& before = entries[order[i - 1]];
    const ZipEntry& after = entries[order[i]];
    if (before.data_offset + before.compressed > after.local_offset) {
      return malformed(after.name, fmt::format("overlaps member {}", before.name),
                       after.local_offset);
    }
  }
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::string_view(entries[i].name); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (entries[order[i - 1]].name == entries[order[i]].name) {
      return malformed(entries[order[i]].name, "duplicate member", entries[order[i]].local_offset);
    }
  }
  return Ok{};
}

}  // namespace

Result<std::vector<ZipEntry>> read_zip_directory(std::span<const std::byte> file) {
  LLM_TRY(const Directory directory, find_directory(file));
  ByteReader reader(file.subspan(static_cast<std::size_t>(directory.offset),
                                 static_cast<std::size_t>(directory.size)));
  std::vector<ZipEntry> entries;
  entries.reserve(static_cast<std::size_t>(directory.entries));
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    LLM_TRY(ZipEntry entry, read_central(reader, directory.offset));
    LLM_RETURN_IF_ERROR(check_supported(entry));
    LLM_RETURN_IF_ERROR(check_local(file, directory.offset, entry));
    entries.push_back(std::move(entry));
  }
  if (reader.remaining() != 0) {
    return malformed("zip central directory",
                     fmt::format("{} bytes after its last entry", reader.remaining()),
                     directory.offset + reader.offset());
  }
  LLM_RETURN_IF_ERROR(check_disjoint(entries));
  return entries;
}

}  // namespace llm
