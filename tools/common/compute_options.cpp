#include "tools/common/compute_options.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace llm {

Option& add_isa_option(OptionTable& table, std::optional<Isa>* isa) {
  std::vector<std::pair<std::string, std::optional<Isa>>> isas;
  for (const Isa known : all_isas()) isas.emplace_back(std::string(isa_name(known)), known);
  return table
      .choice("isa", "NAME", isa, std::move(isas), "instruction set; never changes a result")
      .shown_default("the best one for this CPU");
}

void add_compute_options(OptionTable& table, std::optional<Isa>* isa, KvType* kv,
                         Compute* compute) {
  add_isa_option(table, isa).from_env("LLM_ISA");
  table.choice(
      "kv", "TYPE", kv,
      {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8", KvType::kQ8}, {"q8_0", KvType::kQ8}},
      "type of the KV cache; q8 needs 9/16 of the memory of f16");
  table.choice("compute", "KIND", compute, {{"int8", Compute::kInt8}, {"f32", Compute::kF32}},
               "type of the activations in matrix multiplications");
}

void add_sampler_option(OptionTable& table, const SamplerField& field, SamplerOptions& sampler) {
  field.visit(sampler, [&](auto& value) {
    if constexpr (std::is_floating_point_v<std::remove_reference_t<decltype(value)>>) {
      table.real(field.option, field.value, &value, field.lowest, field.highest, field.text);
    } else {
      table.integer(field.option, field.value, &value, static_cast<std::int64_t>(field.lowest),
                    static_cast<std::int64_t>(field.highest), field.text);
    }
  });
}

void add_sampler_options(OptionTable& table, SamplerOptions& sampler) {
  for (const SamplerField& field : kSamplerFields) add_sampler_option(table, field, sampler);
  table.choice("sampler-order", "ORDER", &sampler.order,
               {std::begin(kSamplerOrders), std::end(kSamplerOrders)},
               "apply the temperature before the filters (hf) or after them (llamacpp)");
}

}  // namespace llm
