// Manifests through the tools: llmgguf hash and verify, llmrun --verify-model.

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "tests/support/json.h"
#include "tests/tools/bad_input_support.h"
#include "tests/tools/tool_test.h"

using Catch::Matchers::StartsWith;

namespace llm::test {
namespace {

Finished llmgguf(std::vector<std::string> arguments) {
  return run_tool("llmgguf", std::move(arguments));
}

/// A small model and its manifest.
struct Promised {
  ScratchDirectory directory;
  TinyGguf model = TinyGguf::llama();
  std::string path = directory.write("m.gguf", model.bytes());
  std::string manifest = path + ".manifest";

  Promised() {
    const auto made = llmgguf({"hash", path, "-o", manifest}).must_end(0);
    REQUIRE(made.out.empty());
  }
  void flip_in(const std::string& tensor) {
    model.tensor(tensor).data[3] ^= 1;
    directory.write("m.gguf", model.bytes());
  }
};

std::string root_of(const std::string& manifest) {
  const std::string text = read_file(manifest);
  return text.substr(text.find("root ") + 5, 64);
}

/// What tests/golden/gguf_tree.py, which shares no code with us, says of the files.
Finished oracle(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {LLM_PYTHON3, LLM_SOURCE_DIR "/tests/golden/gguf_tree.py"});
  return Process(std::move(arguments)).wait();
}

TEST_CASE("llmgguf verify names what is not the manifest's", "[llmgguf][manifest]") {
  Promised promised;
  const std::vector<std::string> verify = {"verify", promised.path, "--manifest",
                                           promised.manifest};
  const auto good = llmgguf(verify).must_end(
      0, {}, {"ok, root " + root_of(promised.manifest) + " over 12 tensors"});
  CHECK(good.err.empty());

  promised.flip_in("blk.0.ffn_down.weight");
  const auto bad = llmgguf(verify).must_end(
      8, {"llmgguf: error: " + promised.path + ": tensor \"blk.0.ffn_down.weight\" chunk 0 (byte ",
          "found other content in bytes"});
  CHECK_THAT(bad.out, StartsWith("! " + promised.path + ": tensor \"blk.0.ffn_down.weight\""));
  auto with_json = verify;
  with_json.emplace_back("--json");
  const auto listed = llmgguf(with_json).must_end(8);
  const Json verdict = test::parse_json(listed.out);
  CHECK(verdict["ok"] == false);
  REQUIRE(verdict["differences"].size() == 1);
  CHECK(verdict["differences"][0]["name"] == "blk.0.ffn_down.weight");
  CHECK(verdict["differences"][0]["chunks"] == Json({0, 0}));
  const std::uint64_t begin = verdict["differences"][0]["begin"];
  CHECK(begin ==
        promised.model.header_bytes() + promised.model.default_offset("blk.0.ffn_down.weight"));
}

TEST_CASE("a verifier in Python finds the same root", "[llmgguf][manifest]") {
  Promised promised;
  const auto same = oracle({promised.manifest, promised.path}).must_end(0);
  CHECK(same.out == root_of(promised.manifest) + "\n");
  promised.flip_in("output.weight");
  oracle({promised.manifest, promised.path}).must_end(1);

  // Gaps, a tail, and tensors of several chunks, an odd number of them.
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.tensors.push_back({"a", {8}, 0, std::string(32, '\1'), {}, {}, 64});
  const std::size_t n = (std::size_t{5} << 20) / 4 - 2;
  model.tensors.push_back({"b", {n}, 0, std::string(4 * n, '\2'), {}, {}, 4096});
  model.trailing = std::string((std::size_t{3} << 20) + 1, '\3');
  const std::string path = promised.directory.write("gaps.gguf", model.bytes());
  const std::string manifest = promised.directory / "gaps.manifest";
  llmgguf({"hash", path, "-o", manifest}).must_end(0);
  const auto large = oracle({manifest, path}).must_end(0);
  CHECK(large.out == root_of(manifest) + "\n");
}

TEST_CASE("one manifest covers all parts of a split model", "[llmgguf][manifest][split]") {
  const ScratchDirectory directory;
  const std::string whole = directory.write("w.gguf", TinyGguf::llama().bytes());
  llmgguf({"split", whole, directory / "m", "--parts", "3"}).must_end(0);
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 3; ++i) paths.push_back(split_path(directory / "m", i, 3));
  const std::string manifest = paths[0] + ".manifest";
  llmgguf({"hash", paths[1], "-o", manifest}).must_end(0);
  for (const std::string& path : paths) {
    llmgguf({"verify", path, "--manifest", manifest}).must_end(0);
    CHECK(run_tool("llmrun", {path, "-p", "a", "-n", "1", "-t", "1", "--verify-model"}).exit_code ==
          0);
  }
  const auto same = oracle({manifest, paths[0], paths[1], paths[2]}).must_end(0);
  CHECK(same.out == root_of(manifest) + "\n");

  std::string bytes = read_file(paths[2]);
  SECTION("data of the last part") { bytes[bytes.size() - 40] ^= 1; }
  SECTION("the header of the last part, which is no GGUF then") { bytes[1] ^= 1; }
  directory.write(paths[2].substr(paths[2].rfind('/') + 1), bytes);
  llmgguf({"verify", paths[0], "--manifest", manifest})
      .must_end(8, {paths[2] + ": ", " chunk 0 (byte "});
}

TEST_CASE("llmrun --verify-model runs nothing but what is promised", "[llmrun][manifest]") {
  Promised promised;
  const auto run = [&](const std::string& option) {
    return run_tool("llmrun",
                    {promised.path, "-p", "a", "-n", "2", "-q", "-t", "2", "--temp", "0", option});
  };
  const auto good = run("--verify-model").must_end(0);
  CHECK(good.out == run("--verify-model=" + promised.manifest).out);
  run("--verify-model=" + promised.directory.path("none")).must_end(4);

  const std::string lines = promised.directory / "lines";
  llmgguf({"hash", promised.path, "--lines", "xxh3", "-o", lines}).must_end(0);
  run("--verify-model=" + lines).must_end(0);

  promised.flip_in("token_embd.weight");
  for (const std::string& option :
       {std::string("--verify-model"), "--verify-model=" + promised.manifest,
        "--verify-model=" + lines}) {
    const auto bad = run(option).must_end(8, {"tensor \"token_embd.weight\""});
    CAPTURE(option);
    CHECK(bad.out.empty());
  }
  // Another value of a key, which no line of gguf-hash covers.
  promised.model = TinyGguf::llama();
  promised.model.set_f32("llama.attention.layer_norm_rms_epsilon", 0.5F);
  promised.directory.write("m.gguf", promised.model.bytes());
  run("--verify-model").must_end(8, {"metadata chunk 0"});
  run("--verify-model=" + lines).must_end(0);
}

TEST_CASE("llmgguf hash prints root and lines", "[llmgguf][manifest]") {
  Promised promised;
  const Json hashes = test::parse_json(llmgguf({"hash", promised.path, "--json"}).out);
  CHECK(hashes["root"] == root_of(promised.manifest));
  CHECK(hashes["sha256"] == sha256_hex(promised.model.bytes()));
  CHECK(hashes["bytes"] == promised.model.bytes().size());
  CHECK(hashes["segments"].size() >= 13);
  CHECK(hashes["segments"][0]["kind"] == "metadata");
  const auto text = llmgguf({"hash", promised.path, "-t", "1"});
  CHECK(text.out.starts_with(sha256_hex(promised.model.bytes()) + "  " + promised.path + "\n"));
  CHECK_THAT(text.out, Contains("\n" + root_of(promised.manifest) + "  root\n") &&
                           Contains("  tensor \"output_norm.weight\"\n"));

  const auto lines = llmgguf({"hash", promised.path, "--lines", "sha256"});
  const std::string& data = promised.model.tensor("output_norm.weight").data;
  CHECK_THAT(lines.out, Contains("sha256    " + sha256_hex(std::as_bytes(std::span(data))) + "  " +
                                 promised.path + ":output_norm.weight\n"));
  const std::string path = promised.directory.write("lines", lines.out);
  llmgguf({"verify", promised.path, "--manifest", path}).must_end(0);
  promised.flip_in("output_norm.weight");
  llmgguf({"verify", promised.path, "--manifest", path})
      .must_end(8, {"sha256 of tensor \"output_norm.weight\"", "1 more difference"});
}

TEST_CASE("manifests that cannot be used are refused by name", "[llmgguf][manifest][bad_input]") {
  const Promised promised;
  const auto refused = [&](const std::string& text, int code, const std::string& words) {
    const std::string path = promised.directory.write("bad", text);
    for (const auto& run :
         {llmgguf({"verify", promised.path, "--manifest", path}),
          run_tool("llmrun", {promised.path, "-p", "a", "--verify-model=" + path})}) {
      CAPTURE(run.err);
      CHECK(run.exit_code == code);
      CHECK_THAT(run.err, Contains(": error: " + path + ": ") && Contains(words));
    }
  };
  std::string text = read_file(promised.manifest);
  refused("", 3, "line 1: found nothing");
  refused("{}\n", 3, "line 1: found {}, need sha256");
  refused("uuid 1 m.gguf\n", 6, "found a uuid");
  refused("gguf-tree 9\n" + text.substr(12), 6, "line 1 (byte 0): found \"gguf-tree 9\"");
  text.replace(text.size() - 65, 64, std::string(64, '0'));
  refused(text, 3, "root (byte 12): found ");
  refused(std::string((std::size_t{64} << 20) + 1, '\n'), 5, "need a manifest of at most");
  llmgguf({"verify", promised.path, "--manifest", "/dev/zero"}).must_end(4);
}

TEST_CASE("manifest options need their verb and spare what they read", "[llmgguf][manifest]") {
  const Promised promised;
  llmgguf({"show", promised.path, "--manifest", promised.manifest}).must_end(2);
  llmgguf({"verify", promised.path, "-o", promised.manifest}).must_end(2);
  llmgguf({"hash", promised.path, "--lines", "md5"}).must_end(2);
  llmgguf({"hash", promised.path, "--lines", "sha1", "--json"}).must_end(2);
  const std::string before = read_file(promised.path);
  llmgguf({"hash", promised.path, "-o", promised.path}).must_end(2);
  CHECK(read_file(promised.path) == before);
}

}  // namespace
}  // namespace llm::test
