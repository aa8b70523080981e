#include "tools/hub/hub_model.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tools/common/log.h"
#include "tools/common/progress.h"
#include "tools/hub/blob_download.h"
#include "tools/hub/http_call.h"
#include "tools/hub/hub_cache.h"
#include "tools/hub/hub_name.h"

namespace llm {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::string> cache_folder() {
  for (const auto& [variable, below] : {std::pair("HF_HUB_CACHE", ""), std::pair("HF_HOME", "/hub"),
                                        std::pair("XDG_CACHE_HOME", "/huggingface/hub"),
                                        std::pair("HOME", "/.cache/huggingface/hub")}) {
    if (const std::string folder = environment(variable); !folder.empty()) return folder + below;
  }
  return usage_error("-hf",
                     "found none of HF_HUB_CACHE, HF_HOME and HOME, need a folder for models");
}

bool is_offline() {
  std::string value = environment("HF_HUB_OFFLINE");
  for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

/// `path` as it stands in an address.
std::string escaped(std::string_view path) {
  constexpr std::string_view kPlain = "-_.~/";
  std::string result;
  for (const unsigned char c : path) {
    const bool is_plain =
        (c < 128 && std::isalnum(c) != 0) || kPlain.find(static_cast<char>(c)) != kPlain.npos;
    result += is_plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return result;
}

constexpr std::size_t kMostAnswerBytes = 64 << 20;
constexpr long kMostAnswerSeconds = 300;
constexpr std::size_t kCommitDigits = 40;
constexpr std::size_t kSha256Digits = 64;

/// A commit of a repository with its files.
struct Listing {
  std::string commit;
  std::vector<HubFile> files;
};

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Arrays and objects in each other in a hub's answers. Each level costs many times its byte.
constexpr std::size_t kMostLevels = 64;

/// The hub's answer to /api/models/REPO/revision/main?blobs=true.
Result<Listing> read_listing(std::string_view text) {
  Listing listing;
  try {
    const Json json = json_levels(text) > kMostLevels ? Json() : parse_json(text);
    listing.commit = json.at("sha").get<std::string>();
    for (const Json& sibling : json.at("siblings")) {
      HubFile file{sibling.at("rfilename").get<std::string>()};
      if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
        const Json& size = lfs->at("size");
        if (!size.is_number_unsigned()) {
          return Error{ErrorCode::kMalformed, "size",
                       fmt::format("found {} of {:.100}, need an integer from 0 on", size.dump(),
                                   file.path)};
        }
        file.size = size.get<std::uint64_t>();
        file.sha256 = lfs->at("sha256").get<std::string>();
      }
      if (is_safe_hub_path(file.path)) listing.files.push_back(std::move(file));
    }
  } catch (const Json::exception&) {
    listing.commit.clear();
  }
  if (is_hex(listing.commit, kCommitDigits)) return listing;
  return Error{ErrorCode::kMalformed, "", "found a response that is not that of a hub"};
}

class Hub {
 public:
  Hub(HubName name, HubCache cache, const ToolContext& context)
      : name_(std::move(name)), cache_(std::move(cache)), context_(context) {}

  Result<std::string> find() {
    const std::string variable = environment("HF_ENDPOINT");
    endpoint_ = variable.empty() ? "https://huggingface.co" : variable;
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    if (!endpoint_.starts_with("https://") && !endpoint_.starts_with("http://"))
      return usage_error("HF_ENDPOINT", fmt::format("found \"{}\", need https://...", endpoint_));
    if (is_offline())
      return cached(usage_error("-hf", "found HF_HUB_OFFLINE set and no such model in the cache"));
    std::string body;
    HttpCall request =
        request_of(fmt::format("/api/models/{}/revision/main?blobs=true", name_.repo));
    request.most_bytes = kMostAnswerBytes;
    request.most_seconds = kMostAnswerSeconds;
    request.take = [&](std::uint64_t, std::span<const std::byte> bytes) {
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return true;
    };
    const auto answer = http_call(request);
    if (!answer.ok() && answer.error().code != ErrorCode::kIo) return answer.error();
    if (!answer.ok()) return cached(answer.error());
    if (answer->status != 200) {
      const Error error = refusal(request.url, *answer);
      return answer->may_pass() ? cached(error) : error;
    }
    LLM_TRY(const Listing listing, in_file(read_listing(body), request.url));
    LLM_TRY(const std::vector<HubFile> files, choose_hub_files(name_, listing.files));
    cache_.remove_stale(listing.files);
    for (const HubFile& file : files) LLM_RETURN_IF_ERROR(fetch(listing.commit, file));
    return cache_.add(listing.commit, files);
  }

 private:
  HttpCall request_of(const std::string& path) const {
    return {.url = endpoint_ + path, .token = environment("HF_TOKEN"), .take = {}};
  }

  Error refusal(const std::string& url, const HttpReply& answer) const {
    Error error{ErrorCode::kIo, "", fmt::format("found status {}", answer.status)};
    if (!answer.error_code.empty()) error.message += fmt::format(" ({})", answer.error_code);
    if (answer.error_code == "GatedRepo") {
      error.hint = fmt::format("agree to its terms at {}/{} and give your token in HF_TOKEN",
                               endpoint_, name_.repo);
    } else if (answer.status == 401 || answer.status == 403 || answer.status == 404) {
      error.hint = "there is no such repository, or HF_TOKEN has no token that may read it";
    }
    return in_file(error, url);
  }

  /// The model in the cache, since the hub does not answer; `reason` where it is not there.
  Result<std::string> cached(const Error& reason) const {
    const auto files = choose_hub_files(name_, cache_.files());
    if (!files.ok()) return reason;
    std::string path = cache_.path(files->front());
    if (!is_offline()) spdlog::warn("{}; using {}", reason.to_string(), path);
    return path;
  }

  Status fetch(const std::string& commit, const HubFile& file) const {
    const HttpCall request =
        request_of(fmt::format("/{}/resolve/{}/{}", name_.repo, commit, escaped(file.path)));
    if (!is_hex(file.sha256, kSha256Digits)) {
      return in_file(
          Error{ErrorCode::kUnsupported, "", "found no SHA-256 of it on the hub, need one"},
          request.url);
    }
    const auto wait = [&] {
      write_message(fmt::format("{}: another process downloads {}; waiting\n", tool(), file.path));
    };
    return cache_.fetch_once(file, wait, [&] {
      if (!context_.quiet())
        write_message(fmt::format("{}: downloading {} ({:.1f} MB)\n", tool(), request.url,
                                  static_cast<double>(file.size) * 1e-6));
      ProgressBar bar(!context_.quiet(), "B");
      return download_blob(
          request, file, cache_.blob(file),
          [&](const HttpReply& answer) { return refusal(request.url, answer); },
          [&](std::uint64_t done) { bar(file.path, done, file.size); });
    });
  }

  const std::string& tool() const { return context_.options.tool(); }

  HubName name_;
  HubCache cache_;
  const ToolContext& context_;
  std::string endpoint_;
};

}  // namespace

void add_hub_option(OptionTable& table, std::string* name) {
  table
      .text("hf,hfr,hf-repo", "REPO[:QUANT]", name,
            "instead of MODEL: a model on the Hugging Face hub. It is downloaded into the usual "
            "cache of the hub, unless it is there already, and its SHA-256 is checked. Without "
            "QUANT: the Q4_K_M file if there is one, else the first GGUF file")
      .in_place_of("MODEL");
}

Status fetch_hub_model(const std::string& name, const ToolContext& context, std::string& path) {
  if (name.empty()) return Ok{};
  if (!path.empty())
    return usage_error("-hf", "found together with a different model, need only one");
  LLM_TRY(HubName parsed, HubName::parse(name));
  LLM_TRY(const std::string folder, cache_folder());
  HubCache cache(folder, parsed.repo);
  LLM_TRY(path, Hub(std::move(parsed), std::move(cache), context).find());
  spdlog::info("{} is {}", name, path);
  return Ok{};
}

namespace {

struct CachedFiles {
  HubCache cache;
  std::vector<HubFile> files;
};

Result<CachedFiles> find_cached(const std::string& name) {
  LLM_TRY(const HubName parsed, HubName::parse(name));
  LLM_TRY(const std::string folder, cache_folder());
  HubCache cache(folder, parsed.repo);
  const std::vector<HubFile> all = cache.files();
  if (all.empty()) {
    return Error{ErrorCode::kIo, name, "found nothing of it in the cache",
                 /*offset=*/std::nullopt, folder};
  }
  LLM_TRY(auto files, choose_hub_files(parsed, all));
  return CachedFiles{std::move(cache), std::move(files)};
}

}  // namespace

Result<std::vector<CachedModel>> cached_models() {
  constexpr std::string_view kPrefix = "models--";
  LLM_TRY(const std::string folder, cache_folder());
  std::vector<CachedModel> models;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::string repo = entries->path().filename().string();
    const std::size_t split = repo.find("--", kPrefix.size());
    if (!repo.starts_with(kPrefix) || split == std::string::npos) continue;
    repo = repo.replace(split, 2, "/").substr(kPrefix.size());
    const HubCache cache(folder, repo);
    const std::vector<HubFile> all = cache.files();
    for (const HubFile& file : all) {
      const auto files = choose_hub_files({repo, file.path}, all);
      if (!files.ok() || files->front() != file) continue;  // no model, or a later part
      CachedModel model{fmt::format("{}:{}", repo, file.path), cache.path(file)};
      for (const HubFile& part : *files) {
        std::error_code ignored;
        model.bytes += std::filesystem::file_size(cache.path(part), ignored);
      }
      models.push_back(std::move(model));
    }
  }
  std::ranges::sort(models, {}, &CachedModel::name);
  return models;
}

Result<std::string> find_cached_model(const std::string& name) {
  LLM_TRY(const CachedFiles found, find_cached(name));
  return found.cache.path(found.files.front());
}

Status remove_cached_model(const std::string& name) {
  LLM_TRY(const CachedFiles found, find_cached(name));
  return found.cache.remove(found.files);
}

}  // namespace llm
