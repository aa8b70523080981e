#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/executor.h"

namespace llm {

/// What keys and values depend on besides the tokens and the version of the numeric contract.
struct CacheIdentity {
  std::string model_sha256;  ///< of the model file, 64 hex digits
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;
};

CacheIdentity cache_identity(const Sequence& sequence, std::string model_sha256);

/// Tokens with their keys and values, in a file (docs/prompt_cache.md), so that they need not be
/// computed again. The bits are those of recomputation: the file holds what the cache held.
class PromptCache {
 public:
  /// Opens a file and checks its SHA-256 and every size in it.
  /// Errors: kIo; kMalformed for a foreign, damaged or truncated file; kUnsupported for another
  /// version of the format. Cost: reads the file once; keys and values stay mapped.
  static Result<PromptCache> open(const std::string& path);

  /// Writes the first `n_tokens` tokens of `sequence`, with the keys and values that tokens behind
  /// them look at, in one step. With them, the sequence is cut to those tokens, and what windows
  /// reach into there is computed again where it was given back.
  /// @param note  any text, given back by note()
  /// @param with_values  false: the tokens alone, as in any case where layers have states
  /// @param held  the caller's lock of the file (AtomicFile::create())
  /// Errors: kIo; with values those of Sequence::evaluate(). Cost: memory for 256 rows of keys and
  /// values.
  static Status write(const std::string& path, Sequence& sequence, std::size_t n_tokens,
                      const CacheIdentity& identity, std::string_view note = "",
                      bool with_values = true, FileLock* held = nullptr);

  std::span<const TokenId> tokens() const { return tokens_; }
  /// Leading tokens whose keys and values the file has.
  std::size_t stored() const { return stored_; }
  std::string_view note() const { return note_; }

  /// Errors: kIntegrity naming what differs: model, kv type, compute or version of the contract.
  Status check(const CacheIdentity& identity) const;

  /// Gives the stored tokens to an empty sequence.
  /// @pre check() passed for the sequence's model. Errors: kMalformed for ids outside the
  /// vocabulary, too few bytes, a negative scale; kResource when the context is too small.
  Status restore(Sequence& sequence) const;

 private:
  explicit PromptCache(MappedFile file) : file_(std::move(file)) {}
  Status parse();
  /// Scales of q8 are largest magnitudes; kernels rely on that.
  Status check_scales(const KvLayout& layout, std::span<const std::byte> heads) const;

  MappedFile file_;
  CacheIdentity identity_;
  std::uint32_t contract_ = 0;
  std::vector<TokenId> tokens_;
  std::size_t stored_ = 0;
  std::string note_;
  std::span<const std::byte> values_;
};

}  // namespace llm
