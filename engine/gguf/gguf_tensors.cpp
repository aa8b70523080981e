// Descriptions of tensors and the layout of the data section.

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/checked_size.h"
#include "engine/gguf/gguf_parser.h"

namespace llm {
namespace {

// Ids of ggml_type that mean something elsewhere. Source: the GGUF specification and ggml.h.
constexpr std::uint32_t kTensorTypeCount = 43;

std::string_view other_tensor_type(std::uint32_t id) {
  struct Name {
    std::uint32_t id;
    std::string_view name;
  };
  constexpr Name kNames[] = {
      {4, "Q4_2 (removed)"}, {5, "Q4_3 (removed)"}, {9, "Q8_1"},      {24, "I8"},
      {25, "I16"},           {26, "I32"},           {27, "I64"},      {28, "F64"},
      {31, "Q4_0_4_4"},      {32, "Q4_0_4_8"},      {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"},
      {37, "IQ4_NL_4_8"},    {38, "IQ4_NL_8_8"},
  };
  const auto found = std::ranges::find(kNames, id, &Name::id);
  return found == std::end(kNames) ? "" : found->name;
}

std::string supported_types() {
  std::string names;
  for (const BlockTraits& traits : all_block_traits()) {
    if (!names.empty()) names += ", ";
    names += traits.name;
  }
  return names;
}

std::string dims_text(const GgufTensor& tensor) {
  std::string text;
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : " x ", tensor.dims[d]);
  }
  return text;
}

Error tensor_error(ErrorCode code, std::string_view name, std::string_view part,
                   std::uint64_t offset, std::string message) {
  std::string field = fmt::format("tensor \"{}\"", name);
  if (!part.empty()) field += fmt::format(" {}", part);
  return Error{code, field, std::move(message), offset};
}

Status parse_name(ByteReader& reader, std::uint64_t index, GgufTensor& tensor) {
  const std::string field = fmt::format("name of tensor {}", index);
  tensor.info_offset = reader.offset();
  tensor.name = reader.read_string(GgufLimits::kMaxTensorNameBytes, field);
  if (!reader.ok()) return reader.error();
  if (tensor.name.empty()) {
    reader.fail(ErrorCode::kMalformed, field, "found length 0, need 1 to 63");
    return reader.error();
  }
  if (!is_printable_ascii(tensor.name)) {
    reader.fail(ErrorCode::kMalformed, field,
                "found NUL, control or non-ASCII characters, need printable ASCII");
    return reader.error();
  }
  return Ok{};
}

Status parse_dims(ByteReader& reader, GgufTensor& tensor) {
  const std::string field = fmt::format("tensor \"{}\"", tensor.name);
  tensor.n_dims = reader.read<std::uint32_t>(field);
  if (!reader.ok()) return reader.error();
  if (tensor.n_dims == 0 || tensor.n_dims > GgufLimits::kMaxDims) {
    return tensor_error(ErrorCode::kMalformed, tensor.name, "n_dims", reader.field_offset(),
                        fmt::format("found {}, need 1 to {}", tensor.n_dims, GgufLimits::kMaxDims));
  }
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d) {
    tensor.dims[d] = reader.read<std::uint64_t>(field);
    if (!reader.ok()) return reader.error();
    if (tensor.dims[d] == 0 || tensor.dims[d] > GgufLimits::kMaxElements) {
      return tensor_error(ErrorCode::kMalformed, tensor.name, fmt::format("dim {}", d),
                          reader.field_offset(),
                          fmt::format("found {}, need 1 to 2^63 - 1", tensor.dims[d]));
    }
  }
  return Ok{};
}

Status parse_type(ByteReader& reader, GgufTensor& tensor) {
  const auto id = reader.read<std::uint32_t>(fmt::format("tensor \"{}\"", tensor.name));
  if (!reader.ok()) return reader.error();
  if (const auto type = weight_type_from_id(id)) {
    tensor.type = *type;
    return Ok{};
  }
  if (id >= kTensorTypeCount) {
    return tensor_error(ErrorCode::kMalformed, tensor.name, "type", reader.field_offset(),
                        fmt::format("found {}, need 0 to {}", id, kTensorTypeCount - 1));
  }
  return tensor_error(
      ErrorCode::kUnsupported, tensor.name, "type", reader.field_offset(),
      fmt::format("found {} {}, need one of {}", id, other_tensor_type(id), supported_types()));
}

// The three sizes that may wrap, each with words of its own.
Status compute_sizes(GgufTensor& tensor) {
  const BlockTraits& traits = block_traits(tensor.type);
  const auto error = [&](std::string message) {
    return tensor_error(ErrorCode::kMalformed, tensor.name, {}, tensor.info_offset,
                        std::move(message));
  };
  CheckedSize elements(1);
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d) elements = elements * tensor.dims[d];
  if (!elements.value() || *elements.value() > GgufLimits::kMaxElements) {
    return error(fmt::format("element count overflows: found dims {}, need a product below 2^63",
                             dims_text(tensor)));
  }
  tensor.n_elements = *elements.value();
  if (tensor.dims[0] % traits.block_weights != 0) {
    return error(fmt::format("found rows of {} weights, need a multiple of the block size {} of {}",
                             tensor.dims[0], traits.block_weights, traits.name));
  }
  // Other readers multiply before they divide by the block size: that product must fit as well.
  const bool product_fits =
      (CheckedSize(tensor.n_elements) * traits.block_bytes).value().has_value();
  const CheckedSize bytes =
      CheckedSize(tensor.n_elements / traits.block_weights) * traits.block_bytes;
  if (!product_fits || !bytes.value()) {
    return error(
        fmt::format("byte size overflows: found dims {} of {}, need the product with the block's "
                    "bytes below 2^64",
                    dims_text(tensor), traits.name));
  }
  tensor.n_bytes = *bytes.value();
  if (!bytes.align_up(GgufLimits::kMaxAlignment).value()) {
    return error(
        fmt::format("padded size overflows: found {} bytes, need fewer than 2^64 with padding",
                    tensor.n_bytes));
  }
  return Ok{};
}

}  // namespace

Result<GgufTensor> parse_tensor_info(ByteReader& reader, std::uint64_t index) {
  GgufTensor tensor;
  LLM_RETURN_IF_ERROR(parse_name(reader, index, tensor));
  LLM_RETURN_IF_ERROR(parse_dims(reader, tensor));
  LLM_RETURN_IF_ERROR(parse_type(reader, tensor));
  tensor.offset = reader.read<std::uint64_t>(fmt::format("tensor \"{}\"", tensor.name));
  if (!reader.ok()) return reader.error();
  LLM_RETURN_IF_ERROR(compute_sizes(tensor));
  return tensor;
}

Status GgufParser::parse_tensors() {
  for (std::uint64_t i = 0; i < n_tensors_; ++i) {
    LLM_TRY(const GgufTensor tensor, parse_tensor_info(reader_, i));
    file_.tensors_.push_back(tensor);
  }
  return Ok{};
}

Status GgufFile::index_tensors() {
  const auto twins = order_by_name(tensors_, &GgufTensor::name, tensor_order_);
  if (!twins) return Ok{};
  const auto [first, second] = *twins;
  return tensor_error(ErrorCode::kMalformed, tensors_[second].name, {},
                      tensors_[second].info_offset,
                      fmt::format("found a duplicate name: tensor {} and tensor {}, need unique "
                                  "names",
                                  first, second));
}

Status GgufParser::check_layout() {
  // A position inside the file plus less than 2^20: cannot wrap.
  file_.data_offset_ = *CheckedSize(reader_.offset()).align_up(file_.alignment_).value();
  for (const GgufTensor& tensor : file_.tensors_) {
    LLM_RETURN_IF_ERROR(check_placement(tensor));
  }
  file_.trailing_bytes_ = trailing_bytes();
  return check_overlaps();
}

std::uint64_t GgufParser::trailing_bytes() const {
  std::uint64_t used = file_.data_offset_;
  for (const GgufTensor& tensor : file_.tensors_) {
    const auto end = (CheckedSize(file_.data_offset_) + tensor.offset + tensor.n_bytes)
                         .align_up(file_.alignment_);
    used = std::max(used, *end.value());  // inside the file but for the padding
  }
  return used < bytes_.size() ? bytes_.size() - used : 0;
}

Status GgufParser::check_placement(const GgufTensor& tensor) const {
  const auto error = [&](std::string message) {
    return tensor_error(ErrorCode::kMalformed, tensor.name, {}, tensor.info_offset,
                        std::move(message));
  };
  if (tensor.offset % file_.alignment_ != 0) {
    return error(fmt::format("found offset {} (size {}, file size {}), need a multiple of {}",
                             tensor.offset, tensor.n_bytes, bytes_.size(), file_.alignment_));
  }
  const auto end = (CheckedSize(file_.data_offset_) + tensor.offset + tensor.n_bytes).value();
  if (end && *end <= bytes_.size()) return Ok{};
  const std::string missing =
      end ? fmt::format("{} bytes missing", *end - bytes_.size()) : "the sum overflows";
  Error outside =
      error(fmt::format("found offset {} and size {} in a data section that begins at {} "
                        "(file size {}), need the end inside the file: {}",
                        tensor.offset, tensor.n_bytes, file_.data_offset_, bytes_.size(), missing));
  if (const auto whole = whole_file_bytes()) {
    outside.hint = fmt::format("incomplete download? the whole file has {} bytes, {} are missing",
                               *whole, *whole - bytes_.size());
  }
  return outside;
}

std::optional<std::uint64_t> GgufParser::whole_file_bytes() const {
  std::uint64_t whole = 0;
  for (const GgufTensor& tensor : file_.tensors_) {
    const auto end = (CheckedSize(file_.data_offset_) + tensor.offset + tensor.n_bytes).value();
    if (!end) return std::nullopt;
    whole = std::max(whole, *end);
  }
  return whole;
}

Status GgufParser::check_overlaps() const {
  const auto& tensors = file_.tensors_;
  std::vector<std::uint32_t> by_offset(tensors.size());
  std::iota(by_offset.begin(), by_offset.end(), 0U);
  std::ranges::stable_sort(by_offset, {}, [&](std::uint32_t i) { return tensors[i].offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = tensors[by_offset[i - 1]];
    const GgufTensor& after = tensors[by_offset[i]];
    // No wrap: both ends lie inside the file.
    if (before.offset + before.n_bytes <= after.offset) continue;
    return tensor_error(
        ErrorCode::kMalformed, after.name, {}, after.info_offset,
        fmt::format("found offset {}, which overlaps tensor \"{}\" (offset {}, size {}), need "
                    "disjoint data",
                    after.offset, before.name, before.offset, before.n_bytes));
  }
  return Ok{};
}

}  // namespace llm
