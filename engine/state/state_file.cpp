#include "engine/state/state_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/atomic_file.h"
#include "base/byte_reader.h"
#include "base/hex.h"
#include "base/mapped_file.h"
#include "engine/state/kv_groups.h"

namespace llm {
namespace {

constexpr std::string_view kMagic = "LLMSTATE";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 8 + 5 * 4 + sizeof(Prefix);
constexpr std::size_t kSectionBytes = 8 + sizeof(Sha256Digest);
constexpr std::size_t kMostGroups = 4096;

Sha256Digest sha256_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.digest();
}

std::size_t head_bytes(const StateHead& head) {
  return kFixedBytes + head.tokens.size() * sizeof(TokenId) + head.sections.size() * kSectionBytes +
         sizeof(Sha256Digest);
}

class HeadWriter {
 public:
  template <typename T>
  void add(const T& value) {
    add_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void add_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> bytes_;
};

std::vector<std::byte> encoded(const StateHead& head) {
  HeadWriter out;
  out.add_bytes(std::as_bytes(std::span(kMagic)));
  out.add(kVersion);
  out.add(static_cast<std::uint32_t>(head.sections.size()));
  out.add(head.page);
  out.add(head.first);
  out.add(static_cast<std::uint32_t>(head.tokens.size()));
  out.add(head.parent);
  out.add_bytes(std::as_bytes(std::span(head.tokens)));
  for (const StateHead::Section& section : head.sections) {
    out.add(section.n_bytes);
    out.add(section.sha256);
  }
  out.add(sha256_of(out.bytes_));
  return std::move(out.bytes_);
}

/// A head without its tokens and sections, of which it has as many as it says.
Result<StateHead> parse_sizes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.read_bytes(kMagic.size(), "magic");
  if (!reader.ok() || !std::ranges::equal(magic, std::as_bytes(std::span(kMagic))))
    return malformed("", "found a file that is not a KV cache, need one");
  const auto version = reader.read<std::uint32_t>("version");
  if (reader.ok() && version != kVersion)
    return Error{ErrorCode::kUnsupported, "version",
                 fmt::format("found {}, need {}", version, kVersion)};
  const auto n_groups = reader.read<std::uint32_t>("groups");
  StateHead head;
  head.page = reader.read<std::uint32_t>("page");
  head.first = reader.read<std::uint32_t>("first");
  const auto n_tokens = reader.read<std::uint32_t>("tokens");
  const auto parent = reader.read_bytes(sizeof(Prefix), "parent");
  if (!reader.ok()) return reader.error();
  if (n_tokens > KvGroups::kPagePositions || head.first > n_tokens || n_groups > kMostGroups)
    return malformed("head",
                     fmt::format("found {} groups, positions {}..{}, need at most {}, {}", n_groups,
                                 head.first, n_tokens, kMostGroups, KvGroups::kPagePositions));
  std::memcpy(head.parent.data(), parent.data(), parent.size());
  head.tokens.resize(n_tokens);
  head.sections.resize(n_groups);
  return head;
}

Result<StateHead> read_head(const MappedFile& file) {
  const auto bytes_of = [&](std::size_t size) -> Result<std::vector<std::byte>> {
    std::vector<std::byte> bytes(std::min(size, file.bytes().size()));
    LLM_RETURN_IF_ERROR(file.read(file.bytes().first(bytes.size()), bytes));
    return bytes;
  };
  LLM_TRY(const auto fixed, bytes_of(kFixedBytes));
  LLM_TRY(const StateHead sizes, parse_sizes(fixed));
  LLM_TRY(const auto all, bytes_of(head_bytes(sizes)));
  return parse_state_head(all, file.bytes().size());
}

}  // namespace

std::string StateHead::file_name() const {
  Sha256 hash;
  hash.update(parent);
  hash.update(std::as_bytes(std::span(&first, 1)));
  hash.update(std::as_bytes(std::span(tokens)));
  for (const Section& section : sections)
    hash.update(std::as_bytes(std::span(&section.n_bytes, 1)));
  return hash.hex().substr(0, 40) + std::string(kStateSuffix);
}

std::uint64_t StateHead::file_bytes() const {
  std::uint64_t n = head_bytes(*this);
  // Sums that overflow are no file's size: each section is bounded by it.
  for (const Section& section : sections) {
    if (section.n_bytes > UINT64_MAX / 2 - n) return UINT64_MAX;
    n += section.n_bytes;
  }
  return n;
}

Result<StateHead> parse_state_head(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  LLM_TRY(StateHead head, parse_sizes(bytes));
  ByteReader rest(bytes.subspan(kFixedBytes));
  const auto ids = rest.read_bytes(head.tokens.size() * sizeof(TokenId), "tokens");
  if (!ids.empty()) std::memcpy(head.tokens.data(), ids.data(), ids.size());
  for (StateHead::Section& section : head.sections) {
    section.n_bytes = rest.read<std::uint64_t>("section");
    const auto hash = rest.read_bytes(sizeof(Sha256Digest), "section");
    if (!hash.empty()) std::memcpy(section.sha256.data(), hash.data(), hash.size());
  }
  rest.read_bytes(sizeof(Sha256Digest), "SHA-256");
  if (!rest.ok()) return rest.error();
  if (!std::ranges::equal(encoded(head), bytes))
    return malformed("SHA-256", "found a header with a wrong hash");
  if (head.file_bytes() != file_bytes)
    return malformed("file size",
                     fmt::format("found {} bytes, need {}", file_bytes, head.file_bytes()));
  return head;
}

Status write_state_file(const std::string& path, StateHead& head,
                        std::span<const std::vector<std::byte>> sections) {
  for (std::size_t i = 0; i < sections.size(); ++i)
    head.sections[i] = {sections[i].size(), sha256_of(sections[i])};
  LLM_TRY(AtomicFile file,
          AtomicFile::create(path, AtomicFile::Unnamed::kIfPossible, AtomicFile::Target::kPlain));
  LLM_RETURN_IF_ERROR(file.write(encoded(head)));
  for (const auto& section : sections) LLM_RETURN_IF_ERROR(file.write(section));
  return file.commit();
}

Result<StateHead> read_state_head(const std::string& path) {
  LLM_TRY(const MappedFile file, MappedFile::open(path, MappedFile::Writer::kOwner));
  auto head = read_head(file);
  if (!head.ok()) return in_file(head.error(), path);
  return head;
}

Result<std::vector<std::vector<std::byte>>> read_state_sections(const std::string& path,
                                                                const StateHead& head,
                                                                const std::vector<bool>& wanted) {
  LLM_TRY(const MappedFile file, MappedFile::open(path, MappedFile::Writer::kOwner));
  const auto there = read_head(file);
  if (!there.ok()) return in_file(there.error(), path);
  if (encoded(*there) != encoded(head))
    return in_file(malformed("head", "found a different one from when the cache was opened"), path);
  std::vector<std::vector<std::byte>> sections(head.sections.size());
  std::size_t at = head_bytes(head);
  for (std::size_t i = 0; i < sections.size(); at += head.sections[i++].n_bytes) {
    if (!wanted[i]) continue;
    sections[i].resize(head.sections[i].n_bytes);
    LLM_RETURN_IF_ERROR(file.read(file.bytes().subspan(at, sections[i].size()), sections[i]));
    if (sha256_of(sections[i]) != head.sections[i].sha256)
      return in_file(malformed("SHA-256", fmt::format("found different bytes in group {}", i)),
                     path);
  }
  return sections;
}

}  // namespace llm
