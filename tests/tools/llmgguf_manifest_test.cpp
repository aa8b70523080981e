// Manifests through the tools: llmgguf hash and verify, llmrun --verify-model.

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "tests/tools/bad_input_support.h"
#include "tests/tools/tool_test.h"

using Catch::Matchers::StartsWith;

namespace llm::test {
namespace {

using nlohmann::json;

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
    const auto made = llmgguf({"hash", path, "-o", manifest});
    CAPTURE(made.err);
    REQUIRE(made.exit_code == 0);
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
  const auto good = llmgguf(verify);
  CHECK(good.exit_code == 0);
  CHECK(good.err.empty());
  CHECK_THAT(good.out, Contains("ok, root " + root_of(promised.manifest) + " over 12 tensors"));

  promised.flip_in("blk.0.ffn_down.weight");
  const auto bad = llmgguf(verify);
  CHECK(bad.exit_code == 8);
  CHECK_THAT(bad.err, Contains("llmgguf: error: " + promised.path +
                               ": tensor \"blk.0.ffn_down.weight\" chunk 0 (byte ") &&
                          Contains("found other content in bytes"));
  CHECK_THAT(bad.out, StartsWith("! " + promised.path + ": tensor \"blk.0.ffn_down.weight\""));
  auto with_json = verify;
  with_json.emplace_back("--json");
  const auto listed = llmgguf(with_json);
  CHECK(listed.exit_code == 8);
  const json verdict = json::parse(listed.out);
  CHECK(verdict["ok"] == false);
  REQUIRE(verdict["differences"].size() == 1);
  CHECK(verdict["differences"][0]["name"] == "blk.0.ffn_down.weight");
  CHECK(verdict["differences"][0]["chunks"] == json({0, 0}));
  const std::uint64_t begin = verdict["differences"][0]["begin"];
  CHECK(begin ==
        promised.model.header_bytes() + promised.model.default_offset("blk.0.ffn_down.weight"));
}

TEST_CASE("a verifier in Python finds the same root", "[llmgguf][manifest]") {
  Promised promised;
  const auto same = oracle({promised.manifest, promised.path});
  CAPTURE(same.err);
  CHECK(same.exit_code == 0);
  CHECK(same.out == root_of(promised.manifest) + "\n");
  promised.flip_in("output.weight");
  CHECK(oracle({promised.manifest, promised.path}).exit_code == 1);

  // Gaps, a tail, and tensors of several chunks, an odd number of them.
  TinyGguf model;
  model.set_string("general.architecture", "llama");
  model.tensors.push_back({"a", {8}, 0, std::string(32, '\1'), {}, {}, 64});
  const std::size_t n = (std::size_t{5} << 20) / 4 - 2;
  model.tensors.push_back({"b", {n}, 0, std::string(4 * n, '\2'), {}, {}, 4096});
  model.trailing = std::string((std::size_t{3} << 20) + 1, '\3');
  const std::string path = promised.directory.write("gaps.gguf", model.bytes());
  const std::string manifest = promised.directory / "gaps.manifest";
  REQUIRE(llmgguf({"hash", path, "-o", manifest}).exit_code == 0);
  const auto large = oracle({manifest, path});
  CHECK(large.exit_code == 0);
  CHECK(large.out == root_of(manifest) + "\n");
}

TEST_CASE("one manifest covers all parts of a split model", "[llmgguf][manifest][split]") {
  const ScratchDirectory directory;
  const std::string whole = directory.write("w.gguf", TinyGguf::llama().bytes());
  REQUIRE(llmgguf({"split", whole, directory / "m", "--parts", "3"}).exit_code == 0);
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 3; ++i) paths.push_back(split_path(directory / "m", i, 3));
  const std::string manifest = paths[0] + ".manifest";
  REQUIRE(llmgguf({"hash", paths[1], "-o", manifest}).exit_code == 0);
  for (const std::string& path : paths) {
    CHECK(llmgguf({"verify", path, "--manifest", manifest}).exit_code == 0);
    CHECK(run_tool("llmrun", {path, "-p", "a", "-n", "1", "-t", "1", "--verify-model"}).exit_code ==
          0);
  }
  const auto same = oracle({manifest, paths[0], paths[1], paths[2]});
  CHECK(same.exit_code == 0);
  CHECK(same.out == root_of(manifest) + "\n");

  std::string bytes = read_file(paths[2]);
  SECTION("data of the last part") { bytes[bytes.size() - 40] ^= 1; }
  SECTION("the header of the last part, which is no GGUF then") { bytes[1] ^= 1; }
  directory.write(paths[2].substr(paths[2].rfind('/') + 1), bytes);
  const auto bad = llmgguf({"verify", paths[0], "--manifest", manifest});
  CHECK(bad.exit_code == 8);
  CHECK_THAT(bad.err, Contains(paths[2] + ": ") && Contains(" chunk 0 (byte "));
}

TEST_CASE("llmrun --verify-model runs nothing but what is promised", "[llmrun][manifest]") {
  Promised promised;
  const auto run = [&](const std::string& option) {
    return run_tool("llmrun",
                    {promised.path, "-p", "a", "-n", "2", "-q", "-t", "2", "--temp", "0", option});
  };
  const auto good = run("--verify-model");
  CAPTURE(good.err);
  CHECK(good.exit_code == 0);
  CHECK(good.out == run("--verify-model=" + promised.manifest).out);
  CHECK(run("--verify-model=" + promised.directory.path("none")).exit_code == 4);

  const std::string lines = promised.directory / "lines";
  REQUIRE(llmgguf({"hash", promised.path, "--lines", "xxh3", "-o", lines}).exit_code == 0);
  CHECK(run("--verify-model=" + lines).exit_code == 0);

  promised.flip_in("token_embd.weight");
  for (const std::string& option :
       {std::string("--verify-model"), "--verify-model=" + promised.manifest,
        "--verify-model=" + lines}) {
    const auto bad = run(option);
    CAPTURE(option, bad.err);
    CHECK(bad.exit_code == 8);
    CHECK(bad.out.empty());
    CHECK_THAT(bad.err, Contains("tensor \"token_embd.weight\""));
  }
  // Another value of a key, which no line of gguf-hash covers.
  promised.model = TinyGguf::llama();
  promised.model.set_f32("llama.attention.layer_norm_rms_epsilon", 0.5F);
  promised.directory.write("m.gguf", promised.model.bytes());
  const auto bad = run("--verify-model");
  CHECK(bad.exit_code == 8);
  CHECK_THAT(bad.err, Contains("metadata chunk 0"));
  CHECK(run("--verify-model=" + lines).exit_code == 0);
}

TEST_CASE("llmgguf hash prints root and lines", "[llmgguf][manifest]") {
  Promised promised;
  const json hashes = json::parse(llmgguf({"hash", promised.path, "--json"}).out);
  CHECK(hashes["root"] == root_of(promised.manifest));
  CHECK(hashes["sha256"] == sha256_hex(promised.model.bytes()));
  CHECK(hashes["bytes"] == promised.model.bytes().size());
  CHECK(hashes["segments"].size() >= 13);
  CHECK(hashes["segments"][0]["kind"] == "metadata");
  const auto text = llmgguf({"hash", promised.path, "-t", "1"});
  CHECK_THAT(text.out, Contains("\n" + root_of(promised.manifest) + "  root\n") &&
                           Contains("  tensor \"output_norm.weight\"\n"));

  const auto lines = llmgguf({"hash", promised.path, "--lines", "sha256"});
  const std::string& data = promised.model.tensor("output_norm.weight").data;
  CHECK_THAT(lines.out, Contains("sha256    " + sha256_hex(std::as_bytes(std::span(data))) + "  " +
                                 promised.path + ":output_norm.weight\n"));
  const std::string path = promised.directory.write("lines", lines.out);
  CHECK(llmgguf({"verify", promised.path, "--manifest", path}).exit_code == 0);
  promised.flip_in("output_norm.weight");
  const auto bad = llmgguf({"verify", promised.path, "--manifest", path});
  CHECK(bad.exit_code == 8);
  CHECK_THAT(bad.err,
             Contains("sha256 of tensor \"output_norm.weight\"") && Contains("1 more difference"));
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
  CHECK(llmgguf({"verify", promised.path, "--manifest", "/dev/zero"}).exit_code == 4);
}

TEST_CASE("manifest options need their verb and spare what they read", "[llmgguf][manifest]") {
  const Promised promised;
  CHECK(llmgguf({"show", promised.path, "--manifest", promised.manifest}).exit_code == 2);
  CHECK(llmgguf({"verify", promised.path, "-o", promised.manifest}).exit_code == 2);
  CHECK(llmgguf({"hash", promised.path, "--lines", "md5"}).exit_code == 2);
  CHECK(llmgguf({"hash", promised.path, "--lines", "sha1", "--json"}).exit_code == 2);
  const std::string before = read_file(promised.path);
  CHECK(llmgguf({"hash", promised.path, "-o", promised.path}).exit_code == 2);
  CHECK(read_file(promised.path) == before);
}

}  // namespace
}  // namespace llm::test
