#include "tools/llmrun/subcommands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tools/common/tool.h"
#include "tools/hub/hub_model.h"
#include "tools/llmrun/model_choice.h"
#include "tools/llmrun/replay.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A path, or a name on the hub after -hf.
std::vector<std::string> model_words(const std::string& name) {
  if (name.starts_with('-') || is_file(name)) return {name};
  return {"-hf", name};
}

/// What llmrun takes in place of `llmrun run MODEL [PROMPT]`: a chat on a terminal, else one
/// answer.
std::vector<std::string> words_of_run(const std::vector<std::string>& words) {
  std::vector<std::string> made = {"llmrun"};
  bool has_prompt = false;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const bool is_option = words[i].starts_with('-');
    if (i == 2) {
      const auto model = model_words(words[i]);
      made.insert(made.end(), model.begin(), model.end());
    } else if (i == 3 && !is_option) {
      has_prompt = true;
      made.insert(made.end(), {"--chat", "-p", words[i]});
    } else {
      made.push_back(words[i]);
    }
  }
  if (!has_prompt) made.push_back(isatty(STDIN_FILENO) == 1 ? "-i" : "--chat");
  return made;
}

/// Becomes the tool beside this one.
Result<int> become(const std::string& tool, std::vector<std::string> words) {
  const std::string path = (own_directory() / tool).string();
  words.insert(words.begin(), tool);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return in_file(Error{ErrorCode::kIo, "", std::strerror(errno)}, path);
}

OptionTable table_of(std::string_view verb, std::string summary, std::string* name) {
  OptionTable table(fmt::format("llmrun {}", verb), std::move(summary));
  if (name != nullptr) table.positional("MODEL", name, true, "OWNER/REPO[:QUANT] on the hub");
  return table;
}

std::string shown_size(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

Result<int> list() {
  LLM_TRY(const auto models, cached_models());
  std::size_t width = 0;
  for (const CachedModel& model : models) width = std::max(width, model.name.size());
  for (const CachedModel& model : models)
    LLM_RETURN_IF_ERROR(
        write_stdout(fmt::format("{:<{}}  {:>12}\n", model.name, width, shown_size(model.bytes))));
  return 0;
}

Result<int> pull(const std::string& name, const ToolContext& context) {
  std::string path;
  LLM_RETURN_IF_ERROR(fetch_hub_model(name, context, path));
  LLM_RETURN_IF_ERROR(write_stdout(path + "\n"));
  return 0;
}

Result<int> show(const std::string& name) {
  if (is_file(name)) return become("llmgguf", {"show", name});
  LLM_TRY(std::string path, find_cached_model(name));
  return become("llmgguf", {"show", std::move(path)});
}

Result<int> remove(const std::string& name) {
  LLM_RETURN_IF_ERROR(remove_cached_model(name));
  return 0;
}

/// A verb with at most one argument.
int run_verb(int argc, char** argv, std::string_view verb) {
  std::string name;
  const auto table = [&]() -> OptionTable {
    if (verb == "list") return table_of(verb, "List the models in the hub's cache", nullptr);
    if (verb == "pull") return table_of(verb, "Download a model into the hub's cache", &name);
    if (verb == "show") return table_of(verb, "Describe a model's file, as llmgguf does", &name);
    if (verb == "run") return table_of(verb, "Chat with a model, or answer one prompt", &name);
    return table_of(verb, "Remove a model from the hub's cache", &name);
  };
  const auto body = [&](const ToolContext& context) -> Result<int> {
    if (verb == "list") return list();
    if (verb == "pull") return pull(name, context);
    if (verb == "show") return show(name);
    return remove(name);
  };
  argv[1] = argv[0];  // whom messages name
  return run_tool(argc - 1, argv + 1, table, body);
}

}  // namespace

int run_subcommand(int& argc, char**& argv) noexcept {
  constexpr std::string_view kVerbs[] = {"run", "serve", "list", "pull", "show", "rm", "replay"};
  if (argc < 2 || std::ranges::find(kVerbs, argv[1]) == std::end(kVerbs)) return -1;
  static std::vector<std::string> words;  // argv is made of them
  words.assign(argv, argv + argc);
  const std::string verb = words[1];
  if (is_file(verb)) return -1;
  if (verb == "replay") return run_replay(argc, argv);
  if (verb != "serve" && (verb != "run" || argc == 2)) return run_verb(argc, argv, verb);
  if (verb == "serve") {
    std::vector<std::string> rest;
    if (words.size() > 2) rest = model_words(words[2]);
    for (std::size_t i = 3; i < words.size(); ++i) rest.push_back(words[i]);
    return run_tool(
        1, argv, [] { return OptionTable("llmrun serve", "Serve a model, as llmserve does"); },
        [&](const ToolContext&) { return become("llmserve", rest); });
  }
  words = words_of_run(words);
  static std::vector<char*> changed;
  changed.clear();
  for (std::string& word : words) changed.push_back(word.data());
  argc = static_cast<int>(changed.size());
  changed.push_back(nullptr);
  argv = changed.data();
  return -1;
}

}  // namespace llm
