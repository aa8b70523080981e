#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/shown_text.h"
#include "engine/model/tensor_name.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

constexpr std::size_t kShownElements = 8;

std::string number_text(GgufType type, std::span<const std::byte> bytes) {
  return visit_gguf_number(type, bytes, [](auto number) { return fmt::format("{}", number); });
}

/// JSON has no NaN and Inf: they become strings.
OrderedJson number_json(GgufType type, std::span<const std::byte> bytes) {
  return visit_gguf_number(type, bytes, [](auto number) -> OrderedJson {
    if constexpr (std::is_floating_point_v<decltype(number)>) {
      if (!std::isfinite(number)) return fmt::format("{}", number);
    }
    return number;
  });
}

std::string_view characters(const GgufValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

/// Calls `text` or `number` with each of the first `limit` elements of an array.
template <typename OnText, typename OnNumber>
void for_each_element(const GgufValue& array, std::size_t limit, OnText text, OnNumber number) {
  std::size_t i = 0;
  if (array.element_type == GgufType::kString) {
    for (const std::string_view element : GgufStrings(array.bytes, array.count)) {
      if (i++ == limit) return;
      text(element);
    }
    return;
  }
  const std::size_t size = gguf_fixed_size(array.element_type);
  for (; i < array.count && i < limit; ++i) number(array.bytes.subspan(i * size, size));
}

OrderedJson value_json(const GgufValue& value, std::size_t limit) {
  if (value.type == GgufType::kString) {
    return std::string(characters(value).substr(0, limit * 1000));
  }
  if (value.type != GgufType::kArray) return number_json(value.type, value.bytes);
  OrderedJson elements = OrderedJson::array();
  for_each_element(
      value, limit, [&](std::string_view text) { elements.push_back(std::string(text)); },
      [&](std::span<const std::byte> bytes) {
        elements.push_back(number_json(value.element_type, bytes));
      });
  return elements;
}

double bits_per_weight(std::uint64_t bytes, std::uint64_t weights) {
  return weights == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

struct Totals {
  std::uint64_t bytes = 0;
  std::uint64_t weights = 0;
};

Totals totals_of(const GgufFile& gguf) {
  Totals totals;
  for (const GgufTensor& tensor : gguf.tensors()) {
    totals.bytes += tensor.n_bytes;
    totals.weights += tensor.n_elements;
  }
  return totals;
}

/// Scales of matrices, and tensors that no answer to a text depends on.
std::string special_text(const GgufFile& gguf) {
  std::uint64_t n_other = 0;
  std::uint64_t n_mtp = 0;
  std::uint64_t n_scales = 0;
  std::uint64_t n_input_scales = 0;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (is_of_other_input(tensor.name)) ++n_other;
    if (tensor.name.find(".nextn.") != std::string_view::npos) ++n_mtp;
    if (tensor.name.ends_with(".scale")) ++n_scales;
    if (tensor.name.ends_with(".input_scale")) ++n_input_scales;
  }
  std::string out;
  if (n_scales > 0)
    out += fmt::format("{} tensors *.scale: products of their matrices are multiplied by them\n",
                       n_scales);
  if (n_input_scales > 0)
    out += fmt::format("{} tensors *.input_scale: not used\n", n_input_scales);
  if (n_other > 0)
    out += fmt::format("{} tensors of images or sounds (v.*, a.*, mm.*): not read\n", n_other);
  if (n_mtp > 0)
    out += fmt::format(
        "{} tensors nextn.*: their blocks predict further tokens (MTP) and change no output\n",
        n_mtp);
  return out;
}

std::string show_text(const GgufFile& gguf, const std::string& file, std::size_t limit) {
  std::string out =
      fmt::format("{}: GGUF version {}, {} bytes, alignment {}\n\n{} keys\n", shown(file),
                  gguf.version(), gguf.file_bytes(), gguf.alignment(), gguf.entries().size());
  for (const GgufEntry& entry : gguf.entries()) {
    out += fmt::format("  {:<44} {:<17} {}\n", shown(entry.key), entry.value.type_name(),
                       value_text(entry.value, limit));
  }
  out += fmt::format("\n{} tensors, data at byte {}\n", gguf.tensors().size(), gguf.data_offset());
  for (const GgufTensor& tensor : gguf.tensors()) {
    out += fmt::format("  {:<32} {:<5} {:<22} {:>13} bytes at {:>13}  {:5.2f} bits/weight\n",
                       shown(tensor.name), block_traits(tensor.type).name, dims_text(tensor),
                       tensor.n_bytes, tensor.offset,
                       bits_per_weight(tensor.n_bytes, tensor.n_elements));
  }
  const Totals totals = totals_of(gguf);
  out += fmt::format("\ntotal {} weights, {} bytes, {:.2f} bits/weight\n", totals.weights,
                     totals.bytes, bits_per_weight(totals.bytes, totals.weights));
  out += special_text(gguf);
  if (const auto trailing = gguf.trailing_bytes(); trailing != 0) {
    out += fmt::format("{} bytes after the last tensor\n", trailing);
  }
  return out;
}

std::string show_json(const GgufFile& gguf, const std::string& file, std::size_t limit) {
  OrderedJson::object_t
      metadata;  // in the file's order; as a vector, since keys are known to differ
  OrderedJson::object_t::Container& members = metadata;
  for (const GgufEntry& entry : gguf.entries()) {
    OrderedJson value = {{"type", entry.value.type_name()}};
    if (entry.value.type == GgufType::kArray) value["count"] = entry.value.count;
    value["value"] = value_json(entry.value, limit);
    members.emplace_back(std::string(entry.key), std::move(value));
  }
  OrderedJson tensors = OrderedJson::array();
  for (const GgufTensor& tensor : gguf.tensors()) {
    tensors.push_back(
        {{"name", std::string(tensor.name)},
         {"type", std::string(block_traits(tensor.type).name)},
         {"dims", std::vector(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims)},
         {"bytes", tensor.n_bytes},
         {"offset", tensor.offset},
         {"bits_per_weight", bits_per_weight(tensor.n_bytes, tensor.n_elements)}});
  }
  const Totals totals = totals_of(gguf);
  const OrderedJson all = {{"schema_version", kGgufSchemaVersion},
                           {"file", file},
                           {"version", gguf.version()},
                           {"file_bytes", gguf.file_bytes()},
                           {"alignment", gguf.alignment()},
                           {"data_offset", gguf.data_offset()},
                           {"trailing_bytes", gguf.trailing_bytes()},
                           {"n_weights", totals.weights},
                           {"bits_per_weight", bits_per_weight(totals.bytes, totals.weights)},
                           {"metadata", std::move(metadata)},
                           {"tensors", std::move(tensors)}};
  return json_text(all, 2) + "\n";
}

}  // namespace

std::string dims_text(const GgufTensor& tensor) {
  return fmt::format("[{}]", fmt::join(std::span(tensor.dims).first(tensor.n_dims), ", "));
}

std::string value_text(const GgufValue& value, std::size_t limit) {
  if (value.type == GgufType::kString) return quoted(characters(value), limit * 10);
  if (value.type != GgufType::kArray) return number_text(value.type, value.bytes);
  std::vector<std::string> elements;
  for_each_element(
      value, limit, [&](std::string_view text) { elements.push_back(quoted(text, limit * 10)); },
      [&](std::span<const std::byte> bytes) {
        elements.push_back(number_text(value.element_type, bytes));
      });
  if (value.count > limit) elements.emplace_back("...");
  return fmt::format("n = {} [{}]", value.count, fmt::join(elements, ", "));
}

Result<int> show_gguf(const GgufArguments& arguments, const ToolContext&) {
  LLM_TRY(const OpenGguf open, open_gguf(arguments.file));
  const std::size_t limit = arguments.all ? GgufLimits::kMaxArrayElements : kShownElements;
  LLM_RETURN_IF_ERROR(write_stdout(arguments.json ? show_json(open.gguf, arguments.file, limit)
                                                  : show_text(open.gguf, arguments.file, limit)));
  return 0;
}

}  // namespace llm
