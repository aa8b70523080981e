// The engine and its definition against an independent forward pass: numpy, weights dequantized by
// the `gguf` package (tools/oracle/from_gguf.py), in f64 or rounded where docs/numerics.md rounds.
// Nothing is shared between the two but the file.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "quant/formats/block_formats.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/process.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"
#include "validate/diff/layer_diff.h"
#include "validate/diff/metrics.h"
#include "validate/dump/dump.h"
#include "validate/dump/engine_dump.h"
#include "validate/locate/replay.h"
#include "validate/report/text_table.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTokens = 32;
constexpr std::string_view kText =
    "Once upon a time, there was a little girl named Lily. She found a red ball in the garden and "
    "asked her friend Tom to play with it until the sun went down.";

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string python() { return environment("LLM_PYTHON", "python3"); }

/// The exit code of a shell's command; what it says of a failure goes to the log.
int run(const std::string& command) {
  const auto finished = llm::test::run_shell(command);
  if (finished.exit_code != 0) std::cerr << finished.err;
  return finished.exit_code;
}

/// Whether the oracle can run here; says why not.
bool oracle_available() {
  if (run(fmt::format("'{}' -c 'import numpy, gguf' 2>/dev/null", python())) == 0) return true;
  std::cerr << "SKIPPED: the f64 oracle needs numpy and gguf; '" << python()
            << "' lacks them (set LLM_PYTHON)\n";
  return false;
}

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

/// @param options  which tokens, and what is rounded
llm::Dump oracle_dump(const std::string& model, const std::string& options,
                      const std::string& output) {
  const auto command = fmt::format("'{}' '{}/tools/oracle/from_gguf.py' '{}' {} -o '{}'", python(),
                                   LLM_SOURCE_DIR, model, options, output);
  REQUIRE(run(command) == 0);
  auto dump = llm::Dump::load(output);
  if (!dump.ok()) FAIL(dump.error().to_string());
  return std::move(dump).value();
}

template <typename T>
T require_ok(llm::Result<T> result) {
  if (!result.ok()) FAIL(result.error().to_string());
  return std::move(result).value();
}

/// For each kind of op the tap where the definition, on the emulation's own inputs, is farthest
/// from what the emulation has for that op. Rounding at the same places leaves the noise of f32
/// sums; one code or cached value rounded otherwise stands far above it.
class ContractCheck {
 public:
  ContractCheck(const std::string& path, llm::Compute compute, llm::KvType kv) {
    llm::LoadOptions load;
    load.compute = compute;
    model_ = require_ok(llm::Model::load(path, load));
    replay_.emplace(model_, kv);
  }

  /// @param ops  what is checked, all when empty
  void run(const llm::Dump& reference, std::vector<llm::TapOp> ops = {}) {
    std::map<llm::TapOp, std::pair<double, std::string>> worst;
    for (const auto& [tap, layer] : llm::taps_of_model(model_->config().n_layers)) {
      if (!ops.empty() && std::ranges::find(ops, tap->op) == ops.end()) continue;
      const auto expected =
          require_ok(llm::engine_order_tap(reference, layer, tap->name, model_->config()));
      const auto actual = require_ok(replay_->run(reference, layer, tap->name));
      const std::string label = llm::tap_label(layer, tap->name);
      CAPTURE(label, replay_->weight_type(layer, tap->name));
      REQUIRE((expected.has_value() && actual.has_value()));
      const double error = llm::nmse(actual->values, expected->values);
      CHECK(error <= (tap->op == llm::TapOp::kRope ? 1e-9 : 1e-10));
      worst[tap->op] = std::max(worst[tap->op], {error, label});
    }
    std::cout << "R2, worst tap of each op:";
    for (const auto& [op, value] : worst)
      if (value.first > 0) std::cout << fmt::format("  {} {:.1e}", value.second, value.first);
    std::cout << "\n";
  }

 private:
  std::shared_ptr<const llm::Model> model_;
  std::optional<llm::Replay> replay_;
};

void check_contract(const std::string& path, std::string_view compute, std::string_view kv) {
  CAPTURE(path, compute, kv);
  std::cout << fmt::format("{}, {}, cache {}\n  ", fs::path(path).filename().string(), compute, kv);
  const llm::test::ScratchDirectory scratch;
  const auto reference = oracle_dump(
      path, fmt::format("--ids-random 9 --compute {} --kv {}", compute, kv), scratch / "r2.npz");
  CHECK(reference.meta().oracle == "R2");
  CHECK(reference.meta().compute == compute);
  CHECK(reference.meta().kv == kv);
  ContractCheck(path, compute == "int8" ? llm::Compute::kInt8 : llm::Compute::kF32,
                kv == "f16" ? llm::KvType::kF16 : llm::KvType::kF32)
      .run(reference);
}

/// A model with a matrix of Q8_K, which no tool writes, beside F32, F16, Q8_0, Q4_0 and Q4_K.
std::vector<std::byte> mixed_model() {
  auto file = llm::test::TinyGguf::llama({.n_layers = 2});
  auto& tensor = file.tensor("blk.1.ffn_down.weight");
  std::mt19937 random(5);
  std::vector<llm::BlockQ8_K> blocks(tensor.dims[0] / 256 * tensor.dims[1]);
  for (auto& block : blocks) {
    block = {};
    block.d = 1e-3F;
    for (std::size_t i = 0; i < 256; ++i) {
      block.qs[i] = static_cast<std::int8_t>(random());
      block.bsums[i / 16] = static_cast<std::int16_t>(block.bsums[i / 16] + block.qs[i]);
    }
  }
  tensor.type = static_cast<std::uint32_t>(llm::WeightType::kQ8_K);
  tensor.data.assign(reinterpret_cast<const char*>(blocks.data()),
                     blocks.size() * sizeof(blocks[0]));
  return file.bytes();
}

}  // namespace

TEST_CASE("f32 logits and every tap agree with the f64 oracle", "[oracle]") {
  if (!oracle_available()) return;
  const llm::test::ScratchDirectory scratch;
  for (const std::string& path : models()) {
    CAPTURE(path);
    llm::LoadOptions load;
    load.compute = llm::Compute::kF32;
    const auto model = require_ok(llm::Model::load(path, load));
    auto ids = model->tokenizer().encode(kText);
    REQUIRE(ids.size() >= 24);
    ids.resize(std::min(ids.size(), kTokens));

    llm::ExecutorOptions session;
    session.kv = llm::KvType::kF32;
    session.batch = 7;  // steps of the two sides differ; the comparison must not mind
    const auto actual = require_ok(llm::record_activations(
        model, session, false, ids, "oracle_test", require_ok(llm::file_sha256(path))));
    const auto reference =
        oracle_dump(path, fmt::format("--ids {}", fmt::join(ids, ",")), scratch / "reference.npz");

    // What the engine writes is what it holds: compare the file, not the memory.
    REQUIRE(actual.write(scratch / "actual.npz").ok());
    const auto reread = require_ok(llm::Dump::load(scratch / "actual.npz"));
    const llm::Limits limits({{"*", llm::Metric::kNmse, 1e-9, "f32 rounding noise"}});
    const auto diff = require_ok(llm::diff_layers(reread, reference, limits));
    std::cout << "\n"
              << path << ", " << ids.size() << " tokens, f32 against R0 (f64)\n"
              << llm::layer_diff_table(diff);
    CHECK(diff.passed());
    CHECK(diff.remarks.empty());
    CHECK(reference.meta().tokenizer_hash == actual.meta().tokenizer_hash);
    CHECK(diff.rows.size() == 3 + 15 * model->config().n_layers);
    for (const auto& row : diff.rows) {
      CAPTURE(row.layer, row.tap, row.note);
      CHECK(row.verdict == llm::TapVerdict::kPass);
    }
  }
}

TEST_CASE("every op of the definition agrees with the emulated contract", "[oracle]") {
  if (!oracle_available()) return;
  const std::string f16 = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";
  const llm::test::ScratchDirectory scratch;
  SECTION("mixed types") {
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "int8", "f16");
    check_contract(scratch.write("mixed.gguf", mixed_model()), "int8", "f16");
  }
  SECTION("each type by itself") {
    for (const char* type : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K_S",
                             "Q4_K_S", "Q5_K_S", "Q6_K", "BF16", "F32"}) {
      const std::string path = scratch / fmt::format("{}.gguf", type);
      REQUIRE(llm::test::run_tool("llmquant", {f16, path, type, "--pure", "-q"}).exit_code == 0);
      check_contract(path, "int8", "f16");
      fs::remove(path);
    }
  }
  SECTION("each type of the cache, and no codes") {
    check_contract(f16, "int8", "f16");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "int8", "f32");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "f32", "f16");
    check_contract(LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf", "f32", "f32");
  }
  SECTION("attention over more than two chunks of keys") {
    const auto reference =
        oracle_dump(f16, fmt::format("--ids-random {} --compute int8", llm::test::effort(600, 270)),
                    scratch / "r2.npz");
    ContractCheck(f16, llm::Compute::kInt8, llm::KvType::kF16)
        .run(reference, {llm::TapOp::kRope, llm::TapOp::kAttention});
  }
}

TEST_CASE("the oracle passes its own checks", "[oracle]") {
  if (!oracle_available()) return;
  const auto finished = llm::test::run_shell(
      fmt::format("'{}' '{}/tools/oracle/selftest.py'", python(), LLM_SOURCE_DIR));
  INFO(finished.out << finished.err);
  CHECK(finished.exit_code == 0);
}

TEST_CASE("numpy.load reads what is written, zip64 too", "[oracle]") {
  if (!oracle_available()) return;
  const auto zip64_from = GENERATE(values<std::uint64_t>({0xFFFFFFFF, 0, 300}));
  CAPTURE(zip64_from);
  const llm::test::ScratchDirectory scratch;
  const std::vector<float> floats = {-1.5F, 0, 3.25F, 1e-30F, -0.0F, 7};
  const std::vector<std::int64_t> integers = {-1, 1LL << 40};
  const std::vector<std::uint8_t> text = {'h', 'i'};
  const std::uint64_t matrix_shape[] = {2, 3};
  const std::uint64_t two[] = {2};
  const std::string path = scratch / "written.npz";
  auto writer = require_ok(llm::NpzWriter::create(path, zip64_from));
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  REQUIRE(writer.add("s0000/L000/q", llm::NpyType::kF32, matrix_shape, bytes(floats)).ok());
  REQUIRE(writer.add("step_ptr", llm::NpyType::kI64, two, bytes(integers)).ok());
  REQUIRE(writer.add("__meta__", llm::NpyType::kU8, two, bytes(text)).ok());
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
