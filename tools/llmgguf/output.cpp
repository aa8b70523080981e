#include "tools/llmgguf/output.h"

#include <fmt/core.h>

#include <utility>

#include "base/shown_text.h"
#include "tools/common/tool.h"

namespace llm {

std::string WrittenFile::text() const {
  return fmt::format("{}: {} bytes, SHA-256 {}\n", shown(path), bytes, sha256);
}

Status check_new_output(const std::string& what, const std::string& path, const OpenGguf& source,
                        bool force) {
  for (const MappedFile::Part& part : source.file.parts())
    LLM_RETURN_IF_ERROR(check_output(what, path, std::span(&part.path, 1)));
  return force ? Status(Ok{}) : check_is_new(what, path);
}

Result<WrittenFile> write_gguf(const OpenGguf& source, const GgufOutput& out,
                               const std::string& path, ProgressBar& progress) {
  std::vector<std::optional<NewTensor>> changes;
  GgufWriter writer(source.gguf.alignment());
  for (const GgufEntry& entry : out.entries) writer.add_entry(entry);
  for (const GgufTensor& tensor : out.tensors) {
    changes.push_back(out.change ? out.change(tensor) : std::nullopt);
    writer.add_tensor(tensor.name, changes.back() ? changes.back()->type : tensor.type,
                      std::span(tensor.dims).first(tensor.n_dims));
  }
  LLM_TRY(AtomicFile file, AtomicFile::create(path));
  Sha256 hash;
  GgufStream stream(writer, [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    return file.write(bytes);
  });
  LLM_RETURN_IF_ERROR(stream.begin());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto data = source.gguf.tensor_data(out.tensors[i]);
    if (changes[i]) {
      LLM_TRY(const std::vector<std::byte> made, changes[i]->data());
      LLM_RETURN_IF_ERROR(stream.write(made));
    } else {
      LLM_RETURN_IF_ERROR(stream.write(data));
    }
    source.file.drop_pages(data);
    progress("write", i + 1, changes.size());
  }
  LLM_RETURN_IF_ERROR(stream.finish());
  LLM_RETURN_IF_ERROR(source.file.check_unchanged());
  const std::uint64_t bytes = file.size();
  return WrittenFile{std::move(file), path, bytes, hash.hex()};
}

}  // namespace llm
