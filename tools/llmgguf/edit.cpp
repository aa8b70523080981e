#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>

#include "base/file_lock.h"
#include "base/shown_text.h"
#include "tools/llmgguf/output.h"

namespace llm {
namespace {

constexpr std::size_t kMostTemplateBytes = std::size_t{16} << 20;  // GGUF's longest string here

/// Keys that say how the file is laid out; its writer sets them.
constexpr std::array<std::string_view, 4> kOfLayout = {"general.alignment", kSplitNo, kSplitCount,
                                                       kSplitTensors};

constexpr std::array<std::pair<std::string_view, GgufType>, 12> kTypes = {
    {{"u8", GgufType::kUint8},
     {"i8", GgufType::kInt8},
     {"u16", GgufType::kUint16},
     {"i16", GgufType::kInt16},
     {"u32", GgufType::kUint32},
     {"i32", GgufType::kInt32},
     {"u64", GgufType::kUint64},
     {"i64", GgufType::kInt64},
     {"f32", GgufType::kFloat32},
     {"f64", GgufType::kFloat64},
     {"bool", GgufType::kBool},
     {"str", GgufType::kString}}};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Error wrong_value(const std::string& text, std::string_view need) {
  return usage_error("VALUE", fmt::format("found \"{}\", need {}", shown(text), need));
}

template <typename T>
Result<std::vector<std::byte>> encode_integer(const std::string& text) {
  T number{};
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || rest != text.data() + text.size())
    return wrong_value(text, fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(),
                                         std::numeric_limits<T>::max()));
  const auto bytes = std::as_bytes(std::span(&number, 1));
  return std::vector(bytes.begin(), bytes.end());
}

template <typename T>
Result<std::vector<std::byte>> encode_real(const std::string& text) {
  const auto real = parse_real(text);
  if (!real) return wrong_value(text, "a number");
  const T number = static_cast<T>(*real);
  const auto bytes = std::as_bytes(std::span(&number, 1));
  return std::vector(bytes.begin(), bytes.end());
}

/// The bytes of a value of that type.
Result<std::vector<std::byte>> encode(GgufType type, const std::string& text) {
  switch (type) {
    case GgufType::kUint8:
      return encode_integer<std::uint8_t>(text);
    case GgufType::kInt8:
      return encode_integer<std::int8_t>(text);
    case GgufType::kUint16:
      return encode_integer<std::uint16_t>(text);
    case GgufType::kInt16:
      return encode_integer<std::int16_t>(text);
    case GgufType::kUint32:
      return encode_integer<std::uint32_t>(text);
    case GgufType::kInt32:
      return encode_integer<std::int32_t>(text);
    case GgufType::kUint64:
      return encode_integer<std::uint64_t>(text);
    case GgufType::kInt64:
      return encode_integer<std::int64_t>(text);
    case GgufType::kFloat32:
      return encode_real<float>(text);
    case GgufType::kFloat64:
      return encode_real<double>(text);
    case GgufType::kBool:
      if (text != "true" && text != "false") return wrong_value(text, "true or false");
      return std::vector{std::byte{text == "true"}};
    default:
      return bytes_of(text);
  }
}

/// Overwrites bytes of the file in place. A reader that maps it sees them at once.
Status overwrite(const OpenGguf& source, std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::string& path = source.file.parts()[0].path;
  LLM_TRY(const FileLock lock, FileLock::take(path, FileLock::IfHeld::kFail));
  LLM_RETURN_IF_ERROR(source.file.check_unchanged());
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  const bool written =
      file >= 0 && ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset)) == size &&
      ::fsync(file) == 0;
  const int failure = errno;
  if (file >= 0) ::close(file);
  if (written) return Ok{};
  return in_file(Error{ErrorCode::kIo, "", std::generic_category().message(failure)}, path);
}

/// What a change makes of a file.
struct Change {
  std::string key;
  std::optional<GgufValue> value;  ///< nothing: the key is removed
};

/// Writes the file with the change: to --output; else over itself, in place where the value has the
/// old one's type and size.
Result<int> apply(const GgufArguments& arguments, const ToolContext& context,
                  const OpenGguf& source, const Change& change) {
  if (std::ranges::find(kOfLayout, change.key) != kOfLayout.end())
    return usage_error("KEY", fmt::format("found \"{}\", need a key that does not describe the "
                                          "layout of the file",
                                          change.key));
  if (source.file.parts().size() > 1)
    return usage_error("FILE", "found a split model, need one file", "llmgguf merge joins it");
  const GgufValue* old = source.gguf.find(change.key);
  const bool in_place = arguments.output.empty();
  if (in_place && old != nullptr && change.value && old->type == change.value->type &&
      old->bytes.size() == change.value->bytes.size()) {
    LLM_RETURN_IF_ERROR(overwrite(source, old->offset, change.value->bytes));
    return 0;
  }
  if (!in_place)
    LLM_RETURN_IF_ERROR(check_new_output("--output", arguments.output, source, arguments.force));
  GgufOutput out{{}, source.gguf.tensors()};
  for (const GgufEntry& entry : source.gguf.entries()) {
    if (entry.key != change.key) {
      out.entries.push_back(entry);
    } else if (change.value) {
      out.entries.push_back({change.key, *change.value});
    }
  }
  if (old == nullptr) out.entries.push_back({change.key, *change.value});
  ProgressBar progress(!context.quiet(), "tensors");
  LLM_TRY(WrittenFile written,
          write_gguf(source, out, in_place ? arguments.file : arguments.output, progress));
  LLM_RETURN_IF_ERROR(written.file.commit());
  progress.clear();
  if (!in_place) LLM_RETURN_IF_ERROR(write_stdout(written.text()));
  return 0;
}

Error no_key(const OpenGguf& source, const std::string& key, std::string more) {
  std::vector<std::string> keys;
  for (const GgufEntry& entry : source.gguf.entries()) keys.emplace_back(entry.key);
  std::string hint = nearest_hint(key, keys);
  return usage_error("KEY", fmt::format("found \"{}\", need a key of the file", shown(key)),
                     hint.empty() ? std::move(more) : std::move(hint));
}

}  // namespace

Result<int> set_key(const GgufArguments& arguments, const ToolContext& context) {
  const bool sets_template = !arguments.chat_template.empty();
  if (sets_template != arguments.other_file.empty() || sets_template != arguments.third.empty())
    return usage_error("KEY", "need KEY and VALUE, or --chat-template FILE");
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  const std::string key = sets_template ? "tokenizer.chat_template" : arguments.other_file;
  const GgufValue* old = source.gguf.find(key);
  const GgufType type = old != nullptr && !sets_template ? old->type : GgufType::kString;
  if (old == nullptr && !sets_template) return no_key(source, key, "llmgguf add adds one");
  if (type == GgufType::kArray)
    return usage_error("KEY", fmt::format("found \"{}\", an array, need a single value", key));
  std::string text = arguments.third;
  if (sets_template) {
    LLM_TRY(text, read_text_file(arguments.chat_template, kMostTemplateBytes));
  }
  LLM_TRY(const std::vector<std::byte> bytes, encode(type, text));
  return apply(arguments, context, source, {key, GgufValue{type, type, 1, bytes, 0}});
}

Result<int> add_key(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  if (source.gguf.find(arguments.other_file) != nullptr)
    return usage_error(
        "KEY",
        fmt::format("found \"{}\", which the file has, need a new key", arguments.other_file),
        "llmgguf set changes its value");
  const auto type =
      std::ranges::find(kTypes, arguments.type, &std::pair<std::string_view, GgufType>::first);
  if (type == kTypes.end())
    return usage_error("--type", fmt::format("found \"{}\", need u8 to u64, i8 to i64, f32, f64, "
                                             "bool or str",
                                             arguments.type));
  LLM_TRY(const std::vector<std::byte> bytes, encode(type->second, arguments.third));
  return apply(arguments, context, source,
               {arguments.other_file, GgufValue{type->second, type->second, 1, bytes, 0}});
}

Result<int> remove_key(const GgufArguments& arguments, const ToolContext& context) {
  LLM_TRY(const OpenGguf source, open_gguf(arguments.file));
  if (source.gguf.find(arguments.other_file) == nullptr)
    return no_key(source, arguments.other_file, "llmgguf show lists them");
  return apply(arguments, context, source, {arguments.other_file, std::nullopt});
}

}  // namespace llm
