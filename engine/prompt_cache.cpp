#include "engine/prompt_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/atomic_file.h"
#include "base/byte_reader.h"
#include "base/check.h"
#include "base/checked_size.h"
#include "base/sha256.h"
#include "quant/contract/contract.h"

namespace llm {
namespace {

constexpr std::string_view kMagic = "LLMCACHE";
constexpr std::uint32_t kFormatVersion = 2;
constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kHashOffset = 8 + 4 + 8;  // magic, version, file size
constexpr std::size_t kHeaderBytes = kHashOffset + kHashDigits;
constexpr std::uint64_t kMaxNoteBytes = std::uint64_t{1} << 30;

std::string_view name(Compute compute) { return compute == Compute::kInt8 ? "int8" : "f32"; }

/// The first of `stored` positions whose keys and values a layer has in the file: from the page on
/// into which its window reaches, as a sequence keeps them (KvGroups::kept_from).
std::size_t first_stored(const Sequence& sequence, std::size_t layer, std::size_t stored) {
  const std::size_t window = sequence.model().config().layers[layer].window();
  return KvGroups::first_page(window, KvGroups::kept_from(stored)) * KvGroups::kPagePositions;
}

/// Appends to a file and hashes what is appended.
class HashedFile {
 public:
  explicit HashedFile(AtomicFile& file) : file_(file) {}

  Status bytes(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    return file_.write(bytes);
  }
  template <typename T>
  Status value(T value) {
    return bytes(std::as_bytes(std::span(&value, 1)));
  }
  Status text(std::string_view text) {
    LLM_RETURN_IF_ERROR(value(std::uint64_t{text.size()}));
    return bytes(std::as_bytes(std::span(text)));
  }
  std::string hex() const { return hash_.hex(); }

 private:
  AtomicFile& file_;
  Sha256 hash_;
};

Error differs(std::string_view what, std::string_view found, std::string_view need) {
  return Error{ErrorCode::kIntegrity, std::string(what),
               fmt::format("found {} in the cache, need {}", found, need)};
}

}  // namespace

CacheIdentity cache_identity(const Sequence& sequence, std::string model_sha256) {
  return {.model_sha256 = std::move(model_sha256),
          .kv = sequence.kv(),
          .compute = sequence.model().compute()};
}

Status PromptCache::write(const std::string& path, Sequence& sequence, std::size_t n_tokens,
                          const CacheIdentity& identity, std::string_view note, bool with_values,
                          FileLock* held) {
  LLM_CHECK(n_tokens <= sequence.position());
  // The file has no place for states: without them keys and values are of no use.
  with_values = with_values && !sequence.executor().pool().groups().has_states();
  const std::size_t stored = with_values ? n_tokens : 0;
  if (with_values) {
    sequence.truncate(n_tokens);
    LLM_RETURN_IF_ERROR(sequence.evaluate({}, LogitRows::kNone));
  }
  LLM_TRY(AtomicFile file, AtomicFile::create(path, AtomicFile::Unnamed::kIfPossible,
                                              AtomicFile::Target::kFollow, held));
  LLM_RETURN_IF_ERROR(file.write(std::vector<std::byte>(kHeaderBytes)));
  HashedFile content(file);
  LLM_RETURN_IF_ERROR(content.text(identity.model_sha256));
  LLM_RETURN_IF_ERROR(content.value(std::uint32_t{contract::kContractVersion}));
  LLM_RETURN_IF_ERROR(content.text(kv_name(identity.kv)));
  LLM_RETURN_IF_ERROR(content.text(name(identity.compute)));
  LLM_RETURN_IF_ERROR(content.text(note));
  LLM_RETURN_IF_ERROR(content.value(std::uint64_t{n_tokens}));
  LLM_RETURN_IF_ERROR(content.bytes(std::as_bytes(sequence.tokens().first(n_tokens))));
  LLM_RETURN_IF_ERROR(content.value(std::uint64_t{stored}));
  constexpr std::size_t kRowsAtOnce = 256;
  const KvPool& pool = sequence.executor().pool();
  std::vector<std::byte> rows;
  for (std::size_t layer = 0; layer < pool.groups().n_layers(); ++layer) {
    const std::size_t row = pool.row_bytes(layer);
    for (auto first = first_stored(sequence, layer, stored); first < stored; first += kRowsAtOnce) {
      rows.resize(std::min(kRowsAtOnce, stored - first) * 2 * row);
      std::span<std::byte> next = rows;
      for (std::size_t p = first; !next.empty(); ++p, next = next.subspan(2 * row))
        sequence.cache().load_raw(layer, p, next.first(row), next.subspan(row, row));
      LLM_RETURN_IF_ERROR(content.bytes(rows));
    }
  }
  std::string header(kMagic);
  const std::uint64_t size = file.size();
  header.append(reinterpret_cast<const char*>(&kFormatVersion), sizeof kFormatVersion);
  header.append(reinterpret_cast<const char*>(&size), sizeof size);
  header += content.hex();
  LLM_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(header))));
  return file.commit();
}

Result<PromptCache> PromptCache::open(const std::string& path) {
  LLM_TRY(MappedFile file, MappedFile::open(path));
  PromptCache cache(std::move(file));
  const Status parsed = cache.parse();
  if (!parsed.ok()) return in_file(parsed.error(), path);
  return cache;
}

Status PromptCache::parse() {
  const std::span<const std::byte> bytes = file_.bytes();
  const auto magic = std::as_bytes(std::span(kMagic));
  if (bytes.size() < magic.size() || !std::ranges::equal(bytes.first(magic.size()), magic)) {
    return malformed("", "found no prompt cache or session, need a file that llmrun saved");
  }
  ByteReader header(bytes.subspan(magic.size()));
  const auto version = header.read<std::uint32_t>("version");
  const auto size = header.read<std::uint64_t>("file size");
  const auto digits = header.read_bytes(kHashDigits, "SHA-256");
  if (!header.ok()) return header.error();
  if (version != kFormatVersion) {
    return Error{ErrorCode::kUnsupported, "version",
                 fmt::format("found {}, need {}", version, kFormatVersion)};
  }
  if (size != bytes.size()) {
    return malformed("file size", fmt::format("found {} bytes, need {}", bytes.size(), size));
  }
  const auto content = bytes.subspan(kHeaderBytes);
  const std::string hash = sha256_hex(content);
  if (!std::ranges::equal(digits, std::as_bytes(std::span(hash)))) {
    return malformed("SHA-256", fmt::format("found {}, which is not what the file names", hash));
  }

  // A hash proves no good will: every size is compared with what is there before it is used.
  ByteReader reader(content);
  identity_.model_sha256 = reader.read_string(kHashDigits, "model");
  contract_ = reader.read<std::uint32_t>("contract");
  const std::string_view kv = reader.read_string(8, "kv");
  const std::string_view compute = reader.read_string(8, "compute");
  note_ = reader.read_string(kMaxNoteBytes, "note");
  const auto n_tokens = reader.read<std::uint64_t>("tokens");
  const auto id_bytes = (CheckedSize(n_tokens) * sizeof(TokenId)).value();
  const auto ids = reader.read_bytes(id_bytes.value_or(UINT64_MAX), "tokens");
  const auto stored = reader.read<std::uint64_t>("stored");
  if (!reader.ok()) return reader.error();
  if (stored > n_tokens)
    return malformed("stored", fmt::format("found {}, need at most {} tokens", stored, n_tokens));
  const auto type = kv_from_name(kv);
  if (type) identity_.kv = *type;
  for (const Compute kind : {Compute::kInt8, Compute::kF32}) {
    if (compute == name(kind)) identity_.compute = kind;
  }
  if (!type || compute != name(identity_.compute))
    return malformed("kv, compute", "found unknown names, need f16, f32 or q8, int8 or f32");
  tokens_.resize(n_tokens);
  if (!ids.empty()) std::memcpy(tokens_.data(), ids.data(), ids.size());
  stored_ = stored;
  values_ = content.subspan(reader.offset());
  return Ok{};
}

Status PromptCache::check(const CacheIdentity& identity) const {
  const auto check = [this, &identity]() -> Status {
    if (identity_.model_sha256 != identity.model_sha256)
      return differs("model", "SHA-256 " + identity_.model_sha256, identity.model_sha256);
    if (contract_ != contract::kContractVersion)
      return differs("numeric contract", fmt::format("version {}", contract_),
                     fmt::format("version {}", contract::kContractVersion));
    if (identity_.kv != identity.kv)
      return differs("--kv", kv_name(identity_.kv), kv_name(identity.kv));
    if (identity_.compute != identity.compute)
      return differs("--compute", name(identity_.compute), name(identity.compute));
    return Ok{};
  };
  const Status status = check();
  return status.ok() ? status : Status(in_file(status.error(), file_.path()));
}

Status PromptCache::check_scales(const KvLayout& layout, std::span<const std::byte> heads) const {
  if (layout.type != KvType::kQ8) return Ok{};
  for (auto head = heads; !head.empty(); head = head.subspan(layout.row_bytes())) {
    for (std::size_t at = layout.head_dim; at < layout.row_bytes(); at += sizeof(float)) {
      float scale;
      std::memcpy(&scale, &head[at], sizeof(scale));
      // NaN is a fault of the text's activations; it was stored to reach the logits.
      if (!std::signbit(scale)) continue;
      return in_file(
          malformed("keys and values", fmt::format("found {}, need no negative scale", scale)),
          file_.path());
    }
  }
  return Ok{};
}

Status PromptCache::restore(Sequence& sequence) const {
  const KvPool& pool = sequence.executor().pool();
  const std::size_t n_layers = pool.groups().n_layers();
  CheckedSize n_bytes(0);
  for (std::size_t layer = 0; layer < n_layers; ++layer) {
    const std::size_t n_rows = stored_ - first_stored(sequence, layer, stored_);
    const auto of_layer = (CheckedSize(n_rows) * 2 * pool.row_bytes(layer)).value();
    n_bytes = n_bytes + of_layer.value_or(UINT64_MAX);
  }
  const auto expected = n_bytes.value();
  if (expected != values_.size()) {
    return in_file(malformed("keys and values",
                             fmt::format("found {} bytes for {} tokens, need {}", values_.size(),
                                         stored_, expected.value_or(UINT64_MAX))),
                   file_.path());
  }
  auto unchecked = values_;
  for (std::size_t layer = 0; layer < n_layers; ++layer) {
    const std::size_t size =
        (stored_ - first_stored(sequence, layer, stored_)) * 2 * pool.row_bytes(layer);
    LLM_RETURN_IF_ERROR(check_scales(pool.layout(layer), unchecked.first(size)));
    unchecked = unchecked.subspan(size);
  }
  const auto n_vocab = static_cast<TokenId>(sequence.n_vocab());
  for (const TokenId id : tokens_) {
    if (id < 0 || id >= n_vocab) {
      return in_file(malformed("tokens", fmt::format("found {}, need 0..{}", id, n_vocab - 1)),
                     file_.path());
    }
  }
  return sequence.restore(std::span(tokens_).first(stored_), [&](SequenceState& cache) {
    auto rest = values_;
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
      const std::size_t row = pool.row_bytes(layer);
      const std::size_t first = first_stored(sequence, layer, stored_);
      for (std::size_t position = first; position < stored_;
           ++position, rest = rest.subspan(2 * row))
        cache.store_raw(layer, position, rest.first(row), rest.subspan(row, row));
    }
  });
}

}  // namespace llm
