#pragma once

#include "engine/sampler/sampler_fields.h"
#include "tools/common/options.h"

namespace llm {

/// One of kSamplerFields as an option; its default is what `sampler` has.
void add_sampler_option(OptionTable& table, const SamplerField& field, SamplerOptions& sampler);
/// All of them, and the order.
void add_sampler_options(OptionTable& table, SamplerOptions& sampler);

}  // namespace llm
