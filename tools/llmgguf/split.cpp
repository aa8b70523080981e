#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/atomic_file.h"
#include "engine/gguf/gguf_writer.h"
#include "tools/common/progress.h"
#include "tools/common/tool.h"
#include "tools/llmgguf/commands.h"

namespace llm {
namespace {

using Tensors = std::span<const GgufTensor>;

/// "300M" as bytes: powers of 1000, as gguf-split counts.
Result<std::uint64_t> parse_size(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const std::uint64_t factor = unit == "K"    ? 1'000
                               : unit == "M"  ? 1'000'000
                               : unit == "G"  ? 1'000'000'000
                               : unit.empty() ? 1
                                              : 0;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
  if (failed == std::errc() && number > 0 && factor > 0 && number <= kMost / factor)
    return number * factor;
  return usage_error("--max-size", fmt::format("found \"{}\", need a size like 300M or 2G", text));
}

/// Consecutive tensors of at most `limit` bytes, one at least.
std::vector<Tensors> parts_up_to(Tensors tensors, std::uint64_t limit) {
  std::vector<Tensors> parts;
  while (!tensors.empty()) {
    std::size_t n = 1;
    std::uint64_t bytes = tensors[0].n_bytes;
    while (n < tensors.size() && bytes + tensors[n].n_bytes <= limit) bytes += tensors[n++].n_bytes;
    parts.push_back(tensors.first(n));
    tensors = tensors.subspan(n);
  }
  return parts;
}

/// The same in `count` parts: each is full when the tensors so far have reached its share.
Result<std::vector<Tensors>> parts_of(Tensors tensors, std::size_t count) {
  if (count > tensors.size()) {
    return usage_error("--parts",
                       fmt::format("found {}, need at most the {} tensors", count, tensors.size()));
  }
  std::uint64_t total = 0;
  for (const GgufTensor& tensor : tensors) total += tensor.n_bytes;
  std::vector<Tensors> parts;
  std::uint64_t before = 0;
  for (std::size_t left = count; left > 0; --left) {
    const std::uint64_t wanted = total / count * (count - left + 1);
    std::size_t n = 0;
    do {
      before += tensors[n++].n_bytes;
    } while (n + left - 1 < tensors.size() && (left == 1 || before < wanted));
    parts.push_back(tensors.first(n));
    tensors = tensors.subspan(n);
  }
  return parts;
}

Status write_tensors(const OpenGguf& source, const GgufWriter& writer, Tensors tensors,
                     AtomicFile& file, ProgressBar& progress) {
  GgufStream stream(writer, [&](std::span<const std::byte> bytes) { return file.write(bytes); });
  LLM_RETURN_IF_ERROR(stream.begin());
  std::size_t done = 0;
  for (const GgufTensor& tensor : tensors) {
    const auto data = source.gguf.tensor_data(tensor);
    LLM_RETURN_IF_ERROR(stream.write(data));
    source.file.drop_pages(data);
    progress("write", ++done, tensors.size());
  }
  LLM_RETURN_IF_ERROR(stream.finish());
  return source.file.check_unchanged();
}

Result<AtomicFile> create(const OpenGguf& source, const std::string& path) {
  for (const MappedFile::Part& part : source.file.parts()) {
    LLM_RETURN_IF_ERROR(check_output("OTHER", path, std::span(&part.path, 1)));
  }
  return AtomicFile::create(path);
}

void add_tensors(GgufWriter& writer, Tensors tensors) {
  for (const GgufTensor& tensor : tensors)
    writer.add_tensor(tensor.name, tensor.type, std::span(tensor.dims).first(tensor.n_dims));
}

}  // namespace

Result<int> split_gguf(const GgufArguments& arguments, const ToolContext& context) {
  if ((arguments.parts > 0) == !arguments.max_size.empty())
    return usage_error("--parts", "need one of --parts and --max-size");
  std::uint64_t limit = 0;
  if (!arguments.max_size.empty()) {
    LLM_TRY(limit, parse_size(arguments.max_size));
  }
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  std::vector<Tensors> parts;
  if (limit > 0) {
    parts = parts_up_to(source.gguf.tensors(), limit);
  } else {
    LLM_TRY(parts, parts_of(source.gguf.tensors(), arguments.parts));
  }
  if (parts.empty() || parts.size() > GgufLimits::kMaxParts)
    return usage_error("--max-size", fmt::format("found {} parts, need 1 to {}", parts.size(),
                                                 GgufLimits::kMaxParts));
  ProgressBar progress(!context.quiet(), "tensors");
  std::vector<AtomicFile> files;
  std::string names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    GgufWriter writer(source.gguf.alignment());
    if (i == 0)
      for (const GgufEntry& entry : source.gguf.entries()) writer.add_entry(entry);
    writer.add_number<std::uint16_t>(kSplitNo, static_cast<std::uint16_t>(i));
    writer.add_number<std::uint16_t>(kSplitCount, static_cast<std::uint16_t>(parts.size()));
    writer.add_number<std::int32_t>(kSplitTensors,
                                    static_cast<std::int32_t>(source.gguf.tensors().size()));
    add_tensors(writer, parts[i]);
    const std::string path = split_path(arguments.other_file, i, parts.size());
    LLM_TRY(AtomicFile file, create(source, path));
    LLM_RETURN_IF_ERROR(write_tensors(source, writer, parts[i], file, progress));
    files.push_back(std::move(file));
    names += path + "\n";
  }
  // All or none, as far as renaming goes.
  for (AtomicFile& file : files) LLM_RETURN_IF_ERROR(file.commit());
  progress.clear();
  LLM_RETURN_IF_ERROR(write_stdout(names));
  return 0;
}

Result<int> merge_gguf(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  GgufWriter writer(source.gguf.alignment());
  for (const GgufEntry& entry : source.gguf.entries()) writer.add_entry(entry);
  add_tensors(writer, source.gguf.tensors());
  LLM_TRY(AtomicFile file, create(source, arguments.other_file));
  ProgressBar progress(!context.quiet(), "tensors");
  LLM_RETURN_IF_ERROR(write_tensors(source, writer, source.gguf.tensors(), file, progress));
  LLM_RETURN_IF_ERROR(file.commit());
  return 0;
}

}  // namespace llm
