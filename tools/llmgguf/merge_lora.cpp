#include <fmt/core.h>

#include <algorithm>

#include "engine/model/adapter.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/finite.h"
#include "quant/formats/quantize/quantize_row.h"
#include "tools/common/adapter_option.h"
#include "tools/llmgguf/output.h"

namespace llm {
namespace {

bool is_float(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16;
}

/// The tensor with the update added, in `type`.
Result<std::vector<std::byte>> merged(const GgufFile& base, const GgufTensor& tensor,
                                      const AdapterFile& adapter, const FileUpdate& update,
                                      float scale, WeightType type) {
  std::vector<float> weights(tensor.n_elements);
  contract::dequantize_row(tensor.type, base.tensor_data(tensor), weights);
  merge_update(adapter, update, scale, 0, weights);
  std::vector<std::byte> bytes(row_bytes(type, weights.size()));
  quantize_row(type, weights, bytes);
  if (!first_nonfinite_block(type, bytes)) return bytes;
  return Error{ErrorCode::kNonFinite, fmt::format("tensor \"{}\"", tensor.name),
               fmt::format("found sums that are not finite in {}, need smaller ones",
                           block_traits(type).name)};
}

}  // namespace

Result<int> merge_lora(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const AdapterOption option, AdapterOption::parse(arguments.other_file));
  LLM_TRY(const OpenGguf base, open_gguf(arguments.file));
  LLM_TRY(const AdapterFile adapter, open_adapter_file(option.path));
  LLM_RETURN_IF_ERROR(check_new_output("OUT", arguments.third, base, arguments.force));
  LLM_RETURN_IF_ERROR(check_output("OUT", arguments.third, std::span(&option.path, 1)));
  LLM_TRY(const std::string_view architecture, base.gguf.get_string("general.architecture"));
  if (adapter.architecture != architecture)
    return in_file(adapter.gguf.value_error(ErrorCode::kMalformed, "general.architecture",
                                            fmt::format("found \"{}\", need \"{}\" (the model's)",
                                                        adapter.architecture, architecture)),
                   option.path);
  for (const FileUpdate& update : adapter.updates) {
    const GgufTensor* tensor = base.gguf.find_tensor(update.name);
    if (Status fits = check_update(update, tensor); !fits.ok())
      return in_file(std::move(fits).error(), option.path);
  }
  for (const FileUpdate& update : adapter.updates) {
    const GgufTensor* tensor = base.gguf.find_tensor(update.name);
    if (is_float(tensor->type) || arguments.dequantize) continue;
    return in_file(
        Error{.code = ErrorCode::kUnsupported,
              .field = fmt::format("tensor \"{}\"", tensor->name),
              .message = fmt::format("found {}, need F32, F16 or BF16: a quantized tensor cannot "
                                     "hold the update exactly",
                                     block_traits(tensor->type).name),
              .offset = tensor->info_offset,
              .hint = "merge into the model that was quantized, and use llmquant then; or write "
                      "such tensors in F32 with --dequantize"},
        arguments.file);
  }
  const auto change = [&](const GgufTensor& tensor) -> std::optional<NewTensor> {
    const auto update = std::ranges::find(adapter.updates, tensor.name, &FileUpdate::name);
    if (update == adapter.updates.end()) return std::nullopt;
    const WeightType type = is_float(tensor.type) ? tensor.type : WeightType::kF32;
    return NewTensor{type, [&, update, type] {
                       return merged(base.gguf, tensor, adapter, *update, option.scale, type);
                     }};
  };
  ProgressBar progress(!context.quiet(), "tensors");
  LLM_TRY(WrittenFile written, write_gguf(base, {base.gguf.entries(), base.gguf.tensors(), change},
                                          arguments.third, progress));
  LLM_RETURN_IF_ERROR(adapter.file.check_unchanged());
  LLM_RETURN_IF_ERROR(written.file.commit());
  progress.clear();
  LLM_RETURN_IF_ERROR(write_stdout(written.text()));
  return 0;
}

}  // namespace llm
