#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/shown_text.h"
#include "quant/formats/block_visit.h"
#include "quant/formats/codes.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/finite.h"
#include "quant/formats/quantize/quantize_row.h"
#include "tools/llmgguf/output.h"
#include "validate/reference/npz/npy.h"

namespace llm {
namespace {

constexpr std::size_t kMostNpyBytes = std::size_t{1} << 40;

/// The tensor of that name. Errors: kUsage, with the nearest name.
Result<const GgufTensor*> tensor_named(const OpenGguf& open, const std::string& name) {
  if (const GgufTensor* tensor = open.gguf.find_tensor(name)) return tensor;
  std::vector<std::string> names;
  for (const GgufTensor& tensor : open.gguf.tensors()) names.emplace_back(tensor.name);
  std::string hint = nearest_hint(name, names);
  if (hint.empty()) hint = "llmgguf show lists them";
  return usage_error("TENSOR", fmt::format("found \"{}\", need a tensor of the file", shown(name)),
                     std::move(hint));
}

/// As NumPy has it: rows first.
std::vector<std::uint64_t> shape_of(const GgufTensor& tensor) {
  std::vector<std::uint64_t> shape(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims);
  std::ranges::reverse(shape);
  return shape;
}

Result<NpyArray> read_npy(const std::string& path) {
  LLM_TRY(const std::string text, read_text_file(path, kMostNpyBytes));
  const auto bytes = std::as_bytes(std::span(text));
  if (bytes.size() < kNpyPrefixBytes)
    return malformed("", "found fewer bytes than an NPY file has");
  LLM_TRY(const std::size_t begin, npy_header_bytes(bytes, "header"));
  if (bytes.size() < begin) return malformed("header", "found its beginning, need all of it");
  LLM_TRY(const NpyHeader header, parse_npy_header(bytes.first(begin), "header"));
  const auto data = bytes.subspan(begin);
  if (data.size() != header.data_bytes)
    return malformed("data",
                     fmt::format("found {} bytes, need {}", data.size(), header.data_bytes));
  return to_npy_array(header, {data.begin(), data.end()});
}

/// One line for the numbers of a block, 16 in a row.
template <typename Values>
std::string lines_of(const Values& values) {
  std::string out;
  for (std::size_t i = 0; i < values.size(); i += 16)
    out += fmt::format(
        "    {:>4}:  {}\n", i,
        fmt::join(std::span(values).subspan(i, std::min<std::size_t>(16, values.size() - i)),
                  "  "));
  return out;
}

template <typename Block>
std::string block_text(const Block& block) {
  std::string out;
  if constexpr (requires { block.d; } || std::is_same_v<Block, BlockIQ1_M>)
    out += fmt::format("  scale d = {}\n", contract::block_scale(block));
  if constexpr (std::is_same_v<Block, BlockNVFP4>)
    for (std::size_t i = 0; i < Block::kWeights / 16; ++i)
      out += fmt::format("  scale of weights {} to {} = {}\n", 16 * i, 16 * i + 15,
                         contract::scale_of_16(block, i));
  if constexpr (requires { block.dmin; })
    out += fmt::format("  dmin = {}\n", contract::scale_value(block.dmin));
  if constexpr (requires { block.m; })
    out += fmt::format("  offset m = {}\n", contract::scale_value(block.m));
  if constexpr (requires { contract::sub_scale(block, 0); }) {
    out += fmt::format("  sub-blocks of {}: scale, min\n", Block::kSubBlock);
    for (std::size_t s = 0; s < Block::kWeights / Block::kSubBlock; ++s) {
      const contract::SubScale sub = contract::sub_scale(block, s);
      out += fmt::format("    {:>4}:  {:>4}, {}\n", s * Block::kSubBlock, sub.scale, sub.min);
    }
  }
  if constexpr (requires { contract::code(block, 0); }) {
    std::vector<int> codes;
    for (const std::int8_t code : contract::unpack_codes(block)) codes.push_back(code);
    out += "  codes, offsets subtracted\n" + lines_of(codes);
  }
  return out;
}

}  // namespace

Result<int> export_tensor(const GgufArguments& arguments, const ToolContext&) {
  LLM_TRY(const OpenGguf open, open_gguf(arguments.file));
  LLM_TRY(const GgufTensor* tensor, tensor_named(open, arguments.other_file));
  LLM_RETURN_IF_ERROR(check_new_output("NPY", arguments.third, open, arguments.force));
  std::vector<float> weights(tensor->n_elements);
  contract::dequantize_row(tensor->type, open.gguf.tensor_data(*tensor), weights);
  LLM_TRY(AtomicFile file, AtomicFile::create(arguments.third));
  const std::string header = encode_npy_header(NpyType::kF32, shape_of(*tensor));
  LLM_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  LLM_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(weights))));
  LLM_RETURN_IF_ERROR(open.file.check_unchanged());
  LLM_RETURN_IF_ERROR(file.commit());
  return 0;
}

Result<int> import_tensor(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  LLM_TRY(const GgufTensor* tensor, tensor_named(source, arguments.other_file));
  LLM_TRY(const NpyArray array, in_file(read_npy(arguments.third), arguments.third));
  if (array.shape != shape_of(*tensor))
    return in_file(malformed("shape", fmt::format("found ({}), need ({}) (that of the tensor)",
                                                  fmt::join(array.shape, ", "),
                                                  fmt::join(shape_of(*tensor), ", "))),
                   arguments.third);
  LLM_TRY(const std::vector<float> weights, in_file(array.as_f32(), arguments.third));
  if (!is_quantization_target(tensor->type))
    return usage_error("TENSOR", fmt::format("found type {}, need a type that llmquant writes",
                                             block_traits(tensor->type).name));
  std::vector<std::byte> bytes(tensor->n_bytes);
  quantize_row(tensor->type, weights, bytes);
  if (const auto block = first_nonfinite_block(tensor->type, bytes))
    return in_file(Error{ErrorCode::kNonFinite, "data",
                         fmt::format("found NaN, Inf or too large weights for block {} of {}, need "
                                     "finite ones",
                                     *block, block_traits(tensor->type).name)},
                   arguments.third);
  const bool over_itself = arguments.output.empty();
  if (over_itself && source.file.parts().size() > 1)
    return usage_error("FILE", "found a split model, need one file", "llmgguf merge joins it");
  if (!over_itself)
    LLM_RETURN_IF_ERROR(check_new_output("--output", arguments.output, source, arguments.force));
  const GgufOutput out{source.gguf.entries(), source.gguf.tensors(),
                       [&](const GgufTensor& other) -> std::optional<NewTensor> {
                         if (other.name != tensor->name) return std::nullopt;
                         return NewTensor{tensor->type, [&] { return bytes; }};
                       }};
  ProgressBar progress(!context.quiet(), "tensors");
  LLM_TRY(WrittenFile written,
          write_gguf(source, out, over_itself ? arguments.file : arguments.output, progress));
  LLM_RETURN_IF_ERROR(written.file.commit());
  progress.clear();
  if (!over_itself) LLM_RETURN_IF_ERROR(write_stdout(written.text()));
  return 0;
}

Result<int> show_block(const GgufArguments& arguments, const ToolContext&) {
  LLM_TRY(const OpenGguf open, open_gguf(arguments.file));
  LLM_TRY(const GgufTensor* tensor, tensor_named(open, arguments.other_file));
  const BlockTraits& traits = block_traits(tensor->type);
  const std::uint64_t n_blocks = tensor->n_elements / traits.block_weights;
  const auto index = parse_integer(arguments.third);
  if (!index || *index < 0 || static_cast<std::uint64_t>(*index) >= n_blocks)
    return usage_error(
        "BLOCK", fmt::format("found \"{}\", need 0 to {}", shown(arguments.third), n_blocks - 1));
  const auto at = static_cast<std::size_t>(*index);
  const auto data = open.gguf.tensor_data(*tensor);
  const std::size_t first = at * traits.block_weights;
  std::string out =
      fmt::format("{}: {} block {}, {} weights from row {}, column {}, {} bytes\n",
                  shown(tensor->name), traits.name, at, traits.block_weights,
                  first / tensor->dims[0], first % tensor->dims[0], traits.block_bytes);
  out += visit_block_format(
      tensor->type, [&]<typename Block>() { return block_text(load_block<Block>(data, at)); });
  std::vector<float> weights(traits.block_weights);
  contract::dequantize_row(tensor->type, data.subspan(at * traits.block_bytes, traits.block_bytes),
                           weights);
  LLM_RETURN_IF_ERROR(write_stdout(out + "  weights\n" + lines_of(weights)));
  return 0;
}

}  // namespace llm
