#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

// Ids of TinyGguf's vocabulary: bytes from 3 on, then its pieces.
constexpr int kThe = 261;    // "▁the"
constexpr int kA = 263;      // "▁a"
constexpr int kSpace = 264;  // "▁"

/// A vocabulary without tensors in a folder of its own.
class Fixture {
 public:
  Fixture() {
    TinyGguf gguf = TinyGguf::llama();
    gguf.tensors.clear();
    model_ = folder_.write("vocab.gguf", gguf.bytes());
  }

  Finished run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), model_);
    return run_tool("llmtok", arguments);
  }

  /// stdout of the tool with `input` on stdin; "" if it fails.
  std::string piped(const std::string& flags, const std::string& input) const {
    const std::string in = folder_.write("in", input);
    std::vector<std::string> arguments = {model_, "--stdin"};
    if (!flags.empty()) arguments.push_back(flags);
    const Finished run = run_tool("llmtok", arguments, in);
    return run.exit_code == 0 ? run.out : "";
  }

  const ScratchDirectory& folder() const { return folder_; }
  const std::string& model() const { return model_; }

 private:
  ScratchDirectory folder_;
  std::string model_;
};

std::string ids_line(const std::vector<int>& ids) {
  return fmt::format("{}\n", fmt::join(ids, " "));
}

}  // namespace

TEST_CASE("--no-space-prefix leaves the dummy space out", "[llmtok]") {
  const std::string model = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";
  const auto ids = [&](const std::string& text, const std::string& option) {
    return run_tool("llmtok", {model, "-p", text, "--ids", option}).out;
  };
  CHECK(ids("the", "--no-space-prefix") != ids("the", "-q"));
  CHECK(ids(" the", "--no-space-prefix") == ids("the", "-q"));
}

TEST_CASE("llmtok encodes with a vocabulary alone", "[tools][llmtok]") {
  const Fixture tok;
  CHECK(tok.run({"-p", "the a", "--ids"}).out == ids_line({1, kThe, kA}));
  CHECK(tok.run({"-p", "the", "--ids", "--no-bos"}).out == ids_line({kThe}));
  CHECK(tok.run({"-p", "", "--ids"}).out == ids_line({1}));  // empty text: BOS only
  CHECK(tok.run({"-p", "the\n"}).out == "     1  <s>\n   261  \" the\"\n    13  <0x0A>\n");
  CHECK(run_tool("llmtok", {"-m", tok.model(), "-p", "the", "--ids"}).out == ids_line({1, kThe}));
}

TEST_CASE("llmtok reads control tokens as text unless told", "[tools][llmtok]") {
  const Fixture tok;
  CHECK(tok.run({"-p", "</s>", "--ids", "--no-bos"}).out ==
        ids_line({kSpace, 3 + '<', 3 + '/', 271, 3 + '>'}));
  CHECK(tok.run({"-p", "a</s>the", "--ids", "--parse-special"}).out == ids_line({1, kA, 2, kThe}));
}

TEST_CASE("llmtok takes any bytes from stdin and files, and gives them back", "[tools][llmtok]") {
  const Fixture tok;
  const std::string bytes("the\xFF\0\xE2\x96 a", 9);
  const std::string ids = ids_line({1, kThe, 3 + 0xFF, 3, 3 + 0xE2, 3 + 0x96, kA});
  CHECK(tok.piped("--ids", bytes) == ids);
  CHECK(tok.run({"-f", tok.folder().write("text", bytes), "--ids"}).out == ids);
  CHECK((tok.piped("--decode", ids) == bytes));
}

TEST_CASE("llmtok prints JSON", "[tools][llmtok]") {
  const Fixture tok;
  const auto encoded = test::parse_json(tok.run({"-p", "the", "--json"}).out);
  CHECK(encoded == Json({{"schema_version", 1},
                         {"text", "the"},
                         {"ids", {1, kThe}},
                         {"pieces", {"<s>", "\u2581the"}}}));
  const auto decoded = test::parse_json(tok.run({"--decode", "-p", "258 261", "--json"}).out);
  CHECK(decoded.at("text") == "\uFFFD the");
}

TEST_CASE("llmtok turns ids into text", "[tools][llmtok]") {
  const Fixture tok;
  CHECK(tok.run({"--decode", "-p", "[1, 261, 263]"}).out == "the a");
  CHECK(tok.run({"--decode", "-p", "1 261 2", "--parse-special"}).out == "<s>the</s>");
  for (const char* bad : {"272", "-1", "1 x", "1.5", "99999999999999999999"}) {
    const Finished result =
        tok.run({"--decode", "-p", bad}).must_end(2, {"--decode", "need token ids 0..271"});
    CAPTURE(bad);
    CHECK(result.out.empty());
  }
}

TEST_CASE("llmtok --special lists the tokens with a part of their own", "[tools][llmtok]") {
  TinyGguf gguf = TinyGguf::llama();
  auto pieces = TinyGguf::pieces();
  pieces[262] = "<fim_prefix>";
  pieces[270] = "<fim_pad>";
  gguf.set_strings("tokenizer.ggml.tokens", pieces);
  const ScratchDirectory folder;
  const std::string model = folder.write("vocab.gguf", gguf.bytes());
  CHECK(run_tool("llmtok", {model, "--special"}).out ==
        "bos                      1  <s>\n"
        "eos                      2  </s>\n"
        "unknown                  0  <unk>\n"
        "fim prefix             262  <fim_prefix>\n"
        "fim pad                270  <fim_pad>\n"
        "end of generation        2  </s>\n"
        "end of generation      270  <fim_pad>\n");
  const auto json = test::parse_json(run_tool("llmtok", {model, "--special", "--json"}).out);
  const auto& special = json.at("special");
  CHECK(special.at("bos") == 1);
  CHECK(special.at("fim").at("prefix") == 262);
  CHECK(special.at("fim").at("middle").is_null());
  CHECK(special.at("end_of_generation") == Json({2, 270}));
  run_tool("llmtok", {model, "--special", "-p", "a"}).must_end(2);
}

TEST_CASE("llmtok --check counts and shows what differs", "[tools][llmtok]") {
  const Fixture tok;
  const std::string good =
      "{\"text\":\"the\",\"ids\":[261]}\n"
      "{\"text\":\"the\",\"ids\":[1,261]}\n\n"
      "{\"text\":\"\\u2581\",\"ids\":[264,264],\"decoded\":\" \"}\r\n"
      "{\"text\":\"a\",\"ids\":[1,263,2]}";
  Finished result = tok.run({"--check", tok.folder().write("good", good)}).must_end(0);
  CHECK(result.out == "4/4 match\n");
  const std::string bad = good +
                          "\n{\"text\":\"the a\",\"ids\":[261,263,263]}"
                          "\n{\"text\":\"a\",\"ids\":[263],\"decoded\":\" a\"}\n";
  const std::string path = tok.folder().write("bad", bad);
  result = tok.run({"--check", path});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.out, Contains("line 6: \"the a\"") && Contains("first difference at id 2") &&
                             Contains("line 7: ") && Contains("4/6 match\n"));
  result = tok.run({"--check", path, "--json"});
  CHECK(result.exit_code == 1);
  const auto json = test::parse_json(result.out);
  CHECK(json.at("matched") == 4);
  CHECK(json.at("total") == 6);
  CHECK(json.at("mismatches").size() == 2);
  CHECK(json.at("mismatches").at(0).at("found") == Json({kThe, kA}));
}

TEST_CASE("llmtok --check refuses a bad reference by line", "[tools][llmtok]") {
  const Fixture tok;
  const std::string good = "{\"text\":\"the\",\"ids\":[261]}\n";
  for (const char* line :
       {"{", "[]", "{\"text\":1,\"ids\":[]}", "{\"text\":\"\"}", "{\"text\":\"\",\"ids\":[-1]}",
        "{\"text\":\"\",\"ids\":[1.5]}", "{\"text\":\"\",\"ids\":[\"1\"]}",
        "{\"text\":\"\",\"ids\":[18446744073709551615]}",
        "{\"text\":\"\",\"ids\":[],\"decoded\":1}", "\xFF"}) {
    const std::string path = tok.folder().write("ref", good + line);
    const Finished result =
        tok.run({"--check", path}).must_end(3, {"llmtok: error: " + path + ": line 2: found"});
    CAPTURE(line);
    CHECK(result.out.empty());
  }
  tok.run({"--check", tok.folder().write("empty", std::string("\n"))}).must_end(3);
  tok.run({"--check", tok.folder().write("texts", std::string("{\"text\":\"\",\"ids\":[]}\n"))})
      .must_end(3, {"found no ids in any line"});
  tok.run({"--check", tok.folder().path("missing")}).must_end(4);
}

TEST_CASE("llmtok needs one model and one input", "[tools][llmtok]") {
  const Fixture tok;
  tok.run({}).must_end(2);
  tok.run({"-p", "a", "--stdin"}).must_end(2);
  tok.run({"-p", "a", "--check", "ref"}).must_end(2);
  tok.run({"-m", tok.model(), "-p", "a"}).must_end(2);
  run_tool("llmtok", {"-p", "a"}).must_end(2);
  run_tool("llmtok", {tok.folder().path("missing"), "-p", "a"}).must_end(4);
  run_tool("llmtok", {"--help"}).must_end(0, {}, {"--parse-special", "--check"});
}

}  // namespace llm::test
