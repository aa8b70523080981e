#include "tools/hub/hub_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "engine/gguf/gguf_split.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

constexpr std::string_view kUsualQuant = "Q4_K_M";
constexpr std::size_t kMostListed = 40;

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// A part of a repository's name, or a file's between slashes.
bool is_part(std::string_view part, std::string_view also) {
  return !part.empty() && part.front() != '.' && std::ranges::all_of(part, [also](char c) {
    return is_alnum(c) || also.find(c) != std::string_view::npos;
  });
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

bool is_model(const HubFile& file) {
  const std::string path = upper(file.path);
  if (!path.ends_with(".GGUF") || path.find("MMPROJ") != std::string::npos) return false;
  if (path.find("IMATRIX") != std::string::npos) return false;
  const auto part = parse_split_path(file.path);
  return !part || part->index == 0;
}

/// Whether `quant` names the file at `path`. @pre both in upper case
bool is_named(std::string_view path, std::string_view quant) {
  if (path == quant) return true;
  for (std::size_t at = path.find(quant); at != path.npos; at = path.find(quant, at + 1)) {
    const std::size_t end = at + quant.size();
    const bool begins = at == 0 || !is_alnum(path[at - 1]);
    const bool ends = end == path.size() || (!is_alnum(path[end]) && path[end] != '_');
    if (begins && ends) return true;
  }
  return false;
}

const HubFile* find_named(std::span<const HubFile> models, std::string_view quant) {
  const auto named = std::ranges::find_if(
      models, [&](const HubFile& file) { return is_named(upper(file.path), upper(quant)); });
  return named == models.end() ? nullptr : &*named;
}

Error no_such_model(const HubName& name, std::span<const HubFile> models) {
  if (models.empty())
    return in_file(usage_error("", "found no *.gguf there, need a repository with GGUF files"),
                   name.repo);
  std::vector<std::string> paths;
  for (const HubFile& file : models.first(std::min(models.size(), kMostListed)))
    paths.push_back(file.path);
  return in_file(usage_error("", fmt::format("found no {} there, need a word of one of {}{}",
                                             name.quant, fmt::join(paths, ", "),
                                             models.size() > kMostListed ? ", ..." : "")),
                 name.repo);
}

/// `first` and the files behind it, where it is the first of several.
Result<std::vector<HubFile>> with_parts(const HubFile& first, std::span<const HubFile> files) {
  const auto split = parse_split_path(first.path);
  std::vector<HubFile> parts = {first};
  for (std::uint64_t i = 1; split && i < split->count; ++i) {
    const std::string path = split_path(split->name, i, split->count);
    const auto part = std::ranges::find(files, path, &HubFile::path);
    if (part == files.end()) {
      return in_file(Error{ErrorCode::kMalformed, "", "found no such part in the repository"},
                     path);
    }
    parts.push_back(*part);
  }
  return parts;
}

}  // namespace

Result<HubName> HubName::parse(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view repo = text.substr(0, colon);
  const std::string_view quant = text.substr(std::min(colon + 1, text.size()));
  const std::size_t slash = std::min(repo.find('/'), repo.size());
  if (!is_part(repo.substr(0, slash), "-_.") ||
      !is_part(repo.substr(std::min(slash + 1, repo.size())), "-_.") ||
      (colon < text.size() && (quant.empty() || !is_safe_hub_path(quant)))) {
    return usage_error("-hf",
                       fmt::format("found \"{:.100}\", need owner/repo or owner/repo:QUANT", text));
  }
  return HubName{std::string(repo), std::string(quant)};
}

Result<std::vector<HubFile>> choose_hub_files(const HubName& name, std::span<const HubFile> files) {
  std::vector<HubFile> models;
  std::ranges::copy_if(files, std::back_inserter(models), is_model);
  std::ranges::sort(models, {}, &HubFile::path);
  const HubFile* chosen = find_named(models, name.quant.empty() ? kUsualQuant : name.quant);
  if (chosen == nullptr && name.quant.empty() && !models.empty()) chosen = &models.front();
  if (chosen == nullptr) return no_such_model(name, models);
  return with_parts(*chosen, files);
}

bool is_safe_hub_path(std::string_view path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::ranges::none_of(path,
                              [](unsigned char c) { return c < ' ' || c == 127 || c == '\\'; });
}

}  // namespace llm
