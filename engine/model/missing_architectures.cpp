#include "engine/model/missing_architectures.h"

#include <algorithm>
#include <array>

namespace llm {
namespace {

constexpr std::string_view kLatent = "attention over compressed keys and values (MLA)";
constexpr std::string_view kLayerNorm = "LayerNorm, which subtracts the mean";

// From llama.cpp b11434, src/models/.
constexpr std::array kMissing = {
    MissingArchitecture{"afmoe", "a gate on attention together with experts that share one"},
    MissingArchitecture{"bailingmoe2", "experts in groups, of which a token first chooses some"},
    MissingArchitecture{"bitnet", "norms within attention and feed-forward"},
    MissingArchitecture{"clip",
                        "the file of the language model: this one (mmproj) has only what reads "
                        "images or sounds"},
    MissingArchitecture{"cohere2", "LayerNorm; attention and feed-forward of one norm"},
    MissingArchitecture{"command-r", "LayerNorm; attention and feed-forward of one norm"},
    MissingArchitecture{"deepseek2", kLatent},
    MissingArchitecture{"deepseek4", "compressed and sparse attention"},
    MissingArchitecture{"exaone-moe", "its pre-tokenizer; its operators are known"},
    MissingArchitecture{"falcon-h1", "attention and Mamba-2 in one layer"},
    MissingArchitecture{"gemma3n", "several residual streams (AltUp)"},
    MissingArchitecture{"gpt2", "LayerNorm; learned positions; a feed-forward without a gate"},
    MissingArchitecture{"kimi-linear",
                        "attention over compressed keys and values; Kimi Delta Attention"},
    MissingArchitecture{"llama4", "attention in chunks; experts whose inputs are weighed"},
    MissingArchitecture{"mamba2", "models without any attention"},
    MissingArchitecture{"nemotron_h", "layers of one part; a squared ReLU"},
    MissingArchitecture{"phi2", "LayerNorm; attention and feed-forward of one norm"},
    MissingArchitecture{"stablelm", kLayerNorm},
    MissingArchitecture{"starcoder2", "LayerNorm; a feed-forward without a gate"},
};

}  // namespace

std::span<const MissingArchitecture> missing_architectures() { return kMissing; }

std::string_view needs_of(std::string_view architecture) {
  const auto* row = std::ranges::find(kMissing, architecture, &MissingArchitecture::name);
  return row == kMissing.end() ? std::string_view() : row->needs;
}

}  // namespace llm
