#include <fmt/format.h>
#include <zip.h>

#include <new>
#include <utility>

#include "validate/npz/npz.h"

namespace llm {
namespace {

constexpr std::string_view kSuffix = ".npy";

Error member_error(ErrorCode code, const ZipEntry& entry, std::string message) {
  return Error{.code = code,
               .field = entry.name,
               .message = std::move(message),
               .offset = entry.local_offset};
}

Status check_size(const ZipEntry& entry, const NpzLimits& limits) {
  if (entry.uncompressed > limits.max_member_bytes) {
    return member_error(ErrorCode::kResource, entry,
                        fmt::format("declares {} bytes, the cap is {} a member", entry.uncompressed,
                                    limits.max_member_bytes));
  }
  if (entry.uncompressed > limits.free_bytes &&
      entry.uncompressed / limits.max_expansion > entry.compressed) {
    return member_error(ErrorCode::kResource, entry,
                        fmt::format("expands {} bytes to {}, the cap is {} times", entry.compressed,
                                    entry.uncompressed, limits.max_expansion));
  }
  return Ok{};
}

struct CloseFile {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using ZipFile = std::unique_ptr<zip_file_t, CloseFile>;

// Fills all of `out`. At its end libzip has inflated no more than asked for.
Status read_exactly(zip_file_t* file, const ZipEntry& entry, std::span<std::byte> out) {
  while (!out.empty()) {
    const zip_int64_t n = zip_fread(file, out.data(), out.size());
    if (n < 0) {
      return member_error(
          ErrorCode::kMalformed, entry,
          fmt::format("cannot be unpacked: {}", zip_error_strerror(zip_file_get_error(file))));
    }
    if (n == 0) return member_error(ErrorCode::kMalformed, entry, "ends before its declared size");
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return Ok{};
}

// A read at the end makes libzip compare length and CRC with the directory.
Status expect_end(zip_file_t* file, const ZipEntry& entry) {
  std::byte extra{};
  const zip_int64_t n = zip_fread(file, &extra, 1);
  if (n == 0) return Ok{};
  if (n > 0) return member_error(ErrorCode::kMalformed, entry, "longer than its declared size");
  const int code = zip_error_code_zip(zip_file_get_error(file));
  return member_error(
      ErrorCode::kMalformed, entry,
      code == ZIP_ER_CRC
          ? "bad CRC: the content is damaged"
          : fmt::format("cannot be unpacked: {}", zip_error_strerror(zip_file_get_error(file))));
}

}  // namespace

/// The mapping and libzip's handle on it; the handle goes first.
struct NpzReader::Archive {
  explicit Archive(MappedFile mapped) : file(std::move(mapped)) {}
  ~Archive() {
    if (zip != nullptr) zip_discard(zip);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  MappedFile file;
  zip_t* zip = nullptr;
};

NpzReader::NpzReader() = default;
NpzReader::NpzReader(NpzReader&&) noexcept = default;
NpzReader& NpzReader::operator=(NpzReader&&) noexcept = default;
NpzReader::~NpzReader() = default;

Result<NpzReader> NpzReader::open(const std::string& path, const NpzLimits& limits) {
  LLM_TRY(MappedFile mapped, MappedFile::open(path));
  NpzReader reader;
  reader.archive_ = std::make_unique<Archive>(std::move(mapped));
  const auto bytes = reader.archive_->file.bytes();
  auto entries = read_zip_directory(bytes);
  if (!entries.ok()) return in_file(std::move(entries).error(), path);
  reader.entries_ = std::move(entries).value();
  for (std::size_t i = 0; i < reader.entries_.size(); ++i) {
    const ZipEntry& entry = reader.entries_[i];
    if (auto status = check_size(entry, limits); !status.ok())
      return in_file(std::move(status).error(), path);
    if (!entry.name.ends_with(kSuffix)) continue;
    reader.keys_.push_back(entry.name.substr(0, entry.name.size() - kSuffix.size()));
    reader.index_.emplace(reader.keys_.back(), i);
  }

  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source != nullptr) {
    reader.archive_->zip = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (reader.archive_->zip == nullptr) zip_source_free(source);
  }
  const std::string words = zip_error_strerror(&error);
  zip_error_fini(&error);
  zip_t* zip = reader.archive_->zip;
  if (zip == nullptr ||
      zip_get_num_entries(zip, 0) != static_cast<zip_int64_t>(reader.entries_.size())) {
    return Error{.code = ErrorCode::kMalformed, .field = "zip", .message = words, .file = path};
  }
  return reader;
}

bool NpzReader::contains(std::string_view key) const {
  return index_.find(std::string(key)) != index_.end();
}

Result<NpyArray> NpzReader::read(std::string_view key) const {
  const std::string& path = archive_->file.path();
  const auto found = index_.find(std::string(key));
  if (found == index_.end()) {
    return Error{.code = ErrorCode::kMalformed,
                 .field = std::string(key),
                 .message = "no such array in the archive",
                 .file = path};
  }
  auto array = read_member(found->second);
  if (!array.ok()) return in_file(std::move(array).error(), path);
  return array;
}

Result<NpyArray> NpzReader::read_member(std::size_t index) const {
  const ZipEntry& entry = entries_[index];
  const ZipFile file(zip_fopen_index(archive_->zip, index, 0));
  if (file == nullptr) {
    return member_error(
        ErrorCode::kMalformed, entry,
        fmt::format("cannot be unpacked: {}", zip_error_strerror(zip_get_error(archive_->zip))));
  }
  if (entry.uncompressed < kNpyPrefixBytes)
    return member_error(ErrorCode::kMalformed, entry, "shorter than an NPY header");
  std::vector<std::byte> header(kNpyPrefixBytes);
  LLM_RETURN_IF_ERROR(read_exactly(file.get(), entry, header));
  LLM_TRY(const std::size_t header_bytes, npy_header_bytes(header, entry.name));
  if (header_bytes < kNpyPrefixBytes || header_bytes > entry.uncompressed)
    return member_error(ErrorCode::kMalformed, entry, "NPY header_len does not fit the member");
  header.resize(header_bytes);
  LLM_RETURN_IF_ERROR(read_exactly(file.get(), entry, std::span(header).subspan(kNpyPrefixBytes)));
  LLM_TRY(const NpyHeader parsed, parse_npy_header(header, entry.name));
  if (parsed.data_bytes != entry.uncompressed - header_bytes) {
    return member_error(ErrorCode::kMalformed, entry,
                        fmt::format("shape needs {} bytes of data, the member has {}",
                                    parsed.data_bytes, entry.uncompressed - header_bytes));
  }
  std::vector<std::byte> data;
  try {
    data.resize(static_cast<std::size_t>(parsed.data_bytes));
  } catch (const std::bad_alloc&) {
    return member_error(ErrorCode::kResource, entry,
                        fmt::format("needs {} MiB of memory", parsed.data_bytes >> 20));
  }
  LLM_RETURN_IF_ERROR(read_exactly(file.get(), entry, data));
  LLM_RETURN_IF_ERROR(expect_end(file.get(), entry));
  return to_npy_array(parsed, std::move(data));
}

}  // namespace llm
