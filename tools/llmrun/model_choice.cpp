#include "tools/llmrun/model_choice.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "engine/gguf/gguf_split.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnModel = "fable-3m-q4_k_m.gguf";
constexpr std::size_t kMostListed = 20;

/// Names of the models in a directory, sorted.
Result<std::vector<std::string>> models_in(const std::string& directory) {
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

/// Where the program itself is; empty when the system does not say.
fs::path own_directory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

Result<std::string> resolve_model(const std::string& named) {
  std::error_code ignored;
  if (!fs::is_directory(named, ignored)) return named;
  LLM_TRY(std::vector<std::string> names, models_in(named));
  if (names.size() == 1) return (fs::path(named) / names.front()).string();
  if (names.empty()) {
    return in_file(Error{ErrorCode::kIo, "", "is a directory without a *.gguf, need a GGUF file"},
                   named);
  }
  const std::size_t n_models = names.size();
  names.resize(std::min(n_models, kMostListed));
  return Error{
      .code = ErrorCode::kUsage,
      .field = "",
      .message = fmt::format("found {} models in the directory, need one of {}{}", n_models,
                             fmt::join(names, ", "), n_models > kMostListed ? ", ..." : ""),
      .file = named};
}

Result<std::string> default_model() {
  const char* variable = std::getenv("LLM_MODEL");
  if (variable != nullptr && *variable != '\0') return resolve_model(variable);
  const fs::path bin = own_directory();
  // build/PRESET/bin of a checkout; bin of an installation.
  for (const fs::path& directory : {bin / "../../../models", bin / "../share/llmrun/models"}) {
    const fs::path model = directory / kOwnModel;
    std::error_code ignored;
    if (bin.empty() || !fs::is_regular_file(model, ignored)) continue;
    const std::string path = model.lexically_normal().string();
    spdlog::warn("no model is named: this is the small one that comes with the program, {}", path);
    return path;
  }
  return Error{.code = ErrorCode::kUsage,
               .field = "MODEL",
               .message = "found nothing, need a GGUF file",
               .hint = "llmrun --help shows the usage"};
}

}  // namespace llm
