// The text form of a tree: docs/manifest.md.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/checked_size.h"
#include "base/hex.h"
#include "engine/gguf/gguf_limits.h"
#include "engine/gguf/gguf_tree.h"
#include "quant/formats/block_traits.h"

namespace llm {
namespace {

constexpr std::string_view kFormat = "gguf-tree ";
constexpr std::string_view kVersion = "1";
constexpr std::uint64_t kMaxBytes = INT64_MAX;  // of all segments

/// The text up to `end`, which is cut off with it; nothing where there is no `end`.
std::optional<std::string_view> cut(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at + 1);
  return word;
}

/// 1 to 2^63 - 1 as fmt writes it.
std::optional<std::uint64_t> read_number(std::string_view word) {
  std::uint64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || rest != end || value == 0 || value > kMaxBytes) return std::nullopt;
  return word.front() == '0' ? std::nullopt : std::optional(value);
}

std::optional<Sha256Digest> read_digest(std::string_view word) {
  Sha256Digest digest{};
  if (word.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const auto byte = hex_byte(word.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    digest[i] = std::byte{*byte};
  }
  return hex_text(digest) == word ? std::optional(digest) : std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : whole_(text), rest_(text) {}

  Result<GgufTree> run() {
    LLM_RETURN_IF_ERROR(next_line());
    if (line_ != fmt::format("{}{}", kFormat, kVersion)) return wrong_version();
    LLM_RETURN_IF_ERROR(next_line());
    constexpr std::string_view kRoot = "root ";
    const auto root = line_.starts_with(kRoot) ? read_digest(line_.substr(kRoot.size()))
                                               : std::optional<Sha256Digest>();
    if (!root) return error("need \"root \" and 64 lower-case hex digits");
    const std::uint64_t root_offset = offset_;
    while (!rest_.empty()) LLM_RETURN_IF_ERROR(read_segment());
    if (tree_.segments.empty()) return error("found no segment after it, need metadata");
    if (tree_.root() == *root) return std::move(tree_);
    return Error{ErrorCode::kMalformed, "root",
                 fmt::format("found {}, need {}, which the lines below it give", hex_text(*root),
                             hex_text(tree_.root())),
                 root_offset};
  }

 private:
  Error error(std::string message) const {
    return Error{ErrorCode::kMalformed, fmt::format("line {}", number_), std::move(message),
                 offset_};
  }

  Error wrong_version() const {
    Error wrong =
        error(fmt::format("found \"{}\", need \"{}{}\"", line_.substr(0, 40), kFormat, kVersion));
    if (line_.starts_with(kFormat)) wrong.code = ErrorCode::kUnsupported;
    return wrong;
  }

  Status next_line() {
    ++number_;
    offset_ = whole_.size() - rest_.size();
    const auto line = cut(rest_, '\n');
    if (!line) return error("found the end of the text, need a line and its line feed");
    line_ = *line;
    return Ok{};
  }

  Status read_segment() {
    LLM_RETURN_IF_ERROR(next_line());
    GgufSegment segment;
    std::string_view words = line_;
    const auto kind = cut(words, ' ');
    if (kind == "tensor") {
      segment.kind = GgufSegment::Kind::kTensor;
      const auto bytes = cut(words, ' ');
      LLM_RETURN_IF_ERROR(read_bytes(bytes.value_or(""), segment));
      LLM_RETURN_IF_ERROR(read_tensor(words, segment));
    } else if (kind == "metadata" || kind == "padding") {
      if (kind == "padding") segment.kind = GgufSegment::Kind::kPadding;
      LLM_RETURN_IF_ERROR(read_bytes(words, segment));
    } else {
      return error("need \"metadata\", \"tensor\" or \"padding\"");
    }
    LLM_RETURN_IF_ERROR(place(segment));
    LLM_RETURN_IF_ERROR(read_chunks(segment));
    tree_.segments.push_back(std::move(segment));
    return Ok{};
  }

  Status read_bytes(std::string_view word, GgufSegment& segment) {
    const auto bytes = read_number(word);
    if (!bytes) {
      return error(
          fmt::format("found \"{}\" bytes, need a number from 1 to 2^63 - 1", word.substr(0, 40)));
    }
    if (kMaxBytes - total_ < *bytes) return error("need a sum of bytes below 2^63");
    total_ += *bytes;
    segment.bytes = *bytes;
    return Ok{};
  }

  /// "Q4_K 256x32 NAME".
  Status read_tensor(std::string_view words, GgufSegment& segment) {
    const std::string_view all = words;
    const auto type_name = cut(words, ' ');
    const auto dims = cut(words, ' ');
    if (!dims) return error("need bytes, type, dims and name");
    const auto type = weight_type_from_name(*type_name);
    if (!type || block_traits(*type).name != *type_name) {
      Error unknown = error(fmt::format("found the type \"{}\", need one that is read here",
                                        type_name->substr(0, 40)));
      unknown.code = ErrorCode::kUnsupported;
      return unknown;
    }
    const bool good_name = !words.empty() && words.size() <= GgufLimits::kMaxTensorNameBytes &&
                           is_printable_ascii(words);
    if (!good_name) return error("need a name of 1 to 63 printable ASCII characters");
    if (!names_.insert(words).second)
      return error(fmt::format("found the tensor \"{}\" twice, need unique names", words));
    segment.type = all.substr(0, type_name->size() + 1 + dims->size());
    segment.name = words;
    return check_size(block_traits(*type), *dims, segment);
  }

  Status check_size(const BlockTraits& traits, std::string_view dims, const GgufSegment& segment) {
    CheckedSize bytes(traits.block_bytes);
    std::size_t n_dims = 0;
    for (std::string_view rest = dims; !rest.empty() || n_dims == 0; ++n_dims) {
      const std::string_view word = rest.substr(0, rest.find('x'));
      const bool last = word.size() == rest.size();
      rest.remove_prefix(word.size() + (last ? 0 : 1));
      const auto dim = read_number(word);
      const std::uint64_t block = n_dims == 0 ? traits.block_weights : 1;
      if (!dim || *dim % block != 0 || n_dims == GgufLimits::kMaxDims || (rest.empty() && !last))
        return error(
            fmt::format("found dims \"{}\", need 1 to 4 of {}", dims.substr(0, 100), traits.name));
      bytes = bytes * (*dim / block);
    }
    if (bytes.value() == segment.bytes) return Ok{};
    return error(fmt::format("found {} bytes, need those of {}", segment.bytes, segment.type));
  }

  /// Where the segment is: after the one before it.
  Status place(GgufSegment& segment) const {
    const auto& segments = tree_.segments;
    if (segment.kind == GgufSegment::Kind::kMetadata) {
      segment.part = tree_.n_parts();
      return Ok{};
    }
    if (segments.empty()) return error("need metadata first");
    const GgufSegment& before = segments.back();
    if (segment.kind == GgufSegment::Kind::kPadding) {
      if (before.kind == GgufSegment::Kind::kPadding) return error("found padding twice, need one");
      segment.name = before.name;
    }
    segment.part = before.part;
    segment.offset = before.offset + before.bytes;
    return Ok{};
  }

  Status read_chunks(GgufSegment& segment) {
    constexpr std::uint64_t kLine = 2 * sizeof(Sha256Digest) + 1;
    const std::uint64_t n = (segment.bytes - 1) / GgufTree::kChunkBytes + 1;
    if (n > rest_.size() / kLine) {
      return error(
          fmt::format("need {} hashes of its chunks, found {} bytes of text", n, rest_.size()));
    }
    segment.chunks.reserve(static_cast<std::size_t>(n));
    for (std::uint64_t i = 0; i < n; ++i) {
      LLM_RETURN_IF_ERROR(next_line());
      const auto digest = read_digest(line_);
      if (!digest)
        return error(fmt::format("need the hash of chunk {}: 64 lower-case hex digits", i));
      segment.chunks.push_back(*digest);
    }
    return Ok{};
  }

  std::string_view whole_;
  std::string_view rest_;
  std::string_view line_;
  std::uint64_t number_ = 0;  ///< of line_, from 1
  std::uint64_t offset_ = 0;  ///< of line_
  std::uint64_t total_ = 0;   ///< bytes of the segments
  std::set<std::string_view> names_;
  GgufTree tree_;
};

}  // namespace

Result<GgufTree> GgufTree::parse(std::string_view text) { return Parser(text).run(); }

std::string GgufTree::text() const {
  std::string text = fmt::format("{}{}\nroot {}\n", kFormat, kVersion, hex_text(root()));
  for (const GgufSegment& segment : segments) {
    text += segment.line() + "\n";
    for (const Sha256Digest& chunk : segment.chunks) text += hex_text(chunk) + "\n";
  }
  return text;
}

}  // namespace llm
