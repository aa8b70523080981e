#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

// Ids of TinyGguf's vocabulary: bytes from 3 on, then its pieces.
constexpr int kThe = 261;    // "▁the"
constexpr int kA = 263;      // "▁a"
constexpr int kSpace = 264;  // "▁"

/// A folder in which llmtok has a vocabulary without tensors, vocab.gguf.
class Llmtok : public ToolFolder {
 public:
  Llmtok() {
    TinyGguf gguf = TinyGguf::llama();
    gguf.tensors.clear();
    write("vocab.gguf", gguf.bytes());
  }

  Finished run(const std::string& arguments) const {
    return shell("llmtok vocab.gguf " + arguments);
  }
};

std::string ids_line(const std::vector<int>& ids) {
  return fmt::format("{}\n", fmt::join(ids, " "));
}

}  // namespace

TEST_CASE("--no-space-prefix leaves the dummy space out", "[llmtok]") {
  const auto ids = [&](const std::string& text, const std::string& option) {
    return run_tool("llmtok", {kFable, "-p", text, "--ids", option}).out;
  };
  CHECK(ids("the", "--no-space-prefix") != ids("the", "-q"));
  CHECK(ids(" the", "--no-space-prefix") == ids("the", "-q"));
}

TEST_CASE("llmtok encodes with a vocabulary alone, and turns ids into text", "[llmtok]") {
  const Llmtok tok;
  for (const auto& [arguments, out] : std::vector<std::pair<std::string, std::string>>{
           {"-p 'the a' --ids", ids_line({1, kThe, kA})},
           {"-p the --ids --no-bos", ids_line({kThe})},
           {"-p '' --ids", ids_line({1})},  // empty text: BOS only
           {"-p 'the\n'", "     1  <s>\n   261  \" the\"\n    13  <0x0A>\n"},
           // Control tokens are text unless it is told.
           {"-p '</s>' --ids --no-bos", ids_line({kSpace, 3 + '<', 3 + '/', 271, 3 + '>'})},
           {"-p 'a</s>the' --ids --parse-special", ids_line({1, kA, 2, kThe})},
           {"--decode -p '[1, 261, 263]'", "the a"},
           {"--decode -p '1 261 2' --parse-special", "<s>the</s>"}}) {
    CAPTURE(arguments);
    CHECK(tok.run(arguments).must_end(0).out == out);
  }
  CHECK(tok.shell("llmtok -m vocab.gguf -p the --ids").out == ids_line({1, kThe}));
  for (const std::string bad : {"272", "-1", "1 x", "1.5", "99999999999999999999"})
    tok.run("--decode -p '" + bad + "'").must_refuse(2, {"--decode", "need token ids 0..271"});
}

TEST_CASE("llmtok takes any bytes from stdin and files, and gives them back", "[tools][llmtok]") {
  const Llmtok tok;
  const std::string bytes("the\xFF\0\xE2\x96 a", 9);
  const std::string ids = ids_line({1, kThe, 3 + 0xFF, 3, 3 + 0xE2, 3 + 0x96, kA});
  tok.write("text", bytes);
  tok.write("ids", ids);
  CHECK(tok.run("--stdin --ids < text").out == ids);
  CHECK(tok.run("-f text --ids").out == ids);
  CHECK((tok.run("--stdin --decode < ids").out == bytes));
}

TEST_CASE("llmtok prints JSON", "[tools][llmtok]") {
  const Llmtok tok;
  CHECK(test::parse_json(tok.run("-p the --json").out) == Json{{"schema_version", 1},
                                                               {"text", "the"},
                                                               {"ids", {1, kThe}},
                                                               {"pieces", {"<s>", "\u2581the"}}});
  const auto decoded = test::parse_json(tok.run("--decode -p '258 261' --json").out);
  CHECK(decoded.at("text") == "\uFFFD the");
}

TEST_CASE("llmtok --special lists the tokens with a part of their own", "[tools][llmtok]") {
  TinyGguf gguf = TinyGguf::llama();
  gguf.set_pieces({{262, "<fim_prefix>"}, {270, "<fim_pad>"}});
  const Llmtok tok;
  tok.write("vocab.gguf", gguf.bytes());
  CHECK(tok.run("--special").out ==
        "bos                      1  <s>\n"
        "eos                      2  </s>\n"
        "unknown                  0  <unk>\n"
        "fim prefix             262  <fim_prefix>\n"
        "fim pad                270  <fim_pad>\n"
        "end of generation        2  </s>\n"
        "end of generation      270  <fim_pad>\n");
  const auto json = test::parse_json(tok.run("--special --json").out);
  must_match(json.at("special"), R"({"bos": 1, "fim": {"prefix": 262, "middle": null},
      "end_of_generation": [2, 270]})"_j);
  tok.run("--special -p a").must_end(2);
}

TEST_CASE("llmtok --check counts and shows what differs", "[tools][llmtok]") {
  const Llmtok tok;
  const std::string good =
      "{\"text\":\"the\",\"ids\":[261]}\n"
      "{\"text\":\"the\",\"ids\":[1,261]}\n\n"
      "{\"text\":\"\\u2581\",\"ids\":[264,264],\"decoded\":\" \"}\r\n"
      "{\"text\":\"a\",\"ids\":[1,263,2]}";
  tok.write("good", good);
  CHECK(tok.run("--check good").must_end(0).out == "4/4 match\n");
  tok.write("bad", good +
                       "\n{\"text\":\"the a\",\"ids\":[261,263,263]}"
                       "\n{\"text\":\"a\",\"ids\":[263],\"decoded\":\" a\"}\n");
  tok.run("--check bad")
      .must_end(1, {},
                {"line 6: \"the a\"", "first difference at id 2", "line 7: ", "4/6 match\n"});
  const auto json = test::parse_json(tok.run("--check bad --json").must_end(1).out);
  must_match(json, "{'matched': 4, 'total': 6}"_j);
  CHECK(json.at("mismatches").size() == 2);
  CHECK(json.at("mismatches").at(0).at("found") == Json({kThe, kA}));
}

TEST_CASE("llmtok --check refuses a bad reference by line", "[tools][llmtok]") {
  const Llmtok tok;
  const std::string good = "{\"text\":\"the\",\"ids\":[261]}\n";
  for (const char* line :
       {"{", "[]", "{\"text\":1,\"ids\":[]}", "{\"text\":\"\"}", "{\"text\":\"\",\"ids\":[-1]}",
        "{\"text\":\"\",\"ids\":[1.5]}", "{\"text\":\"\",\"ids\":[\"1\"]}",
        "{\"text\":\"\",\"ids\":[18446744073709551615]}",
        "{\"text\":\"\",\"ids\":[],\"decoded\":1}", "\xFF"}) {
    tok.write("ref", good + line);
    tok.run("--check ref").must_refuse(3, {"llmtok: error: ref: line 2: found"});
  }
  tok.write("empty", "\n");
  tok.write("texts", "{\"text\":\"\",\"ids\":[]}\n");
  tok.run("--check empty").must_end(3);
  tok.run("--check texts").must_end(3, {"found no ids in any line"});
  tok.run("--check missing").must_end(4);
}

TEST_CASE("llmtok needs one model and one input", "[tools][llmtok]") {
  const Llmtok tok;
  for (const char* arguments : {"", "-p a --stdin", "-p a --check ref", "-m vocab.gguf -p a"})
    tok.run(arguments).must_end(2);
  tok.shell("llmtok -p a").must_end(2);
  tok.shell("llmtok missing -p a").must_end(4);
  tok.shell("llmtok --help").must_end(0, {}, {"--parse-special", "--check"});
}

}  // namespace llm::test
