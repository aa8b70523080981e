#include "validate/selftest/kernel_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace llm {
namespace {

/// Every entry but matmul, which is checked by weight type.
constexpr CheckResult (*kEntries[])(KernelTables, const KernelSizes&) = {
    check_quantize_q8k, check_quantize_q8x32, check_rms_norm, check_rope,
    check_activate,     check_axpy,           check_to_half,  check_exp_distances,
    check_merge,        check_finish,         check_attend,   check_convolve,
    check_unit_length,  check_delta_rule,     check_soft_cap};
// Beside two values, KernelTable holds nothing but entries: a new one needs its check.
static_assert(sizeof(KernelTable) == (1 + std::size(kEntries) + 1) * sizeof(void (*)()));

/// What ran, and what this CPU or these sizes left out.
CheckResult coverage(KernelTables tables, const KernelSizes& sizes) {
  std::vector<std::string_view> ran;
  for (const KernelTable* table : tables) ran.push_back(isa_name(table->isa));
  std::string detail = fmt::format("{}", fmt::join(ran, ", "));
  for (const Isa isa : all_isas()) {
    const bool has_run = std::ranges::find(ran, isa_name(isa)) != ran.end();
    if (has_run || kernel_table(isa) == nullptr) continue;
    detail += fmt::format("; skipped: {} (needs {})", isa_name(isa), isa_requirement(isa));
  }
  const std::size_t longest = longest_attended(sizes);
  detail += fmt::format("; attention over {} of {} positions", longest, sizes.context);
  return {"kernel entries by themselves", !ran.empty(), detail};
}

}  // namespace

KernelSizes kernel_sizes(const ModelFile& model) {
  const HyperParameters& config = model.config;
  AttentionSpec widest;
  for (const LayerSpec& layer : config.layers)
    if (layer.q_rows() > widest.q_rows()) widest = *layer.attention();
  KernelSizes sizes{.d_model = config.d_model,
                    .d_ff = config.most(&LayerSpec::d_ff),
                    .n_heads = widest.n_heads,
                    .n_kv_heads = widest.n_kv_heads,
                    .head_dim = widest.head_dim,
                    .rope_pairs = config.ropes[widest.rope].dims / 2,
                    .context = config.context};
  for (const GgufTensor& tensor : model.gguf.tensors()) {
    const bool known = std::ranges::find(sizes.types, tensor.type) != sizes.types.end();
    if (tensor.n_dims >= 2 && !known) sizes.types.push_back(tensor.type);
  }
  std::ranges::sort(sizes.types);
  return sizes;
}

std::vector<const KernelTable*> kernel_tables_here() {
  std::vector<const KernelTable*> tables;
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa) && kernel_table(isa) != nullptr) tables.push_back(kernel_table(isa));
  }
  return tables;
}

Result<std::vector<CheckResult>> check_kernels(KernelTables tables, const KernelSizes& sizes,
                                               const Progress& progress) {
  std::vector<CheckResult> results;
  const std::size_t total = std::size(kEntries) + sizes.types.size();
  const auto add = [&](CheckResult result) {
    results.push_back(std::move(result));
    if (progress) progress("kernels", results.size(), total);
  };
  for (const auto check : kEntries) add(check(tables, sizes));
  for (const WeightType type : sizes.types) {
    LLM_TRY(CheckResult result, check_matmul(tables, sizes, type));
    add(std::move(result));
  }
  results.push_back(coverage(tables, sizes));
  return results;
}

}  // namespace llm
