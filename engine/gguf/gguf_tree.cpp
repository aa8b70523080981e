#include "engine/gguf/gguf_tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/merkle_tree.h"
#include "engine/gguf/gguf_file.h"

namespace llm {
namespace {

// What a hash is of, its first byte: no chunk can pass for a node (1), no segment for a chunk.
constexpr std::array kChunk = {std::byte{0}};
constexpr std::array kSegment = {std::byte{2}};

constexpr std::size_t kChunkBytes = GgufTree::kChunkBytes;
constexpr std::size_t kChunksOfJob = 8;

std::string type_text(const GgufTensor& tensor) {
  std::string text(block_traits(tensor.type).name);
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d)
    text += fmt::format("{}{}", d == 0 ? ' ' : 'x', tensor.dims[d]);
  return text;
}

/// Appends the segments of one part, which has `size` bytes.
void add_part(const GgufFile& gguf, std::size_t part, std::uint64_t size,
              std::vector<GgufSegment>& out) {
  std::vector<const GgufTensor*> in_order;
  for (const GgufTensor& tensor : gguf.tensors()) in_order.push_back(&tensor);
  std::ranges::sort(in_order, {}, [](const GgufTensor* tensor) { return tensor->offset; });
  const std::uint64_t data = std::min(gguf.data_offset(), size);
  std::uint64_t end = 0;
  const auto add = [&](GgufSegment segment) {
    segment.part = part;
    segment.offset = end;
    end += segment.bytes;
    if (segment.bytes > 0) out.push_back(std::move(segment));
  };
  const auto pad_to = [&](std::uint64_t begin) {
    add({.kind = GgufSegment::Kind::kPadding, .bytes = begin - end, .name = out.back().name});
  };
  add({.kind = GgufSegment::Kind::kMetadata, .bytes = data});
  for (const GgufTensor* tensor : in_order) {
    pad_to(data + tensor->offset);
    add({.kind = GgufSegment::Kind::kTensor,
         .bytes = tensor->n_bytes,
         .type = type_text(*tensor),
         .name = std::string(tensor->name)});
  }
  pad_to(size);
}

}  // namespace

std::string_view GgufSegment::kind_name() const {
  if (kind == Kind::kMetadata) return "metadata";
  return kind == Kind::kTensor ? "tensor" : "padding";
}

std::string GgufSegment::title() const {
  if (kind == Kind::kMetadata) return "metadata";
  const std::string tensor = fmt::format("tensor \"{}\"", name);
  if (kind == Kind::kTensor) return tensor;
  return "padding after " + (name.empty() ? "metadata" : tensor);
}

std::string GgufSegment::line() const {
  if (kind == Kind::kTensor) return fmt::format("tensor {} {} {}", bytes, type, name);
  return fmt::format("{} {}", kind_name(), bytes);
}

Sha256Digest GgufSegment::hash() const {
  const std::string text = line();
  Sha256 hash;
  hash.update(kSegment);
  hash.update(merkle_root(chunks));
  hash.update(std::as_bytes(std::span(text)));
  return hash.digest();
}

Sha256Digest GgufTree::root() const {
  std::vector<Sha256Digest> leaves;
  leaves.reserve(segments.size());
  for (const GgufSegment& segment : segments) leaves.push_back(segment.hash());
  return merkle_root(std::move(leaves));
}

Result<std::vector<GgufSegment>> gguf_segments(const MappedFile& file) {
  std::vector<GgufSegment> segments;
  for (std::size_t i = 0; i < file.parts().size(); ++i) {
    const MappedFile::Part& part = file.parts()[i];
    auto gguf = GgufFile::parse(part.bytes);
    if (!gguf.ok()) return in_file(std::move(gguf).error(), part.path);
    add_part(*gguf, i, part.bytes.size(), segments);
  }
  return segments;
}

void add_chunks(HashWork& work, const MappedFile& file, std::vector<GgufSegment>& segments) {
  for (GgufSegment& segment : segments) {
    const auto bytes = file.parts()[segment.part].bytes.subspan(
        static_cast<std::size_t>(segment.offset), static_cast<std::size_t>(segment.bytes));
    segment.chunks.resize((bytes.size() + kChunkBytes - 1) / kChunkBytes);
    for (std::size_t first = 0; first < segment.chunks.size(); first += kChunksOfJob) {
      const std::size_t begin = first * kChunkBytes;
      const auto piece =
          bytes.subspan(begin, std::min(kChunksOfJob * kChunkBytes, bytes.size() - begin));
      work.add(piece.size(), [&file, &segment, first, piece](const HashWork::Advance& advance) {
        for (std::size_t at = 0; at < piece.size(); at += kChunkBytes) {
          Sha256 chunk;
          chunk.update(kChunk);
          chunk.update(piece.subspan(at, std::min(kChunkBytes, piece.size() - at)));
          segment.chunks[first + at / kChunkBytes] = chunk.digest();
        }
        file.drop_pages(piece);
        advance(piece.size());
      });
    }
  }
}

}  // namespace llm
