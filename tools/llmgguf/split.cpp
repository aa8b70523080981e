#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "tools/common/tool.h"
#include "tools/llmgguf/output.h"

namespace llm {
namespace {

using Tensors = std::span<const GgufTensor>;

/// "300M" as bytes: powers of 1000, as gguf-split counts.
Result<std::uint64_t> parse_size(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const std::uint64_t factor = unit == "K" || unit == "k"   ? 1'000
                               : unit == "M" || unit == "m" ? 1'000'000
                               : unit == "G" || unit == "g" ? 1'000'000'000
                               : unit.empty()               ? 1
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
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    paths.push_back(split_path(arguments.other_file, i, parts.size()));
    LLM_RETURN_IF_ERROR(check_new_output("PREFIX", paths[i], source, arguments.force));
  }
  const auto count = static_cast<std::uint16_t>(parts.size());
  const auto n_tensors = static_cast<std::int32_t>(source.gguf.tensors().size());
  const auto entry_of = [](std::string_view key, GgufType type, const auto& number) {
    return GgufEntry{key, {type, type, 1, std::as_bytes(std::span(&number, 1)), 0}};
  };
  ProgressBar progress(!context.quiet(), "tensors");
  std::vector<WrittenFile> files;
  for (std::uint16_t i = 0; i < count; ++i) {
    GgufOutput out{i == 0 ? source.gguf.entries() : std::deque<GgufEntry>(), parts[i]};
    out.entries.push_back(entry_of(kSplitNo, GgufType::kUint16, i));
    out.entries.push_back(entry_of(kSplitCount, GgufType::kUint16, count));
    out.entries.push_back(entry_of(kSplitTensors, GgufType::kInt32, n_tensors));
    LLM_TRY(WrittenFile file, write_gguf(source, out, paths[i], progress));
    files.push_back(std::move(file));
  }
  // All or none, as far as renaming goes.
  std::string report;
  for (WrittenFile& file : files) {
    LLM_RETURN_IF_ERROR(file.file.commit());
    report += file.text();
  }
  progress.clear();
  LLM_RETURN_IF_ERROR(write_stdout(report));
  return 0;
}

Result<int> merge_gguf(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  LLM_RETURN_IF_ERROR(check_new_output("OUT", arguments.other_file, source, arguments.force));
  ProgressBar progress(!context.quiet(), "tensors");
  LLM_TRY(WrittenFile written, write_gguf(source, {source.gguf.entries(), source.gguf.tensors()},
                                          arguments.other_file, progress));
  LLM_RETURN_IF_ERROR(written.file.commit());
  progress.clear();
  LLM_RETURN_IF_ERROR(write_stdout(written.text()));
  return 0;
}

}  // namespace llm
