#include "validate/reference/npz/npy.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked_size.h"

namespace llm {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDimensions = 32;

struct TypeRow {
  NpyType type;
  std::string_view name;
  std::size_t size;
};
constexpr TypeRow kTypes[] = {{NpyType::kF16, "f2", 2}, {NpyType::kF32, "f4", 4},
                              {NpyType::kF64, "f8", 8}, {NpyType::kI32, "i4", 4},
                              {NpyType::kI64, "i8", 8}, {NpyType::kU8, "u1", 1}};

const TypeRow& row_of(NpyType type) { return *std::ranges::find(kTypes, type, &TypeRow::type); }

Error bad_member(std::string_view member, std::string_view field, std::string message) {
  return Error{ErrorCode::kMalformed, fmt::format("{} {}", member, field), std::move(message)};
}

// The few forms a header's Python literal may take. Anything else leaves ok() false.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  bool string(std::string_view& out) {
    skip_blanks();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const auto end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out.find('\\') == std::string_view::npos;
  }

  /// Digits only; no sign, at most 19 of them so that the value fits.
  bool natural(std::uint64_t& out) {
    skip_blanks();
    const auto begin = at_;
    out = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - begin < 19)
      out = out * 10 + static_cast<std::uint64_t>(text_[at_++] - '0');
    return at_ > begin && (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9');
  }

  std::string_view rest() {
    skip_blanks();
    return text_.substr(at_, 24);
  }
  bool at_end() { return rest().empty(); }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Status parse_descr(std::string_view descr, std::string_view member, NpyHeader& out) {
  const std::string_view order = descr.substr(0, 1);
  const std::string_view name = descr.substr(std::min<std::size_t>(1, descr.size()));
  if (name == "O" || name == "O8") {
    return Error{
        .code = ErrorCode::kUnsupported,
        .field = fmt::format("{} descr", member),
        .message = "found object elements; they are a pickle, and a pickle is never loaded"};
  }
  const auto row = std::ranges::find(kTypes, name, &TypeRow::name);
  if (row == std::end(kTypes) || !(order == "<" || order == ">" || order == "|" || order == "=")) {
    return Error{
        ErrorCode::kUnsupported, fmt::format("{} descr", member),
        fmt::format("found element type '{}', need f2, f4, f8, i4, i8 or u1", descr.substr(0, 24))};
  }
  out.type = row->type;
  out.big_endian = order == ">";
  return Ok{};
}

Status parse_shape(LiteralReader& text, std::string_view member, NpyHeader& out) {
  const auto bad = [&] {
    return bad_member(member, "shape",
                      fmt::format("found \"{}\", need a tuple of dimensions from 0", text.rest()));
  };
  if (!text.accept("(")) return bad();
  bool comma = true;
  while (!text.accept(")")) {
    std::uint64_t dimension = 0;
    if (!comma || !text.natural(dimension)) return bad();
    out.shape.push_back(dimension);
    if (out.shape.size() > kMaxDimensions)
      return bad_member(member, "shape", fmt::format("more than {} dimensions", kMaxDimensions));
    comma = text.accept(",");
  }
  return Ok{};
}

Status parse_entry(LiteralReader& text, std::string_view key, std::string_view member,
                   NpyHeader& out) {
  if (key == "descr") {
    if (text.rest().starts_with("[")) {
      return Error{ErrorCode::kUnsupported, fmt::format("{} descr", member),
                   "found structured elements, need f2, f4, f8, i4, i8 or u1"};
    }
    std::string_view descr;
    if (!text.string(descr))
      return bad_member(member, "descr", fmt::format("found \"{}\", need a string", text.rest()));
    return parse_descr(descr, member, out);
  }
  if (key == "fortran_order") {
    out.fortran_order = text.accept("True");
    if (out.fortran_order || text.accept("False")) return Ok{};
    return bad_member(member, "fortran_order",
                      fmt::format("found \"{}\", need True or False", text.rest()));
  }
  if (key == "shape") return parse_shape(text, member, out);
  return bad_member(member, "header",
                    fmt::format("unknown key '{}', need descr, fortran_order, shape", key));
}

Status parse_dictionary(LiteralReader text, std::string_view member, NpyHeader& out) {
  const auto bad = [&] {
    return bad_member(member, "header",
                      fmt::format("found \"{}\", need a plain dictionary", text.rest()));
  };
  std::vector<std::string_view> seen;
  if (!text.accept("{")) return bad();
  bool comma = true;
  while (!text.accept("}")) {
    std::string_view key;
    if (!comma || !text.string(key) || !text.accept(":")) return bad();
    if (std::ranges::find(seen, key) != seen.end())
      return bad_member(member, "header", fmt::format("duplicate key '{}'", key));
    seen.push_back(key);
    LLM_RETURN_IF_ERROR(parse_entry(text, key, member, out));
    comma = text.accept(",");
  }
  if (!text.at_end()) return bad();
  if (seen.size() != 3)
    return bad_member(member, "header", "need the keys descr, fortran_order and shape");
  return Ok{};
}

}  // namespace

std::size_t npy_type_size(NpyType type) { return row_of(type).size; }
std::string_view npy_type_name(NpyType type) { return row_of(type).name; }

Result<std::size_t> npy_header_bytes(std::span<const std::byte> prefix, std::string_view member) {
  ByteReader reader(prefix);
  const auto magic = reader.read_bytes(kMagic.size(), "magic");
  const auto major = reader.read<std::uint8_t>("version");
  const auto minor = reader.read<std::uint8_t>("version");
  if (!reader.ok()) return bad_member(member, "magic", "shorter than an NPY header");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    return bad_member(member, "magic", "found other bytes than \\x93NUMPY");
  if (major < 1 || major > 3 || minor != 0) {
    return bad_member(member, "version",
                      fmt::format("found {}.{}, need 1.0, 2.0 or 3.0", major, minor));
  }
  const std::uint32_t length = major == 1 ? reader.read<std::uint16_t>("header_len")
                                          : reader.read<std::uint32_t>("header_len");
  if (!reader.ok()) return bad_member(member, "header_len", "cut off");
  if (length > kNpyMaxHeaderBytes) {
    return bad_member(member, "header_len",
                      fmt::format("found {}, need at most {}", length, kNpyMaxHeaderBytes));
  }
  return reader.offset() + length;
}

Result<NpyHeader> parse_npy_header(std::span<const std::byte> header, std::string_view member) {
  LLM_TRY(const std::size_t total,
          npy_header_bytes(header.first(std::min(header.size(), kNpyPrefixBytes)), member));
  if (header.size() < total) return bad_member(member, "header", "cut off");
  const std::size_t text_begin = header[kMagic.size()] == std::byte{1} ? 10 : 12;
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + text_begin,
                              total - text_begin);
  NpyHeader out;
  LLM_RETURN_IF_ERROR(parse_dictionary(LiteralReader(text), member, out));
  CheckedSize bytes(npy_type_size(out.type));
  for (const auto dimension : out.shape) bytes = bytes * dimension;
  if (!bytes.value())
    return bad_member(member, "shape", "element count overflows: the product exceeds 2^64 bytes");
  out.data_bytes = *bytes.value();
  return out;
}

std::string encode_npy_header(NpyType type, std::span<const std::uint64_t> shape) {
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': (",
                                 npy_type_size(type) == 1 ? '|' : '<', npy_type_name(type));
  for (const auto dimension : shape) text += fmt::format("{},", dimension);
  // (3,) needs its comma, (3, 4) must not end in one to look as NumPy writes it.
  if (shape.size() > 1) text.pop_back();
  text += "), }";
  constexpr std::size_t kFixed = 10;  // magic, version, u16 length
  const std::size_t padded = (kFixed + text.size() + 1 + 63) / 64 * 64;
  text.append(padded - kFixed - text.size() - 1, ' ');
  text += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\0';
  out += static_cast<char>(text.size() & 0xFFU);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

}  // namespace llm
