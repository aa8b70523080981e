#include "tools/common/output_paths.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include "base/atomic_file.h"

namespace llm {
namespace {

/// Whether both paths name one file (device and inode), by whatever links.
bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

Status check_output(const std::string& what, const std::string& path,
                    std::span<const std::string> read) {
  for (const std::string& source : read) {
    if (source.empty() || !is_same_file(path, source)) continue;
    return in_file(
        Error{
            ErrorCode::kUsage, what,
            fmt::format("found a file that is read ({}), need another; it would be lost", source)},
        path);
  }
  return AtomicFile::probe(path);
}

}  // namespace llm
