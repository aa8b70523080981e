// llmgguf: looks into GGUF files.

#include <fmt/core.h>

#include "tools/common/options.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmgguf/commands.h"

namespace llm {

Result<OpenGguf> open_gguf(const std::string& path) {
  LLM_TRY(MappedFile file, MappedFile::open(path));
  guard_mapped_file(path);
  auto gguf = GgufFile::parse(file.bytes());
  if (!gguf.ok()) return in_file(std::move(gguf).error(), path);
  return OpenGguf{std::move(file), std::move(gguf).value()};
}

namespace {

OptionTable make_table(GgufArguments& arguments) {
  OptionTable table("llmgguf", "Show, hash, verify and compare GGUF files");
  table
      .positional("VERB", &arguments.verb, true,
                  "show (metadata and tensors), hash (SHA-256 of the file and each tensor), "
                  "verify (everything that can be checked without running the model) or diff "
                  "(of two files; exit code 1 when they differ)")
      .one_of({"show", "hash", "verify", "diff"});
  table.positional("FILE", &arguments.file, true, "the GGUF").file();
  table.positional("OTHER", &arguments.other_file, false, "the second GGUF of diff").file();
  table.flag("json", &arguments.json, "print JSON");
  table.flag("a,all", &arguments.all, "show: print whole arrays and strings");
  table.flag("strict", &arguments.strict,
             "verify: trailing bytes and unknown tensors are errors instead of warnings");
  table.flag("vocab-only", &arguments.vocab_only,
             "verify: check the vocabulary only, for files without tensors");
  table.example("llmgguf show model.gguf", "print metadata and tensors");
  table.example("llmgguf verify model.gguf", "check the file without running it");
  table.example("llmgguf diff a.gguf b.gguf", "tell what differs");
  return table;
}

Error usage(std::string field, std::string message) {
  return Error{.code = ErrorCode::kUsage, .field = std::move(field), .message = std::move(message)};
}

Result<int> run(const GgufArguments& arguments, const ToolContext& context) {
  const bool is_diff = arguments.verb == "diff";
  if (is_diff && arguments.other_file.empty()) {
    return usage("OTHER", "found nothing, need the second file of diff");
  }
  if (!is_diff && !arguments.other_file.empty()) {
    return usage("OTHER", fmt::format("found \"{}\", need one file", arguments.other_file));
  }
  if (arguments.verb == "show") return show_gguf(arguments);
  if (arguments.verb == "hash") return hash_gguf(arguments, context);
  if (arguments.verb == "verify") return verify_gguf(arguments, context);
  if (is_diff) return diff_gguf(arguments, context);
  return usage("VERB",
               fmt::format("found \"{}\", need show, hash, verify or diff", arguments.verb));
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  llm::GgufArguments arguments;
  return llm::run_tool(
      argc, argv, [&] { return llm::make_table(arguments); },
      [&](const llm::ToolContext& context) { return llm::run(arguments, context); });
}
