#include "tools/common/sampler_options.h"

#include <cstdint>
#include <iterator>
#include <type_traits>

namespace llm {

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
               "temperature before the filters (hf) or after them (llamacpp)");
}

}  // namespace llm
