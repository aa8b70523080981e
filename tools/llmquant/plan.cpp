#include "tools/llmquant/plan.h"

#include <fmt/core.h>

#include <regex>
#include <span>
#include <string_view>

#include "quant/formats/quantize/quantize_row.h"

namespace llm {
namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kQuantizationVersion = "general.quantization_version";
/// Version 2 of ggml's block formats, the only one in use.
constexpr std::uint32_t kBlockFormatVersion = 2;

Error usage(std::string message) {
  return Error{ErrorCode::kUsage, "--tensor-type", std::move(message)};
}

struct Override {
  std::string text;
  std::regex pattern;
  WeightType type;
  bool used = false;
};

Result<Override> parse_override(const std::string& text) {
  // A type has no '=', a pattern may.
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return usage(fmt::format("found \"{}\", need REGEX=TYPE", text));
  }
  const auto type = weight_type_from_name(std::string_view(text).substr(equals + 1));
  if (!type || !is_quantization_target(*type)) {
    return usage(fmt::format("{}, need a weight type such as Q4_K, Q6_K or F16",
                             refusal_of_type(text.substr(equals + 1))));
  }
  try {
    return Override{text, std::regex(text.substr(0, equals)), *type};
  } catch (const std::regex_error& error) {
    return usage(fmt::format("found \"{}\", need a regular expression: {}", text.substr(0, equals),
                             error.what()));
  }
}

Result<std::vector<Override>> parse_overrides(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) {
    LLM_TRY(Override parsed, parse_override(text));
    overrides.push_back(std::move(parsed));
  }
  return overrides;
}

WeightType wanted_type(const GgufTensor& tensor, const ModelShape& shape,
                       const PlanOptions& options, std::vector<Override>& overrides) {
  if (!is_recipe_tensor(tensor)) return tensor.type;
  for (Override& candidate : overrides) {
    if (!std::regex_search(tensor.name.begin(), tensor.name.end(), candidate.pattern)) continue;
    candidate.used = true;
    return candidate.type;
  }
  return options.pure ? options.recipe->base : recipe_type(*options.recipe, shape, tensor);
}

bool is_float(WeightType type) { return block_traits(type).block_weights == 1; }

Error requantize_error(const GgufTensor& tensor, WeightType target) {
  return Error{.code = ErrorCode::kUnsupported,
               .field = std::string(tensor.name),
               .message = fmt::format("found {}, need F32, F16 or BF16 to make {}",
                                      block_traits(tensor.type).name, block_traits(target).name),
               .hint =
                   "start from the unquantized model, or accept larger errors with "
                   "--allow-requantize"};
}

}  // namespace

Result<std::vector<TensorPlan>> make_plan(const GgufFile& gguf, const PlanOptions& options) {
  LLM_TRY(const std::uint64_t parts, gguf.get_unsigned_or("split.count", 1));
  if (parts > 1) {
    return gguf.value_error(ErrorCode::kUnsupported, "split.count",
                            fmt::format("found {}, need a model in one file", parts));
  }
  LLM_TRY(std::vector<Override> overrides, parse_overrides(options.tensor_types));
  const ModelShape shape = model_shape(gguf);
  std::vector<TensorPlan> plan;
  for (const GgufTensor& tensor : gguf.tensors()) {
    const WeightType wanted = wanted_type(tensor, shape, options, overrides);
    const WeightType target =
        is_recipe_tensor(tensor) ? fallback_type(wanted, tensor.dims[0]) : tensor.type;
    if (target != tensor.type && !is_float(tensor.type) && !options.allow_requantize) {
      return requantize_error(tensor, target);
    }
    const BlockTraits& traits = block_traits(target);
    plan.push_back(
        {&tensor, target, wanted, tensor.n_elements / traits.block_weights * traits.block_bytes});
  }
  for (const Override& candidate : overrides) {
    if (!candidate.used) {
      return usage(
          fmt::format("found \"{}\", need a pattern that matches a matrix of the model that no "
                      "earlier pattern matches",
                      candidate.text));
    }
  }
  return plan;
}

GgufWriter make_writer(const GgufFile& gguf, const std::vector<TensorPlan>& plan,
                       std::uint32_t file_type) {
  GgufWriter writer(gguf.alignment());
  bool has_file_type = false;
  bool has_version = false;
  for (const GgufEntry& entry : gguf.entries()) {
    if (entry.key == kFileType) {
      writer.add_number<std::uint32_t>(kFileType, file_type);
      has_file_type = true;
    } else if (entry.key == kQuantizationVersion) {
      writer.add_number<std::uint32_t>(kQuantizationVersion, kBlockFormatVersion);
      has_version = true;
    } else {
      writer.add_entry(entry);
    }
  }
  if (!has_file_type) writer.add_number<std::uint32_t>(kFileType, file_type);
  if (!has_version) writer.add_number<std::uint32_t>(kQuantizationVersion, kBlockFormatVersion);
  for (const TensorPlan& item : plan) {
    writer.add_tensor(item.tensor->name, item.target,
                      std::span(item.tensor->dims).first(item.tensor->n_dims));
  }
  return writer;
}

}  // namespace llm
