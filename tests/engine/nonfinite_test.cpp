// Rows 61 to 64 of docs/bad_input.md in the library: numbers that are none are found and named
// where they arise, and denormal ones are numbers like any other. llmrun's side of it is in
// tests/tools/llmrun_nonfinite_test.cpp.

#include "engine/engine.h"
#include "quant/formats/block_traits.h"
#include "tests/support/isas.h"
#include "tests/support/nonfinite_models.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::uint16_t kHalfInf = 0x7C00;
constexpr std::uint16_t kHalfNan = 0x7E00;
constexpr std::uint16_t kHalfLargest = 0x7BFF;

Result<std::shared_ptr<const Model>> load(const ScratchDirectory& folder, const TinyGguf& gguf,
                                          const LoadOptions& options = {}) {
  const std::vector<std::byte> bytes = gguf.bytes();
  return Model::load(folder.write("model.gguf", bytes), options);
}

/// A session on the model, which must load.
std::unique_ptr<Sequence> session_of(const TinyGguf& gguf, const LoadOptions& load_options = {},
                                     const ExecutorOptions& options = {},
                                     const SequenceOptions& how = {}) {
  return require_ok(open_sequence(loaded(gguf, load_options), options, how));
}

std::vector<float> logits_of(Session& session, const Ids& ids) {
  const auto logits = require_ok(session.evaluate(ids, LogitRows::kAll));
  return {logits.begin(), logits.end()};
}

/// The instruction sets of this CPU, each as options of loading.
std::vector<LoadOptions> every_isa(Compute compute) {
  std::vector<LoadOptions> all;
  for (const Isa isa : supported_isas())
    all.push_back({.compute = compute, .isa = isa, .threads = 2});
  return all;
}

void require_nonfinite(const Result<std::span<const float>>& result, const std::string& field,
                       std::size_t position) {
  const Error error = must_fail(result, ErrorCode::kNonFinite);
  REQUIRE(error.field == field);
  REQUIRE(error.message ==
          fmt::format("found NaN or Inf at token position {}, need finite numbers", position));
}

}  // namespace

TEST_CASE("bad input 61: a scale that is no number is named by tensor and block", "[nonfinite]") {
  struct Case {
    const char* tensor;
    std::size_t block;
    std::size_t byte_in_block;  ///< of a half
    const char* words;
  };
  // A row of attn_q has 32 blocks of one weight, of attn_v and ffn_up 1 of 32, of token_embd 1.
  const auto at = GENERATE(values<Case>({
      {"blk.0.attn_q.weight", 0, 0, "F16 block 0 (row 0)"},
      {"blk.0.attn_q.weight", 1023, 0, "F16 block 1023 (row 31)"},
      {"blk.0.attn_v.weight", 15, 0, "Q8_0 block 15 (row 15)"},
      {"blk.0.ffn_up.weight", 255, 0, "Q4_0 block 255 (row 255)"},
      {"blk.0.ffn_down.weight", 17, 0, "Q4_K block 17 (row 17)"},
      {"blk.0.ffn_down.weight", 31, 2, "Q4_K block 31 (row 31)"},
      {"blk.0.attn_k.weight", 40, 2, "F32 block 40 (row 1)"},
      {"blk.0.ffn_norm.weight", 9, 2, "F32 block 9 (row 0)"},
      {"output_norm.weight", 31, 2, "F32 block 31 (row 0)"},
      {"token_embd.weight", 271, 0, "Q8_0 block 271 (row 271)"},
      {"output.weight", 20, 0, "Q4_0 block 20 (row 20)"},
  }));
  // The upper half of an f32 has one exponent bit more than a half: 0x7F80 is Inf, 0x7FC0 NaN.
  const bool is_f32 = std::strstr(at.words, "F32") != nullptr;
  const auto bits = GENERATE(values<std::uint16_t>({kHalfInf, kHalfNan, 0xFC00}));
  const auto pattern = static_cast<std::uint16_t>(is_f32 ? 0x7F80 | (bits & 0x8200) >> 3 : bits);
  CAPTURE(at.tensor, at.words, pattern);

  TinyGguf gguf = TinyGguf::llama();
  TinyGguf::Tensor& tensor = gguf.tensor(at.tensor);
  const BlockTraits& traits = block_traits(static_cast<WeightType>(tensor.type));
  const std::size_t block = at.block * traits.block_bytes;
  std::memcpy(tensor.data.data() + block + at.byte_in_block, &pattern, sizeof(pattern));
  const ScratchDirectory folder;
  const Error error = must_fail(load(folder, gguf), ErrorCode::kNonFinite);
  REQUIRE(error.field == at.tensor);
  REQUIRE(error.message == fmt::format("found NaN or Inf in {}, need finite values", at.words));
  REQUIRE(error.offset == gguf.header_bytes() + gguf.default_offset(at.tensor) + block);
  REQUIRE(error.file == folder.path("model.gguf"));
}

TEST_CASE("bad input 62: a norm whose squares overflow is named, and gives no silent zeros",
          "[nonfinite]") {
  // Finite activations; without their squares' overflow every norm would be 0 and logits finite.
  const auto [tensor, value, where] = GENERATE(table<std::string, float, std::string>({
      {"token_embd.weight", 3e38F, "blk.0.attn_norm"},
      {"blk.0.attn_output.weight", 1e25F, "blk.0.ffn_norm"},
      {"blk.0.ffn_norm.weight", 1e14F, "result_norm"},
  }));
  TinyGguf gguf = TinyGguf::llama();
  fill_f32(gguf.tensor(tensor), value);
  const auto compute = GENERATE(Compute::kInt8, Compute::kF32);
  const bool by_definition = GENERATE(false, true);
  for (const LoadOptions& options : every_isa(compute)) {
    CAPTURE(tensor, compute, isa_name(*options.isa), by_definition);
    const auto session = session_of(gguf, options, {}, {.reference = by_definition});
    // Behind the last layer only rows whose logits are wanted are computed.
    require_nonfinite(session->evaluate(Ids{5, 6}, LogitRows::kLast), where,
                      where == "result_norm" ? 1 : 0);
  }
}

TEST_CASE("bad input 61: the first of several faults is named, for any threads", "[nonfinite]") {
  TinyGguf gguf = TinyGguf::llama();
  TinyGguf::Tensor& tensor = gguf.tensor("blk.0.ffn_gate.weight");
  for (const std::size_t block : {33, 100, 200, 255}) {
    std::memcpy(tensor.data.data() + 18 * block, &kHalfNan, sizeof(kHalfNan));
  }
  for (const int threads : {1, 2, 3, 7}) {
    const ScratchDirectory folder;
    must_fail(load(folder, gguf, {.threads = threads}), {"Q4_0 block 33 (row 33)"});
  }
}

TEST_CASE("the largest finite scale is no fault of the file", "[nonfinite]") {
  TinyGguf gguf = TinyGguf::llama();
  TinyGguf::Tensor& tensor = gguf.tensor("blk.0.attn_v.weight");
  std::memcpy(tensor.data.data(), &kHalfLargest, sizeof(kHalfLargest));
  const ScratchDirectory folder;
  REQUIRE(load(folder, gguf).ok());
}

TEST_CASE("bad input 62: an overflow is named by layer, operation and position", "[nonfinite]") {
  const auto [tensor, field] = GENERATE(table<const char*, const char*>({
      {"blk.0.attn_q.weight", "blk.0.q"},
      {"blk.1.attn_k.weight", "blk.1.k"},
      {"blk.1.attn_v.weight", "blk.1.v"},
      {"blk.0.attn_output.weight", "blk.0.attn_out"},
      {"blk.0.ffn_gate.weight", "blk.0.gate"},
      {"blk.1.ffn_up.weight", "blk.1.up"},
      {"blk.1.ffn_down.weight", "blk.1.ffn_out"},
      {"output.weight", "logits"},
  }));
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  make_huge(gguf, tensor);
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  const KvType kv = GENERATE(KvType::kF16, KvType::kQ8);
  for (const LoadOptions& options : every_isa(compute)) {
    CAPTURE(tensor, isa_name(*options.isa), kv_name(kv));
    for (const bool reference : {false, true}) {
      const auto session = session_of(gguf, options, {.kv = kv}, {.reference = reference});
      require_nonfinite(session->evaluate(Ids{1, 260, 261}, LogitRows::kAll), field, 0);
      REQUIRE(session->position() == 0);
      // Only one row of logits: a fault that arises there is at the last position.
      const std::size_t position = std::string_view(field) == "logits" ? 2 : 0;
      require_nonfinite(session->evaluate(Ids{1, 260, 261}, LogitRows::kLast), field, position);
    }
  }
}

TEST_CASE("bad input 62: the position is that of the guilty token", "[nonfinite]") {
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  constexpr TokenId kGuilty = 270;
  make_token_overflow(gguf, kGuilty);
  const Ids good = {1, 260, 261, 262, 263};
  const Ids bad = {264, 265, kGuilty, 266};
  const auto fresh = session_of(gguf);
  std::vector<float> expected = logits_of(*fresh, good);
  for (const std::size_t batch : {1, 2, 512}) {
    for (const bool cache : {true, false}) {
      CAPTURE(batch, cache);
      const auto session = session_of(gguf, {}, {.batch = batch}, {.use_cache = cache});
      REQUIRE(same_bits(logits_of(*session, good), expected));
      require_nonfinite(session->evaluate(bad, LogitRows::kLast), "blk.0.q", 7);
      REQUIRE(session->position() == good.size());

      // Where it was before: the same text goes on as if nothing had happened.
      fresh->truncate(good.size());
      const std::vector<float> next = logits_of(*fresh, {267, 268});
      REQUIRE(same_bits(logits_of(*session, {267, 268}), next));
    }
  }
}

TEST_CASE("bad input 62: of several texts in a pass the guilty one's position is named",
          "[nonfinite]") {
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  make_token_overflow(gguf, 270);
  const auto executor = require_ok(Executor::create(loaded(gguf, {.threads = 2}), {.kv_pages = 2}));
  const auto good = require_ok(Executor::open(executor));
  const auto bad = require_ok(Executor::open(executor));
  const Ids good_ids = {1, 260, 261};
  const Ids bad_ids = {264, 270};
  std::array segments = {Segment{good.get(), good_ids, LogitRows::kAll},
                         Segment{bad.get(), bad_ids, LogitRows::kAll}};
  must_fail(executor->evaluate(segments), ErrorCode::kNonFinite, {"blk.0.q", "position 1"});
  REQUIRE(good->position() + bad->position() == 0);
}

TEST_CASE("bad input 62: a fault that no logits were asked for is named later", "[nonfinite]") {
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  make_token_overflow(gguf, 270);
  const auto session = session_of(gguf);
  REQUIRE(session->evaluate(Ids{1, 260, 270, 261}, LogitRows::kNone).ok());
  require_nonfinite(session->evaluate(Ids{262}, LogitRows::kLast), "blk.0.q", 2);
  REQUIRE(session->position() == 4);
  session->truncate(2);
  const std::vector<float> after = logits_of(*session, {261});
  const auto fresh = session_of(gguf);
  REQUIRE(fresh->evaluate(Ids{1, 260}, LogitRows::kNone).ok());
  REQUIRE(same_bits(after, logits_of(*fresh, {261})));
}

TEST_CASE("bad input 64: denormal weights give one hash on every path", "[nonfinite]") {
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  const bool norms_too = GENERATE(false, true);
  make_denormal(gguf, norms_too);
  const Ids ids = {1, 260, 261, 262, 263, 264, 265};
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  const KvType kv = GENERATE(KvType::kF32, KvType::kQ8);
  const std::vector<LoadOptions> isas = every_isa(compute);
  const auto reference = session_of(gguf, isas.front(), {.kv = kv}, {.reference = true});
  const std::vector<float> expected = logits_of(*reference, ids);
  // Flushing them to zero would lose the text: what is left must be denormal numbers, not zeros.
  const auto denormal = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; };
  const auto n_denormal = std::count_if(expected.begin(), expected.end(), denormal);
  if (!norms_too) REQUIRE(n_denormal > static_cast<std::ptrdiff_t>(expected.size()) / 2);
  for (const LoadOptions& options : isas) {
    CAPTURE(isa_name(*options.isa), norms_too, compute == Compute::kInt8);
    const auto session = session_of(gguf, options, {.kv = kv});
    REQUIRE(same_bits(logits_of(*session, ids), expected));
  }
}

}  // namespace llm::test
