#include "tools/llmquant/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <regex>
#include <span>
#include <string_view>

#include "engine/model/tensor_name.h"
#include "quant/formats/quantize/quantize_row.h"

namespace llm {
namespace {

constexpr std::string_view kFileType = "general.file_type";
/// What llama-quantize writes of the importances of the file.
constexpr std::string_view kImatrix = "quantize.imatrix.";
constexpr std::string_view kQuantizationVersion = "general.quantization_version";
/// Version 2 of ggml's block formats, the only one in use.
constexpr std::uint32_t kBlockFormatVersion = 2;

Error usage(std::string_view option, std::string message) {
  return Error{ErrorCode::kUsage, std::string(option), std::move(message)};
}

Result<WeightType> parse_type(std::string_view option, std::string_view name) {
  const auto type = weight_type_from_name(name);
  if (type && is_quantization_target(*type)) return *type;
  return usage(option,
               fmt::format("found \"{}\", need a weight type such as Q4_K, Q6_K or F16", name));
}

/// A type for the tensors with matching names.
struct Override {
  std::string option;
  std::string text;
  std::regex pattern;
  WeightType type;
  bool used = false;
};

Result<Override> parse_override(const std::string& text) {
  constexpr std::string_view kOption = "--tensor-type";
  // A type has no '=', a pattern may.
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return usage(kOption, fmt::format("found \"{}\", need REGEX=TYPE", text));
  }
  LLM_TRY(const WeightType type, parse_type(kOption, std::string_view(text).substr(equals + 1)));
  try {
    return Override{std::string(kOption), text, std::regex(text.substr(0, equals)), type};
  } catch (const std::regex_error& error) {
    return usage(kOption, fmt::format("found \"{}\", need a regular expression: {}",
                                      text.substr(0, equals), error.what()));
  }
}

/// In the order in which they count: those of the embedding and the output first, as in
/// llama-quantize.
Result<std::vector<Override>> parse_overrides(const PlanOptions& options, bool tied) {
  std::vector<Override> overrides;
  const auto add = [&](std::string option, const std::string& name, const char* pattern) -> Status {
    if (name.empty()) return Ok{};
    LLM_TRY(const WeightType type, parse_type(option, name));
    overrides.push_back({std::move(option), name, std::regex(pattern), type});
    return Ok{};
  };
  LLM_RETURN_IF_ERROR(
      add("--token-embedding-type", options.embedding_type, "^(per_layer_)?token_embd\\.weight$"));
  LLM_RETURN_IF_ERROR(add("--output-tensor-type", options.output_type,
                          tied ? "^token_embd\\.weight$" : "^output\\.weight$"));
  // The tied embedding may have a type for each of its two uses; the first counts.
  if (tied && overrides.size() == 2) overrides.pop_back();
  for (const std::string& text : options.tensor_types) {
    LLM_TRY(Override parsed, parse_override(text));
    overrides.push_back(std::move(parsed));
  }
  return overrides;
}

/// The layers that are left out, in ascending order.
Result<std::vector<std::uint64_t>> parse_layers(const std::string& text, std::uint64_t n_layers) {
  std::vector<std::uint64_t> layers;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::uint64_t layer = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, layer);
    if (error != std::errc() || rest != text.data() + end || layer >= n_layers)
      return usage("--prune-layers",
                   fmt::format("found \"{}\", need layers 0..{} with commas between",
                               std::string_view(text).substr(begin, end - begin), n_layers - 1));
    layers.push_back(layer);
    begin = end + 1;
  }
  std::ranges::sort(layers);
  layers.erase(std::ranges::unique(layers).begin(), layers.end());
  if (!layers.empty() && layers.size() == n_layers)
    return usage("--prune-layers", "found all layers, need one that is left");
  return layers;
}

/// The name of a tensor without the layers, empty if it is in one of them.
std::string name_without(std::string_view name, const std::vector<std::uint64_t>& layers) {
  const auto layer = layer_of_tensor(name);
  if (!layer) return std::string(name);
  const auto before = std::ranges::lower_bound(layers, *layer);
  if (before != layers.end() && *before == *layer) return "";
  return fmt::format("blk.{}{}", *layer - static_cast<std::uint64_t>(before - layers.begin()),
                     name.substr(name.find('.', 4)));
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

/// The importance that a tensor's conversion takes.
Status add_importance(const PlanOptions& options, TensorPlan& item) {
  const std::string_view name = item.tensor->name;
  const bool is_converted = item.target != item.tensor->type;
  const bool is_chosen_later = options.any_type && item.is_free;
  if (!is_chosen_later && (!is_converted || is_float(item.target))) return Ok{};
  if (options.importance == nullptr) {
    if (options.allow_unweighted || !requires_importance(item.target, name)) return Ok{};
    Error error = usage("--imatrix", fmt::format("found none, need one for {}, which becomes {}",
                                                 name, block_traits(item.target).name));
    error.hint = "llmcheck --imatrix makes one; --allow-unweighted accepts larger errors";
    return error;
  }
  const Importance* found = options.importance->find(name);
  if (found == nullptr) {
    if (options.allow_unweighted || may_lack_importance(name)) return Ok{};
    Error error = malformed(std::string(name), "found no importance of it, need one");
    error.file = options.importance_file;
    error.hint = "--allow-unweighted lets all columns count the same";
    return error;
  }
  const float one = 1;
  const std::uint64_t of_matrix = item.tensor->dims[0] * item.tensor->dims[1];
  auto means = found->means(item.tensor->dims[0], item.tensor->n_elements / of_matrix,
                            options.allow_unweighted ? &one : nullptr);
  if (!means.ok()) return in_file(std::move(means).error(), options.importance_file);
  item.importance = *std::move(means);
  return Ok{};
}

}  // namespace

void TensorPlan::set_target(WeightType type) {
  const BlockTraits& traits = block_traits(type);
  target = type;
  bytes = tensor->n_elements / traits.block_weights * traits.block_bytes;
}

void TensorPlan::copy_importance(std::size_t first, std::span<float> out) const {
  if (importance.empty()) return;
  const auto n_cols = static_cast<std::size_t>(tensor->dims[0]);
  const auto of_matrix = static_cast<std::size_t>(n_cols * tensor->dims[1]);
  for (std::size_t i = 0; i < out.size();) {
    const std::size_t column = (first + i) % n_cols;
    const std::size_t n = std::min(n_cols - column, out.size() - i);
    const float* of_row = importance.data() + (first + i) / of_matrix * n_cols + column;
    std::copy_n(of_row, n, out.data() + i);
    i += n;
  }
}

Result<std::vector<TensorPlan>> make_plan(const GgufFile& gguf, const PlanOptions& options) {
  LLM_TRY(const std::uint64_t parts, gguf.get_unsigned_or("split.count", 1));
  if (parts > 1) {
    return gguf.value_error(ErrorCode::kUnsupported, "split.count",
                            fmt::format("found {}, need a model in one file", parts));
  }
  ModelShape shape = model_shape(gguf);
  shape.has_importance = options.importance != nullptr;
  LLM_TRY(std::vector<Override> overrides, parse_overrides(options, shape.tied_output));
  LLM_TRY(const auto pruned, parse_layers(options.pruned_layers, shape.n_layers));
  shape.n_layers -= pruned.size();
  std::vector<TensorPlan> plan;
  for (const GgufTensor& tensor : gguf.tensors()) {
    TensorPlan item{&tensor,        name_without(tensor.name, pruned),
                    tensor.type,    tensor.type,
                    tensor.n_bytes, false};
    if (item.name.empty()) continue;
    const auto named = std::ranges::find_if(overrides, [&](const Override& candidate) {
      return std::regex_search(tensor.name.begin(), tensor.name.end(), candidate.pattern);
    });
    if (is_recipe_tensor(tensor) && !(options.leave_output && tensor.name == "output.weight")) {
      GgufTensor renamed = tensor;
      renamed.name = item.name;
      item.is_free = named == overrides.end();
      item.wanted = !item.is_free  ? named->type
                    : options.pure ? options.recipe->base
                                   : recipe_type(*options.recipe, shape, renamed);
      if (!item.is_free) named->used = true;
      item.set_target(fallback_type(item.wanted, tensor.dims[0]));
      const bool may_change = item.target != tensor.type || (options.any_type && item.is_free);
      if (may_change && !is_float(tensor.type) && !options.allow_requantize)
        return requantize_error(tensor, item.target);
      LLM_RETURN_IF_ERROR(add_importance(options, item));
    }
    plan.push_back(std::move(item));
  }
  for (const Override& candidate : overrides) {
    if (!candidate.used) {
      return usage(
          candidate.option,
          fmt::format("found \"{}\", need {} that no earlier pattern matches", candidate.text,
                      candidate.option == "--tensor-type"
                          ? "a pattern that matches a matrix of the model"
                          : "a model with that matrix, and one"));
    }
  }
  return plan;
}

namespace {

/// An array of a number for each layer, without those of the layers that are left out.
void add_pruned(const GgufEntry& entry, const std::vector<std::uint64_t>& pruned,
                GgufWriter& writer) {
  const std::size_t size = gguf_fixed_size(entry.value.element_type);
  std::vector<std::byte> kept;
  for (std::size_t i = 0; i < entry.value.count; ++i) {
    if (std::ranges::binary_search(pruned, i)) continue;
    const auto element = entry.value.bytes.subspan(i * size, size);
    kept.insert(kept.end(), element.begin(), element.end());
  }
  GgufEntry changed = entry;
  changed.value.count -= pruned.size();
  changed.value.bytes = kept;
  writer.add_entry(changed);
}

}  // namespace

GgufWriter make_writer(const GgufFile& gguf, const std::vector<TensorPlan>& plan,
                       const PlanOptions& options, std::uint32_t file_type) {
  GgufWriter writer(gguf.alignment());
  const std::uint64_t n_layers = model_shape(gguf).n_layers;
  const auto parsed = parse_layers(options.pruned_layers, n_layers);
  const auto pruned = parsed.ok() ? *parsed : std::vector<std::uint64_t>();
  const auto architecture = gguf.get_string_or("general.architecture", "");
  const std::string prefix = architecture.ok() ? fmt::format("{}.", *architecture) : "";
  for (const GgufEntry& entry : gguf.entries()) {
    const bool is_own = !prefix.empty() && entry.key.starts_with(prefix);
    if (entry.key.starts_with(kImatrix)) continue;  // of an earlier quantization
    if (entry.key == kFileType) {
      writer.add_number<std::uint32_t>(kFileType, file_type);
    } else if (entry.key == kQuantizationVersion) {
      writer.add_number<std::uint32_t>(kQuantizationVersion, kBlockFormatVersion);
    } else if (!pruned.empty() && is_own && entry.key.substr(prefix.size()) == "block_count") {
      writer.add_number(entry.key, static_cast<std::uint32_t>(n_layers - pruned.size()));
    } else if (!pruned.empty() && is_own && entry.value.type == GgufType::kArray &&
               entry.value.count == n_layers && gguf_fixed_size(entry.value.element_type) > 0) {
      add_pruned(entry, pruned, writer);
    } else {
      writer.add_entry(entry);
    }
  }
  if (gguf.find(kFileType) == nullptr) writer.add_number<std::uint32_t>(kFileType, file_type);
  if (gguf.find(kQuantizationVersion) == nullptr)
    writer.add_number<std::uint32_t>(kQuantizationVersion, kBlockFormatVersion);
  if (options.importance != nullptr) {
    const ImportanceMatrix& matrix = *options.importance;
    writer.add_string("quantize.imatrix.file", options.importance_file);
    if (!matrix.texts.empty())
      writer.add_string("quantize.imatrix.dataset",
                        fmt::format("{}", fmt::join(matrix.texts, ", ")));
    writer.add_number("quantize.imatrix.entries_count",
                      static_cast<std::uint32_t>(matrix.entries.size()));
    writer.add_number("quantize.imatrix.chunks_count", static_cast<std::uint32_t>(matrix.n_chunks));
  }
  for (const TensorPlan& item : plan) {
    writer.add_tensor(item.name, item.target,
                      std::span(item.tensor->dims).first(item.tensor->n_dims));
  }
  return writer;
}

}  // namespace llm
