// Receipts checked by random rows: honest openings pass whatever the settings, and what is altered
// is found and named.

#include "validate/provenance/audit.h"

#include "base/hex.h"
#include "base/merkle_tree.h"
#include "quant/numerics/contract.h"
#include "tests/support/embedded_model.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using ModelPointer = std::shared_ptr<const Model>;

constexpr std::size_t kAll = std::size_t{1} << 30;

/// A text of n tokens, sampled.
Receipt receipt_of(const ModelPointer& model, std::size_t n, KvType kv = KvType::kF16) {
  Receipt receipt;
  receipt.kv = kv;
  receipt.contract_version = contract::kContractVersion;
  receipt.prompt = "the hat";
  receipt.prompt_ids = model->tokenizer().encode(*receipt.prompt);
  receipt.max_tokens = n;
  receipt.ignore_eos = true;
  receipt.sampler.seed = 7;
  receipt.context = receipt.prompt_ids.size() + n + 1;
  receipt.compute = model->compute();
  const auto session =
      require_ok(open_sequence(model, {.context = receipt.context, .kv = receipt.kv}));
  const auto result =
      require_ok(generate(*session, receipt.prompt_ids, receipt.generation(nullptr)));
  receipt.ids = result.ids;
  receipt.text = result.text;
  receipt.stop_reason = result.stop_reason;
  receipt.rows_sha256 = require_ok(rows_sha256(model, receipt));
  return receipt;
}

/// Hands a pass's rows on, after `change` has made others of them: what reads them reads those.
class Forger final : public ProbeSink {
 public:
  using Change = std::function<void(int layer, std::string_view tap, std::span<float> values)>;
  Forger(ProbeSink& to, Change change) : to_(to), change_(std::move(change)) {}

  void begin_step(std::span<const int> tokens, std::size_t first_position) override {
    to_.begin_step(tokens, first_position);
  }
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override {
    change_(layer, name, values);
    to_.tap(layer, name, values, features, first_token);
  }

 private:
  ProbeSink& to_;
  Change change_;
};

/// Somebody who made a text, with all its rows; they may be changed.
struct Maker {
  ModelPointer model;
  Receipt receipt;
  RowTable table;
  RowRecorder rows;

  Maker(
      ModelPointer m, Receipt r, const Forger::Change& change = [](auto...) {})
      : model(std::move(m)),
        receipt(std::move(r)),
        table(model->config(), receipt.evaluated().size()),
        rows(table, all_rows()) {
    Forger forger(rows, change);
    require_ok(evaluate_run(model, receipt, forger));
  }

  RowValues all_rows() const {
    std::vector<std::size_t> all(table.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return require_ok(RowValues::allocate(table, std::move(all)));
  }
  void flip(std::size_t row, std::size_t bit) {
    auto bytes = std::as_writable_bytes(rows.kept[row]);
    bytes[bit / 8 % bytes.size()] ^= std::byte(1U << bit % 8);
    rows.leaves[row] = row_leaf(rows.kept[row]);
  }
  void commit() { receipt.rows_sha256 = hex_text(merkle_root(rows.leaves)); }
  std::vector<std::byte> open(const Challenge& challenge) const {
    return opening_bytes(AuditPlan::of(table, receipt, challenge), receipt, challenge, rows.leaves,
                         rows.kept);
  }
};

/// The first failed check in words, "" where all passed.
std::string fault_of(const ModelPointer& model, const Receipt& receipt, const Challenge& challenge,
                     std::span<const std::byte> opening) {
  const auto outcome = audit_receipt(model, receipt, challenge, opening);
  if (!outcome.ok()) return outcome.error().to_string();
  for (const CheckResult& check : outcome->checks)
    if (!check.passed) return check.name + ": " + check.detail;
  return {};
}

}  // namespace

TEST_CASE("every row of an honest run is what its inputs give", "[receipt][audit]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  const auto compute = GENERATE(Compute::kInt8, Compute::kF32);
  const KvType kv = GENERATE(KvType::kF16, KvType::kF32, KvType::kQ8);
  CAPTURE(architecture, compute_name(compute), kv_name(kv));
  const TinyGguf gguf = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  const auto model = loaded(gguf, {.compute = compute, .threads = 2});
  const Receipt receipt = receipt_of(model, 30, kv);
  const Challenge challenge{.text = "x", .rows = kAll, .draws = kAll};
  const auto opening = require_ok(open_rows(model, receipt, challenge));
  const auto outcome = require_ok(audit_receipt(model, receipt, challenge, opening));
  CHECK(fault_of(model, receipt, challenge, opening) == "");
  CHECK(outcome.n_asked == outcome.n_rows);
  CHECK(outcome.n_draws == 31);
}

TEST_CASE("so is one of several passes, chunks of keys and windows", "[receipt][audit]") {
  const std::string architecture = GENERATE("llama", "gemma3");
  CAPTURE(architecture);
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  gguf.set_u32(architecture + ".context_length", 1024);
  if (architecture == "gemma3") gguf.set_u32("gemma3.attention.sliding_window", 300);
  const auto model = loaded(gguf);
  const Receipt receipt = receipt_of(model, 600);
  const Challenge challenge{.text = "x", .rows = 3000};
  const auto opening = require_ok(open_rows(model, receipt, challenge));
  CHECK(fault_of(model, receipt, challenge, opening) == "");
  const RowTable table(model->config(), receipt.evaluated().size());
  std::vector<std::size_t> inputs;
  table.add_inputs(table.row(table.column(0, "attn_ctx"), 500), 0, inputs);
  CHECK(inputs.size() == (architecture == "gemma3" ? 601 : 1003));  // the query, keys and values
}

TEST_CASE("a challenge asks for what it must, and for other rows than another one",
          "[receipt][audit]") {
  const auto model = loaded(TinyGguf::llama({.n_layers = 2}));
  const Receipt receipt = receipt_of(model, 30);
  const RowTable table(model->config(), receipt.evaluated().size());
  const auto plan = AuditPlan::of(table, receipt, {.text = "x", .rows = 50, .draws = 4});
  CHECK(plan.asked != AuditPlan::of(table, receipt, {.text = "y", .rows = 50, .draws = 4}).asked);
  CHECK((plan.draws.size() == 4 || plan.draws.size() == 5));
  CHECK(plan.draws.back() == 30);
  const auto asked = [&](std::size_t row) { return std::ranges::binary_search(plan.asked, row); };
  for (std::size_t p = 0; p < table.n_positions(); ++p) CHECK(asked(p));
  const std::size_t logits = table.column(kOutsideLayers, "logits");
  for (const std::size_t draw : plan.draws)
    CHECK(asked(table.row(logits, receipt.prompt_ids.size() - 1 + draw)));
  CHECK(plan.asked.size() <= 50 + table.n_positions() + plan.draws.size());
  // Rows are as likely as each other: each is among those of 400 challenges about 400 * 50 / n
  // times.
  std::vector<double> times(table.size());
  for (int i = 0; i < 400; ++i) {
    const Challenge challenge{.text = std::to_string(i), .rows = 50, .draws = 0};
    for (const std::size_t row : AuditPlan::of(table, receipt, challenge).asked) ++times[row];
  }
  const double mean = 400.0 * 50 / static_cast<double>(table.size());
  for (std::size_t row = table.n_positions(); row < logits * table.n_positions(); ++row)
    REQUIRE(std::abs(times[row] - mean) < 6 * std::sqrt(mean));
}

TEST_CASE("texts with one row in a hundred altered are found", "[receipt][audit]") {
  const auto model = embedded();
  Maker maker(model, receipt_of(model, 120));
  std::mt19937 random(1);
  const int n_trials = effort(100, 10);
  int found = 0;
  for (int trial = 0; trial < n_trials; ++trial) {
    std::vector<std::pair<std::size_t, std::size_t>> flips;
    for (std::size_t i = 0; i < maker.table.size() / 100; ++i)
      flips.emplace_back(random() % maker.table.size(), random());
    for (const auto& [row, bit] : flips) maker.flip(row, bit);
    maker.commit();
    const Challenge challenge{.text = std::to_string(trial)};
    found += fault_of(model, maker.receipt, challenge, maker.open(challenge)).empty() ? 0 : 1;
    for (const auto& [row, bit] : flips) maker.flip(row, bit);
  }
  CHECK(found >= n_trials - n_trials / 100);
  maker.commit();
  const Challenge challenge{.text = "honest"};
  CHECK(fault_of(model, maker.receipt, challenge, maker.open(challenge)) == "");
}

TEST_CASE("a row with one changed bit is named", "[receipt][audit]") {
  const std::string architecture = GENERATE("llama", "gpt-oss", "gemma3");
  CAPTURE(architecture);
  const auto model = loaded(TinyGguf::llama({.n_layers = 2, .architecture = architecture}));
  Maker maker(model, receipt_of(model, 20));
  const Challenge challenge{.text = "x", .rows = kAll, .draws = kAll};
  for (std::size_t column = 0; column < maker.table.n_columns(); ++column) {
    const std::size_t row = maker.table.row(column, (7 * column + 3) % maker.table.n_positions());
    const std::size_t bit = 5 * column;
    CAPTURE(maker.table.name(row));
    maker.flip(row, bit);
    maker.commit();
    const std::string fault = fault_of(model, maker.receipt, challenge, maker.open(challenge));
    require_words(fault, {"rows computed", "the first: " + maker.table.name(row)});
    maker.flip(row, bit);
  }
}

TEST_CASE("who goes on from an altered row has one row that is not what it must be",
          "[receipt][audit]") {
  const auto model = loaded(TinyGguf::llama({.n_layers = 2}));
  Maker maker(model, receipt_of(model, 20),
              [](int layer, std::string_view tap, std::span<float> values) {
                if (layer == 0 && tap == "ffn_out") values[33] += 1;
              });
  maker.commit();
  const Challenge challenge{.text = "x", .rows = kAll, .draws = 0};
  const std::string fault = fault_of(model, maker.receipt, challenge, maker.open(challenge));
  require_words(fault, {": 1 of ", "position 1, layer 0, ffn_out"});
}

TEST_CASE("another model's rows are nearly all wrong", "[receipt][audit]") {
  const auto model = loaded(TinyGguf::llama({.n_layers = 2}));
  const auto other = loaded(TinyGguf::llama({.n_layers = 2, .seed = 2}));
  const Receipt receipt = receipt_of(other, 20);
  const Challenge challenge{.text = "x"};
  const auto opening = require_ok(open_rows(other, receipt, challenge));
  const std::string fault = fault_of(model, receipt, challenge, opening);
  // Sums and attention have no weights.
  int wrong = 0;
  int asked = 0;
  REQUIRE(std::sscanf(fault.c_str(), "rows computed: %d of %d", &wrong, &asked) == 2);
  CHECK(wrong > asked / 2);
}

TEST_CASE("a change in a receipt is named by its audit", "[receipt][audit]") {
  const auto model = loaded(TinyGguf::llama({.n_layers = 2}));
  const Receipt honest = receipt_of(model, 30);
  struct Changed {
    const char* what;
    std::function<void(Receipt&)> change;
    std::string words;
  };
  for (const auto& [what, change, words] : std::vector<Changed>{
           {"token", [](Receipt& r) { r.ids[17] ^= 1; }, "it is not of ids[17], "},
           {"last token", [](Receipt& r) { r.ids.back() ^= 1; }, "it is not of ids[29], "},
           {"prompt id", [](Receipt& r) { r.prompt_ids[1] ^= 1; }, "token 1: the text gives"},
           {"prompt", [](Receipt& r) { r.prompt = "the cat"; }, "the prompt's text gives its ids"},
           {"seed", [](Receipt& r) { r.sampler.seed = 6; }, "seed 7 would give"},
           {"temperature", [](Receipt& r) { r.sampler.temperature = 0; }, "temperature"},
           {"sequence", [](Receipt& r) { r.sequence = 1; }, "tokens: token "},
           {"kv", [](Receipt& r) { r.kv = KvType::kF32; }, "kv f16 and compute int8 would give"},
           {"text", [](Receipt& r) { r.text += '.'; }, "the tokens' text"},
           {"reason", [](Receipt& r) { r.stop_reason = StopReason::kEos; }, "found \"eos\" after"},
           {"n", [](Receipt& r) { r.max_tokens = 29; }, "need at most options.n, 29"},
       }) {
    CAPTURE(what);
    Receipt receipt = honest;
    change(receipt);
    const Challenge challenge{.text = "x"};
    const auto opening = require_ok(open_rows(model, honest, challenge));
    REQUIRE_THAT(fault_of(model, receipt, challenge, opening), Contains(words));
  }
  const auto f32 = require_ok(model->with_compute(Compute::kF32));
  const Challenge challenge{.text = "x"};
  const auto opening = require_ok(open_rows(model, honest, challenge));
  CHECK_THAT(fault_of(f32, honest, challenge, opening),
             Contains("kv f16 and compute int8 would give"));
}

TEST_CASE("no damaged opening passes, and the error is named", "[receipt][audit]") {
  const auto model = loaded(TinyGguf::llama());
  const Receipt receipt = receipt_of(model, 12);
  const Challenge challenge{.text = "x", .rows = 20, .draws = 2};
  const auto whole = require_ok(open_rows(model, receipt, challenge));
  const auto fault = [&](std::span<const std::byte> bytes) {
    return fault_of(model, receipt, challenge, bytes);
  };
  REQUIRE(fault(whole) == "");
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 16) {
    CAPTURE(size);
    REQUIRE(fault(std::span(whole).first(size)) != "");
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    auto bytes = whole;
    const std::size_t at = i < 250 ? static_cast<std::size_t>(i) : random() % bytes.size();
    bytes[at] ^= std::byte(1U << random() % 8);
    CAPTURE(at);
    REQUIRE(fault(bytes) != "");
  }
  const RowTable table(model->config(), receipt.evaluated().size());
  const auto plan = AuditPlan::of(table, receipt, challenge);
  const std::string_view text(reinterpret_cast<const char*>(whole.data()), whole.size());
  const std::size_t leaves = text.find("draws 2\n") + 8;
  const std::size_t values = leaves + 32 * plan.shown.size();
  const auto flipped = [&](std::size_t at) {
    auto bytes = whole;
    bytes[at] ^= std::byte{1};
    return fault(bytes);
  };
  require_words(flipped(7), {"format: found \"", "need llm-opening/1"});
  require_words(flipped(text.find("root ") + 5), {"root: found", *receipt.rows_sha256});
  require_words(flipped(leaves), {"rows opened: hashes: found a root of "});
  require_words(flipped(values), {"rows opened: " + table.name(plan.inputs[0]) + ": "});
  require_words(flipped(whole.size() - 1), {"rows opened: hashes: found a root of "});
  auto longer = whole;
  longer.push_back(std::byte{0});
  require_words(fault(longer), {"size: found ", " bytes, need "});
  require_words(fault_of(model, receipt, {.text = "y", .rows = 20, .draws = 2}, whole),
                {"challenge: found"});
  require_words(fault_of(model, receipt, {.text = "x", .rows = 21, .draws = 2}, whole),
                {"rows: found \"20\", need 21"});
}

TEST_CASE("weights that are in the file give the same audit", "[receipt][audit]") {
  const ScratchDirectory folder;
  const auto path = folder.write("m.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
  const auto model = require_ok(Model::load(path, {.threads = 2}));
  const auto lent = require_ok(Model::load(path, {.threads = 2, .defer_packing = true}));
  const Receipt receipt = receipt_of(model, 30);
  const Challenge challenge{.text = "x"};
  const auto opening = require_ok(open_rows(model, receipt, challenge));
  CHECK(fault_of(lent, receipt, challenge, opening) == "");
  CHECK(!lent->weights_in_memory());
}

}  // namespace llm::test
