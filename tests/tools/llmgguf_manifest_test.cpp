// Manifests through the tools: llmgguf hash and verify, llmrun --verify-model.

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

using Catch::Matchers::StartsWith;

namespace llm::test {
namespace {

/// A folder with a small model, tiny.gguf, and its manifest.
struct Promised : ToolFolder {
  Promised() { llmgguf("hash tiny.gguf -o tiny.gguf.manifest").must_refuse(0); }

  Finished llmgguf(const std::string& arguments) const { return shell("llmgguf " + arguments); }
  void flip_in(const std::string& tensor) {
    model.tensor(tensor).data[3] ^= 1;
    write("tiny.gguf", model.bytes());
  }
  std::string root(const std::string& manifest = "tiny.gguf.manifest") const {
    const std::string text = read(manifest);
    return text.substr(text.find("root ") + 5, 64);
  }
  /// What tests/golden/gguf_tree.py, which shares no code with us, says of the files.
  Finished oracle(const std::string& arguments) const {
    return shell("'" LLM_PYTHON3 "' '" LLM_SOURCE_DIR "/tests/golden/gguf_tree.py' " + arguments);
  }

  TinyGguf model = TinyGguf::llama();
};

TEST_CASE("llmgguf verify names what is not the manifest's", "[llmgguf][manifest]") {
  Promised promised;
  const std::string verify = "verify tiny.gguf --manifest tiny.gguf.manifest ";
  const auto good = promised.llmgguf(verify).must_end(
      0, {}, {"ok, root " + promised.root() + " over 12 tensors"});
  CHECK(good.err.empty());

  promised.flip_in("blk.0.ffn_down.weight");
  const auto bad = promised.llmgguf(verify).must_end(
      8, {"llmgguf: error: tiny.gguf: tensor \"blk.0.ffn_down.weight\" chunk 0 (byte ",
          "found other content in bytes"});
  CHECK_THAT(bad.out, StartsWith("! tiny.gguf: tensor \"blk.0.ffn_down.weight\""));
  const auto listed = promised.llmgguf(verify + "--json").must_end(8);
  const Json verdict = test::parse_json(listed.out);
  const auto begin =
      promised.model.header_bytes() + promised.model.default_offset("blk.0.ffn_down.weight");
  must_match(verdict,
             {{"ok", false},
              {"differences",
               {{{"name", "blk.0.ffn_down.weight"}, {"chunks", {0, 0}}, {"begin", begin}}}}});
}

TEST_CASE("a verifier in Python finds the same root", "[llmgguf][manifest]") {
  Promised promised;
  const auto same = promised.oracle("tiny.gguf.manifest tiny.gguf").must_end(0);
  CHECK(same.out == promised.root() + "\n");
  promised.flip_in("output.weight");
  promised.oracle("tiny.gguf.manifest tiny.gguf").must_end(1);

  // Gaps, a tail, and tensors of several chunks, an odd number of them.
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.tensors.push_back({"a", {8}, 0, std::string(32, '\1'), {}, {}, 64});
  const std::size_t n = (std::size_t{5} << 20) / 4 - 2;
  model.tensors.push_back({"b", {n}, 0, std::string(4 * n, '\2'), {}, {}, 4096});
  model.trailing = std::string((std::size_t{3} << 20) + 1, '\3');
  promised.write("gaps.gguf", model.bytes());
  promised.llmgguf("hash gaps.gguf -o gaps.manifest").must_end(0);
  const auto large = promised.oracle("gaps.manifest gaps.gguf").must_end(0);
  CHECK(large.out == promised.root("gaps.manifest") + "\n");
}

TEST_CASE("one manifest covers all parts of a split model", "[llmgguf][manifest][split]") {
  const Promised w;
  w.llmgguf("split tiny.gguf m --parts 3").must_end(0);
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < 3; ++i) names.push_back(split_path("m", i, 3));
  w.llmgguf("hash " + names[1] + " -o manifest").must_end(0);
  w.shell("cp manifest " + names[0] + ".manifest").must_end(0);
  for (const std::string& name : names) {
    w.llmgguf("verify --manifest manifest " + name).must_end(0);
    w.shell("llmrun -p a -n 1 -t 1 --verify-model " + name).must_end(0);
  }
  const auto same = w.oracle("manifest m-*.gguf").must_end(0);
  CHECK(same.out == w.root("manifest") + "\n");

  std::string bytes = w.read(names[2]);
  SECTION("data of the last part") { bytes[bytes.size() - 40] ^= 1; }
  SECTION("the header of the last part, which is no GGUF then") { bytes[1] ^= 1; }
  w.write(names[2], bytes);
  w.llmgguf("verify --manifest manifest " + names[0])
      .must_end(8, {names[2] + ": ", " chunk 0 (byte "});
}

TEST_CASE("llmrun --verify-model runs nothing but what is promised", "[llmrun][manifest]") {
  Promised promised;
  const auto run = [&](const std::string& option) {
    return promised.shell("llmrun tiny.gguf -p a -n 2 -q -t 1 --temp 0 --verify-model" + option);
  };
  CHECK(run("").must_end(0).out == run("=tiny.gguf.manifest").out);
  run("=none").must_end(4);

  promised.flip_in("token_embd.weight");
  for (const std::string option : {"", "=tiny.gguf.manifest"})
    run(option).must_refuse(8, {"tensor \"token_embd.weight\""});
  promised.model = TinyGguf::llama();
  promised.model.set_f32("llama.attention.layer_norm_rms_epsilon", 0.5F);
  promised.write("tiny.gguf", promised.model.bytes());
  run("").must_end(8, {"metadata chunk 0"});
}

TEST_CASE("llmgguf hash prints root and segments", "[llmgguf][manifest]") {
  Promised promised;
  const std::string sha256 = sha256_hex(promised.model.bytes());
  const Json hashes = test::parse_json(promised.llmgguf("hash tiny.gguf --json").out);
  must_match(
      hashes,
      {{"root", promised.root()}, {"sha256", sha256}, {"bytes", promised.model.bytes().size()}});
  CHECK(hashes["segments"].size() >= 13);
  CHECK(hashes["segments"][0]["kind"] == "metadata");
  promised.llmgguf("hash tiny.gguf -t 1")
      .must_end(0, {},
                {sha256 + "  tiny.gguf\n", "\n" + promised.root() + "  root\n",
                 "  tensor \"output_norm.weight\"\n"});
}

TEST_CASE("manifests that cannot be used are refused by name", "[llmgguf][manifest][bad_input]") {
  const Promised promised;
  const auto refused = [&](const std::string& text, int code, const std::string& words) {
    promised.write("bad", text);
    for (const std::string run :
         {"llmgguf verify tiny.gguf --manifest bad", "llmrun tiny.gguf -p a --verify-model=bad"})
      promised.shell(run).must_end(code, {": error: bad: ", words});
  };
  std::string text = promised.read("tiny.gguf.manifest");
  refused("", 3, "line 1 (byte 0): found the end of the text");
  refused("{}\n", 3, "line 1 (byte 0): found \"{}\", need \"gguf-tree 1\"");
  refused("gguf-tree 9\n" + text.substr(12), 6, "line 1 (byte 0): found \"gguf-tree 9\"");
  text.replace(text.size() - 65, 64, std::string(64, '0'));
  refused(text, 3, "root (byte 12): found ");
  refused(std::string((std::size_t{64} << 20) + 1, '\n'), 5, "need a manifest of at most");
  promised.llmgguf("verify tiny.gguf --manifest /dev/zero").must_end(4);
}

TEST_CASE("manifest options need their verb and spare what they read", "[llmgguf][manifest]") {
  const Promised promised;
  const std::string before = promised.read("tiny.gguf");
  for (const char* words :
       {"show tiny.gguf --manifest tiny.gguf.manifest", "verify tiny.gguf -o tiny.gguf.manifest",
        "hash tiny.gguf -o tiny.gguf"})
    promised.llmgguf(words).must_end(2);
  CHECK(promised.read("tiny.gguf") == before);
}

}  // namespace
}  // namespace llm::test
