#include "engine/gguf/importance_matrix.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/byte_reader.h"
#include "base/mapped_file.h"

namespace llm {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr std::string_view kChunkCount = "imatrix.chunk_count";
constexpr std::string_view kChunkSize = "imatrix.chunk_size";
constexpr std::string_view kDatasets = "imatrix.datasets";

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Status sort_by_name(std::vector<Importance>& entries) {
  std::ranges::sort(entries, {}, &Importance::tensor);
  const auto twice = std::ranges::adjacent_find(entries, {}, &Importance::tensor);
  if (twice != entries.end())
    return malformed(twice->tensor, "found it twice, need one entry for a tensor");
  return Ok{};
}

Result<ImportanceMatrix> parse_gguf(std::span<const std::byte> bytes) {
  LLM_TRY(const GgufFile gguf, GgufFile::parse(bytes));
  struct Parts {
    const GgufTensor* sums = nullptr;
    const GgufTensor* counts = nullptr;
  };
  std::map<std::string_view, Parts> parts;
  for (const GgufTensor& tensor : gguf.tensors()) {
    for (const auto& [suffix, member] :
         {std::pair(kSums, &Parts::sums), std::pair(kCounts, &Parts::counts)}) {
      if (!tensor.name.ends_with(suffix)) continue;
      if (tensor.type != WeightType::kF32)
        return malformed(std::string(tensor.name),
                         fmt::format("found {}, need F32", block_traits(tensor.type).name),
                         tensor.info_offset);
      parts[tensor.name.substr(0, tensor.name.size() - suffix.size())].*member = &tensor;
    }
  }
  ImportanceMatrix matrix;
  for (const auto& [name, both] : parts) {
    if (both.sums == nullptr || both.counts == nullptr)
      return malformed(std::string(name), fmt::format("found no {}{}, need one for each {}", name,
                                                      both.sums == nullptr ? kSums : kCounts,
                                                      both.sums == nullptr ? kCounts : kSums));
    const std::uint64_t n_counts = both.counts->n_elements;
    if (n_counts == 0 || both.sums->n_elements % n_counts != 0)
      return malformed(std::string(both.counts->name),
                       fmt::format("found {} counts for {} sums, need a divisor", n_counts,
                                   both.sums->n_elements));
    matrix.entries.push_back({std::string(name), floats_of(gguf.tensor_data(*both.sums)),
                              floats_of(gguf.tensor_data(*both.counts))});
  }
  LLM_TRY(matrix.n_chunks, gguf.get_unsigned_or(kChunkCount, 0));
  LLM_TRY(matrix.chunk_tokens, gguf.get_unsigned_or(kChunkSize, 0));
  if (gguf.find(kDatasets) != nullptr) {
    LLM_TRY(const GgufStrings texts, gguf.get_strings(kDatasets));
    for (const std::string_view text : texts) matrix.texts.emplace_back(text);
  }
  return matrix;
}

/// A count that is followed by so many things of at least `size` bytes.
std::size_t read_count(ByteReader& reader, std::string_view field, std::size_t size,
                       std::int32_t least) {
  const auto count = reader.read<std::int32_t>(field);
  const std::size_t most = reader.remaining() / size;
  if (reader.ok() && (count < least || static_cast<std::size_t>(std::max(count, 0)) > most))
    reader.fail(
        ErrorCode::kMalformed, field,
        fmt::format("found {}, need {} to {}, what the file has room for", count, least, most));
  return reader.ok() ? static_cast<std::size_t>(count) : 0;
}

std::string read_name(ByteReader& reader, std::string_view field, std::int32_t least) {
  const auto bytes = reader.read_bytes(read_count(reader, field, 1, least), field);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<ImportanceMatrix> parse_binary(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ImportanceMatrix matrix;
  const std::size_t n_entries = read_count(reader, "number of entries", 12, 1);
  for (std::size_t i = 0; i < n_entries && reader.ok(); ++i) {
    Importance entry;
    entry.tensor = read_name(reader, "name", 1);
    const auto calls = reader.read<std::int32_t>("calls");
    const std::size_t n_values = read_count(reader, "number of values", sizeof(float), 1);
    entry.sums = floats_of(reader.read_bytes(n_values * sizeof(float), "values"));
    // A file without calls has means.
    entry.counts = {calls > 0 ? static_cast<float>(calls) : 1.0F};
    matrix.entries.push_back(std::move(entry));
  }
  if (reader.ok() && reader.remaining() > 0) {
    matrix.n_chunks =
        static_cast<std::uint64_t>(std::max(reader.read<std::int32_t>("number of chunks"), 0));
    if (reader.ok() && reader.remaining() > 0)
      matrix.texts.push_back(read_name(reader, "name of the text", 0));
  }
  if (!reader.ok()) {
    Error error = reader.error();
    if (n_entries == 0) error.hint = "an importance matrix is made by llmcheck --imatrix";
    return error;
  }
  return matrix;
}

}  // namespace

Result<std::vector<float>> Importance::means(std::uint64_t n_cols, std::uint64_t n_matrices,
                                             const float* unused) const {
  if (sums.size() != n_cols * n_matrices || n_matrices % counts.size() != 0) {
    return malformed(tensor, fmt::format("found {} sums and {} counts, need those of {} columns "
                                         "of {} matrices, the model's",
                                         sums.size(), counts.size(), n_cols, n_matrices));
  }
  std::vector<float> result(sums.size());
  const std::size_t shared = sums.size() / counts.size();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float count = counts[i / shared];
    const auto at = [&] { return fmt::format("matrix {}, column {}", i / n_cols, i % n_cols); };
    if (!std::isfinite(sums[i]) || sums[i] < 0)
      return Error{ErrorCode::kNonFinite, tensor,
                   fmt::format("found {} in {}, need finite sums of squares", sums[i], at())};
    if (!(count >= 0) || !std::isfinite(count))
      return Error{
          ErrorCode::kNonFinite, tensor,
          fmt::format("found the count {} of matrix {}, need a number of rows", count, i / n_cols)};
    if (count == 0 && unused == nullptr)
      return malformed(tensor, fmt::format("found the count 0 of matrix {}, need rows that went "
                                           "into it: a longer text",
                                           i / n_cols));
    result[i] = count == 0 ? *unused : sums[i] / count;
  }
  return result;
}

const Importance* ImportanceMatrix::find(std::string_view tensor) const {
  const auto found = std::ranges::lower_bound(
      entries, tensor, {}, [](const Importance& entry) { return std::string_view(entry.tensor); });
  return found == entries.end() || found->tensor != tensor ? nullptr : &*found;
}

Result<ImportanceMatrix> ImportanceMatrix::parse(std::span<const std::byte> bytes) {
  constexpr std::string_view kMagic = "GGUF";
  const bool is_gguf =
      bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
  LLM_TRY(ImportanceMatrix matrix, is_gguf ? parse_gguf(bytes) : parse_binary(bytes));
  if (matrix.entries.empty())
    return malformed("tensors", "found no sums (*.in_sum2), need an importance matrix");
  LLM_RETURN_IF_ERROR(sort_by_name(matrix.entries));
  return matrix;
}

Result<ImportanceMatrix> ImportanceMatrix::open(const std::string& path) {
  LLM_TRY(const MappedFile file, MappedFile::open(path));
  auto matrix = parse(file.bytes());
  if (!matrix.ok()) return in_file(std::move(matrix).error(), path);
  return matrix;
}

Result<std::vector<std::byte>> ImportanceMatrix::gguf_bytes() const {
  GgufWriter writer;
  writer.add_string("general.type", "imatrix");
  writer.add_strings(kDatasets, texts);
  writer.add_number<std::uint32_t>(kChunkCount, static_cast<std::uint32_t>(n_chunks));
  writer.add_number<std::uint32_t>(kChunkSize, static_cast<std::uint32_t>(chunk_tokens));
  for (const Importance& entry : entries) {
    const std::uint64_t n_counts = entry.counts.size();
    writer.add_tensor(entry.tensor + std::string(kSums), WeightType::kF32,
                      std::vector{entry.sums.size() / n_counts, n_counts});
    writer.add_tensor(entry.tensor + std::string(kCounts), WeightType::kF32,
                      std::vector{std::uint64_t{1}, n_counts});
  }
  std::vector<std::byte> bytes;
  GgufStream stream(writer, sink_to(bytes));
  LLM_RETURN_IF_ERROR(stream.begin());
  for (const Importance& entry : entries) {
    LLM_RETURN_IF_ERROR(stream.write(std::as_bytes(std::span(entry.sums))));
    LLM_RETURN_IF_ERROR(stream.write(std::as_bytes(std::span(entry.counts))));
  }
  LLM_RETURN_IF_ERROR(stream.finish());
  return bytes;
}

}  // namespace llm
