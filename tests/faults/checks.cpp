#include "tests/faults/checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "validate/reference/dump/dump.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/self/cache_check.h"
#include "validate/self/definition_check.h"
#include "validate/self/kernel_entries.h"
#include "validate/self/long_check.h"
#include "validate/self/matrix_check.h"
#include "validate/self/mode_check.h"
#include "validate/self/sampler_check.h"
#include "validate/self/sequence_check.h"
#include "validate/self/share_check.h"
#include "validate/self/shift_check.h"
#include "validate/self/speculation_check.h"
#include "validate/self/tokenizer_check.h"
#include "validate/self/wait_check.h"
#include "validate/text/equivalence/equivalence.h"
#include "validate/text/stages/stages.h"

namespace llm::faults {
namespace {

using Results = Result<std::vector<CheckResult>>;

constexpr std::size_t kLayers = 3;
constexpr std::size_t kVocab = 1024;
/// Products that a model's definition may take of a check.
constexpr double kWork = 1e8;

Complaints complaints_of(const Results& results) {
  if (!results.ok()) return {"error: " + results.error().to_string()};
  Complaints out;
  for (const CheckResult& result : *results) {
    if (!result.passed) out.push_back(result.name + ": " + result.detail);
  }
  return out;
}
Complaints complaints_of(Result<PartOutcome> part) {
  if (!part.ok()) return complaints_of(Results(std::move(part).error()));
  return complaints_of(Results(std::move(part->results)));
}
Results one(Result<CheckResult> result) {
  if (!result.ok()) return std::move(result).error();
  return std::vector<CheckResult>{*std::move(result)};
}

// ---- kernels by themselves

/// The planted fault's instruction set; where it names none, the one that is used.
std::vector<const KernelTable*> tables_for(const Fault* fault) {
  const auto isa = fault == nullptr ? std::nullopt : isa_from_name(fault->name("isa"));
  return {kernel_table(isa.value_or(best_isa()))};
}

Complaints check_entry(const Bench& bench) {
  constexpr std::pair<std::string_view, CheckResult (*)(KernelTables, const KernelSizes&)>
      kEntries[] = {{"rms_norm", check_rms_norm}, {"rope", check_rope},
                    {"activate", check_activate}, {"exp", check_exp_distances},
                    {"to_half", check_to_half},   {"attend", check_attend},
                    {"merge", check_merge},       {"finish", check_finish}};
  for (const char* site : {"matmul", "dequantize"}) {
    const Fault* fault = planted(site);
    if (fault == nullptr) continue;
    const auto type = weight_type_from_name(fault->name("type"));
    return complaints_of(one(check_matmul(tables_for(fault), bench.sizes, type.value())));
  }
  if (const Fault* fault = planted("quantize")) {
    const auto check = fault->name("format") == "Q8_K" ? check_quantize_q8k : check_quantize_q8x32;
    return complaints_of(one(check(tables_for(fault), bench.sizes)));
  }
  Complaints all;
  for (const auto& [site, check] : kEntries) {
    const Fault* fault = planted(site);
    if (fault == nullptr) continue;
    for (std::string& line : complaints_of(one(check(tables_for(fault), bench.sizes))))
      all.push_back(std::move(line));
  }
  return all;
}

/// Every entry and type, when nothing is planted: what faults' own calls are compared with.
Complaints check_all_entries(const Bench& bench) {
  const auto tables = kernel_tables_here();
  return complaints_of(check_kernels(tables, bench.sizes));
}

Complaints kernels(const Bench& bench) {
  return planted("none") != nullptr ? check_all_entries(bench) : check_entry(bench);
}

Complaints shares(const Bench& bench) {
  const Fault* fault = planted("matmul");
  const auto named = fault == nullptr ? std::nullopt : weight_type_from_name(fault->name("type"));
  const WeightType type = named.value_or(bench.sizes.types.front());
  return complaints_of(check_shares(*kernel_table(best_isa()), {&type, 1}));
}

Complaints definition(const Bench& bench) {
  return complaints_of(check_definition(bench.model->config(), bench.model->ropes(),
                                        bench.model->weights().rope_divisors.span()));
}

// ---- the model

Complaints matrices(const Bench& bench) {
  cut_model(*bench.model, 2, bench.model->config().n_vocab);
  MatrixCheckOptions options;
  options.n_tokens = 3;
  options.scalar_batch_rows = 16;
  return complaints_of(check_matrices(*bench.model, *bench.file, options));
}

ModePlan plan_of(const Bench& bench, Compute compute, KvType kv) {
  const std::string_view cache = kv == KvType::kQ8 ? ", q8 cache" : "";
  return {.base = bench.model,
          .compute = compute,
          .kv = kv,
          .name = fmt::format("{}{}", compute == Compute::kInt8 ? "int8" : "f32", cache),
          .threads = 1,
          .progress = {}};
}

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

Complaints paths_of(const Bench& bench, Compute compute, KvType kv) {
  cut_model(*bench.model, kLayers, kVocab);
  const std::size_t n = affordable(*bench.model, 40);
  const Lengths lengths{n, std::min<std::size_t>(n, 6), n, std::min<std::size_t>(n, 12)};
  return complaints_of(
      check_paths(plan_of(bench, compute, kv), lengths, drawn_tokens(*bench.model, n)));
}
Complaints paths(const Bench& bench) { return paths_of(bench, Compute::kInt8, KvType::kF16); }
Complaints paths_f32(const Bench& bench) { return paths_of(bench, Compute::kF32, KvType::kF32); }
Complaints paths_q8(const Bench& bench) {
  cut_model(*bench.model, kLayers, kVocab);
  return complaints_of(check_other_cache(plan_of(bench, Compute::kInt8, KvType::kQ8),
                                         drawn_tokens(*bench.model, affordable(*bench.model, 40))));
}

Complaints far_of(const Bench& bench, Compute compute, KvType kv) {
  cut_model(*bench.model, 1, kVocab);
  return complaints_of(check_long_texts(plan_of(bench, compute, kv)));
}
Complaints far(const Bench& bench) { return far_of(bench, Compute::kInt8, KvType::kF16); }
Complaints far_q8(const Bench& bench) { return far_of(bench, Compute::kInt8, KvType::kQ8); }
Complaints far_f32(const Bench& bench) { return far_of(bench, Compute::kF32, KvType::kF32); }

Complaints waits(const Bench& bench) {
  cut_model(*bench.model, 2, kVocab);
  return complaints_of(check_waits(plan_of(bench, Compute::kInt8, KvType::kF16)));
}

Complaints sequences(const Bench& bench) {
  cut_model(*bench.model, 2, kVocab);
  return complaints_of(check_sequences(bench.model, KvType::kF16, {}));
}

Complaints with_cache(const Bench& bench) {
  cut_model(*bench.model, 2, kVocab);
  const CacheCheckOptions options{.prompts = {{8, 4}}, .n_tokens = 12, .progress = {}};
  auto outcome = check_cached_generation(bench.model, KvType::kF16, options);
  if (!outcome.ok()) return complaints_of(Results(std::move(outcome).error()));
  return complaints_of(one(std::move(outcome->check)));
}

// ---- against f64

Complaints layers_of(const Bench& bench, Compute compute, KvType kv) {
  auto reference = Dump::load(bench.reference);
  if (!reference.ok()) return {"error: " + reference.error().to_string()};
  LoadOptions how;
  how.compute = compute;
  how.threads = 1;
  if (const Fault* none = planted("none")) {  // another way to run
    how.threads = static_cast<int>(none->number("threads").value_or(1));
    how.isa = isa_from_name(none->name("isa"));
  }
  const auto model = bench.model->first_layers(reference->meta().n_layers)->variant(how);
  if (!model.ok()) return {"error: " + model.error().to_string()};
  const auto sections = check_layers(*model, {compute, kv}, *reference, {});
  if (!sections.ok()) return {"error: " + sections.error().to_string()};
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
Complaints layers_q8(const Bench& bench) { return layers_of(bench, Compute::kInt8, KvType::kQ8); }

/// The order in which a new engine is made right.
Complaints stages(const Bench& bench) {
  auto reference = Dump::load(bench.reference);
  if (!reference.ok()) return {"error: " + reference.error().to_string()};
  const auto load = [&](Compute compute) {
    LoadOptions how;
    how.compute = compute;
    how.threads = 1;
    return bench.model->first_layers(reference->meta().n_layers)->variant(how);
  };
  StagesOptions options;
  options.modes = {{Compute::kF32, KvType::kF32}};
  const auto outcome = check_stages(load, *reference, options);
  if (!outcome.ok()) return {"error: " + outcome.error().to_string()};
  Complaints out;
  for (const CheckResult& check : outcome->checks) {
    if (check.verdict() == Verdict::kFail) out.push_back(check.name + ": " + check.detail);
  }
  return out;
}

// ---- text

/// Frozen texts, of the model whose name they have.
Complaints equivalence(const Bench& bench) {
  const std::string name = std::filesystem::path(bench.path).stem().string() + ".json";
  std::ifstream file(std::string(LLM_SOURCE_DIR "/validate/text/equivalence/") + name);
  if (!file) return {};
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  const auto frozen = parse_frozen(json);
  if (!frozen.ok()) return {"error: " + frozen.error().to_string()};
  const auto outcome = check_equivalence(bench.model, *frozen);
  if (!outcome.ok()) return complaints_of(Results(outcome.error()));
  return complaints_of(Results(outcome->checks));
}

Complaints tokenizer(const Bench& bench) {
  const Tokenizer& t = bench.model->tokenizer();
  return complaints_of(
      Results(check_tokenizer(t.spec(), tokenizer_functions(t), {.n_texts = 300})));
}

Complaints sampler(const Bench&) { return complaints_of(Results(check_sampler_rows({}))); }

Complaints shift(const Bench& bench) {
  cut_model(*bench.model, 1, bench.model->config().n_vocab);
  const ShiftCheckOptions options{.contexts = {24}, .without_bos = false, .open = {}};
  return complaints_of(check_context_shift(bench.model, KvType::kF16, options));
}

Complaints speculation(const Bench& bench) {
  cut_model(*bench.model, 2, bench.model->config().n_vocab);
  const auto prompt = drawn_tokens(*bench.model, 9);
  return complaints_of(check_speculation(bench.model, KvType::kF16, prompt, {.n_tokens = 24}));
}

struct Check {
  std::string_view name;
  Complaints (*run)(const Bench& bench);
};
constexpr Check kChecks[] = {{"kernels", kernels},
                             {"shares", shares},
                             {"definition", definition},
                             {"matrices", matrices},
                             {"paths", paths},
                             {"paths-f32", paths_f32},
                             {"paths-q8", paths_q8},
                             {"far", far},
                             {"far-f32", far_f32},
                             {"far-q8", far_q8},
                             {"waits", waits},
                             {"sequences", sequences},
                             {"cache", with_cache},
                             {"layers", layers},
                             {"stages", stages},
                             {"equivalence", equivalence},
                             {"layers-q8", layers_q8},
                             {"tokenizer", tokenizer},
                             {"sampler", sampler},
                             {"shift", shift},
                             {"speculation", speculation}};

}  // namespace

std::vector<std::string_view> check_names() {
  std::vector<std::string_view> names;
  for (const Check& check : kChecks) names.push_back(check.name);
  return names;
}
bool needs_reference(std::string_view name) {
  return name.starts_with("layers") || name == "stages";
}

Complaints run_check(std::string_view name, const Bench& bench) {
  change_model(*bench.model);
  return std::ranges::find(kChecks, name, &Check::name)->run(bench);
}

}  // namespace llm::faults
