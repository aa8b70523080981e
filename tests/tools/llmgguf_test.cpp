// The verbs of llmgguf on a small model; what `verify` refuses is tested in bad_input_*.

#include "base/sha256.h"
#include "quant/formats/half.h"
#include "tests/support/json.h"
#include "tests/tools/bad_input_support.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

TEST_CASE("llmgguf show", "[llmgguf]") {
  const ScratchDirectory directory;
  const std::string path = directory.write("m.gguf", TinyGguf::llama().bytes());
  run_tool("llmgguf", {"show", path})
      .must_end(0, {},
                {"GGUF version 3", "20 keys", "general.name", "\"tiny\"", "n = 272 [", ", ...]",
                 "blk.0.ffn_down.weight", "Q4_K", "[256, 32]", "4.50 bits"});

  const auto shown = test::parse_json(run_tool("llmgguf", {"show", path, "--json"}).out);
  must_match(shown, R"({"schema_version": 2, "metadata": {"llama.block_count": {"value": 1},
      "tokenizer.ggml.tokens": {"count": 272}}})"_j);
  CHECK(shown["metadata"]["tokenizer.ggml.tokens"]["value"].size() == 8);
  CHECK(shown["tensors"].size() == 12);
  CHECK(shown["tensors"][0]["bits_per_weight"] == 8.5);
  const auto whole = test::parse_json(run_tool("llmgguf", {"show", path, "--json", "-a"}).out);
  CHECK(whole["metadata"]["tokenizer.ggml.tokens"]["value"].size() == 272);
}

TEST_CASE("llmgguf show prints hostile text on one line", "[llmgguf]") {
  const ToolFolder folder;
  TinyGguf model = TinyGguf::llama();
  model.set_string("general.name", "a\n\x1b[31mred\xFF");
  folder.write("m.gguf", model.bytes());
  const auto text = folder.shell("llmgguf show m.gguf").must_end(0, {}, {"\\x1b"});
  CHECK_THAT(text.out, !Contains("\x1b"));
  const auto shown = folder.shell("llmgguf show m.gguf --json");
  CHECK(test::parse_json(shown.out)["metadata"].contains("general.name"));
}

TEST_CASE("llmgguf verify", "[llmgguf]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  const auto good = run_tool("llmgguf", {"verify", directory.write("m", model.bytes())})
                        .must_end(0, {}, {"ok, llama of 1 layers"});
  CHECK(good.err.empty());

  SECTION("61 an infinite scale names tensor and block") {
    const std::uint16_t bad = GENERATE(std::uint16_t{0x7C00}, std::uint16_t{0x7E00});
    model.tensor("blk.0.ffn_gate.weight").data.replace(18 * 5, 2, encoded(bad));
    check_file(directory.write("bad", model.bytes()), 7,
               {"blk.0.ffn_gate.weight", "block 5", "NaN or Inf"});
  }
  SECTION("a vocabulary alone") {
    model.tensors.clear();
    const std::string path = directory.write("vocab", model.bytes());
    check_file(path, 6, {"tensors: found a vocabulary only, need a model with weights", "llmtok"});
    run_tool("llmgguf", {"verify", "--vocab-only", path}).must_end(0, {}, {"272 tokens"});
  }
  SECTION("JSON carries the warnings") {
    model.trailing = "x";
    const std::string path = directory.write("junk", model.bytes());
    const auto verdict = test::parse_json(run_tool("llmgguf", {"verify", path, "--json"}).out);
    CHECK(verdict["ok"] == true);
    CHECK(verdict["warnings"].size() == 1);
  }
}

TEST_CASE("llmgguf doctor names and mends what is wrong", "[llmgguf]") {
  const ToolFolder folder;
  folder.shell("llmgguf doctor tiny.gguf").must_end(0, {}, {"nothing wrong"});

  TinyGguf model = TinyGguf::llama();
  model.set_u32("llama.block_count", 3);
  folder.write("bad.gguf", model.bytes());
  folder.shell("llmgguf doctor bad.gguf")
      .must_end(1, {},
                {"error [shapes] llama.block_count: found 3, need 1",
                 "why: ", "remedy: ", "--fix: llama.block_count = 1", "FAULTY"});
  const auto json = test::parse_json(folder.shell("llmgguf doctor bad.gguf --json").out);
  CHECK(json["findings"][0]["where"] == "llama.block_count");
  folder.shell("llmgguf doctor bad.gguf --fix out.gguf").must_end(1, {}, {"repaired copy written"});
  CHECK(folder.read("out.gguf") == folder.read("tiny.gguf"));

  folder.shell("llmgguf doctor bad.gguf --fix bad.gguf").must_end(2, {"--fix"});
  folder.shell("llmgguf verify tiny.gguf --fix out.gguf").must_end(2, {"--fix", "need doctor"});
  folder.write("text", "no model");
  folder.shell("llmgguf doctor text").must_end(3, {"magic"});
}

TEST_CASE("llmgguf diff", "[llmgguf]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  const std::string first = directory.write("a", model.bytes());
  run_tool("llmgguf", {"diff", first, first}).must_refuse(0);

  model.set_string("general.name", "other");
  model.remove("llama.vocab_size");
  model.set_u32("added", 1);
  model.tensor("output.weight").data[7] ^= 1;
  model.remove_tensor("blk.0.attn_q.weight");
  const std::string second = directory.write("b", model.bytes());
  run_tool("llmgguf", {"diff", first, second})
      .must_end(1, {},
                {"- key general.name: STRING \"tiny\"", "+ key general.name: STRING \"other\"",
                 "- key llama.vocab_size: UINT32 272", "+ key added: UINT32 1",
                 "! tensor output.weight: Q4_0 [32, 272], 1 of 4896 bytes differ",
                 "- tensor blk.0.attn_q.weight: F16 [32, 32]"});
  const auto listed = test::parse_json(run_tool("llmgguf", {"diff", first, second, "--json"}).out);
  CHECK(listed["equal"] == false);
  CHECK(listed["differences"].size() == 5);
}

TEST_CASE("llmgguf usage", "[llmgguf]") {
  const ToolFolder folder;
  for (const std::string words : {"", "look x", "diff x", "show x y"})
    folder.shell("llmgguf " + words).must_end(2);
  folder.shell("llmgguf --help").must_end(0);
}

TEST_CASE("pages of many keys and tensors take time in proportion", "[tools][llmgguf]") {
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  const int n = effort(150'000, 15'000);
  for (int i = 0; i < n; ++i) {
    const std::string name = "n" + std::to_string(i);
    model.entries.push_back({name, 7, std::string(1, '\1')});
    model.tensors.push_back({name, {1}, 0, std::string(4, '\0')});
  }
  const ScratchDirectory directory;
  const std::string path = directory.write("many.gguf", model.bytes());
  for (const char* verb : {"show", "hash"}) {
    // Seconds of CPU; less than one is used, and 10 where every name is compared with all.
    run_shell(std::string("ulimit -t 4; '" LLM_BIN_DIR "/llmgguf' ") + verb + " --json -q '" +
              path + "'")
        .must_end(0, {}, {"\"n" + std::to_string(n - 1) + "\""});
  }
}

}  // namespace
}  // namespace llm::test
