#include "engine/gguf/gguf_split.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace llm {
namespace {

bool is_split_key(std::string_view key) {
  return key == kSplitNo || key == kSplitCount || key == kSplitTensors;
}

/// A number of a split file, signed or not: the program that makes them uses UINT16 and INT32.
Result<std::uint64_t> split_number(const GgufFile& gguf, std::string_view key) {
  const GgufValue* value = gguf.find(key);
  if (value == nullptr || gguf_fixed_size(value->type) == 0) return gguf.get_unsigned(key);
  std::optional<std::int64_t> number;  // nothing: no signed integer
  visit_gguf_number(value->type, value->bytes, [&](auto found) {
    if constexpr (std::is_same_v<decltype(found), std::int64_t>) number = found;
  });
  if (!number) return gguf.get_unsigned(key);
  if (*number >= 0) return static_cast<std::uint64_t>(*number);
  return gguf.value_error(ErrorCode::kMalformed, key,
                          fmt::format("found {}, need 0 or more", *number));
}

Error unnamed_part(const GgufFile& gguf, const std::string& path, std::uint64_t count) {
  Error error = gguf.value_error(
      ErrorCode::kUnsupported, kSplitCount,
      fmt::format(
          "found {} parts in a file with a wrong name, need {} and so on: {} missing part{}", count,
          split_path("NAME", 0, count), count - 1, count == 2 ? "" : "s"));
  error.file = path;
  error.hint = "rename the parts to their original names";
  return error;
}

Status check_part(const GgufFile& part, const GgufFile& first, std::uint64_t index,
                  std::uint64_t count) {
  for (const auto& [key, expected] : {std::pair(kSplitNo, index), std::pair(kSplitCount, count)}) {
    LLM_TRY(const std::uint64_t found, split_number(part, key));
    if (found == expected) continue;
    return part.value_error(
        ErrorCode::kMalformed, key,
        fmt::format("found {}, need {}, as the file's name says", found, expected));
  }
  for (const GgufEntry& entry : part.entries()) {
    if (is_split_key(entry.key)) continue;
    const GgufValue* known = first.find(entry.key);
    const bool same = known != nullptr && known->type == entry.value.type &&
                      known->element_type == entry.value.element_type &&
                      std::ranges::equal(known->bytes, entry.value.bytes);
    if (same) continue;
    return part.value_error(ErrorCode::kMalformed, entry.key,
                            known == nullptr
                                ? "found a key that the first part does not have"
                                : "found a different value from that in the first part");
  }
  return Ok{};
}

}  // namespace

/// Puts the parts' tensors together.
class GgufJoiner {
 public:
  explicit GgufJoiner(const MappedFile& file) : file_(file) {}

  Result<GgufFile> run() {
    const std::uint64_t count = file_.parts().size();
    for (std::uint64_t i = 0; i < count; ++i) {
      const MappedFile::Part& place = file_.parts()[i];
      auto part = GgufFile::parse(place.bytes);
      if (!part.ok()) return in_file(std::move(part).error(), place.path);
      const Status checked = check_part(*part, i == 0 ? *part : parts_.front(), i, count);
      if (!checked.ok()) return in_file(checked.error(), place.path);
      parts_.push_back(std::move(part).value());
    }
    return join();
  }

 private:
  Result<GgufFile> join() {
    GgufFile joined = std::move(parts_.front());
    const std::byte* const base = file_.bytes().data();
    joined.bytes_ = file_.bytes();
    joined.file_bytes_ = file_.file_bytes();
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      const auto begin = static_cast<std::uint64_t>(parts_[i].bytes_.data() - base);
      for (GgufTensor tensor : parts_[i].tensors_) {
        tensor.offset += begin + parts_[i].data_offset_ - joined.data_offset_;
        tensor.info_offset += begin;
        joined.tensors_.push_back(tensor);
      }
      joined.trailing_bytes_ += parts_[i].trailing_bytes_;
    }
    auto indexed = joined.index_tensors();
    if (!indexed.ok()) {
      Error error = std::move(indexed).error();
      const MappedFile::Part& part = file_.part_at(base + *error.offset);
      *error.offset -= static_cast<std::uint64_t>(part.bytes.data() - base);
      return in_file(std::move(error), part.path);
    }
    if (joined.find(kSplitTensors) != nullptr) {
      LLM_TRY(const std::uint64_t promised, split_number(joined, kSplitTensors));
      if (promised != joined.tensors_.size()) {
        return in_file(
            joined.value_error(ErrorCode::kMalformed, kSplitTensors,
                               fmt::format("found {}, need {}, as many as all parts have", promised,
                                           joined.tensors_.size())),
            file_.path());
      }
    }
    std::deque<GgufEntry> kept;
    for (const GgufEntry& entry : joined.entries_)
      if (!is_split_key(entry.key)) kept.push_back(entry);
    return joined.with_entries(std::move(kept));
  }

  const MappedFile& file_;
  std::vector<GgufFile> parts_;
};

std::string split_path(std::string_view name, std::uint64_t index, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name, index + 1, count);
}

std::optional<SplitPath> parse_split_path(std::string_view path) {
  constexpr std::string_view kEnding = "-00001-of-00002.gguf";
  if (path.size() <= kEnding.size()) return std::nullopt;
  SplitPath part{.name = path.substr(0, path.size() - kEnding.size()), .index = 0, .count = 0};
  const std::string_view ending = path.substr(part.name.size());
  std::uint64_t number = 0;  // from 1
  for (const auto& [at, value] : {std::pair(1, &number), std::pair(10, &part.count)}) {
    const char* const digits = ending.data() + at;
    if (std::from_chars(digits, digits + 5, *value).ptr != digits + 5) return std::nullopt;
  }
  part.index = number - 1;
  if (number == 0 || number > part.count) return std::nullopt;
  if (split_path(part.name, part.index, part.count) != path) return std::nullopt;
  return part;
}

Result<OpenGguf> open_gguf_file(const std::string& path) {
  std::uint64_t count = 1;
  {
    LLM_TRY(MappedFile file, MappedFile::open(path));
    auto gguf = GgufFile::parse(file.bytes());
    if (!gguf.ok()) return in_file(std::move(gguf).error(), path);
    if (gguf->find(kSplitCount) != nullptr) {
      auto found = split_number(*gguf, kSplitCount);
      if (!found.ok()) return in_file(std::move(found).error(), path);
      count = *found;
    }
    if (count <= 1) return OpenGguf{std::move(file), std::move(gguf).value()};
    const auto named = parse_split_path(path);
    if (count > GgufLimits::kMaxParts || !named || named->count != count)
      return unnamed_part(*gguf, path, count);
  }
  const std::string_view name = parse_split_path(path)->name;
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < count; ++i) {
    paths.push_back(split_path(name, i, count));
    if (::access(paths.back().c_str(), F_OK) == 0) continue;
    return Error{
        .code = ErrorCode::kUnsupported,
        .field = std::string(kSplitCount),
        .message = fmt::format("found {} parts, missing part {}: {}", count, i + 1, paths.back()),
        .file = path,
        .hint = "put all parts into one folder"};
  }
  LLM_TRY(MappedFile file, MappedFile::open_all(paths));
  LLM_TRY(GgufFile gguf, GgufJoiner(file).run());
  return OpenGguf{std::move(file), std::move(gguf)};
}

}  // namespace llm
