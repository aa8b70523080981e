// The parts of llmcheck --self on a tiny model, and proof that what is wrong is named.

#include "validate/selftest/self_check.h"

#include "quant/formats/block_traits.h"
#include "quant/kernels/kernel_table.h"
#include "tests/support/nonfinite_models.h"
#include "tests/support/tiny_model.h"
#include "tests/validate/check_results.h"
#include "validate/selftest/definition_check.h"
#include "validate/selftest/kernel_check.h"
#include "validate/selftest/matrix_verdict.h"
#include "validate/selftest/mode_check.h"
#include "validate/selftest/path_check.h"

namespace llm::test {
namespace {

ModePlan plan_for(const ModelPointer& model, Compute compute) {
  const bool int8 = compute == Compute::kInt8;
  return {.base = model,
          .compute = compute,
          .kv = int8 ? KvType::kF16 : KvType::kF32,
          .name = int8 ? "int8" : "f32",
          .threads = 2,
          .progress = {}};
}

void check_all_pass(const Result<PartOutcome>& result) {
  const PartOutcome outcome = require_ok(result);
  CHECK(outcome.anchored);
  check_passed(outcome.results);
}

std::vector<TokenId> some_tokens(std::size_t n) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(3 + i * 7 % 260));
  return tokens;
}

LogitTable table_of(float value) {
  LogitTable table{.n_vocab = 2};
  table.append(5, std::vector<float>{1.0F, 2.0F, 3.0F, value});
  return table;
}

const KernelTable& fastest() { return *kernel_tables_here().back(); }

}  // namespace

TEST_CASE("the definition's functions are within their bounds of f64", "[self]") {
  for (const float theta : {10000.0F, 500000.0F}) {
    const AttentionSpec wide{.n_heads = 2, .n_kv_heads = 1, .head_dim = 48, .scale = 0.144F};
    const AttentionSpec narrow{
        .n_heads = 2, .n_kv_heads = 2, .head_dim = 16, .rope = 1, .scale = 0.25F};
    const DeltaNetSpec delta{.n_k_heads = 2,
                             .n_v_heads = 6,
                             .k_dim = 9,
                             .v_dim = 33,
                             .conv_width = 10,
                             .grouped = theta > 10000.0F};
    const HyperParameters config{.d_model = 288,
                                 .context = 8192,
                                 .norm_eps = 1e-6F,
                                 .ropes = {{.dims = 40, .theta = theta}, {.dims = 16}},
                                 .layers = {{.mixer = wide}, {.mixer = narrow}, {.mixer = delta}}};
    const std::vector<Rope> ropes = {Rope(config.ropes[0], {}), Rope(config.ropes[1], {})};
    check_passed(check_definition(config, ropes, {}));
  }
}

TEST_CASE("every weight type's matrix of many rows is shared completely", "[self]") {
  std::vector<WeightType> types;
  for (const BlockTraits& traits : all_block_traits()) types.push_back(traits.type);
  if (kSanitized) types = {WeightType::kQ4_0};
  const auto results = require_ok(check_shares(fastest(), types));
  CHECK(results.size() == types.size() + 1);
  check_passed(results);
}

TEST_CASE("a path that differs is run again: the same bits, or a race", "[self]") {
  int runs = 0;
  const auto always_wrong = require_ok(judge("steady", table_of(4), [&]() -> Result<LogitTable> {
    ++runs;
    return table_of(5);
  }));
  CHECK(runs == 3);
  CHECK_FALSE(always_wrong.result.passed);
  CHECK_THAT(
      always_wrong.result.detail,
      Contains("1 of 4 logits differ, first at position 6, token 1: 5 and 4") && !Contains("race"));
  runs = 10;
  const auto changing = require_ok(judge("changing", table_of(4), [&]() -> Result<LogitTable> {
    return table_of(static_cast<float>(++runs));
  }));
  CHECK_THAT(changing.result.detail, Contains("a race"));
  CHECK(require_ok(judge("right", table_of(4), []() -> Result<LogitTable> {
          return table_of(4);
        })).result.passed);
}

TEST_CASE("a path without a row to compare fails", "[self]") {
  LogitTable elsewhere{.n_vocab = 2};
  elsewhere.append(90, std::vector<float>{1.0F, 2.0F});
  const auto judged =
      require_ok(judge("none", table_of(4), [&]() -> Result<LogitTable> { return elsewhere; }));
  CHECK_FALSE(judged.result.passed);
}

TEST_CASE("logits that are not finite are a failed check that says where", "[self]") {
  const auto judged = require_ok(judge("broken", table_of(4), []() -> Result<LogitTable> {
    return Error{.code = ErrorCode::kNonFinite,
                 .field = "blk.1.ffn_act",
                 .message = "found NaN or Inf at token position 3, need finite numbers"};
  }));
  CHECK_FALSE(judged.result.passed);
  CHECK_THAT(judged.result.detail, Contains("blk.1.ffn_act") && Contains("position 3"));
  must_fail(judge("error", table_of(4), []() -> Result<LogitTable> {
    return Error{.code = ErrorCode::kResource, .field = "memory", .message = "none left"};
  }));
}

TEST_CASE("teams that wait at random agree on a model of mixed types", "[self]") {
  const auto compute = GENERATE(Compute::kInt8, Compute::kF32);
  check_all_pass(check_waits(plan_for(loaded(TinyGguf::llama({.n_layers = 2})), compute)));
}

TEST_CASE("paths and long texts of a model of mixed types agree", "[self]") {
  const auto compute = GENERATE(Compute::kInt8, Compute::kF32);
  const ModelPointer model = loaded(TinyGguf::llama({.n_layers = 2}));
  const ModePlan plan = plan_for(model, compute);
  const Lengths lengths = {effort<std::size_t>(300, 40), 20, 20, 20};
  check_all_pass(check_paths(plan, lengths, some_tokens(lengths.usual)));
  if (!kSanitized) check_all_pass(check_long_texts(plan));
}

TEST_CASE("first_layers computes the first layers alone", "[self]") {
  const auto two = loaded(TinyGguf::llama({.n_layers = 2}));
  const auto cut = two->first_layers(1);
  CHECK(cut->config().n_layers == 1);
  const auto tokens = some_tokens(5);
  const Window window{0, 5};
  const auto expected = by_definition(cut, KvType::kF16, tokens, {&window, 1});
  const auto whole = by_definition(two, KvType::kF16, tokens, {&window, 1});
  const Path path{.name = "", .executor = {}, .sequence = {}, .feeds = {{.end = 5}}};
  const auto fast = evaluate(cut, path, tokens);
  REQUIRE((expected.ok() && whole.ok() && fast.ok()));
  CHECK(same_bits(*expected, *fast));
  CHECK_FALSE(same_bits(*expected, *whole));
}

TEST_CASE("a window by the definition equals the definition from the start", "[self]") {
  const ModelPointer model = loaded(TinyGguf::llama({.n_layers = 2}));
  const auto tokens = some_tokens(260);
  const Window all{0, 260};
  const Window late{256, 260};
  const auto expected = by_definition(model, KvType::kF32, tokens, {&all, 1});
  const auto actual = by_definition(model, KvType::kF32, tokens, {&late, 1});
  REQUIRE((expected.ok() && actual.ok()));
  CHECK(actual->positions == std::vector<std::size_t>{256, 257, 258, 259});
  const TableDifference difference = compare_tables(*actual, *expected);
  CHECK(difference.compared == 4 * model->config().n_vocab);
  CHECK(difference.different == 0);
}

TEST_CASE("weights that overflow fail the check of the definition, without an error", "[self]") {
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  make_huge(gguf, "blk.1.ffn_down.weight");
  const auto outcome = require_ok(
      check_paths(plan_for(loaded(gguf), Compute::kF32), {20, 5, 5, 5}, some_tokens(20)));
  CHECK_FALSE(outcome.anchored);
  REQUIRE(outcome.results.size() == 1);
  CHECK_FALSE(outcome.results[0].passed);
  CHECK_THAT(outcome.results[0].detail, Contains("blk.1.ffn_out") && Contains("weights"));
}

TEST_CASE("the self check lists what it did not cover, and tells how far it is", "[self]") {
  if (kSanitized) return;
  const ScratchDirectory directory;
  SelfCheckOptions options;
  options.text = "abc abc";
  options.threads = 2;
  std::set<std::string, std::less<>> stages;
  std::vector<std::size_t> shares;
  options.progress = [&](std::string_view stage, std::size_t done, std::size_t total) {
    if (!stage.starts_with("self check: ")) return;  // loading
    stages.emplace(stage);
    shares.push_back(done);
    CHECK(total == 1000);
  };
  const auto outcome = require_ok(
      self_check(directory.write("m.gguf", TinyGguf::llama({.n_layers = 2}).bytes()), options));
  CHECK(stages.size() == 14);  // four for each mode, four other caches, and two
  CHECK(std::ranges::is_sorted(shares));
  CHECK(shares.back() >= 900);
  CHECK(shares.back() <= 1000);
  check_passed(outcome.results);
  const auto lacks = std::ranges::count_if(outcome.not_covered, [](const std::string& line) {
    return line.starts_with("instruction set ");
  });
  const auto absent = std::ranges::count_if(
      all_isas(), [](Isa isa) { return !isa_supported(isa) && kernel_table(isa) != nullptr; });
  CHECK(lacks == absent);
}

}  // namespace llm::test
