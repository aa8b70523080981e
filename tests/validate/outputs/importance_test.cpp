#include "validate/outputs/importance/importance.h"

#include "engine/forward/activation_points.h"
#include "tests/support/require_ok.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm::test {
namespace {

constexpr std::string_view kText = "The cat sat on the mat, and the dog sat by the log. ";

ImportanceMatrix importance(const std::shared_ptr<const Model>& model, std::size_t window,
                            std::size_t batch, std::string_view text = kText) {
  return require_ok(
      importance_of_text(model, text, "text", window, {.context = window, .batch = batch}));
}

/// Sums of squares of each column of a tap, and its rows, in the definition's dump.
std::vector<double> sums_of(const Dump& dump, int layer, std::string_view name) {
  const TapMatrix rows = require_ok(dump.tap(layer, std::string(name)));
  std::vector<double> sums(rows.features);
  for (std::size_t i = 0; i < rows.values.size(); ++i)
    sums[i % rows.features] +=
        static_cast<double>(rows.values[i]) * static_cast<double>(rows.values[i]);
  return sums;
}

void must_be_near(const Importance& entry, const std::vector<double>& sums) {
  CAPTURE(entry.tensor);
  REQUIRE(entry.sums.size() == sums.size());
  for (std::size_t j = 0; j < sums.size(); ++j)
    REQUIRE(static_cast<double>(entry.sums[j]) == Approx(sums[j]).epsilon(1e-6));
}

TEST_CASE("importances are sums over what goes into each product", "[validate][importance]") {
  const ScratchDirectory folder;
  const auto path = folder.write("m.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
  const auto model = require_ok(Model::load(path, {.threads = 2}));
  const auto tokens = model->tokenizer().encode(kText, {.add_bos = true, .add_eos = false});
  const std::size_t n = std::min<std::size_t>(tokens.size() - 1, 48);
  const ImportanceMatrix matrix = importance(model, n, 7);
  CHECK(matrix.n_chunks == 1);
  CHECK(matrix.chunk_tokens == n);
  const Dump dump = require_ok(
      record_activations(model, {.context = n}, true, std::span(tokens).first(n), "test", ""));
  for (const auto& [tensor, layer, tap] : std::vector<std::tuple<std::string, int, std::string>>{
           {"blk.0.attn_q.weight", 0, "attn_norm"},
           {"blk.1.attn_v.weight", 1, "attn_norm"},
           {"blk.1.attn_output.weight", 1, "attn_ctx"},
           {"blk.0.ffn_gate.weight", 0, "ffn_norm"},
           {"blk.0.ffn_up.weight", 0, "ffn_norm"},
           {"blk.1.ffn_down.weight", 1, "ffn_act"},
           {"output.weight", ProbeSink::kGlobal, "result_norm"}}) {
    const Importance* entry = matrix.find(tensor);
    CAPTURE(tensor);
    REQUIRE(entry != nullptr);
    CHECK(entry->counts == std::vector{static_cast<float>(n)});
    must_be_near(*entry, sums_of(dump, layer, tap));
  }
  CHECK(matrix.entries.size() == 2 * 7 + 1);
}

TEST_CASE("importances do not depend on threads and passes", "[validate][importance]") {
  for (const std::string& architecture : TinyGguf::architectures()) {
    CAPTURE(architecture);
    const ScratchDirectory folder;
    const auto path = folder.write(
        "m.gguf", TinyGguf::llama({.n_layers = 2, .architecture = architecture}).bytes());
    std::vector<std::byte> expected;
    for (const auto& [threads, batch] : {std::pair(1, 64), std::pair(3, 5), std::pair(2, 1)}) {
      const auto model = require_ok(Model::load(path, {.threads = threads}));
      const auto bytes =
          require_ok(importance(model, 16, static_cast<std::size_t>(batch)).gguf_bytes());
      if (expected.empty()) expected = bytes;
      REQUIRE(bytes == expected);
    }
    // What llmquant asks for: of every matrix of the layers, of each expert's.
    const ImportanceMatrix matrix = require_ok(ImportanceMatrix::parse(expected));
    for (const Importance& entry : matrix.entries) {
      CAPTURE(entry.tensor);
      double rows = 0;
      for (const float count : entry.counts) rows += static_cast<double>(count);
      REQUIRE(rows > 0);
      REQUIRE(std::ranges::all_of(entry.sums, [](float sum) { return sum >= 0; }));
    }
  }
}

TEST_CASE("experts count the rows that chose them", "[validate][importance]") {
  const ScratchDirectory folder;
  const auto path =
      folder.write("m.gguf", TinyGguf::llama({.n_layers = 1, .architecture = "qwen3moe"}).bytes());
  const auto model = require_ok(Model::load(path, {.threads = 1}));
  const FfnSpec& spec = model->config().layers[0].ffns[0];
  const ImportanceMatrix matrix = importance(model, 24, 24);
  const Importance& up = *matrix.find("blk.0.ffn_up_exps.weight");
  const Importance& down = *matrix.find("blk.0.ffn_down_exps.weight");
  const Importance& router = *matrix.find("blk.0.ffn_gate_inp.weight");
  REQUIRE(up.counts.size() == spec.n_experts);
  CHECK(up.counts == down.counts);
  double rows = 0;
  for (const float count : up.counts) rows += static_cast<double>(count);
  CHECK(rows == 24.0 * static_cast<double>(spec.n_used));
  // The router reads the same rows once, the experts n_used times together.
  const std::size_t n_cols = router.sums.size();
  for (std::size_t j = 0; j < n_cols; ++j) {
    double all = 0;
    for (std::size_t e = 0; e < spec.n_experts; ++e)
      all += static_cast<double>(up.sums[e * n_cols + j]);
    REQUIRE(all == Approx(static_cast<double>(router.sums[j]) * static_cast<double>(spec.n_used))
                       .epsilon(1e-6));
  }
}

TEST_CASE("a last window that is shorter is left out", "[validate][importance]") {
  const ScratchDirectory folder;
  const auto path = folder.write("m.gguf", TinyGguf::llama().bytes());
  const auto model = require_ok(Model::load(path, {.threads = 1}));
  const std::size_t n = model->tokenizer().encode(kText, {.add_bos = false}).size();
  REQUIRE(n > 16);
  const ImportanceMatrix matrix = importance(model, 8, 8);
  CHECK(matrix.n_chunks == n / 8);
  CHECK(matrix.entries.at(0).counts.at(0) == static_cast<float>(n / 8 * 8));
}

}  // namespace
}  // namespace llm::test
