#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "base/shown_text.h"
#include "tools/common/progress.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

std::string hash_of(const MappedFile& file, std::span<const std::byte> bytes,
                    std::string_view stage, ProgressBar& progress) {
  return sha256_hex(file, bytes, [&](std::size_t done) { progress(stage, done, bytes.size()); });
}

}  // namespace

Result<int> hash_gguf(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf open, open_gguf(arguments.file));
  ProgressBar progress(!context.quiet(), "B");
  const std::string whole = file_sha256_hex(open.file, [&](std::size_t done) {
    progress("hash file", done, static_cast<std::size_t>(open.file.file_bytes()));
  });
  std::vector<std::pair<std::string, std::string>> tensors;
  for (const GgufTensor& tensor : open.gguf.tensors()) {
    tensors.emplace_back(std::string(tensor.name),
                         hash_of(open.file, open.gguf.tensor_data(tensor), tensor.name, progress));
  }
  progress.clear();
  LLM_RETURN_IF_ERROR(open.file.check_unchanged());
  std::string out;
  if (arguments.json) {
    nlohmann::ordered_json json = {{"schema_version", kGgufSchemaVersion},
                                   {"file", arguments.file},
                                   {"sha256", whole},
                                   {"tensors", nlohmann::ordered_json::object()}};
    // As a vector, since names are known to differ.
    auto& members = json["tensors"].get_ref<nlohmann::ordered_json::object_t&>();
    for (const auto& [name, hex] : tensors)
      members.nlohmann::ordered_json::object_t::Container::emplace_back(name, hex);
    out = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  } else {
    out = fmt::format("{}  {}\n", whole, shown(arguments.file));
    for (const auto& [name, hex] : tensors) out += fmt::format("{}  tensor {}\n", hex, shown(name));
  }
  LLM_RETURN_IF_ERROR(write_stdout(out));
  return 0;
}

}  // namespace llm
