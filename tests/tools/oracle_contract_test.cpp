// The definition against the numeric contract as numpy has it (tools/reference_f64/contract.py),
// which was written from docs/numerics.md alone: a mistake that engine and definition share shows
// here.

#include "engine/engine.h"
#include "quant/formats/activations.h"
#include "quant/formats/block_formats.h"
#include "tests/tools/oracle_process.h"
#include "tests/tools/tool_test.h"
#include "validate/reference/diff/metrics.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/fault_localization/op_replay.h"
#include "validate/reference/npz/npz.h"

namespace llm::test {
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
  const std::string f16 = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";
  const ScratchDirectory scratch;
  SECTION("mixed types") {
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "int8", "f16");
    check_contract(scratch.write("mixed.gguf", mixed_model()), "int8", "f16");
  }
  SECTION("biases, head norms, halves") {
    for (const char* architecture : {"qwen2", "qwen3"}) {
      const std::string path = scratch.write("mixed.gguf", mixed_model(architecture));
      for (const char* compute : {"int8", "f32"}) check_contract(path, compute, "f16");
    }
  }
  SECTION("each type by itself") {
    for (const char* type :
         {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q1_0", "Q2_0", "Q2_K", "Q3_K_S",
          "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_XS", "MXFP4", "BF16", "F32"}) {
      const std::string path = scratch / fmt::format("{}.gguf", type);
      run_tool("llmquant", {f16, path, type, "--pure", "-q"}).must_end(0);
      check_contract(path, "int8", "f16");
      std::filesystem::remove(path);
    }
  }
  SECTION("types that are only read") {
    const std::string path = scratch.write("read.gguf", TinyGguf::read_only_types().bytes());
    for (const char* compute : {"int8", "f32"}) check_contract(path, compute, "f16");
  }
  SECTION("each type of the cache, and no codes") {
    check_contract(f16, "int8", "f16");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "int8", "f32");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "f32", "f16");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "f32", "f32");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "int8", "q8");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "f32", "q8");
  }
  SECTION("q8: heads of several groups, the last one short; halves, whose groups are packed dims") {
    for (const char* shape : {"odd80", "qwen3-small", "gemma3-small"}) {
      const std::string path = scratch / fmt::format("{}.gguf", shape);
      REQUIRE(run_tool("llmsynth", {path, "--shape", shape, "--type", "Q8_0", "-q"}).exit_code ==
              0);
      check_contract(path, "f32", "q8");
    }
  }
  SECTION("attention over more than two chunks of keys") {
    for (const KvType kv : {KvType::kF16, KvType::kQ8}) {
      const auto reference = oracle_dump(
          f16, fmt::format("--ids-random {} --compute int8 --kv {}", effort(600, 270), kv_name(kv)),
          scratch / "r2.npz");
      ContractCheck(f16, Compute::kInt8, kv).run(reference, {TapOp::kRope, TapOp::kAttention});
    }
  }
}

TEMPLATE_TEST_CASE("codes and scales are the emulation's, bit for bit", "[oracle]", BlockQ8_32,
                   BlockQ8_K) {
  if (!oracle_available()) return;
  constexpr std::size_t n = TestType::kWeights;
  const ScratchDirectory scratch;
  const std::string path = scratch / "codes.npz";
  REQUIRE(run(fmt::format("'{}' '{}/tests/tools/contract_codes.py' {} '{}'", python(),
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

TEST_CASE("the oracle agrees with transformers and with the engine on every setting", "[oracle]") {
  if (!oracle_available()) return;
  run_shell(fmt::format("'{}' '{}/tests/tools/oracle_models_test.py' '{}'", python(),
                        LLM_SOURCE_DIR, LLM_BIN_DIR))
      .must_end(0);
}

}  // namespace llm::test
