#include "tools/llmserve/models/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/utf8.h"
#include "engine/gguf/gguf_split.h"
#include "tools/common/model_files.h"
#include "tools/common/options.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

/// JSON has names in UTF-8 only.
std::string name_of(std::string_view text) {
  std::string name;
  append_valid_utf8(text, name);
  return name;
}

/// Of a file: without .gguf and a part's number.
std::string model_name(std::string_view file) {
  if (const auto part = parse_split_path(file)) return name_of(part->name);
  return name_of(file.substr(0, file.rfind('.')));
}

/// A folder and those in it.
Result<std::vector<fs::path>> folders_of(const std::string& folder) {
  std::vector<fs::path> folders = {folder};
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure); !failure && at != fs::directory_iterator();
       at.increment(failure)) {
    std::error_code unknown;
    if (at->is_directory(unknown)) folders.push_back(at->path());
  }
  if (!failure) return folders;
  return in_file(Error{ErrorCode::kIo, "--models", failure.message()}, folder);
}

}  // namespace

Result<std::vector<ModelManager::Model>> find_models(const std::string& folder) {
  std::vector<ModelManager::Model> models;
  LLM_TRY(const auto folders, folders_of(folder));
  for (const fs::path& inner : folders) {
    LLM_TRY(const auto files, model_files(inner.string()));
    for (const std::string& file : files)
      models.push_back({.ids = {model_name(file)}, .path = (inner / file).string()});
  }
  std::ranges::sort(models, {}, [](const ModelManager::Model& model) {
    return std::pair(model.id(), model.path);
  });
  const auto twice = std::ranges::adjacent_find(models, {}, &ModelManager::Model::id);
  if (twice != models.end()) {
    return usage_error("--models", fmt::format("found {} and {}, need files of different names",
                                               twice->path, std::next(twice)->path));
  }
  if (models.empty()) {
    return usage_error("--models",
                       fmt::format("found no model in {}, need one *.gguf or more", folder));
  }
  return models;
}

ModelManager::Model one_model(const std::string& path, const std::vector<std::string>& names) {
  ModelManager::Model model{.ids = {}, .path = path};
  for (const std::string& list : names) {
    for (const std::string& name : split_at_commas(list))
      if (!name.empty()) model.ids.push_back(name_of(name));
  }
  if (model.ids.empty()) model.ids.push_back(name_of(fs::path(path).stem().string()));
  return model;
}

}  // namespace llm
