#pragma once

#include <optional>

#include "base/cpu_features.h"
#include "engine/model/precision.h"
#include "engine/sampler/sampler_fields.h"
#include "tools/common/options.h"

namespace llm {

/// Adds --isa; without one `isa` stays empty: the best of this CPU.
Option& add_isa_option(OptionTable& table, std::optional<Isa>* isa);

/// Adds --isa, --kv and --compute, which tools that run a model have alike. No --isa and no LLM_ISA
/// leave `isa` empty: the best of this CPU.
void add_compute_options(OptionTable& table, std::optional<Isa>* isa, KvType* kv, Compute* compute);

/// One of kSamplerFields as an option; its default is what `sampler` has.
void add_sampler_option(OptionTable& table, const SamplerField& field, SamplerOptions& sampler);
/// All of them, and the order.
void add_sampler_options(OptionTable& table, SamplerOptions& sampler);

}  // namespace llm
