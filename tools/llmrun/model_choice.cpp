#include "tools/llmrun/model_choice.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tools/common/model_files.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnModel = "fable-3m-q4_k_m.gguf";
constexpr std::size_t kMostListed = 20;

constexpr std::size_t kMostPromptBytes = Tokenizer::kMaxTextBytes;

/// What standard input is; 0: closed.
mode_t stdin_mode() {
  struct stat status {};
  return fstat(STDIN_FILENO, &status) == 0 ? status.st_mode : 0;
}

/// Whether somebody put something on standard input: a terminal, a device (/dev/null) and a closed
/// one hold no text.
bool stdin_is_given() {
  const mode_t mode = stdin_mode();
  return S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISREG(mode);
}

/// Whether a read would return at once, with text or at the end, within that time.
bool stdin_is_ready(int milliseconds, short* found = nullptr) {
  pollfd descriptor = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const bool ready = poll(&descriptor, 1, milliseconds) > 0;
  if (found != nullptr) *found = descriptor.revents;
  return ready;
}

std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::string> stdin_text() {
  constexpr int kPatience = 2000;
  if (!stdin_is_ready(kPatience)) {
    spdlog::warn("waiting for the prompt on standard input; use < /dev/null if there is none");
  }
  LLM_TRY(std::string text, read_stdin(kMostPromptBytes));
  return without_last_newline(std::move(text));
}

/// Warns of text that was piped in and is not read.
void note_unread_stdin() {
  short found = 0;
  if (S_ISFIFO(stdin_mode()) && stdin_is_ready(0, &found) && (found & POLLIN) != 0)
    spdlog::warn("standard input is not read, because there is a prompt; - adds it to the prompt");
}

}  // namespace

fs::path own_directory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

Result<std::string> resolve_model(const std::string& named) {
  std::error_code ignored;
  if (!fs::is_directory(named, ignored)) return named;
  LLM_TRY(std::vector<std::string> names, model_files(named));
  if (names.size() == 1) return (fs::path(named) / names.front()).string();
  if (names.empty()) {
    return in_file(Error{ErrorCode::kIo, "", "is a directory without a *.gguf, need a GGUF file"},
                   named);
  }
  const std::size_t n_models = names.size();
  names.resize(std::min(n_models, kMostListed));
  return in_file(
      usage_error("", fmt::format("found {} models in the directory, need one of {}{}", n_models,
                                  fmt::join(names, ", "), n_models > kMostListed ? ", ..." : "")),
      named);
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
    spdlog::warn("no model is given; using the bundled one, {}", path);
    return path;
  }
  return usage_error("MODEL", "found nothing, need a GGUF file", "llmrun --help shows the usage");
}

Result<std::string> read_prompt(const PromptSource& source) {
  std::string prompt = source.text.value_or("");
  const bool has_prompt = source.is_given();
  if (source.file && source.file != "-") {
    LLM_TRY(std::string text, read_text_file(*source.file, kMostPromptBytes));
    prompt = without_last_newline(std::move(text));
  }
  const bool only_stdin =
      source.file == "-" || (!has_prompt && source.may_read_stdin && stdin_is_given());
  if (only_stdin || source.add_stdin) {
    LLM_TRY(const std::string text, stdin_text());
    if (has_prompt && !only_stdin && !text.empty()) prompt += "\n\n";
    prompt += text;
  } else if (has_prompt && source.may_read_stdin) {
    note_unread_stdin();
  }
  if (prompt.size() > kMostPromptBytes) {
    return Error{ErrorCode::kResource, "prompt",
                 fmt::format("found {} bytes, need at most {}", prompt.size(), kMostPromptBytes)};
  }
  return prompt;
}

}  // namespace llm
