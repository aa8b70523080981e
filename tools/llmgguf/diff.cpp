#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "base/shown_text.h"
#include "tools/common/progress.h"
#include "tools/llmgguf/commands.h"
#include "tools/llmgguf/likeness.h"

namespace llm {
namespace {

constexpr std::size_t kShownElements = 8;

/// One thing that two files do not agree on; an empty side means that it is absent there.
struct Difference {
  std::string kind;  ///< "key" or "tensor"
  std::string name;
  std::string first;
  std::string second;
  std::string likely = {};  ///< what has become of the tensor, where it is recognized
};

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::string entry_text(const GgufValue& value) {
  return fmt::format("{} {}", value.type_name(), value_text(value, kShownElements));
}

std::string tensor_text(const GgufTensor& tensor) {
  return fmt::format("{} {}", block_traits(tensor.type).name, dims_text(tensor));
}

void compare_entries(const GgufFile& a, const GgufFile& b, std::vector<Difference>& out) {
  for (const auto& [key, value] : a.entries()) {
    const GgufValue* other = b.find(key);
    if (other == nullptr) {
      out.push_back({"key", std::string(key), entry_text(value), ""});
    } else if (value.type != other->type || value.element_type != other->element_type ||
               value.count != other->count || !same_bytes(value.bytes, other->bytes)) {
      out.push_back({"key", std::string(key), entry_text(value), entry_text(*other)});
    }
  }
  for (const auto& [key, value] : b.entries()) {
    if (a.find(key) == nullptr) out.push_back({"key", std::string(key), "", entry_text(value)});
  }
}

void compare_tensors(const OpenGguf& a, const OpenGguf& b, std::vector<Difference>& out,
                     ProgressBar& progress) {
  std::vector<const GgufTensor*> differing_tensors;  // that both have
  std::size_t done = 0;
  std::size_t total = 0;
  for (const GgufTensor& tensor : a.gguf.tensors()) total += tensor.n_bytes;
  for (const GgufTensor& tensor : a.gguf.tensors()) {
    const std::string name(tensor.name);
    progress("compare", done, total);
    done += tensor.n_bytes;
    const GgufTensor* other = b.gguf.find_tensor(name);
    if (other == nullptr) {
      out.push_back({"tensor", name, tensor_text(tensor), ""});
      continue;
    }
    if (tensor.type != other->type || tensor.dims != other->dims) {
      out.push_back({"tensor", name, tensor_text(tensor), tensor_text(*other)});
      differing_tensors.push_back(&tensor);
      continue;
    }
    const auto first = a.gguf.tensor_data(tensor);
    const auto second = b.gguf.tensor_data(*other);
    std::size_t differing = 0;
    for (std::size_t i = 0; i < first.size(); ++i) differing += first[i] != second[i] ? 1 : 0;
    a.file.drop_pages(first);
    b.file.drop_pages(second);
    if (differing == 0) continue;
    differing_tensors.push_back(&tensor);
    const std::string text =
        fmt::format("{}, {} of {} bytes differ", tensor_text(tensor), differing, first.size());
    out.push_back({"tensor", name, text, text});
  }
  for (Difference& d : out) {
    const GgufTensor* x = d.kind == "tensor" ? a.gguf.find_tensor(d.name) : nullptr;
    if (x != nullptr && !d.second.empty())
      d.likely = likeness(a, *x, b, *b.gguf.find_tensor(d.name), differing_tensors);
  }
  for (const GgufTensor& tensor : b.gguf.tensors()) {
    if (a.gguf.find_tensor(tensor.name) != nullptr) continue;
    out.push_back({"tensor", std::string(tensor.name), "", tensor_text(tensor)});
  }
}

std::string diff_text(const std::vector<Difference>& differences) {
  std::string out;
  for (const Difference& d : differences) {
    const std::string name = shown(d.name);
    const std::string likely = d.likely.empty() ? "" : "; " + d.likely;
    if (d.first == d.second) {
      out += fmt::format("! {} {}: {}{}\n", d.kind, name, d.first, likely);
      continue;
    }
    if (!d.first.empty()) out += fmt::format("- {} {}: {}\n", d.kind, name, d.first);
    if (!d.second.empty()) out += fmt::format("+ {} {}: {}{}\n", d.kind, name, d.second, likely);
  }
  return out;
}

std::string diff_json(const GgufArguments& arguments, const std::vector<Difference>& differences) {
  OrderedJson list = OrderedJson::array();
  for (const Difference& d : differences) {
    list.push_back({{"kind", d.kind}, {"name", d.name}, {"first", d.first}, {"second", d.second}});
    if (!d.likely.empty()) list.back()["likely"] = d.likely;
  }
  const OrderedJson all = {{"schema_version", kGgufSchemaVersion},
                           {"first", arguments.file},
                           {"second", arguments.other_file},
                           {"equal", differences.empty()},
                           {"differences", std::move(list)}};
  return json_text(all, 2) + "\n";
}

}  // namespace

Result<int> diff_gguf(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf a, open_gguf(arguments.file));
  LLM_TRY(const OpenGguf b, open_gguf(arguments.other_file));
  std::vector<Difference> differences;
  compare_entries(a.gguf, b.gguf, differences);
  {
    ProgressBar progress(!context.quiet(), "B");
    compare_tensors(a, b, differences, progress);
  }
  LLM_RETURN_IF_ERROR(
      write_stdout(arguments.json ? diff_json(arguments, differences) : diff_text(differences)));
  return differences.empty() ? 0 : kExitVerdictFailed;
}

}  // namespace llm
