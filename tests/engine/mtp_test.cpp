// The block that predicts further tokens: its rows are those of plain loops, and what it proposes
// changes nothing but the time.

#include "engine/generation/mtp_proposer.h"
#include "quant/formats/dequantize.h"
#include "tests/engine/reading_proposers.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

struct Loaded {
  std::shared_ptr<const Model> trunk;
  std::shared_ptr<const Model> mtp;
};

Loaded load_both(const std::string& architecture, Compute compute = Compute::kInt8) {
  TinyGguf tiny = TinyGguf::llama({.n_layers = 3, .architecture = architecture, .mtp = true});
  tiny.set_u32(architecture + ".context_length", 512);
  const ScratchDirectory folder;
  const std::string path = folder.write("m.gguf", tiny.bytes());
  Loaded loaded;
  loaded.trunk = require_ok(Model::load(path, {.compute = compute, .threads = 1}));
  loaded.mtp = require_ok(Model::load_mtp(path, *loaded.trunk));
  return loaded;
}

std::shared_ptr<MtpDrafter> drafter_of(const Loaded& loaded, std::size_t n_texts = 1) {
  return require_ok(MtpDrafter::create(loaded.mtp, KvType::kF16, 512, n_texts));
}

using Row = std::vector<double>;

Row product(const PackedMatrix& w, const Row& x) {
  std::vector<std::byte> bytes(row_bytes(w.type(), w.n_cols()));
  std::vector<float> row(w.n_cols());
  REQUIRE(x.size() == w.n_cols());
  Row y(w.n_rows());
  for (std::size_t r = 0; r < y.size(); ++r) {
    w.extract_row(r, bytes);
    contract::dequantize_row(w.type(), bytes, row);
    for (std::size_t c = 0; c < row.size(); ++c) y[r] += double{row[c]} * x[c];
  }
  return y;
}

Row norm(Row x, const AlignedBuffer<float>& weight) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double s = 1 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= s * double{weight[i]};
  return x;
}

void add(Row& x, const Row& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Logits of a first pair: attention sees one key, so its result is the value.
Row by_definition(const Loaded& loaded, TokenId token, std::span<const float> hidden) {
  const ModelWeights& w = loaded.mtp->weights();
  const LayerWeights& layer = w.layers[0];
  std::vector<std::byte> bytes(row_bytes(w.token_embd.type(), w.token_embd.n_cols()));
  std::vector<float> embedding(w.token_embd.n_cols());
  w.token_embd.extract_row(static_cast<std::size_t>(token), bytes);
  contract::dequantize_row(w.token_embd.type(), bytes, embedding);
  Row input = norm(Row(embedding.begin(), embedding.end()), layer.enorm);
  const Row second = norm(Row(hidden.begin(), hidden.end()), layer.hnorm);
  input.insert(input.end(), second.begin(), second.end());
  Row x = product(layer.eh_proj, input);
  const Row normed = norm(x, layer.attn_norm);
  const Row value = product(layer.attn_v, normed);
  Row context = product(layer.attn_q_gate, normed);
  const AttentionSpec& spec = loaded.mtp->config().attention(0);
  for (std::size_t i = 0; i < context.size(); ++i) {
    const std::size_t kv_head = i / spec.head_dim / spec.heads_per_kv();
    context[i] = sigmoid(context[i]) * value[kv_head * spec.head_dim + i % spec.head_dim];
  }
  add(x, product(layer.attn_output, context));
  const Row ffn = norm(x, layer.ffn_norm);
  Row inner = product(layer.ffn_gate, ffn);
  const Row up = product(layer.ffn_up, ffn);
  for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= sigmoid(inner[i]) * up[i];
  add(x, product(layer.ffn_down, inner));
  return product(w.output(), norm(x, w.output_norm));
}

std::unique_ptr<Speculation> speculation_of(const std::shared_ptr<MtpDrafter>& drafter,
                                            std::optional<std::size_t> length) {
  return std::make_unique<Speculation>(std::make_unique<MtpProposer>(drafter), length);
}

}  // namespace

TEST_CASE("mtp: a first pair's logits are those of plain loops", "[mtp]") {
  const Loaded loaded = load_both("qwen35", Compute::kF32);
  const auto drafter = drafter_of(loaded);
  std::mt19937 random(5);
  std::vector<float> hidden(loaded.trunk->config().d_model);
  for (float& x : hidden) x = static_cast<float>(random() % 2000) / 1000 - 1;
  const std::vector<TokenId> token = {17};
  SequenceState state = drafter->open();
  const auto rows = drafter->evaluate(state, 0, token, hidden);
  const Row expected = by_definition(loaded, token[0], hidden);
  REQUIRE(rows.logits.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    REQUIRE(std::abs(double{rows.logits[i]} - expected[i]) < 2e-3);  // values are stored in f16
}

TEST_CASE("mtp: logits depend on the pairs and not on how they are batched", "[mtp]") {
  const Loaded loaded = load_both("qwen35moe");
  const auto drafter = drafter_of(loaded, 2);
  std::mt19937 random(6);
  const std::size_t width = loaded.trunk->config().d_model;
  std::vector<TokenId> tokens(300);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random() % 270);
  std::vector<float> hidden(tokens.size() * width);
  for (float& x : hidden) x = static_cast<float>(random() % 2000) / 1000 - 1;
  SequenceState whole = drafter->open();
  const auto rows = drafter->evaluate(whole, 0, tokens, hidden);
  const std::vector<float> expected(rows.logits.begin(), rows.logits.end());
  SequenceState parts = drafter->open();
  std::span<const float> found;
  for (std::size_t at = 0; at < tokens.size();) {
    const std::size_t n = std::min<std::size_t>(1 + random() % 70, tokens.size() - at);
    found = drafter
                ->evaluate(parts, at, std::span(tokens).subspan(at, n),
                           std::span(hidden).subspan(at * width, n * width))
                .logits;
    at += n;
  }
  REQUIRE(std::ranges::equal(found, expected));
}

TEST_CASE("mtp: a text and its rows are those of plain decoding", "[mtp]") {
  std::mt19937 random(9);
  for (const char* architecture : {"qwen35", "qwen35moe", "qwen3next"}) {
    const Loaded loaded = load_both(architecture);
    const auto drafter = drafter_of(loaded);
    CAPTURE(architecture);
    const Counts counts = require_texts_of_plain_decoding(
        loaded.trunk, 260, [&](std::size_t length) { return speculation_of(drafter, length); },
        random);
    CAPTURE(counts.proposed, counts.accepted, counts.passes);
    REQUIRE(counts.proposed > 1000);
    REQUIRE(counts.accepted > 10);
    REQUIRE(counts.accepted < counts.proposed);
  }
}

TEST_CASE("mtp: requests of a service, also preempted ones, are those of plain decoding", "[mtp]") {
  const Loaded loaded = load_both("qwen35");
  const SchedulerOptions options{
      .step_tokens = 32, .parallel = 6, .context = 400, .kv_pages = GENERATE(9, 60)};
  const auto drafter = drafter_of(loaded, options.parallel);
  const auto figures = require_requests_of_plain_decoding(
      loaded.trunk, 260, options,
      [&](std::size_t length) { return speculation_of(drafter, length); });
  REQUIRE(figures.proposed_tokens > 20);
  REQUIRE(figures.accepted_tokens > 0);
}

}  // namespace llm::test
