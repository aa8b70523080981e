#include "engine/gguf/gguf_manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/hex.h"
#include "engine/gguf/gguf_split.h"

namespace llm {
namespace {

constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{64} << 20;

using Differences = std::vector<GgufDifference>;
using Kind = GgufSegment::Kind;

/// What two files call the same: a tensor wherever it lies, metadata of the same part.
auto key_of(const GgufSegment& segment) {
  return std::tuple(segment.kind, std::string_view(segment.name),
                    segment.name.empty() ? segment.part : 0);
}

std::string extent(const GgufSegment& segment) {
  if (segment.type.empty()) return fmt::format("{} bytes", segment.bytes);
  return fmt::format("{}, {} bytes", segment.type, segment.bytes);
}

/// The segments of `tree` as far as `file` reaches, and as padding what it has beyond.
std::vector<GgufSegment> same_places(const MappedFile& file, const GgufTree& tree) {
  std::vector<GgufSegment> segments;
  std::vector<std::uint64_t> ends(file.parts().size(), 0);
  const auto left = [&](std::size_t part) { return file.parts()[part].bytes.size() - ends[part]; };
  for (std::size_t i = 0; i < tree.segments.size(); ++i) {
    GgufSegment segment = tree.segments[i];
    const std::size_t part = segment.part;
    if (part >= ends.size()) break;
    const bool last = i + 1 == tree.segments.size() || tree.segments[i + 1].part != part;
    const bool takes_rest = last && segment.kind == Kind::kPadding;
    segment.bytes = takes_rest ? left(part) : std::min<std::uint64_t>(segment.bytes, left(part));
    ends[part] += segment.bytes;
    GgufSegment rest{.kind = Kind::kPadding,
                     .part = part,
                     .offset = ends[part],
                     .bytes = last ? left(part) : 0,
                     .type = {},
                     .name = segment.name,
                     .chunks = {}};
    if (segment.bytes > 0) segments.push_back(std::move(segment));
    if (rest.bytes > 0) segments.push_back(std::move(rest));
  }
  return segments;
}

/// Compares two trees, of which `found` is that of `file`.
class Comparison {
 public:
  Comparison(const MappedFile& file, const GgufTree& found, const GgufTree& needed)
      : file_(file), found_(found), needed_(needed) {}

  Differences run() {
    if (found_.root() == needed_.root()) return {};
    std::map<decltype(key_of(found_.segments[0])), const GgufSegment*> found;
    for (const GgufSegment& segment : found_.segments) found.emplace(key_of(segment), &segment);
    for (const GgufSegment& segment : needed_.segments) {
      const auto same = found.find(key_of(segment));
      if (same == found.end()) {
        add(segment, fmt::format("found none, need {}", extent(segment)));
      } else {
        compare(*same->second, segment);
        found.erase(same);
      }
    }
    for (const GgufSegment& segment : found_.segments) {
      if (!found.contains(key_of(segment))) continue;
      add(segment, fmt::format("found {}, need none", extent(segment)), range_of(segment));
    }
    // Equal segments give equal roots, unless they stand elsewhere.
    if (differences_.empty()) {
      differences_.push_back({.kind = "file",
                              .name = {},
                              .title = "order of tensors",
                              .message = "found a different order, need that of the manifest",
                              .file = file_.path()});
    }
    return std::move(differences_);
  }

 private:
  using Range = std::pair<std::uint64_t, std::uint64_t>;

  static Range range_of(const GgufSegment& segment) {
    return {segment.offset, segment.offset + segment.bytes};
  }

  GgufDifference& add(const GgufSegment& segment, std::string message,
                      std::optional<Range> bytes = {}) {
    const bool has_part = segment.part < file_.parts().size();
    return differences_.emplace_back(
        GgufDifference{.kind = std::string(segment.kind_name()),
                       .name = segment.name,
                       .title = segment.title(),
                       .message = std::move(message),
                       .file = has_part ? file_.parts()[segment.part].path : std::string(),
                       .chunks = {},
                       .bytes = bytes});
  }

  void compare(const GgufSegment& found, const GgufSegment& needed) {
    if (found.line() != needed.line()) {
      add(found, fmt::format("found {}, need {}", extent(found), extent(needed)), range_of(found));
      return;
    }
    for (std::size_t i = 0; i < needed.chunks.size(); ++i) {
      if (found.chunks[i] == needed.chunks[i]) continue;
      const std::size_t first = i;
      while (i + 1 < needed.chunks.size() && found.chunks[i + 1] != needed.chunks[i + 1]) ++i;
      add_chunks(found, first, i);
    }
  }

  void add_chunks(const GgufSegment& segment, std::size_t first, std::size_t last) {
    const auto [begin, end] = range_of(segment);
    const Range bytes = {begin + first * GgufTree::kChunkBytes,
                         std::min(end, begin + (last + 1) * GgufTree::kChunkBytes)};
    GgufDifference& difference =
        add(segment,
            fmt::format("found different content in bytes {} to {}, need that of the manifest",
                        bytes.first, bytes.second - 1),
            bytes);
    difference.chunks = std::pair(first, last);
    difference.title += first == last ? fmt::format(" chunk {}", first)
                                      : fmt::format(" chunks {} to {}", first, last);
  }

  const MappedFile& file_;
  const GgufTree& found_;
  const GgufTree& needed_;
  Differences differences_;
};

}  // namespace

Result<GgufTree> read_gguf_manifest(const std::string& path) {
  LLM_TRY(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kMaxManifestBytes) {
    return in_file(Error{ErrorCode::kResource, "manifest",
                         fmt::format("found {} bytes, need a manifest of at most {}",
                                     file.bytes().size(), kMaxManifestBytes)},
                   path);
  }
  const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  LLM_RETURN_IF_ERROR(file.check_unchanged("manifest"));
  auto tree = GgufTree::parse(text);
  if (!tree.ok()) return in_file(std::move(tree).error(), path);
  return tree;
}

Result<Differences> compare_manifest(const MappedFile& file, const GgufTree& tree,
                                     const Hashing& hashing) {
  GgufTree found;
  auto segments = gguf_segments(file);
  found.segments = segments.ok() ? std::move(segments).value() : same_places(file, tree);
  HashWork work;
  add_chunks(work, file, found.segments);
  LLM_RETURN_IF_ERROR(work.run(hashing));
  return Comparison(file, found, tree).run();
}

Result<Differences> compare_manifest(const std::string& path, const GgufTree& tree,
                                     const Hashing& hashing) {
  auto open = open_gguf_file(path);
  if (open.ok()) {
    LLM_TRY(Differences differences, compare_manifest(open->file, tree, hashing));
    LLM_RETURN_IF_ERROR(open->file.check_unchanged());
    return differences;
  }
  std::vector<std::string> paths = {path};
  if (const std::size_t n = tree.n_parts(); n > 1) {
    const auto named = parse_split_path(path);
    if (!named || named->count != n) return std::move(open).error();
    paths.clear();
    for (std::size_t i = 0; i < n; ++i) paths.push_back(split_path(named->name, i, n));
  }
  auto file = MappedFile::open_all(paths);
  if (!file.ok()) return std::move(open).error();
  LLM_TRY(Differences differences, compare_manifest(*file, tree, hashing));
  LLM_RETURN_IF_ERROR(file->check_unchanged());
  // A file that the tree describes and that is no GGUF: what is wrong is the GGUF.
  if (differences.empty()) return std::move(open).error();
  return differences;
}

Error integrity_error(const Differences& differences) {
  const GgufDifference& first = differences.front();
  Error error{.code = ErrorCode::kIntegrity,
              .field = first.title,
              .message = first.message,
              .file = first.file};
  if (first.bytes) error.offset = first.bytes->first;
  if (const std::size_t more = differences.size() - 1; more > 0)
    error.hint = fmt::format("{} more difference{}", more, more == 1 ? "" : "s");
  return error;
}

std::string summary(const GgufTree& tree) {
  std::uint64_t bytes = 0;
  for (const GgufSegment& segment : tree.segments) bytes += segment.bytes;
  const auto tensors = std::ranges::count(tree.segments, Kind::kTensor, &GgufSegment::kind);
  return fmt::format("root {} over {} tensors, {} bytes", hex_text(tree.root()), tensors, bytes);
}

}  // namespace llm
