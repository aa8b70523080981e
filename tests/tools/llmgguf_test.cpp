// The verbs of llmgguf on a small model; what `verify` refuses is tested in bad_input_*.
// Manifests: llmgguf hash and verify, llmrun --verify-model.

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "quant/formats/half.h"
#include "tests/support/json.h"
#include "tests/tools/bad_input_support.h"
#include "tests/tools/tool_test.h"

using Catch::Matchers::StartsWith;

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

TEST_CASE("llmgguf show counts scales and what is not used", "[llmgguf]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  for (const char* name : {"blk.0.ffn_up.scale", "blk.0.attn_q.scale", "blk.0.attn_q.input_scale"})
    model.tensors.push_back({.name = name, .dims = {1}, .type = 0, .data = encoded(1.0F)});
  run_tool("llmgguf", {"show", directory.write("m.gguf", model.bytes())})
      .must_end(0, {}, {"2 tensors *.scale:", "1 tensors *.input_scale: not used"});
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
  folder.shell("llmgguf doctor tiny.gguf")
      .must_end(0, {}, {"nothing wrong", "next: ", "llmcheck FILE --layer-diff ref.npz"});

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
  folder.shell("llmgguf rm tiny.gguf").must_end(2, {"KEY: found nothing; usage: rm FILE KEY"});
  folder.shell("llmgguf show tiny.gguf x").must_end(2, {"\"x\"", "usage: show FILE"});
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

TEST_CASE("llmgguf verify names the differences from the manifest", "[llmgguf][manifest]") {
  Promised promised;
  const std::string verify = "verify tiny.gguf --manifest tiny.gguf.manifest ";
  const auto good = promised.llmgguf(verify).must_end(
      0, {}, {"ok, root " + promised.root() + " over 12 tensors"});
  CHECK(good.err.empty());

  promised.flip_in("blk.0.ffn_down.weight");
  const auto bad = promised.llmgguf(verify).must_end(
      8, {"llmgguf: error: tiny.gguf: tensor \"blk.0.ffn_down.weight\" chunk 0 (byte ",
          "found different content in bytes"});
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

TEST_CASE("llmrun --verify-model runs only the model of the manifest", "[llmrun][manifest]") {
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

TEST_CASE("manifests that cannot be used are rejected by name", "[llmgguf][manifest][bad_input]") {
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

TEST_CASE("llmgguf set, add and rm change the metadata and nothing else", "[llmgguf]") {
  const ToolFolder folder;
  const std::string before = folder.read("tiny.gguf");
  const auto value = [&](const std::string& file, const std::string& key) {
    const auto shown = test::parse_json(folder.shell("llmgguf show --json -a " + file).out);
    return shown["metadata"].value(key, Json())["value"];
  };
  // In place, where the size is the old one's.
  const auto inode = [&] { return folder.shell("stat -c %i tiny.gguf").out; };
  const std::string old_inode = inode();
  folder.shell("llmgguf set tiny.gguf llama.block_count 7").must_end(0);
  CHECK(value("tiny.gguf", "llama.block_count") == 7);
  CHECK(inode() == old_inode);
  CHECK(folder.read("tiny.gguf").size() == before.size());
  folder.shell("llmgguf set tiny.gguf llama.block_count 1").must_end(0);
  CHECK(folder.read("tiny.gguf") == before);
  // Else through a copy.
  folder.shell("llmgguf set tiny.gguf general.name 'a longer name'").must_end(0);
  CHECK(value("tiny.gguf", "general.name") == "a longer name");
  CHECK(inode() != old_inode);
  folder.shell("llmgguf set tiny.gguf general.name tiny").must_end(0);
  CHECK(folder.read("tiny.gguf") == before);
  const auto added =
      folder.shell("llmgguf add tiny.gguf my.key --type i16 -o new.gguf -- -3").must_end(0);
  CHECK_THAT(added.out, StartsWith("new.gguf: "));
  CHECK(value("new.gguf", "my.key") == -3);
  folder.shell("llmgguf rm new.gguf my.key && cmp new.gguf tiny.gguf").must_end(0);
  folder.write("chat.jinja", "{{ messages }}\n");
  folder.shell("llmgguf set tiny.gguf --chat-template chat.jinja -o new.gguf --force").must_end(0);
  CHECK(value("new.gguf", "tokenizer.chat_template") == "{{ messages }}\n");
  CHECK(folder.read("tiny.gguf") == before);

  const auto refused = [&](const std::string& words, Words need) {
    folder.shell("llmgguf " + words).must_end(2, need);
  };
  refused("set tiny.gguf llama.blok_count 3", {"KEY", "did you mean llama.block_count?"});
  refused("set tiny.gguf llama.block_count x", {"VALUE: found \"x\", need an integer from 0 to"});
  refused("set tiny.gguf llama.block_count 4294967296", {"need an integer from 0 to 4294967295"});
  refused("set tiny.gguf tokenizer.ggml.tokens x", {"an array"});
  refused("set tiny.gguf general.name", {"need KEY and VALUE"});
  refused("add tiny.gguf general.name x", {"which the file has"});
  refused("add tiny.gguf my.key x --type u99", {"--type: found \"u99\""});
  refused("add tiny.gguf general.alignment 64 --type u32", {"layout"});
  refused("rm tiny.gguf my.key", {"need a key of the file"});
  refused("set tiny.gguf general.name x -o chat.jinja", {"found a file that exists", "--force"});
  refused("merge tiny.gguf x --dequantize", {"--dequantize: found with merge"});
  refused("shwo tiny.gguf", {"VERB: found \"shwo\"", "did you mean show?"});
  refused("shwo", {"VERB: found \"shwo\"", "did you mean show?"});
  CHECK(folder.read("tiny.gguf") == before);
}

TEST_CASE("llmgguf export and import move a tensor to NumPy and back", "[llmgguf]") {
  const ToolFolder folder;
  const std::string q = " tiny.gguf blk.0.attn_q.weight ";
  folder.shell("llmgguf export" + q + "q.npy").must_end(0);
  const std::string npy = folder.read("q.npy");
  CHECK(npy.find("'shape': (32,32)") != std::string::npos);
  // Codes and scales of Q8_0 and Q4_0 come back from their own weights.
  folder.shell("llmgguf import" + q + "q.npy -o same.gguf && cmp tiny.gguf same.gguf").must_end(0);
  std::string other = npy;
  const float half = 0.5F;
  for (std::size_t at = other.size() - 4 * 32 * 32; at < other.size(); at += 4)
    std::memcpy(other.data() + at, &half, 4);
  folder.write("half.npy", other);
  folder.shell("llmgguf import" + q + "half.npy -o half.gguf").must_end(0);
  folder.shell("llmgguf export half.gguf blk.0.attn_q.weight back.npy && cmp half.npy back.npy")
      .must_end(0);
  folder.shell("llmgguf export" + q + "q.npy")
      .must_end(2, {"q.npy: NPY: found a file that exists"});
  folder.shell("llmgguf export tiny.gguf blk.0.attn_z.weight x.npy")
      .must_end(2, {"TENSOR", "did you mean blk.0.attn_"});
  folder.shell("llmgguf import tiny.gguf output_norm.weight q.npy")
      .must_end(3, {"q.npy: shape: found (32, 32), need (32)"});
  folder.write("short.npy", npy.substr(0, npy.size() - 1));
  folder.shell("llmgguf import" + q + "short.npy")
      .must_end(3, {"data: found 4095 bytes, need 4096"});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(other.data() + other.size() - 4, &nan, 4);
  folder.write("nan.npy", other);
  folder.shell("llmgguf import" + q + "nan.npy").must_end(7, {"nan.npy: data"});
}

TEST_CASE("llmgguf block prints scales, codes and weights", "[llmgguf]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  std::string& data = model.tensor("blk.0.ffn_gate.weight").data;  // Q4_0
  std::string block = encoded(f32_to_f16(0.5F));
  for (int i = 0; i < 16; ++i) block += static_cast<char>(i << 4 | (15 - i));
  data.replace(18 * 5, 18, block);
  const std::string path = directory.write("m.gguf", model.bytes());
  run_tool("llmgguf", {"block", path, "blk.0.ffn_gate.weight", "5"})
      .must_end(0, {},
                {"Q4_0 block 5, 32 weights from row 5, column 0, 18 bytes", "scale d = 0.5",
                 "0:  7  6  5  4", "16:  -8  -7", "0:  3.5  3  2.5"});
  run_tool("llmgguf", {"block", path, "blk.0.ffn_gate.weight", "256"})
      .must_end(2, {"BLOCK: found \"256\", need 0 to 255"});
  run_tool("llmgguf", {"block", path, "blk.0.ffn_down.weight", "0"})  // Q4_K
      .must_end(0, {}, {"dmin = ", "sub-blocks of 32: scale, min"});
}

TEST_CASE("llmgguf size says what a run takes", "[llmgguf]") {
  const ToolFolder folder;
  const auto size = [&](const std::string& options) {
    return test::parse_json(
        folder.shell("llmgguf size tiny.gguf --json " + options).must_end(0).out);
  };
  const Json usual = size("");
  CHECK(usual["context"] == 64);
  CHECK(usual["total_bytes"] == usual["weights_bytes"].get<std::size_t>() +
                                    usual["kv_bytes"].get<std::size_t>() +
                                    usual["activations_bytes"].get<std::size_t>());
  // A page has 256 positions of 2 KV heads of 8 values each, keys and values.
  CHECK(usual["kv_bytes"] == 256 * 2 * 8 * 2 * 2);
  CHECK(size("--kv f32")["kv_bytes"] == 2 * usual["kv_bytes"].get<std::size_t>());
  CHECK(size("-c 257 -b 1")["kv_bytes"] == 2 * usual["kv_bytes"].get<std::size_t>());
  CHECK(size("-b 1")["activations_bytes"] < usual["activations_bytes"]);
  folder.shell("llmgguf size tiny.gguf -c 2000000000").must_end(1, {}, {"it does not fit"});
  folder.shell("llmgguf show tiny.gguf -c 5").must_end(2, {"--ctx-size: found with show"});
}

TEST_CASE("llmgguf diff recognizes what has become of a tensor", "[llmgguf]") {
  const ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  const auto set_f32 = [&](const std::string& name, std::uint64_t cols, std::uint64_t rows) {
    TinyGguf::Tensor& tensor = model.tensor(name);
    tensor.type = 0;
    tensor.dims = {cols, rows};
    tensor.data = random_weights(WeightType::kF32, rows, cols, 1, rows + name.size());
  };
  set_f32("blk.0.attn_k.weight", 32, 16);
  set_f32("blk.0.attn_q.weight", 32, 32);
  const std::string first = directory.write("a.gguf", model.bytes());
  const auto data = [&](const std::string& name) -> std::string& {
    return model.tensor(name).data;
  };
  std::swap(data("blk.0.ffn_gate.weight"), data("blk.0.ffn_up.weight"));
  model.tensor("blk.0.ffn_up.weight").type = model.tensor("blk.0.ffn_gate.weight").type;
  std::string& norm = data("blk.0.attn_norm.weight");
  norm.replace(0, 4, encoded(3.0F));
  std::string& k = data("blk.0.attn_k.weight");
  std::rotate(k.begin(), k.begin() + 5 * 128, k.end());
  std::string& q = data("blk.0.attn_q.weight");
  const std::string straight = q;
  for (std::size_t r = 0; r < 32; ++r)
    for (std::size_t c = 0; c < 32; ++c)
      std::memcpy(q.data() + 4 * (r * 32 + c), straight.data() + 4 * (c * 32 + r), 4);
  std::string& output_norm = data("output_norm.weight");
  for (std::size_t i = 0; i < output_norm.size(); i += 4) {
    float value;
    std::memcpy(&value, output_norm.data() + i, 4);
    output_norm.replace(i, 4, encoded(value * 1.25F));
  }
  const auto diff =
      run_tool("llmgguf", {"diff", first, directory.write("b.gguf", model.bytes())})
          .must_end(1, {},
                    {"blk.0.attn_k.weight: F32 [32, 16]", "the same rows in another order",
                     "transposed\n", "1.25 times the first"});
  CHECK_THAT(diff.out, Contains("exchanged with blk.0.ffn_up.weight") ||
                           Contains("the bytes of blk.0.ffn_up.weight"));
  for (const std::string line : {"blk.0.attn_norm.weight"}) {
    const std::size_t at = diff.out.find(line);
    REQUIRE(at != std::string::npos);
    CHECK(diff.out.substr(at, diff.out.find('\n', at) - at).find(';') == std::string::npos);
  }
}

}  // namespace

}  // namespace llm::test
