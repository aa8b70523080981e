// Low-rank updates of a model's matrices (docs/adapters.md): the bits of the definition, for each
// sequence its own, and clear errors for files that do not fit.

#include "engine/model/adapter.h"

#include "engine/engine.h"
#include "quant/formats/dequantize.h"
#include "tests/support/isas.h"
#include "tests/support/test.h"
#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;
using Rows = std::vector<float>;

Ids some_text(std::size_t n) {
  Ids ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<TokenId>(3 + i * 37 % 200);
  return ids;
}

/// The model with these adapters; the files are gone.
std::shared_ptr<const Model> with_adapters(const TinyGguf& gguf,
                                           const std::vector<TinyGguf>& adapters,
                                           LoadOptions options = {.threads = 2}) {
  const ScratchDirectory folder;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    options.adapters.push_back(folder.write(fmt::format("a{}.gguf", i), adapters[i].bytes()));
  return require_ok(Model::load(folder.write("m.gguf", gguf.bytes()), options));
}

/// Three adapters of unlike ranks and types.
std::vector<TinyGguf> three_adapters(const Model& model) {
  return {tiny_adapter(model, {.rank = 4, .seed = 1}),
          tiny_adapter(model, {.rank = 19, .seed = 2, .alpha = 0, .type = WeightType::kF16}),
          tiny_adapter(model, {.rank = 32, .seed = 3, .alpha = 16, .type = WeightType::kQ8_0})};
}

/// Logits of a text, in calls of `step` tokens.
Rows rows_of(const std::shared_ptr<const Model>& model, const Ids& ids, std::size_t step,
             const SequenceOptions& options, KvType kv = KvType::kF16) {
  const auto sequence =
      require_ok(open_sequence(model, {.context = ids.size(), .kv = kv}, options));
  Rows out;
  for (std::size_t at = 0; at < ids.size(); at += step) {
    const auto part = std::span(ids).subspan(at, std::min(step, ids.size() - at));
    const auto rows = require_ok(sequence->evaluate(part, LogitRows::kAll));
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

double nmse(const Rows& found, const Rows& expected) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double{found[i]} - double{expected[i]}, 2);
    power += std::pow(double{expected[i]}, 2);
  }
  return error / power;
}

/// The tensors that the adapter updates in F32, with the updates added if `merge`.
TinyGguf in_f32(TinyGguf gguf, const AdapterFile& adapter, float scale, bool merge) {
  for (const FileUpdate& update : adapter.updates) {
    TinyGguf::Tensor& tensor = gguf.tensor(update.name);
    std::vector<float> values(tensor.dims[0] * tensor.dims[1]);
    const auto bytes = std::as_bytes(std::span(tensor.data));
    contract::dequantize_row(static_cast<WeightType>(tensor.type), bytes, values);
    if (merge) merge_update(adapter, update, scale, 0, values);
    tensor.type = static_cast<std::uint32_t>(WeightType::kF32);
    tensor.data.assign(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  }
  return gguf;
}

std::string refusal(const TinyGguf& gguf, const TinyGguf& adapter, ErrorCode code) {
  const ScratchDirectory folder;
  LoadOptions options{.threads = 1};
  options.adapters = {folder.write("adapter.gguf", adapter.bytes())};
  const auto model = Model::load(folder.write("m.gguf", gguf.bytes()), options);
  REQUIRE(!model.ok());
  CHECK(model.error().code == code);
  REQUIRE_THAT(model.error().file, Contains("adapter.gguf"));
  return model.error().to_string();
}

}  // namespace

TEST_CASE("adapters give the definition's bits in every architecture", "[adapter]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  CAPTURE(architecture);
  const TinyGguf gguf = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  const auto model =
      with_adapters(gguf, three_adapters(*loaded(gguf)), {.compute = compute, .threads = 2});
  REQUIRE(model->adapters().size() == 3);
  REQUIRE(model->adapters()[0]->size() >= 2);
  const Ids ids = some_text(20);
  const std::vector<float> scales = {1, 0.5F, -0.25F};
  const Rows expected = rows_of(model, ids, 20, {.reference = true, .adapters = scales});
  const Rows plain = rows_of(model, ids, 20, {});
  REQUIRE(!same_bits(expected, plain));
  for (const std::size_t step : {1, 7, 20}) {
    CAPTURE(step);
    REQUIRE(same_bits(rows_of(model, ids, step, {.adapters = scales}), expected));
  }
  // Scales of 0 are no adapters, and the model is what it was.
  REQUIRE(same_bits(rows_of(model, ids, 7, {.adapters = {0, 0, -0.0F}}), plain));
  REQUIRE(same_bits(rows_of(loaded(gguf, {.compute = compute}), ids, 7, {}), plain));
  // Each matters.
  for (std::size_t i = 0; i < scales.size(); ++i) {
    std::vector<float> fewer = scales;
    fewer[i] = 0;
    REQUIRE(!same_bits(rows_of(model, ids, 20, {.adapters = fewer}), expected));
  }
}

TEST_CASE("an adapter does what its merged model does", "[adapter]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  CAPTURE(architecture);
  const TinyGguf gguf = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  const TinyGguf adapter = tiny_adapter(*loaded(gguf));
  const ScratchDirectory folder;
  const AdapterFile file = require_ok(open_adapter_file(folder.write("a.gguf", adapter.bytes())));
  const LoadOptions f32{.compute = Compute::kF32, .threads = 1};
  const Ids ids = some_text(20);
  const auto rows = [&](const std::shared_ptr<const Model>& model, std::vector<float> scales = {}) {
    return rows_of(model, ids, 20, {.adapters = std::move(scales)}, KvType::kF32);
  };
  const Rows found = rows(with_adapters(in_f32(gguf, file, 0.5F, false), {adapter}, f32), {0.5F});
  const Rows merged = rows(loaded(in_f32(gguf, file, 0.5F, true), f32));
  CHECK(nmse(found, merged) < 1e-10);
  CHECK(nmse(rows(loaded(gguf, f32)), merged) > 1e-4);
}

TEST_CASE("adapters give the same bits with every instruction set and any threads", "[adapter]") {
  const TinyGguf gguf = TinyGguf::llama({.n_layers = 2, .architecture = "qwen3"});
  const auto model = with_adapters(gguf, three_adapters(*loaded(gguf)));
  const Ids ids = some_text(40);
  const SequenceOptions options{.adapters = {1, 1, 1}};
  const Rows expected = rows_of(model, ids, 40, options);
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 3}) {
      CAPTURE(isa_name(isa), threads);
      const auto variant = require_ok(model->variant({.isa = isa, .threads = threads}));
      REQUIRE(same_bits(rows_of(variant, ids, 40, options), expected));
      REQUIRE(same_bits(rows_of(variant, ids, 3, options), expected));
    }
  }
}

TEST_CASE("sequences of one pass have adapters of their own", "[adapter]") {
  const TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  const auto model = with_adapters(gguf, three_adapters(*loaded(gguf)));
  const std::vector<std::vector<float>> scales = {
      {}, {1}, {0, 1}, {0, 0, 1}, {2}, {1}, {1, 1, 1}, {0, -1}, {}, {0, 0.5F, 0.5F}};
  const auto executor = require_ok(Executor::create(model, {.context = 60, .kv_pages = 40}));
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Ids> texts;
  std::vector<Rows> expected;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    sequences.push_back(require_ok(Executor::open(executor, {.adapters = scales[i]})));
    texts.push_back(some_text(20 + i));
    expected.push_back(rows_of(model, texts[i], 40, {.adapters = scales[i]}));
  }
  std::vector<Rows> found(scales.size());
  std::mt19937 random(7);
  const auto is_left = [&] {
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (sequences[i]->position() < texts[i].size()) return true;
    return false;
  };
  while (is_left()) {
    std::vector<Segment> segments;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::size_t at = sequences[i]->position();
      const std::size_t n = std::min<std::size_t>(random() % 9, texts[i].size() - at);
      if (n == 0) continue;
      segments.push_back({sequences[i].get(), std::span(texts[i]).subspan(at, n), LogitRows::kAll});
      which.push_back(i);
    }
    require_ok(executor->evaluate(segments));
    for (std::size_t s = 0; s < segments.size(); ++s)
      found[which[s]].insert(found[which[s]].end(), segments[s].logits.begin(),
                             segments[s].logits.end());
  }
  for (std::size_t i = 0; i < scales.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same_bits(found[i], expected[i]));
  }
}

TEST_CASE("keys and values are shared among equal adapters alone", "[adapter]") {
  const TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  const auto model = with_adapters(gguf, three_adapters(*loaded(gguf)));
  const auto executor = require_ok(Executor::create(model, {.context = 40, .kv_pages = 40}));
  const Ids ids = some_text(30);
  const auto adopted = [&](const std::vector<float>& scales) {
    const auto sequence =
        require_ok(Executor::open(executor, {.share_prefix = true, .adapters = scales}));
    return sequence->adopt(ids);
  };
  const auto first =
      require_ok(Executor::open(executor, {.share_prefix = true, .adapters = {0, 1}}));
  require_ok(first->evaluate(ids, LogitRows::kLast));
  first->publish();
  CHECK(adopted({0, 1}) == 30);
  CHECK(adopted({0, 1, 0}) == 30);
  CHECK(adopted({}) == 0);
  CHECK(adopted({1}) == 0);
  CHECK(adopted({0, 0.5F}) == 0);
  CHECK(adopted({0, 1, 1}) == 0);
}

TEST_CASE("scales that a model has no adapters for are refused", "[adapter]") {
  const auto model = loaded(TinyGguf::llama());
  const auto executor = require_ok(Executor::create(model, {}));
  const auto open = Executor::open(executor, {.adapters = {1}});
  REQUIRE(!open.ok());
  CHECK_THAT(open.error().to_string(), Contains("found scales of 1, need at most 0"));
}

TEST_CASE("an adapter that does not fit is refused by name", "[adapter][input]") {
  using enum ErrorCode;
  const TinyGguf gguf = TinyGguf::llama();
  TinyGguf adapter = tiny_adapter(*loaded(gguf));
  const std::string q = "blk.0.attn_q.weight";
  const auto check = [&](ErrorCode code, const std::string& text) {
    CHECK_THAT(refusal(gguf, adapter, code), Contains(text));
  };

  SECTION("metadata") {
    adapter.set_string("general.type", "model");
    check(kUnsupported, "general.type");
    adapter.set_string("general.type", "adapter");
    adapter.set_string("adapter.type", "ia3");
    check(kUnsupported, "found \"ia3\", need \"lora\"");
    adapter.set_string("adapter.type", "lora");
    adapter.set_string("general.architecture", "qwen2");
    check(kMalformed, "found \"qwen2\", need \"llama\"");
    adapter.set_string("general.architecture", "llama");
    adapter.set_f32("adapter.lora.alpha", std::numeric_limits<float>::infinity());
    check(kNonFinite, "adapter.lora.alpha");
    adapter.set_f32("adapter.lora.alpha", 1);
    adapter.set_array<std::uint32_t>("adapter.alora.invocation_tokens", GgufType::kUint32, {1});
    check(kUnsupported, "aLoRA");
  }
  SECTION("no tensors") {
    adapter.tensors.clear();
    check(kMalformed, "found none, need a low-rank update");
  }
  SECTION("a tensor of another kind") {
    adapter.tensor(q + ".lora_a").name = q;
    check(kUnsupported, "need names that end with .lora_a and .lora_b");
  }
  SECTION("half an update") {
    adapter.remove_tensor(q + ".lora_b");
    check(kMalformed, "found no tensor \"blk.0.attn_q.weight.lora_b\" beside it");
  }
  SECTION("a tensor that the model does not have") {
    adapter.tensor(q + ".lora_a").name = "blk.7.attn_q.weight.lora_a";
    adapter.tensor(q + ".lora_b").name = "blk.7.attn_q.weight.lora_b";
    check(kMalformed, "the adapter belongs to another model");
  }
  SECTION("a tensor that is read by rows") {
    adapter.tensor(q + ".lora_a").name = "token_embd.weight.lora_a";
    adapter.tensor(q + ".lora_b").name = "token_embd.weight.lora_b";
    check(kUnsupported, "no product reads");
  }
  SECTION("columns") {
    TinyGguf::Tensor& a = adapter.tensor(q + ".lora_a");
    a.dims[0] = 64;
    a.data += a.data;
    check(kMalformed, "found 64 columns, need 32");
  }
  SECTION("rows") {
    adapter.tensor(q + ".lora_b").dims[1] = 16;
    check(kMalformed, "found 16 rows, need 32");
  }
  SECTION("rank") {
    adapter.tensor(q + ".lora_b").dims = {2, 64};
    check(kMalformed, "found rank 2, need 4");
  }
  SECTION("experts") {
    adapter.tensor(q + ".lora_a").dims = {32, 2, 2};
    check(kUnsupported, "updates of experts");
  }
  SECTION("NaN") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(adapter.tensor(q + ".lora_a").data.data() + 4 * 5, &nan, sizeof nan);
    check(kNonFinite, "found NaN or Inf in F32 block 5");
  }
}

}  // namespace llm::test
