#include "engine/model/packed_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/thread_team.h"
#include "base/xxh3.h"
#include "engine/model/weight_store.h"
#include "quant/kernels/packed_matrix.h"
#include "quant/numerics/contract.h"

namespace llm {
namespace {

/// Raised with every change of what a cache holds that no other line of its head shows.
constexpr std::string_view kVersion = "llm-packed 1";
constexpr std::string_view kVersionWord = "llm-packed ";
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunkBytes = 2 * kHugePage;
constexpr std::size_t kMaxHeadBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxNameBytes = 100;
constexpr std::size_t kSampleBytes = 4096;

std::string xxh3(std::string_view text) { return xxh3_hex(std::as_bytes(std::span(text))); }

/// The order of bytes in a panel, of every type.
std::string layout() {
  std::string text = fmt::format("{} {}", PackedShape::kPanelRows,
                                 std::endian::native == std::endian::little ? "little" : "big");
  for (const BlockTraits& traits : all_block_traits()) {
    text += fmt::format(" {} {}", traits.name, traits.block_bytes);
    for (const PackedField& field : packed_fields(traits.type))
      text += fmt::format(" {}:{}:{}:{}:{}", field.offset, field.element_bytes, field.count,
                          field.exchanges[0].mask, field.exchanges[1].mask);
  }
  return xxh3(text);
}

/// All that is in a part before the data of its first tensor.
std::span<const std::byte> metadata_of(const MappedFile::Part& part, const GgufFile& gguf) {
  const std::byte* end = part.bytes.data() + part.bytes.size();
  const std::byte* first = end;
  for (const GgufTensor& tensor : gguf.tensors()) {
    const std::byte* data = gguf.tensor_data(tensor).data();
    if (data >= part.bytes.data() && data < first) first = data;
  }
  return part.bytes.first(static_cast<std::size_t>(first - part.bytes.data()));
}

/// A few bytes of every matrix, at places that differ from matrix to matrix.
Result<std::string> samples(const ModelFile& model, const WeightPlan& plan) {
  std::vector<std::byte> all;
  std::uint64_t place = 0;
  for (const PlacedMatrix& matrix : plan.matrices) {
    const std::span<const std::byte> data = matrix.view->data;
    place += 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio: multiples spread evenly
    const std::size_t n = std::min(kSampleBytes, data.size());
    const auto begin = static_cast<std::size_t>(place % (data.size() - n + 1));
    all.resize(all.size() + n);
    LLM_RETURN_IF_ERROR(model.file.read(data.subspan(begin, n), std::span(all).last(n)));
  }
  return xxh3_hex(all);
}

/// The head of a cache without its chunks: a line for everything that must be as it was.
Result<std::vector<std::string>> head_lines(const ModelFile& model, const WeightPlan& plan) {
  std::vector<std::string> lines = {
      std::string(kVersion), "layout " + layout(),
      fmt::format("contract {}", std::uint32_t{contract::kContractVersion})};
  for (const MappedFile::Stamp& s : model.file.stamps())
    lines.push_back(fmt::format("source size {} modified {} changed {} inode {}", s.size,
                                s.modified_ns, s.changed_ns, s.inode));
  for (const MappedFile::Part& part : model.file.parts())
    lines.push_back("metadata " + xxh3_hex(metadata_of(part, model.gguf)));
  LLM_TRY(const std::string sampled, samples(model, plan));
  lines.push_back("samples " + sampled);
  for (const PlacedMatrix& m : plan.matrices)
    lines.push_back(fmt::format(
        "matrix {} {} {}x{} {} {}", m.offset, block_traits(m.shape.type).name, m.shape.n_cols,
        m.shape.n_rows, is_reordered(model.config, *m.role) ? "heads" : "plain", m.view->name));
  lines.push_back(fmt::format("bytes {}", plan.bytes));
  return lines;
}

std::size_t chunk_count(std::size_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }

/// The hash of each chunk of `panels`.
std::vector<std::string> chunk_hashes(std::span<const std::byte> panels, int n_threads,
                                      std::string_view stage, const Progress& progress) {
  std::vector<std::string> hashes(chunk_count(panels.size()));
  std::atomic<std::size_t> done = 0;
  run_parallel(n_threads, [&](Worker worker) {
    worker.take_tasks(hashes.size(), [&](std::size_t i) {
      const std::size_t begin = i * kChunkBytes;
      hashes[i] = xxh3_hex(panels.subspan(begin, std::min(kChunkBytes, panels.size() - begin)));
      const std::size_t now = ++done;
      if (worker.id == 0 && progress)
        progress(stage, std::min(now * kChunkBytes, panels.size()), panels.size());
    });
  });
  return hashes;
}

/// Where the panels begin after a head of that many bytes, one of them zero at least.
std::size_t panels_offset(std::size_t head_bytes) {
  return (head_bytes + 1 + kHugePage - 1) / kHugePage * kHugePage;
}

/// The lines of a file's head, without the last one, which is right.
Result<std::vector<std::string_view>> read_head(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                        std::min(bytes.size(), kMaxHeadBytes));
  if (!text.starts_with(kVersionWord))
    return malformed("", "found no packed cache, need a file that --packed-cache made");
  text = text.substr(0, text.find('\0'));
  const std::size_t last = text.rfind("\nend ");
  if (last == std::string_view::npos ||
      text.substr(last) != "\nend " + xxh3(text.substr(0, last + 1)) + "\n")
    return malformed("head", "found different bytes from those written, need an undamaged file");
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin <= last;) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Whether the head says what it must.
Status check_head(std::span<const std::string_view> found, const std::vector<std::string>& needed) {
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::string_view line = i < found.size() ? found[i] : "nothing";
    if (line == needed[i]) continue;
    const std::string_view need = needed[i];
    return Error{i == 0 ? ErrorCode::kUnsupported : ErrorCode::kIntegrity,
                 std::string(need.substr(0, need.find(' '))),
                 fmt::format("found {}, need {}", line, need)};
  }
  return Ok{};
}

Status check_panels(std::span<const std::byte> panels, std::span<const std::string_view> chunks,
                    int n_threads, const Progress& progress) {
  const std::vector<std::string> hashes = chunk_hashes(panels, n_threads, "check", progress);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (i < chunks.size() && chunks[i] == "chunk " + hashes[i]) continue;
    return malformed(fmt::format("chunk {}", i),
                     "found different bytes from those written, need an undamaged file");
  }
  return Ok{};
}

/// Whether the cache's panels are those that the file gives.
Status compare_panels(const ModelFile& model, const WeightPlan& plan,
                      std::span<const std::byte> panels, int n_threads, const Progress& progress) {
  std::atomic<std::size_t> done = 0;
  std::atomic<const PlacedMatrix*> wrong = nullptr;
  for_all_panels(plan.matrices, n_threads, [&](Worker worker, PanelRange range) {
    const auto cached = range.in(panels);
    std::vector<std::byte> room(range.row_bytes() + cached.size());
    const auto rows = std::span(room).first(range.row_bytes());
    const auto packed = std::span(room).subspan(rows.size());
    if (!read_rows(model, range, rows).ok()) {
      wrong = range.matrix;
      return;
    }
    pack_panels(range, rows, packed);
    if (!std::ranges::equal(packed, cached)) wrong = range.matrix;
    const std::size_t now = done += cached.size();
    if (worker.id == 0 && progress) progress("compare", now, plan.bytes);
  });
  if (wrong == nullptr) return Ok{};
  return Error{ErrorCode::kIntegrity, wrong.load()->view->name,
               "found different weights in the cache, need those of the model"};
}

Result<PackedCache> open_at(const std::string& path, const ModelFile& model, const WeightPlan& plan,
                            bool compare, int n_threads, const Progress& progress) {
  LLM_TRY(MappedFile file, MappedFile::open(path, MappedFile::Writer::kOwner));
  file.wait_for_another_stamp();
  file.prefer_huge_pages();
  const std::span<const std::byte> bytes = file.bytes();
  LLM_TRY(const auto lines, read_head(bytes));
  LLM_TRY(const auto needed, head_lines(model, plan));
  LLM_RETURN_IF_ERROR(check_head(lines, needed));
  const char* const last = lines.back().data() + lines.back().size();
  const auto head = static_cast<std::size_t>(last - reinterpret_cast<const char*>(bytes.data()));
  const std::size_t begin =
      panels_offset(head + std::string_view("\nend 0123456789abcdef\n").size());
  if (bytes.size() != begin + plan.bytes)
    return malformed("", fmt::format("found {} bytes, need {}", bytes.size(), begin + plan.bytes));
  const auto panels = bytes.subspan(begin);
  LLM_RETURN_IF_ERROR(
      check_panels(panels, std::span(lines).subspan(needed.size()), n_threads, progress));
  if (compare) LLM_RETURN_IF_ERROR(compare_panels(model, plan, panels, n_threads, progress));
  return PackedCache{std::move(file), panels};
}

}  // namespace

std::string packed_cache_path(const std::string& directory, const std::string& model_path) {
  std::error_code unresolved;
  const auto whole = std::filesystem::canonical(model_path, unresolved);
  const std::string path = unresolved ? model_path : whole.string();
  std::string name = std::filesystem::path(path).stem().string();
  name.resize(std::min(name.size(), kMaxNameBytes));
  return fmt::format("{}/{}-{}.packed", directory, name, xxh3(path));
}

Result<std::optional<PackedCache>> open_packed_cache(const std::string& path,
                                                     const ModelFile& model, const WeightPlan& plan,
                                                     bool compare, int n_threads,
                                                     const Progress& progress) {
  std::error_code unknown;
  if (std::filesystem::symlink_status(path, unknown).type() ==
      std::filesystem::file_type::not_found)
    return std::optional<PackedCache>();
  auto cache = open_at(path, model, plan, compare, n_threads, progress);
  if (!cache.ok()) return in_file(std::move(cache).error(), path);
  return std::optional(std::move(cache).value());
}

Status write_packed_cache(const std::string& path, const ModelFile& model, const WeightPlan& plan,
                          std::span<const std::byte> panels, int n_threads,
                          const Progress& progress) {
  LLM_TRY(const auto lines, head_lines(model, plan));
  std::string head;
  for (const std::string& line : lines) head += line + '\n';
  for (const std::string& hash : chunk_hashes(panels, n_threads, "hash", progress))
    head += "chunk " + hash + '\n';
  head += "end " + xxh3(head) + '\n';
  head.resize(panels_offset(head.size()));
  std::error_code refused;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), refused);
  LLM_TRY(AtomicFile file,
          AtomicFile::create(path, AtomicFile::Unnamed::kIfPossible, AtomicFile::Target::kPlain));
  LLM_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(head))));
  // In pieces of whole huge pages, which the page cache then has as such.
  for (std::size_t begin = 0; begin < panels.size(); begin += kChunkBytes) {
    if (progress) progress("cache", begin, panels.size());
    LLM_RETURN_IF_ERROR(
        file.write(panels.subspan(begin, std::min(kChunkBytes, panels.size() - begin))));
  }
  return file.commit();
}

}  // namespace llm
