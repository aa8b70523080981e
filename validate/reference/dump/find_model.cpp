#include "validate/reference/dump/find_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "validate/reference/dump/engine_dump.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> ggufs_in(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".gguf" && it->is_regular_file(ignored))
      out.push_back(it->path());
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

Result<std::string> find_model_by_hash(const std::string& sha256, const std::string& dump_path) {
  fs::path home = fs::path(dump_path).parent_path();
  if (home.empty()) home = ".";
  const fs::path directories[] = {home, ".", "models"};
  if (!sha256.empty()) {
    for (const fs::path& directory : directories) {
      for (const fs::path& candidate : ggufs_in(directory)) {
        const auto found = file_sha256(candidate.string());
        if (found.ok() && *found == sha256) return candidate.string();
      }
    }
  }
  return Error{.code = ErrorCode::kIo,
               .field = "model_sha256",
               .message = fmt::format("no .gguf with SHA-256 {} in {}, . or models",
                                      sha256.empty() ? "(none given)" : sha256, home.string()),
               .file = dump_path,
               .hint = "name the model: llmcheck MODEL --layer-diff REF.npz"};
}

}  // namespace llm
