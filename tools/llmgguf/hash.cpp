#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "base/shown_text.h"
#include "tools/common/progress.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;

/// SHA-256 in pieces, giving pages back, so that resident memory stays small.
std::string hash_pieces(const MappedFile& file, std::span<const std::byte> bytes,
                        std::string_view stage, ProgressBar& progress) {
  Sha256 hash;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    const auto piece = bytes.subspan(begin, std::min(kPiece, bytes.size() - begin));
    hash.update(piece);
    file.drop_pages(piece);
    progress(stage, begin + piece.size(), bytes.size());
  }
  return hash.hex();
}

}  // namespace

Result<int> hash_gguf(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf open, open_gguf(arguments.file));
  ProgressBar progress(!context.quiet(), "B");
  const std::string whole = hash_pieces(open.file, open.file.bytes(), "hash file", progress);
  std::vector<std::pair<std::string, std::string>> tensors;
  for (const GgufTensor& tensor : open.gguf.tensors()) {
    tensors.emplace_back(
        std::string(tensor.name),
        hash_pieces(open.file, open.gguf.tensor_data(tensor), tensor.name, progress));
  }
  progress.clear();
  if (open.file.changed_since_open()) {
    return Error{.code = ErrorCode::kIntegrity,
                 .field = {},
                 .message = "model changed while it was read, need a file at rest",
                 .file = arguments.file};
  }
  std::string out;
  if (arguments.json) {
    nlohmann::ordered_json json = {{"schema_version", kGgufSchemaVersion},
                                   {"file", arguments.file},
                                   {"sha256", whole},
                                   {"tensors", nlohmann::ordered_json::object()}};
    for (const auto& [name, hex] : tensors) json["tensors"][name] = hex;
    out = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  } else {
    out = fmt::format("{}  {}\n", whole, shown(arguments.file));
    for (const auto& [name, hex] : tensors) out += fmt::format("{}  tensor {}\n", hex, shown(name));
  }
  LLM_RETURN_IF_ERROR(write_stdout(out));
  return 0;
}

}  // namespace llm
