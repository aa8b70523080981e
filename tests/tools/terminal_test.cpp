// What the tools show on a terminal: never a byte that steers it, whoever wrote the files.
// script(1) is the terminal.

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"
#include "tools/common/word_wrap.h"

namespace llm::test {
namespace {

const std::string kHostile = "\x1b]0;owned\x07\u202e";

/// Without the newlines that end lines, nothing below 0x20 may come out.
bool is_clean(const std::string& text) {
  return text.find_first_of("\x1b\x07\x08\x7F") == std::string::npos &&
         text.find("\u202e") == std::string::npos;
}

/// Runs `command` of bash with its streams on a terminal that understands escapes.
std::string on_terminal(const std::string& command) {
  const ScratchDirectory directory;
  const std::string file = directory.write("command", command);
  return run_shell("TERM=xterm script -qec 'bash " + file + "' /dev/null < /dev/null").out;
}

TEST_CASE("a file's name cannot steer a terminal", "[terminal]") {
  const ScratchDirectory directory;
  const std::string path = directory / ("a" + kHostile + ".gguf");
  const auto [tool, option] = GENERATE(table<std::string, std::string>(
      {{"llmgguf", "show"},
       {"llmgguf", "verify"},
       {"llmgguf", "hash"},
       {"llmcheck", "--ppl=" LLM_SOURCE_DIR "/models/training/requirements.txt"},
       {"llmrun", "-n0"},
       {"llmtok", "--prompt=a"}}));
  CAPTURE(tool, option);
  const Finished missing =
      run_tool(tool, {option, path}).must_end(4, {"a\\x1b]0;owned\\x07\\u202e.gguf"});
  CHECK(is_clean(missing.err));
  // The file is there, and worth a warning.
  TinyGguf model = TinyGguf::llama();
  model.set_pieces({{270, TinyGguf::pieces()[269]}});
  directory.write("a" + kHostile + ".gguf", model.bytes());
  const Finished found = run_tool(tool, {option, path}).must_end(0);
  CHECK(is_clean(found.out));
  CHECK(is_clean(found.err));
}

TEST_CASE("a key of 64 KiB is named in a line", "[terminal]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  const std::string key(65535, 'k');
  model.set_u32(key, 1);
  const std::string path = directory.write("m.gguf", model.bytes());
  const Finished show =
      run_tool("llmgguf", {"show", path}).must_end(0, {}, {"kkk... (65535 bytes)"});
  CHECK(show.out.size() < 8000);
  const auto json = test::parse_json(run_tool("llmgguf", {"show", path, "--json"}).out);
  CHECK(json["metadata"].contains(key));
  model.set_encoded(key, static_cast<std::uint32_t>(GgufType::kBool), "\x07");
  const Finished refused = run_tool("llmgguf", {"show", directory.write("m.gguf", model.bytes())})
                               .must_end(3, {"kkk... (655"});
  CHECK(refused.err.size() < 500);
}

TEST_CASE("a model cannot steer the terminal that its text is shown on", "[terminal]") {
  const ScratchDirectory directory;
  // Every piece that is no byte, and so every token that greedy decoding may choose.
  TinyGguf model = TinyGguf::llama();
  std::map<std::size_t, std::string> pieces;
  for (std::size_t id = 259; id < TinyGguf::pieces().size(); ++id)
    pieces[id] = "\x1b[3" + std::to_string(id) + "m";
  model.set_pieces(pieces);
  const std::string path = directory.write("m.gguf", model.bytes());
  const std::string run = tool_path("llmrun") + " '" + path + "' -n 40 --temp 3 -s 1 --ignore-eos";
  // a result: its bytes are kept
  const Finished piped = run_shell(run + " -q -p a");
  CHECK_THAT(piped.out, Contains("\x1b[3"));
  for (const auto& [command, words] : std::map<std::string, std::string>{
           {run + " -q -p a", "\\x1b[3"},
           {run + " -q -i --chat-template zephyr <<< a", "\\x1b[3"},
           {tool_path("llmtok") + " '" + path + "' --decode -p \"260 261\"", "\\x1b[3260m"}}) {
    const std::string shown = on_terminal(command);
    CAPTURE(command, shown);
    CHECK(is_clean(shown));
    CHECK_THAT(shown, Contains(words));
  }
}

TEST_CASE("progress is gone when the text begins", "[terminal]") {
  const std::string source = LLM_SOURCE_DIR;
  const std::string out = on_terminal(tool_path("llmrun") + " " + source +
                                      "/models/fable-3m-f16.gguf -t 1 -n 1 -p \"$(head -c 1500 " +
                                      source + "/models/heldout.txt)\"");
  const std::size_t last = out.rfind("\rprefill");
  CAPTURE(out.size(), last);
  if (last == std::string::npos) return;  // read faster than anything is drawn
  const std::size_t end = out.find("\x1b[K", last);
  REQUIRE(end != std::string::npos);
  CHECK(out.substr(end + 3, 1) == "\r");
}

TEST_CASE("progress has rate and time left and never wraps", "[terminal]") {
  const std::string model = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";
  const std::string text = LLM_SOURCE_DIR "/models/heldout.txt";
  const std::string job =
      tool_path("llmcheck") + " -t 1 " + model + " --ppl " + text + " --ppl-sample 300";
  const auto columns = GENERATE(std::size_t{30}, std::size_t{100});
  const std::string out = on_terminal("stty cols " + std::to_string(columns) + "; " + job);
  std::size_t drawn = 0;
  for (std::size_t at = out.find("\rscoring"); at != std::string::npos;) {
    const std::string line = out.substr(at + 1, out.find('\x1b', at) - at - 1);
    CAPTURE(line);
    CHECK(line.size() < columns);
    at = out.find("\rscoring", at + 1);
    CHECK_THAT(line, Contains("%") && Contains(" left"));
    if (columns == 100) CHECK_THAT(line, Contains("[") && Contains(" steps/s"));
    ++drawn;
  }
  CHECK(drawn >= 1);
  CHECK_THAT(out, Contains("perplexity"));
}

/// What a terminal of that width shows: the characters and sequences that WordWrap sends.
std::vector<std::string> shown_lines(const std::string& sent, std::size_t columns) {
  std::vector<std::string> lines = {""};  // of one byte a cell
  std::size_t column = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    std::string& line = lines.back();
    if (sent[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (sent[i] == '\r') {
      column = 0;
    } else if (sent.compare(i, 3, "\x1b[K") == 0) {
      line.resize(column);
      i += 2;
    } else if (sent.compare(i, 2, "\x1b[") == 0) {
      const std::size_t end = sent.find('C', i);
      column += std::stoul(sent.substr(i + 2, end - i - 2));
      i = end;
    } else {
      if (column == columns) {
        lines.emplace_back();
        column = 0;
      }
      std::string& at = lines.back();
      at.resize(std::max(at.size(), column + 1), ' ');
      at[column++] = sent[i];
    }
  }
  return lines;
}

TEST_CASE("words wrap, however they come", "[terminal]") {
  const std::string text =
      "The quick brown fox jumps over the lazy dog. Exactly twenty here x\n"
      "a-word-that-is-longer-than-a-line and one  more\tend\n\n  indented\n"
      "exactly twenty chars and";
  const std::vector<std::string> expected = {"The quick brown fox ",
                                             "jumps over the lazy ",
                                             "dog. Exactly twenty ",
                                             "here x",
                                             "a-word-that-is-longe",
                                             "r-than-a-line and ",
                                             "one  more       end",
                                             "",
                                             "  indented",
                                             "exactly twenty chars",
                                             "and"};
  const std::size_t piece = GENERATE(1, 2, 3, 7, 1000);
  WordWrap wrap;
  std::string sent;
  for (std::size_t i = 0; i < text.size(); i += piece) sent += wrap.add(text.substr(i, piece), 20);
  // The emulation has no tabs.
  for (std::size_t tab = 0; (tab = sent.find('\t')) != std::string::npos;)
    sent.replace(tab, 1, std::string(7, ' '));
  CAPTURE(piece);
  REQUIRE(shown_lines(sent, 20) == expected);
  REQUIRE(WordWrap().add(text, 0) == text);
}

TEST_CASE("wide characters take two columns and break anywhere", "[terminal]") {
  use_utf8();
  WordWrap wrap;
  const std::string wide = "\xE6\xBC\xA2";
  std::string nine;
  for (int i = 0; i < 9; ++i) nine += wide;
  REQUIRE(wrap.add(nine + "a" + wide + "bc def", 20) == nine + "a\n" + wide + "bc def");
  REQUIRE(wrap.add(" 0123456789ab", 20) == " 0123456789a\r\x1b[9C\x1b[K\n0123456789ab");
}

}  // namespace
}  // namespace llm::test
