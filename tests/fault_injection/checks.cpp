#include "tests/fault_injection/checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "engine/generation/mtp_proposer.h"
#include "tests/engine/sampler_cases.h"
#include "validate/outputs/equivalence/cases.h"
#include "validate/outputs/equivalence/every_proposer.h"
#include "validate/outputs/stages/stages.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/selftest/definition_check.h"
#include "validate/selftest/kernel_check.h"
#include "validate/selftest/matrix_verdict.h"
#include "validate/selftest/mode_check.h"
#include "validate/selftest/sequence_check.h"
#include "validate/selftest/tokenizer_check.h"

namespace llm::faults {
namespace {

using Results = Result<std::vector<CheckResult>>;

constexpr std::size_t kLayers = 3;
constexpr std::size_t kVocab = 1024;
/// Products that a model's definition may take of a check.
constexpr double kWork = 6e7;

Complaints complaint(const Error& error) { return {"error: " + error.to_string()}; }

Complaints complaints_of(const Results& results) {
  if (!results.ok()) return complaint(results.error());
  Complaints out;
  for (const CheckResult& result : *results) {
    if (!result.passed) out.push_back(result.name + ": " + result.detail);
  }
  return out;
}
Complaints complaints_of(Result<PartOutcome> part) {
  if (!part.ok()) return complaint(part.error());
  return complaints_of(Results(std::move(part->results)));
}
Complaints complaints_of(Result<CheckResult> result) {
  if (!result.ok()) return complaint(result.error());
  return complaints_of(Results({*std::move(result)}));
}

// ---- kernels by themselves

constexpr std::pair<std::string_view, CheckResult (*)(KernelTables, const KernelSizes&)>
    kEntries[] = {{"rms_norm", check_rms_norm},       {"rope", check_rope},
                  {"activate", check_activate},       {"axpy", check_axpy},
                  {"exp", check_exp_distances},       {"to_half", check_to_half},
                  {"attend", check_attend},           {"merge", check_merge},
                  {"finish", check_finish},           {"convolve", check_convolve},
                  {"unit_length", check_unit_length}, {"delta_rule", check_delta_rule},
                  {"soft_cap", check_soft_cap}};

/// The entry that the planted fault is of, on its instruction set or, where it names none, on the
/// one that is used. Without a fault every entry and type on every set.
Complaints kernels(const Bench& bench) {
  if (planted("none") != nullptr)
    return complaints_of(check_kernels(kernel_tables_here(), bench.sizes));
  const auto with = [&](const Fault& fault, auto check, auto... more) {
    KernelSizes sizes = bench.sizes;
    sizes.large_batches = true;
    for (std::size_t n = 1; n <= 33; ++n)
      sizes.large_batches = sizes.large_batches && !fault.bind({{"tokens", n}});
    const KernelTable* table = kernel_table(isa_from_name(fault.name("isa")).value_or(best_isa()));
    return complaints_of(Result<CheckResult>(check(KernelTables(&table, 1), sizes, more...)));
  };
  for (const char* site : {"matmul", "dequantize", "expand"}) {
    if (const Fault* fault = planted(site))
      return with(*fault, check_matmul, *weight_type_from_name(fault->name("type")));
  }
  if (const Fault* fault = planted("quantize")) {
    const bool k = fault->name("format") == "Q8_K";
    return with(*fault, k ? check_quantize_q8k : check_quantize_q8x32);
  }
  for (const auto& [site, check] : kEntries) {
    if (const Fault* fault = planted(site)) return with(*fault, check);
  }
  return {};
}

Complaints shares(const Bench& bench) {
  const Fault* fault = planted("matmul");
  const auto named = fault == nullptr ? std::nullopt : weight_type_from_name(fault->name("type"));
  const WeightType type = named.value_or(bench.sizes.types.front());
  return complaints_of(check_shares(*kernel_table(best_isa()), {&type, 1}));
}

// ---- the model

std::vector<TokenId> drawn_tokens(const Model& model, std::size_t n) {
  std::mt19937_64 random(3);
  std::vector<TokenId> tokens(n);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random() % model.config().n_vocab);
  return tokens;
}

/// As many tokens as the definition may be asked for.
std::size_t affordable(const Model& model, std::size_t most) {
  const HyperParameters& config = model.config();
  const double n = kWork / products_per_token(config, config.n_layers);
  return std::clamp<std::size_t>(static_cast<std::size_t>(n), 5, most);
}

/// A check of one mode, on the first layers of a small vocabulary.
template <Compute kCompute, KvType kKv, std::size_t kFirstLayers, auto kCheck>
Complaints in_mode(const Bench& bench) {
  cut_model(*bench.model, kFirstLayers, kVocab);
  const std::string_view compute = kCompute == Compute::kInt8 ? "int8" : "f32";
  const std::string_view cache = kKv == KvType::kQ8 ? ", q8 cache" : "";
  return complaints_of(kCheck({.base = bench.model,
                               .compute = kCompute,
                               .kv = kKv,
                               .name = fmt::format("{}{}", compute, cache),
                               .threads = 1,
                               .progress = {}}));
}

Result<PartOutcome> paths(const ModePlan& plan) {
  const std::size_t n = affordable(*plan.base, 31);
  const Lengths lengths{n, std::min<std::size_t>(n, 6), n, std::min<std::size_t>(n, 12)};
  return check_paths(plan, lengths, drawn_tokens(*plan.base, n));
}
Result<PartOutcome> paths_briefly(const ModePlan& plan) {
  return check_other_cache(plan, drawn_tokens(*plan.base, affordable(*plan.base, 31)));
}

// ---- against f64

Complaints layers_of(const Bench& bench, Compute compute, KvType kv) {
  auto reference = Dump::load(bench.reference);
  if (!reference.ok()) return complaint(reference.error());
  LoadOptions how{.compute = compute, .threads = 1};
  if (const Fault* none = planted("none")) {  // another way to run
    how.threads = static_cast<int>(none->number("threads").value_or(1));
    how.isa = isa_from_name(none->name("isa"));
  }
  const auto model = bench.model->first_layers(reference->meta().n_layers)->variant(how);
  if (!model.ok()) return complaint(model.error());
  const auto sections = check_layers(*model, {compute, kv}, *reference, {});
  if (!sections.ok()) return complaint(sections.error());
  Complaints out;
  for (const DiffSection& section : *sections) {
    if (section.passed()) continue;
    for (const std::string& text : section.diff.problems) out.push_back("problem: " + text);
    for (const std::string& text : section.location.preflight) out.push_back("preflight: " + text);
    for (const Finding& finding : section.location.findings)
      out.push_back(fmt::format("{} [{}]: {}", tap_label(finding.layer, finding.tap),
                                finding.weight_type, finding.signature));
    for (const LayerDiffRow& row : section.diff.rows) {
      if (row.verdict == TapVerdict::kMissing)
        out.push_back("missing " + tap_label(row.layer, row.tap));
    }
    if (out.empty()) out.push_back(section.title);
  }
  return out;
}
Complaints layers(const Bench& bench) {
  Complaints found = layers_of(bench, Compute::kF32, KvType::kF32);
  return found.empty() ? layers_of(bench, Compute::kInt8, KvType::kF16) : found;
}

/// The order in which a new engine is made right.
Complaints stages(const Bench& bench) {
  auto reference = Dump::load(bench.reference);
  if (!reference.ok()) return complaint(reference.error());
  const auto load = [&](Compute compute) {
    return bench.model->first_layers(reference->meta().n_layers)
        ->variant({.compute = compute, .threads = 1});
  };
  StagesOptions options;
  options.modes = {{Compute::kF32, KvType::kF32}};
  const auto outcome = check_stages(load, *reference, options);
  if (!outcome.ok()) return complaint(outcome.error());
  Complaints out;
  for (const CheckResult& check : outcome->checks) {
    if (check.verdict() == Verdict::kFail) out.push_back(check.name + ": " + check.detail);
  }
  return out;
}

// ---- text

std::string frozen_texts(const Bench& bench) {
  const std::string name = std::filesystem::path(bench.path).stem().string() + ".json";
  return LLM_SOURCE_DIR "/validate/outputs/equivalence/" + name;
}

const EquivalenceCase& case_named(std::string_view name) {
  return *std::ranges::find(equivalence_cases(), name, &EquivalenceCase::name);
}

/// A text against the frozen one.
template <const char* kName>
Complaints frozen_text(const Bench& bench) {
  std::ifstream file(frozen_texts(bench));
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  const auto frozen = parse_frozen(json);
  const EquivalenceCase& which = case_named(kName);
  const auto text = run_case(bench.model, which);
  if (!frozen.ok() || !text.ok()) return complaint(frozen.ok() ? text.error() : frozen.error());
  const auto old = std::ranges::find(frozen->cases, which.name, &CaseText::name);
  const std::string words =
      text_difference(*text, *old, [](TokenId id) { return std::to_string(id); });
  return words.empty() ? Complaints()
                       : Complaints{fmt::format("frozen: {}: {}", which.name, words)};
}

/// A text with proposals against the same without.
Complaints proposals(const Bench& bench) {
  cut_model(*bench.model, 2, bench.model->config().n_vocab);
  const EquivalenceCase& which = case_named("sampled, repeat penalty");
  Complaints out;
  CaseText plain;
  const Status ran =
      with_every_proposer(bench.model, which.kv, which.context,
                          [&](Speculation* speculation, std::string_view name) -> Status {
                            LLM_TRY(CaseText text, run_case(bench.model, which, speculation));
                            if (speculation == nullptr) {
                              plain = std::move(text);
                              return Ok{};
                            }
                            const std::string words = text_difference(
                                text, plain, [](TokenId id) { return std::to_string(id); });
                            if (!words.empty())
                              out.push_back(fmt::format("proposals: {}: {}", name, words));
                            return Ok{};
                          });
  if (!ran.ok()) out.push_back("error: " + ran.error().to_string());
  return out;
}

/// The rows that a block for further tokens reads are those of tokens one by one, and what it makes
/// of several is what it makes of one after the other.
Complaints further_tokens(const Bench& bench) {
  constexpr std::size_t kTexts[] = {20, 24, 29, 32};  // lengths, as a text grows
  const std::size_t n = kTexts[3];
  const std::size_t width = bench.model->config().d_model;
  const std::vector<TokenId> tokens = drawn_tokens(*bench.model, n);
  Complaints out;
  const auto rows_of = [&](std::size_t step) {
    std::vector<float> rows(n * width);
    auto sequence = open_sequence(bench.model, {.context = n}).value();
    sequence->set_on_normed([&](std::size_t first, std::span<const float> told) {
      std::ranges::copy(told, rows.begin() + static_cast<std::ptrdiff_t>(first * width));
    });
    for (std::size_t at = 0; at < n; at += step)
      if (!sequence->evaluate(std::span(tokens).subspan(at, step), LogitRows::kNone).ok())
        out.emplace_back("mtp: no rows");
    return rows;
  };
  const std::vector<float> rows = rows_of(1);
  if (rows_of(n) != rows) out.emplace_back("mtp: rows of the final norm differ from one by one");
  const auto drafter = MtpDrafter::load(bench.path, *bench.model, KvType::kF16, 2 * n, 2).value();
  MtpProposer proposer(drafter);
  std::size_t told = 0;
  for (const std::size_t length : kTexts) {
    proposer.take_rows(told, std::span(rows).subspan(told * width, (length - told) * width));
    told = length;
    std::vector<float> found;
    const ProposalRequest request{.text = std::span(tokens).first(length),
                                  .draw =
                                      [&](std::span<const float> logits, std::span<const TokenId>) {
                                        found.assign(logits.begin(), logits.end());
                                        return std::optional<TokenId>();
                                      },
                                  .interrupted = {}};
    proposer.propose(request, [](std::size_t) { return std::size_t{1}; });
    SequenceState alone = drafter->open();
    std::span<const float> expected;
    for (std::size_t t = 1; t < length; ++t)
      expected = drafter
                     ->evaluate(alone, t - 1, std::span(tokens).subspan(t, 1),
                                std::span(rows).subspan((t - 1) * width, width))
                     .logits;
    if (!found.empty() && !std::ranges::equal(found, expected))
      out.push_back(fmt::format("mtp: what follows {} tokens differs from one by one", length));
    if (found.empty() && length != kTexts[0]) out.emplace_back("mtp: no guess");
  }
  return out;
}

struct Check {
  std::string_view name;
  Complaints (*run)(const Bench& bench);
};
constexpr char kGreedy[] = "greedy, int8, f16 cache";
constexpr char kShift[] = "context shift";
constexpr Compute kI8 = Compute::kInt8;
constexpr Compute kFloat = Compute::kF32;
constexpr Check kChecks[] = {
    {"load", [](const Bench&) { return Complaints(); }},
    {"kernels", kernels},
    {"shares", shares},
    {"definition",
     [](const Bench& bench) {
       return complaints_of(check_definition(bench.model->config(), bench.model->ropes(),
                                             bench.model->weights().rope_divisors.span()));
     }},
    {"matrices",
     [](const Bench& bench) {
       cut_model(*bench.model, 2, bench.model->config().n_vocab);
       MatrixCheckOptions options;
       options.n_tokens = 3;
       options.scalar_batch_rows = 16;
       return complaints_of(check_matrices(*bench.model, *bench.file, options));
     }},
    {"paths", in_mode<kI8, KvType::kF16, kLayers, paths>},
    {"paths-f32", in_mode<kFloat, KvType::kF32, kLayers, paths>},
    {"paths-q8", in_mode<kI8, KvType::kQ8, kLayers, paths_briefly>},
    {"far", in_mode<kI8, KvType::kF16, 1, check_long_texts>},
    {"far-f32", in_mode<kFloat, KvType::kF32, 1, check_long_texts>},
    {"far-q8", in_mode<kI8, KvType::kQ8, 1, check_long_texts>},
    {"waits", in_mode<kI8, KvType::kF16, 2, check_waits>},
    {"sequences",
     [](const Bench& bench) {
       // A page of another prefix has other keys from the second layer on.
       cut_model(*bench.model, 2, kVocab);
       return complaints_of(check_sequences(bench.model, KvType::kF16, {}));
     }},
    {"layers", layers},
    {"layers-q8", [](const Bench& bench) { return layers_of(bench, kI8, KvType::kQ8); }},
    {"stages", stages},
    {"equivalence", frozen_text<kGreedy>},
    {"shift", frozen_text<kShift>},
    {"tokenizer",
     [](const Bench& bench) {
       const Tokenizer& t = bench.model->tokenizer();
       return complaints_of(
           Results(check_tokenizer(t.spec(), tokenizer_functions(t), {.n_texts = 300})));
     }},
    {"sampler", [](const Bench&) { return sampler_differences(); }},
    {"speculation", proposals},
    {"mtp", further_tokens},
};

}  // namespace

std::vector<std::string_view> check_names() {
  std::vector<std::string_view> names;
  for (const Check& check : kChecks) names.push_back(check.name);
  return names;
}
bool has_reference(std::string_view name, const Bench& bench) {
  if (name.starts_with("layers") || name == "stages") return !bench.reference.empty();
  if (name == "mtp") return bench.model->config().n_mtp_layers > 0;
  if (name == "equivalence" || name == "shift") return std::filesystem::exists(frozen_texts(bench));
  return true;
}

Complaints run_check(std::string_view name, const Bench& bench) {
  Bench changed = bench;
  if (name == "load" || planted("type_id") != nullptr || planted("sizes") != nullptr) {
    auto model = Model::load(bench.path, {.threads = 1});
    if (!model.ok()) return complaint(model.error());
    changed.model = *std::move(model);
  }
  change_model(*changed.model);
  return std::ranges::find(kChecks, name, &Check::name)->run(changed);
}

}  // namespace llm::faults
