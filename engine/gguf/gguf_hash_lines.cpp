#include "engine/gguf/gguf_hash_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/shown_text.h"

namespace llm {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;

void update_in_pieces(AnyHash& hash, const MappedFile& file, std::span<const std::byte> bytes,
                      const HashWork::Advance& advance) {
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    hash.update(piece);
    file.drop_pages(piece);
    advance(piece.size());
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

/// The characters up to white space, which are cut off with it.
std::string_view cut_word(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

bool is_hex(std::string_view word) {
  return word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// A line whose name is not yet cut into file and tensor.
struct RawLine {
  GgufHashLine line;
  std::string_view name;
  std::size_t number;
};

Error line_error(ErrorCode code, std::size_t number, std::string message) {
  return Error{
      .code = code, .field = fmt::format("line {}", number), .message = std::move(message)};
}

Result<RawLine> read_line(std::string_view text, std::size_t number) {
  const std::string_view kind_name = cut_word(text);
  const std::string_view hex = cut_word(text);
  const auto kind = hash_kind_from_name(kind_name);
  if (!kind && kind_name == "uuid") {
    return line_error(ErrorCode::kUnsupported, number,
                      "found a uuid, which is no hash of gguf-hash's lists, need sha256, sha1, "
                      "xxh64 or xxh3");
  }
  if (!kind) {
    return line_error(ErrorCode::kMalformed, number,
                      fmt::format("found {}, need sha256, sha1, xxh64 or xxh3 (or a manifest that "
                                  "begins with \"gguf-tree 1\")",
                                  shown(std::string(kind_name.substr(0, 40)))));
  }
  if (hex.size() != hash_kind_digits(*kind) || !is_hex(hex)) {
    return line_error(ErrorCode::kMalformed, number,
                      fmt::format("found {} of {} characters, need {} lower-case hex digits",
                                  kind_name, hex.size(), hash_kind_digits(*kind)));
  }
  if (text.empty())
    return line_error(ErrorCode::kMalformed, number, "found no name, need FILE or FILE:TENSOR");
  return RawLine{{.kind = *kind, .tensor = {}, .hex = std::string(hex)}, text, number};
}

}  // namespace

std::string GgufHashLine::title() const {
  const std::string_view name = hash_kind_name(kind);
  if (tensor.empty()) return fmt::format("{} of all tensors", name);
  return fmt::format("{} of tensor \"{}\"", name, tensor);
}

std::string GgufHashLines::text(std::string_view file) const {
  std::string text;
  for (const GgufHashLine& line : lines) {
    text += fmt::format("{:<8}  {}  {}{}{}\n", hash_kind_name(line.kind), line.hex, file,
                        line.tensor.empty() ? "" : ":", line.tensor);
  }
  return text;
}

Result<GgufHashLines> GgufHashLines::parse(std::string_view text) {
  std::vector<RawLine> raw;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    LLM_TRY(RawLine read, read_line(line, number));
    raw.push_back(std::move(read));
  }
  if (raw.empty())
    return line_error(ErrorCode::kMalformed, 1, "found nothing, need lines of gguf-hash");
  // The file's own name may have colons: it is the one that begins all others.
  const std::string_view file =
      std::ranges::min(raw, {}, [](const RawLine& line) { return line.name.size(); }).name;
  GgufHashLines lines;
  std::set<std::pair<HashKind, std::string_view>> seen;
  for (RawLine& line : raw) {
    const bool has_tensor = line.name.size() > file.size() + 1;
    if (!line.name.starts_with(file) || (line.name != file && !has_tensor) ||
        (has_tensor && line.name[file.size()] != ':')) {
      return line_error(ErrorCode::kMalformed, line.number,
                        fmt::format("found {}, need {} and a tensor: one file, and the line of "
                                    "all its tensors",
                                    shown(std::string(line.name)), shown(std::string(file) + ":")));
    }
    if (!seen.emplace(line.line.kind, line.name).second) {
      return line_error(ErrorCode::kMalformed, line.number,
                        fmt::format("found {} of {} twice, need one",
                                    hash_kind_name(line.line.kind), shown(std::string(line.name))));
    }
    if (has_tensor) line.line.tensor = line.name.substr(file.size() + 1);
    lines.lines.push_back(std::move(line.line));
  }
  return lines;
}

Result<GgufHashLines> hash_lines(const MappedFile& file, const GgufFile& gguf,
                                 std::span<const HashKind> kinds, const Hashing& hashing) {
  const auto& tensors = gguf.tensors();
  std::uint64_t data = 0;
  for (const GgufTensor& tensor : tensors) data += tensor.n_bytes;
  GgufHashLines result;
  auto& lines = result.lines;
  lines.resize((tensors.size() + 1) * kinds.size());
  HashWork work;
  // The hash of all tensors takes longest.
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    GgufHashLine& line = lines[tensors.size() * kinds.size() + k];
    line.kind = kinds[k];
    work.add(data, [&](const HashWork::Advance& advance) {
      AnyHash hash(line.kind);
      for (const GgufTensor& tensor : tensors)
        update_in_pieces(hash, file, gguf.tensor_data(tensor), advance);
      line.hex = hash.hex();
    });
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      GgufHashLine& line = lines[t * kinds.size() + k];
      line.kind = kinds[k];
      line.tensor = tensors[t].name;
      work.add(tensors[t].n_bytes, [&, t](const HashWork::Advance& advance) {
        AnyHash hash(line.kind);
        update_in_pieces(hash, file, gguf.tensor_data(tensors[t]), advance);
        line.hex = hash.hex();
      });
    }
  }
  LLM_RETURN_IF_ERROR(work.run(hashing));
  return result;
}

}  // namespace llm
