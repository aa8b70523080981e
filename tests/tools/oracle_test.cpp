// The engine against an independent forward pass: numpy, f64, weights dequantized by the `gguf`
// package (tools/reference_f64/from_gguf.py). Nothing is shared between the two but the file.
// Embeddings of llmserve against embedding.py beside it.

#include "engine/engine.h"
#include "tests/tools/llmserve_process.h"
#include "tests/tools/oracle_process.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/report/text.h"

namespace llm::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTokens = 32;
constexpr std::string_view kText =
    "Once upon a time, there was a little girl named Lily. She found a red ball in the garden and "
    "asked her friend Tom to play with it until the sun went down.";

/// stories260K and every F16 model that the repository carries.
std::vector<std::string> models() {
  std::vector<std::string> out;
  const std::string data = environment("LLM_TEST_DATA", "");
  if (data.empty()) {
    std::cerr << "SKIPPED: stories260K.gguf (LLM_TEST_DATA is not set)\n";
  } else {
    out.push_back(data + "/stories260K.gguf");
  }
  for (const auto& entry : fs::directory_iterator(LLM_SOURCE_DIR "/models")) {
    if (entry.path().filename().string().ends_with("-f16.gguf")) out.push_back(entry.path());
  }
  return out;
}

}  // namespace

TEST_CASE("f32 logits and every tap agree with the f64 oracle", "[oracle]") {
  if (!oracle_available()) return;
  const ScratchDirectory scratch;
  for (const std::string& path : models()) {
    CAPTURE(path);
    LoadOptions load{.compute = Compute::kF32};
    const auto model = require_ok(Model::load(path, load));
    auto ids = model->tokenizer().encode(kText);
    REQUIRE(ids.size() >= 24);
    ids.resize(std::min(ids.size(), kTokens));

    ExecutorOptions session{.kv = KvType::kF32};
    session.batch = 7;  // steps of the two sides differ; the comparison must not mind
    const auto actual = require_ok(record_activations(model, session, false, ids, "oracle_test",
                                                      require_ok(file_sha256(path))));
    const auto reference =
        oracle_dump(path, fmt::format("--ids {}", fmt::join(ids, ",")), scratch / "reference.npz");

    // What the engine writes is what it holds: compare the file, not the memory.
    REQUIRE(actual.write(scratch / "actual.npz").ok());
    const auto reread = require_ok(Dump::load(scratch / "actual.npz"));
    const Limits limits({{"*", Metric::kNmse, 1e-9, "f32 rounding noise"}});
    const auto diff = require_ok(diff_layers(reread, reference, limits));
    std::cout << "\n"
              << path << ", " << ids.size() << " tokens, f32 against R0 (f64)\n"
              << layer_diff_table(diff);
    CHECK(diff.passed());
    CHECK(diff.remarks.empty());
    CHECK(reference.meta().tokenizer_hash == actual.meta().tokenizer_hash);
    CHECK(reference.meta().merges_hash.empty());  // SentencePiece
    CHECK(diff.rows.size() == 3 + 15 * model->config().n_layers);
    for (const auto& row : diff.rows) {
      CAPTURE(row.layer, row.tap, row.note);
      CHECK(row.verdict == TapVerdict::kPass);
    }
  }
}

TEST_CASE("both sides hash tokens and merges of byte-level BPE alike", "[oracle]") {
  if (!oracle_available()) return;
  const ScratchDirectory scratch;
  const std::string path = LLM_SOURCE_DIR "/tests/golden/architectures/qwen2.gguf";
  const auto model = require_ok(Model::load(path, {}));
  const VocabSpec& vocab = model->tokenizer().spec();
  const auto reference = oracle_dump(path, "--ids 1,2,3", scratch / "reference.npz");
  CHECK(reference.meta().tokenizer_hash == tokenizer_hash(vocab));
  CHECK(reference.meta().merges_hash == merges_hash(vocab));
  VocabSpec other = vocab;
  std::swap(other.merges[0], other.merges[1]);
  CHECK(merges_hash(other) != merges_hash(vocab));
  other = vocab;
  other.pre_tokenizer = "llama-bpe";
  CHECK(merges_hash(other) != merges_hash(vocab));
}

TEST_CASE("numpy.load reads what is written, zip64 too", "[oracle]") {
  if (!oracle_available()) return;
  const auto zip64_from = GENERATE(values<std::uint64_t>({0xFFFFFFFF, 0, 300}));
  CAPTURE(zip64_from);
  const ScratchDirectory scratch;
  const std::vector<float> floats = {-1.5F, 0, 3.25F, 1e-30F, -0.0F, 7};
  const std::vector<std::int64_t> integers = {-1, 1LL << 40};
  const std::vector<std::uint8_t> text = {'h', 'i'};
  const std::uint64_t matrix_shape[] = {2, 3};
  const std::uint64_t two[] = {2};
  const std::string path = scratch / "written.npz";
  auto writer = require_ok(NpzWriter::create(path, zip64_from));
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  REQUIRE(writer.add("s0000/L000/q", NpyType::kF32, matrix_shape, bytes(floats)).ok());
  REQUIRE(writer.add("step_ptr", NpyType::kI64, two, bytes(integers)).ok());
  REQUIRE(writer.add("__meta__", NpyType::kU8, two, bytes(text)).ok());
  REQUIRE(writer.finish().ok());
  const std::string script = scratch / "check.py";
  std::ofstream(script) << R"(
import sys, zipfile, numpy as np
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
found = np.load(sys.argv[1], allow_pickle=False)
assert sorted(found.files) == ["__meta__", "s0000/L000/q", "step_ptr"], found.files
q = found["s0000/L000/q"]
assert q.dtype == np.dtype("<f4") and q.shape == (2, 3) and q.flags.c_contiguous
assert q.tobytes() == np.array([-1.5, 0, 3.25, 1e-30, -0.0, 7], "<f4").tobytes()
assert found["step_ptr"].dtype == np.int64 and found["step_ptr"].tolist() == [-1, 1 << 40]
assert bytes(found["__meta__"]) == b"hi"
)";
  CHECK(run(fmt::format("'{}' '{}' '{}'", python(), script, path)) == 0);
}

TEST_CASE("embeddings agree with the f64 oracle", "[oracle]") {
  if (!oracle_available()) return;
  for (const std::string pooling : {"mean", "last"}) {
    const Server server({kFableF16, "-q", "--compute", "f32", "--kv", "f32", "--pooling", pooling});
    const Json ids = server.tokens(
        "{'prompt': 'Once upon a time, there was a little girl named Lily. She found a red ball.'}"_j);
    for (const int dimensions : {256, 40}) {
      CAPTURE(pooling, dimensions);
      const auto found = server.post("/v1/embeddings", {{"input", ids}, {"dimensions", dimensions}})
                             .at("/data/0/embedding")
                             .get<std::vector<double>>();
      const std::string list = json_text(ids);
      const auto oracle = run_shell(fmt::format(
          "'{}' '{}/tools/reference_f64/embedding.py' '{}' --ids {} --pooling {} --dimensions {}",
          python(), LLM_SOURCE_DIR, kFableF16, list.substr(1, list.size() - 2), pooling,
          dimensions));
      REQUIRE(oracle.exit_code == 0);
      const auto expected = test::parse_json(oracle.out).get<std::vector<double>>();
      REQUIRE(found.size() == expected.size());
      double cosine = 0;
      double most = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        cosine += found[i] * expected[i];
        most = std::max(most, std::abs(found[i] - expected[i]));
      }
      std::cout << pooling << ", " << dimensions << " values: 1 - cosine " << 1 - cosine
                << ", largest error " << most << "\n";
      // f32 noise: NMSE 1e-9 (oracle_test), so 3e-5 of a vector of length 1, which is spread over
      // it.
      CHECK(std::abs(1 - cosine) < 1e-7);
      CHECK(most < 1e-6);
    }
  }
}

}  // namespace llm::test
