#include <fmt/core.h>

#include <new>
#include <utility>

#include "validate/reference/npz/npz.h"
#include "validate/reference/npz/zip_member.h"

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

}  // namespace llm
