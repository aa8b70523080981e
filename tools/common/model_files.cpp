#include "tools/common/model_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "engine/gguf/gguf_split.h"

namespace llm {

namespace fs = std::filesystem;

Result<std::vector<std::string>> model_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const auto part = parse_split_path(name);
    if (name.ends_with(".gguf") && (!part || part->index == 0)) names.push_back(name);
  }
  if (error) {
    const bool no_memory = error == std::errc::not_enough_memory;
    return in_file(Error{no_memory ? ErrorCode::kResource : ErrorCode::kIo, "", error.message()},
                   directory);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace llm
