// llmtok: a GGUF's tokenizer on the command line.

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/shown_text.h"
#include "engine/gguf/gguf_split.h"
#include "engine/model/model_file.h"
#include "tokenizer/tokenizer.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"
#include "tools/hub/hub_model.h"
#include "tools/llmtok/special.h"

namespace llm {
namespace {

constexpr int kSchemaVersion = 1;
constexpr std::size_t kMaxReferenceBytes = std::size_t{1} << 30;

struct Arguments {
  std::string model;
  std::string hub_model;
  std::string prompt;
  std::string file;
  bool from_stdin = false;
  bool ids = false;
  bool no_bos = false;
  bool no_space_prefix = false;
  bool parse_special = false;
  bool decode = false;
  bool json = false;
  bool special = false;
  std::string check;
};

OptionTable make_table(Arguments& arguments) {
  OptionTable table("llmtok", "Encode text with the tokenizer of a GGUF file, and decode ids");
  table.positional("MODEL", &arguments.model, false, "GGUF file; it need not contain tensors")
      .file();
  table.group("Model");
  table.file("m,model", "FILE", &arguments.model, "the same as MODEL").in_place_of("MODEL");
  add_hub_option(table, &arguments.hub_model);
  table.group("Input (one of)");
  table.text("p,prompt", "TEXT", &arguments.prompt,
             "text to encode; with --decode: the ids to decode");
  table.file("f,file", "FILE", &arguments.file,
             "read the text (with --decode: the ids) from a file");
  table.flag("stdin", &arguments.from_stdin,
             "read the text (with --decode: the ids) from standard input");
  table.file("check", "REF.jsonl", &arguments.check,
             "encode the texts in this JSON Lines file and compare with its ids; each line has the "
             "keys \"text\" and \"ids\". Exit code 1 on a difference");
  table.flag("special", &arguments.special,
             "list the special tokens: BOS, fill-in-the-middle tokens, end tokens");
  table.group("Encoding");
  table.flag("no-bos", &arguments.no_bos, "do not add the BOS token");
  table.flag("no-space-prefix", &arguments.no_space_prefix,
             "do not add a space before the text, even if the model requires it");
  table.flag("parse-special", &arguments.parse_special,
             "parse special tokens such as </s> in the text");
  table.group("Output");
  table.flag("ids", &arguments.ids, "print only the ids, on one line");
  table.flag("decode", &arguments.decode, "turn ids into text");
  table.flag("json", &arguments.json, "print one JSON object");
  table.example("llmtok model.gguf -p \"Hello world\"", "print the tokens of a text");
  table.example("llmtok model.gguf -p \"1 15043\" --decode", "turn ids into text");
  return table;
}

Result<Tokenizer> open_tokenizer(const std::string& path) {
  LLM_TRY(const OpenGguf open, open_gguf_file(path));
  std::vector<std::string> warnings;
  auto spec = vocab_from_gguf(open.gguf, warnings);
  for (const std::string& warning : warnings) spdlog::warn("{}: {}", path, warning);
  if (!spec.ok()) return in_file(spec.error(), path);
  auto tokenizer = Tokenizer::create(std::move(spec).value());
  if (!tokenizer.ok()) return in_file(tokenizer.error(), path);
  return tokenizer;
}

Result<std::string> read_input(const Arguments& arguments, const OptionTable& table) {
  const int sources = table.given("p") + table.given("f") + arguments.from_stdin;
  if (sources != 1) {
    return usage_error(
        "input",
        fmt::format("found {} inputs, need one of -p, -f, --stdin, --check, --special", sources));
  }
  if (arguments.from_stdin) return read_stdin(Tokenizer::kMaxTextBytes);
  if (table.given("f")) return read_text_file(arguments.file, Tokenizer::kMaxTextBytes);
  return arguments.prompt;
}

/// Decimal ids, separated by whitespace or commas, perhaps in brackets.
Result<std::vector<TokenId>> parse_ids(const std::string& text, const Tokenizer& tokenizer) {
  constexpr std::string_view kSeparators = " \t\r\n,[]";
  std::vector<TokenId> ids;
  std::size_t begin = text.find_first_not_of(kSeparators);
  while (begin != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const auto id = parse_integer(word);
    if (!id || *id < 0 || *id >= static_cast<std::int64_t>(tokenizer.size())) {
      return usage_error("--decode", fmt::format("found \"{:.40}\", need token ids 0..{}", word,
                                                 tokenizer.size() - 1));
    }
    ids.push_back(static_cast<TokenId>(*id));
    begin = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

/// A token as a line shows it: pieces as quoted text, the others by their spelling.
std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  const bool is_text = tokenizer.kind(id) != TokenKind::kControl &&
                       tokenizer.kind(id) != TokenKind::kUnknown &&
                       tokenizer.kind(id) != TokenKind::kByte;
  return is_text ? quoted(tokenizer.piece_text(id), kLineBytes) : shown(tokenizer.spelling(id));
}

Status print_ids(const Arguments& arguments, const Tokenizer& tokenizer, const std::string& text,
                 const std::vector<TokenId>& ids) {
  if (arguments.json) {
    Json pieces = Json::array();
    for (const TokenId id : ids) pieces.push_back(tokenizer.spelling(id));
    return write_stdout(
        json_text(Json{
            {"schema_version", kSchemaVersion}, {"text", text}, {"ids", ids}, {"pieces", pieces}}) +
        "\n");
  }
  std::string out;
  if (arguments.ids) {
    out = fmt::format("{}\n", fmt::join(ids, " "));
  } else {
    for (const TokenId id : ids) out += fmt::format("{:6}  {}\n", id, token_text(tokenizer, id));
  }
  return write_stdout(out);
}

Status print_text(const Arguments& arguments, const Tokenizer& tokenizer,
                  const std::vector<TokenId>& ids) {
  std::string text = tokenizer.decode(
      ids, {.render_special = arguments.parse_special, .keep_invalid = !arguments.json});
  if (arguments.json) {
    return write_stdout(
        json_text(Json{{"schema_version", kSchemaVersion}, {"ids", ids}, {"text", text}}) + "\n");
  }
  if (isatty(STDOUT_FILENO) == 1) text += '\n';  // elsewhere the text goes out exactly
  return write_generated(text);
}

Result<int> run_check(const Arguments& arguments, const Tokenizer& tokenizer) {
  LLM_TRY(const std::string reference, read_text_file(arguments.check, kMaxReferenceBytes));
  auto checked = check_tokens(tokenizer, reference, arguments.parse_special);
  if (!checked.ok()) return in_file(checked.error(), arguments.check);
  std::string out;
  Json mismatches = Json::array();
  for (const auto& mismatch : checked->mismatches) {
    mismatches.push_back({{"line", mismatch.line},
                          {"text", mismatch.text},
                          {"expected", mismatch.expected},
                          {"found", mismatch.found},
                          {"first", mismatch.first}});
    out += fmt::format("line {}: {}\n  expected {}\n  found    {}\n  first difference at id {}\n",
                       mismatch.line, quoted(mismatch.text, kLineBytes),
                       fmt::join(mismatch.expected, " "), fmt::join(mismatch.found, " "),
                       mismatch.first);
  }
  if (arguments.json) {
    out = json_text(Json{{"schema_version", kSchemaVersion},
                         {"matched", checked->matched},
                         {"total", checked->total},
                         {"mismatches", mismatches}}) +
          "\n";
  } else {
    out += fmt::format("{}/{} match\n", checked->matched, checked->total);
  }
  LLM_RETURN_IF_ERROR(write_stdout(out));
  return checked->passed() ? 0 : kExitVerdictFailed;
}

Status print_special(const Arguments& arguments, const Tokenizer& tokenizer) {
  if (!arguments.json) return write_stdout(special_tokens_text(tokenizer));
  return write_stdout(json_text(Json{{"schema_version", kSchemaVersion},
                                     {"special", special_tokens_json(tokenizer)}}) +
                      "\n");
}

Result<int> run(Arguments& arguments, const ToolContext& context) {
  const OptionTable& table = context.options;
  const std::string& path = arguments.model;
  LLM_RETURN_IF_ERROR(fetch_hub_model(arguments.hub_model, context, arguments.model));
  if (path.empty()) return usage_error("MODEL", "found no model, need a GGUF file");
  if (const bool check = table.given("check"); check || arguments.special) {
    if (table.given("p") || table.given("f") || arguments.from_stdin || arguments.decode ||
        (check && arguments.special)) {
      const std::string option = check ? "--check" : "--special";
      return usage_error(option, fmt::format("found a second input, need only {}", option));
    }
    LLM_TRY(const Tokenizer tokenizer, open_tokenizer(path));
    if (check) return run_check(arguments, tokenizer);
    LLM_RETURN_IF_ERROR(print_special(arguments, tokenizer));
    return 0;
  }
  LLM_TRY(const std::string text, read_input(arguments, table));
  LLM_TRY(const Tokenizer tokenizer, open_tokenizer(path));
  if (arguments.decode) {
    LLM_TRY(const std::vector<TokenId> ids, parse_ids(text, tokenizer));
    LLM_RETURN_IF_ERROR(print_text(arguments, tokenizer, ids));
    return 0;
  }
  EncodeOptions options;
  if (arguments.no_bos) options.add_bos = false;
  if (arguments.no_space_prefix) options.add_space_prefix = false;
  options.parse_special = arguments.parse_special;
  LLM_RETURN_IF_ERROR(print_ids(arguments, tokenizer, text, tokenizer.encode(text, options)));
  return 0;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) { return llm::run_tool(argc, argv, llm::make_table, llm::run); }
