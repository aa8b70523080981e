#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// What a text must be (docs/structured_output.md).
enum class GrammarKind {
  kJsonObject,  ///< any JSON object; the source has no text
  kJsonSchema,  ///< a JSON document that the schema takes
  kEbnf,        ///< what the rule `root` of a grammar in EBNF (GBNF) gives
  kRegex,       ///< what a regular expression matches as a whole
  kTags,        ///< documents between markers: CallTags
};
inline constexpr GrammarKind kGrammarKinds[] = {GrammarKind::kJsonObject, GrammarKind::kJsonSchema,
                                                GrammarKind::kEbnf, GrammarKind::kRegex,
                                                GrammarKind::kTags};
/// "json_object", "json_schema", "grammar", "regex", "tags".
std::string_view grammar_kind_name(GrammarKind kind);

/// A grammar as it was asked for: with the vocabulary, all that a mask depends on.
struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text = {};

  auto operator<=>(const GrammarSource&) const = default;
};

/// How a call's arguments are written, which a schema of an object describes.
struct ArgumentForm {
  enum class Kind {
    kJson,
    kKeywords,  ///< (name=value, ...), values as JSON
    kPairs,     ///< KEY_BEGIN name KEY_END value VALUE_END ...; a string's value is its text
    kElements,  ///< the same with name KEY_END behind each VALUE_END
  };
  Kind kind = Kind::kJson;
  std::string key_begin = {};  ///< of the last two, as the two below
  std::string key_end = {};
  std::string value_end = {};  ///< but for white space at its ends, no text has it
};

/// Calls: documents, each between a marker and another.
struct CallTags {
  struct Tag {
    std::string begin;      ///< not empty; spellings of control tokens in it are these tokens
    std::string schema;     ///< JSON
    std::string end;        ///< as begin; may be empty
    std::string head = {};  ///< as end; between begin and the document
    ArgumentForm form = {};
    struct AuditProof {
      std::string begin;
      std::string head = {};
      bool is_first = false;  ///< of free text with `others`: at its beginning alone
    };
    std::vector<AuditProof> more = {};  ///< what may stand in place of begin and head
  };
  std::vector<Tag> tags;
  /// Text may stand before, between and after any number of calls, none included. Else the text is
  /// 1 to `most` calls with `separator` between them, and nothing else.
  bool free_text = false;
  std::size_t most = 1;
  /// Marks that begin no call, of free text where calls begin as such marks do. Where there are
  /// some, the text begins with a call or one of them.
  std::vector<std::string> others = {};
  std::string separator = {};  ///< as Tag::end, and the two below
  std::string open = {};       ///< before the first call, where text is not free
  std::string close = {};      ///< behind the last one

  GrammarSource source() const;
};

/// What a compilation may take.
struct CompileLimits {
  /// Above 1 s of a Zen 4: the most in any case.
  static constexpr std::uint64_t kMostUnits = 40'000'000;
  /// What most grammars need far less than: about 50 ms.
  static constexpr std::uint64_t kFewUnits = 2'000'000;

  /// The field of the error, of kUsage, where they are exceeded.
  static constexpr std::string_view kExceeded = "compilation";

  std::uint64_t units = kMostUnits;             ///< of a WorkMeter
  std::function<bool()> is_given_up = nullptr;  ///< asked meanwhile; null: it is not
};

/// A grammar for the tokens of one vocabulary. Immutable, usable from any thread.
class Grammar {
 public:
  /// Longer texts are refused.
  static constexpr std::size_t kMostBytes = std::size_t{128} << 10;

  /// Errors: kUsage for a text that is no grammar, or asks for what is not enforced: its field is
  /// the JSON pointer of a schema's keyword ("/properties/a/not"), or empty. kUnsupported where the
  /// vocabulary has no token that ends a text, or this build has no grammars. kResource naming
  /// "memory" where it is refused.
  /// Cost: milliseconds to seconds, by the rules and the vocabulary.
  static Result<std::shared_ptr<const Grammar>> compile(GrammarSource source,
                                                        const Tokenizer& tokenizer);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const GrammarSource& source() const { return source_; }
  std::size_t bytes() const;  ///< of memory, about

 private:
  friend class GrammarState;
  friend class GrammarCompiler;
  struct Vocabulary;
  struct Impl;

  Grammar(GrammarSource source, std::unique_ptr<const Impl> impl);
  static Result<std::shared_ptr<const Vocabulary>> read_vocabulary(const Tokenizer& tokenizer);
  static Result<std::shared_ptr<const Grammar>> compile(
      GrammarSource source, const Tokenizer& tokenizer,
      std::shared_ptr<const Vocabulary> vocabulary, const CompileLimits& limits);

  GrammarSource source_;
  std::unique_ptr<const Impl> impl_;
};

/// Compiles grammars for one vocabulary, and keeps those that were asked for last. Usable from any
/// thread.
class GrammarCompiler {
 public:
  /// @param tokenizer  outlives this
  /// @param most_bytes  of grammars that are kept; one is kept in any case
  explicit GrammarCompiler(const Tokenizer& tokenizer, std::size_t most_bytes = 64 << 20)
      : tokenizer_(tokenizer), most_bytes_(most_bytes) {}

  /// As Grammar::compile(); at once where it is kept. Two that ask for the same at once may both
  /// compile it.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source,
                                                 const CompileLimits& limits = {});
  std::size_t bytes() const;

 private:
  using Kept = std::list<std::shared_ptr<const Grammar>>;

  std::shared_ptr<const Grammar> find(const GrammarSource& source);
  void keep(std::shared_ptr<const Grammar> grammar);
  Result<std::shared_ptr<const Grammar::Vocabulary>> vocabulary();

  const Tokenizer& tokenizer_;
  std::size_t most_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Grammar::Vocabulary> vocabulary_;
  std::size_t bytes_ = 0;
  Kept kept_;  ///< the last used first
  std::map<GrammarSource, Kept::iterator> places_;
};

/// Which tokens may come next.
class NextTokens {
 public:
  virtual ~NextTokens() = default;
  virtual Result<bool> takes(TokenId id) = 0;
  /// Bit id % 32 of word id / 32 says whether a token may.
  virtual Result<std::span<const std::uint32_t>> mask() = 0;
};

/// How far a text has come in a grammar. Of one thread at a time.
///
/// Its work is bounded by a WorkMeter: kUnitsOfToken, or kUnitsOfEntry for each entry of the
/// vocabulary, for each token of the text, which add up to kMostUnits where they are not needed. So
/// a draw takes about 0.5 s at most, once, and about as long as a small model's step on the
/// average. What needs more is given up, at the same token on every machine.
class GrammarState final : public NextTokens {
 public:
  static constexpr std::uint64_t kUnitsOfToken = 500'000;  ///< about 10 ns each
  static constexpr std::uint64_t kUnitsOfEntry = 20;       ///< a mask of JSON takes about 60
  static constexpr std::uint64_t kMostUnits = 50'000'000;

  /// @param ends  tokens that end the text besides the vocabulary's own
  GrammarState(std::shared_ptr<const Grammar> grammar, std::span<const TokenId> ends);
  GrammarState(GrammarState&&) noexcept;
  ~GrammarState() override;

  /// Tokens that end a text may come where it is whole. Cost: microseconds. Errors: mask()'s
  Result<bool> takes(TokenId id) override;
  /// Valid until accept(). Cost: microseconds; 15 ms and more where repetitions are counted.
  /// Errors: kUsage where the work is too much, or xgrammar fails (it names why); kResource naming
  /// "memory". They stay.
  Result<std::span<const std::uint32_t>> mask() override;
  /// Goes on by a token. Tokens that end a text change nothing.
  /// Errors: kUsage for one that mask() excludes.
  Status accept(TokenId id);
  /// Whether the text so far is whole.
  bool is_complete();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether a mask allows a token.
inline bool allows(std::span<const std::uint32_t> mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
}

}  // namespace llm
