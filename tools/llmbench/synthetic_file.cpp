#include "tools/llmbench/synthetic_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace llm {
namespace {

Error io_error(std::string where, int code) {
  return Error{.code = ErrorCode::kIo,
               .field = {},
               .message = std::strerror(code),
               .file = std::move(where),
               .hint = "TMPDIR names the directory of temporary files"};
}

}  // namespace

Result<NamelessFile> NamelessFile::create() {
  const char* tmpdir = std::getenv("TMPDIR");
  NamelessFile file;
  file.directory_ = tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp";
  std::string pattern = file.directory_ + "/llmbench.XXXXXX";
  file.descriptor_ = ::mkstemp(pattern.data());
  if (file.descriptor_ < 0) return io_error(file.directory_, errno);
  ::unlink(pattern.c_str());
  return file;
}

NamelessFile::NamelessFile(NamelessFile&& other) noexcept
    : directory_(std::move(other.directory_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

NamelessFile::~NamelessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status NamelessFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return io_error(directory_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Ok{};
}

std::string NamelessFile::path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

Result<NamelessFile> make_synthetic_file(const SyntheticOptions& options) {
  LLM_TRY(NamelessFile file, NamelessFile::create());
  LLM_RETURN_IF_ERROR(
      write_synthetic_model(options, [&](auto bytes) { return file.write(bytes); }));
  return file;
}

}  // namespace llm
