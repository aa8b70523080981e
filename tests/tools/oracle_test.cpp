// The engine against an independent forward pass: numpy, f64, weights dequantized by the `gguf`
// package (tools/reference_f64/from_gguf.py). Nothing is shared between the two but the file.
// Embeddings of llmserve against embedding.py beside it; the definition against the numeric
// contract as numpy has it (contract.py), which was written from docs/numerics.md alone: a mistake
// that engine and definition share shows there.

#include "engine/engine.h"
#include "quant/formats/activations.h"
#include "quant/formats/block_formats.h"
#include "tests/tools/llmserve_process.h"
#include "tests/tools/oracle_process.h"
#include "tests/tools/tool_test.h"
#include "validate/reference/diff/layer_diff.h"
#include "validate/reference/diff/metrics.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/fault_localization/op_replay.h"
#include "validate/reference/npz/npz.h"
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

namespace {

/// NMSE of an op on equal inputs. f32 sums leave 1e-15 to 5e-12, the most with outliers of 1,000
/// times; keys truncated to f16 2e-7, activations divided by 128 instead of 127 6e-5.
constexpr double kLimit = 1e-10;

/// For each kind of op the tap where the definition, on the emulation's own inputs, is farthest
/// from what the emulation has for that op.
class ContractCheck {
 public:
  ContractCheck(const std::string& path, Compute compute, KvType kv) {
    LoadOptions load{.compute = compute};
    model_ = require_ok(Model::load(path, load));
    replay_.emplace(model_, kv);
  }

  /// Checks every op against kLimit and prints the worst.
  /// @param ops  what is checked, all when empty
  void run(const Dump& reference, std::vector<TapOp> ops = {}) {
    std::map<TapOp, std::pair<double, std::string>> worst;
    for (const auto& [tap, layer] : taps_of_model(model_->config())) {
      if (!ops.empty() && std::ranges::find(ops, tap->op) == ops.end()) continue;
      const auto expected =
          require_ok(engine_order_tap(reference, layer, tap->name, model_->config()));
      const auto actual = require_ok(replay_->run(reference, layer, tap->name));
      const std::string label = tap_label(layer, tap->name);
      CAPTURE(label, replay_->weight_type(layer, tap->name));
      REQUIRE((expected.has_value() && actual.has_value()));
      const double error = nmse(actual->values, expected->values);
      CHECK(error <= kLimit);
      worst[tap->op] = std::max(worst[tap->op], {error, label});
    }
    std::cout << "R2, worst tap of each op:";
    for (const auto& [op, value] : worst)
      if (value.first > 0) std::cout << fmt::format("  {} {:.1e}", value.second, value.first);
    std::cout << "\n";
  }

 private:
  std::shared_ptr<const Model> model_;
  std::optional<Replay> replay_;
};

void check_contract(const std::string& path, std::string_view compute, std::string_view kv) {
  CAPTURE(path, compute, kv);
  std::cout << fmt::format("{}, {}, cache {}\n  ", std::filesystem::path(path).filename().string(),
                           compute, kv);
  const ScratchDirectory scratch;
  const auto reference = oracle_dump(
      path, fmt::format("--ids-random 9 --compute {} --kv {}", compute, kv), scratch / "r2.npz");
  CHECK(reference.meta().oracle == "R2");
  CHECK(reference.meta().compute == compute);
  CHECK(reference.meta().kv == kv);
  ContractCheck(path, compute == "int8" ? Compute::kInt8 : Compute::kF32, kv_from_name(kv).value())
      .run(reference);
}

/// A model with a matrix of Q8_K, which no tool writes, beside F32, F16, Q8_0, Q4_0 and Q4_K.
std::vector<std::byte> mixed_model(const std::string& architecture = "llama") {
  auto file = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  auto& tensor = file.tensor("blk.1.ffn_down.weight");
  std::mt19937 random(5);
  std::vector<BlockQ8_K> blocks(tensor.dims[0] / 256 * tensor.dims[1]);
  for (auto& block : blocks) {
    block = {};
    block.d = 1e-3F;
    for (std::size_t i = 0; i < 256; ++i) {
      block.qs[i] = static_cast<std::int8_t>(random());
      block.bsums[i / 16] = static_cast<std::int16_t>(block.bsums[i / 16] + block.qs[i]);
    }
  }
  tensor.type = static_cast<std::uint32_t>(WeightType::kQ8_K);
  tensor.data.assign(reinterpret_cast<const char*>(blocks.data()),
                     blocks.size() * sizeof(blocks[0]));
  return file.bytes();
}

}  // namespace

TEST_CASE("every op of the definition agrees with the emulated contract", "[oracle]") {
  if (!oracle_available()) return;
  const ScratchDirectory scratch;
  SECTION("mixed types") {
    check_contract(kFable, "int8", "f16");
    check_contract(scratch.write("mixed.gguf", mixed_model()), "int8", "f16");
  }
  SECTION("biases, head norms, halves") {
    for (const char* architecture : {"qwen2", "qwen3"}) {
      const std::string path = scratch.write("mixed.gguf", mixed_model(architecture));
      for (const char* compute : {"int8", "f32"}) check_contract(path, compute, "f16");
    }
  }
  SECTION("each type by itself") {
    for (const char* type : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K_S",
                             "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_XS", "MXFP4", "BF16", "F32"}) {
      const std::string path = scratch / fmt::format("{}.gguf", type);
      run_tool("llmquant", {kFableF16, path, type, "--pure", "-q"}).must_end(0);
      check_contract(path, "int8", "f16");
      std::filesystem::remove(path);
    }
  }
  SECTION("types that are only read") {
    const std::string path = scratch.write("read.gguf", TinyGguf::read_only_types().bytes());
    for (const char* compute : {"int8", "f32"}) check_contract(path, compute, "f16");
  }
  SECTION("each type of the cache, and no codes") {
    check_contract(kFableF16, "int8", "f16");
    for (const auto& [compute, kv] :
         {std::pair("int8", "f32"), {"f32", "f16"}, {"f32", "f32"}, {"int8", "q8"}, {"f32", "q8"}})
      check_contract(kFable, compute, kv);
  }
  SECTION("q8: heads of several groups, the last one short; halves, whose groups are packed dims") {
    for (const char* shape : {"odd80", "qwen3-small", "gemma3-small"}) {
      const std::string path = scratch / fmt::format("{}.gguf", shape);
      run_tool("llmsynth", {path, "--shape", shape, "--type", "Q8_0", "-q"}).must_end(0);
      check_contract(path, "f32", "q8");
    }
  }
  SECTION("attention over more than two chunks of keys") {
    for (const KvType kv : {KvType::kF16, KvType::kQ8}) {
      const auto reference = oracle_dump(
          kFableF16,
          fmt::format("--ids-random {} --compute int8 --kv {}", effort(600, 270), kv_name(kv)),
          scratch / "r2.npz");
      ContractCheck(kFableF16, Compute::kInt8, kv)
          .run(reference, {TapOp::kRope, TapOp::kAttention});
    }
  }
}

TEMPLATE_TEST_CASE("codes and scales are the emulation's, bit for bit", "[oracle]", BlockQ8_32,
                   BlockQ8_K) {
  if (!oracle_available()) return;
  constexpr std::size_t n = TestType::kWeights;
  const ScratchDirectory scratch;
  const std::string script = scratch.write("codes.py", R"(
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from contract import quantize
from selftest_contract import edge_blocks
x = edge_blocks(int(sys.argv[2]))
codes, scale = quantize(x, x.shape[1])
np.savez(sys.argv[3], x=x, codes=codes.astype(np.int32), scale=scale)
)");
  const std::string path = scratch / "codes.npz";
  REQUIRE(run(fmt::format("'{}' '{}' '{}/tools/reference_f64' {} '{}'", python(), script,
                          LLM_SOURCE_DIR, n, path)) == 0);
  const auto file = require_ok(NpzReader::open(path));
  const auto x = require_ok(require_ok(file.read("x")).as_f32());
  const auto codes = require_ok(require_ok(file.read("codes")).as_i64());
  const auto scale = require_ok(require_ok(file.read("scale")).as_f32());
  REQUIRE((scale.size() > 400 && x.size() == scale.size() * n && codes.size() == x.size()));
  for (std::size_t b = 0; b < scale.size(); ++b) {
    CAPTURE(b);
    TestType block;
    quantize_block(std::span(x).subspan(b * n).template first<n>(), block);
    CHECK(std::equal(block.qs, block.qs + n, codes.begin() + static_cast<std::ptrdiff_t>(b * n)));
    const bool both_nan = std::isnan(block.d) && std::isnan(scale[b]);
    CHECK((both_nan ||
           std::bit_cast<std::uint32_t>(block.d) == std::bit_cast<std::uint32_t>(scale[b])));
  }
}

TEST_CASE("the oracle passes its own checks", "[oracle]") {
  if (!oracle_available()) return;
  run_shell(fmt::format("'{}' '{}/tools/reference_f64/selftest.py'", python(), LLM_SOURCE_DIR))
      .must_end(0);
}

}  // namespace llm::test
