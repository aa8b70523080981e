#include "engine/model/vocab_from_gguf.h"

#include <fmt/core.h>

#include <bit>
#include <unordered_map>
#include <utility>

#include "base/seeded_hash.h"
#include "base/shown_text.h"
#include "base/utf8.h"
#include "engine/model/special_tokens.h"
#include "tokenizer/pre_tokenizer_rules.h"
#include "tokenizer/vocab_check.h"

namespace llm {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kSpacePrefixKey = "tokenizer.ggml.add_space_prefix";
constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

constexpr std::size_t kMaxTokenBytes = 64U << 10;
/// Of a control or user-defined token, and of all together: text is compared with them byte by
/// byte.
constexpr std::size_t kMaxSpecialToken = 1024;
constexpr std::size_t kMaxSpecialBytes = 4U << 20;
constexpr std::size_t kMaxTemplateBytes = 1U << 20;

/// Collects what tokens share a fault and turns them into one warning.
class Examples {
 public:
  void add(std::string example) {
    if (count_++ < 5) text_ += (text_.empty() ? "" : ", ") + std::move(example);
  }
  void warn(std::string_view what, std::vector<std::string>& warnings) const {
    if (count_ == 0) return;
    warnings.push_back(fmt::format("{}: {} {}{}", kTokensKey, what, text_,
                                   count_ > 5 ? fmt::format(" and {} more", count_ - 5) : ""));
  }

 private:
  std::size_t count_ = 0;
  std::string text_;
};

class VocabReader {
 public:
  VocabReader(const GgufFile& gguf, std::vector<std::string>& warnings)
      : gguf_(gguf), warnings_(warnings) {}

  Result<VocabSpec> run();

 private:
  Status read_model();
  Status read_pre_tokenizer();
  Status read_pieces();
  Status read_scores();
  Status read_kinds();
  void derive_kinds();
  Status check_tokens();
  void warn_duplicates();
  Status read_merges();
  Result<VocabSpec::Merge> read_merge(std::string_view text, std::size_t rank) const;
  Status read_flags();

  Error malformed(std::string_view key, std::string message) const {
    return gguf_.value_error(ErrorCode::kMalformed, key, std::move(message));
  }

  const GgufFile& gguf_;
  std::vector<std::string>& warnings_;
  bool is_sentencepiece() const { return vocab_.tokenizer == TokenizerKind::kSentencePiece; }
  /// Pieces as SentencePiece has them, merged by rank.
  bool is_ranked_ = false;

  VocabSpec vocab_;
  const PreTokenizerRule* rule_ = nullptr;  ///< byte-level BPE
  /// The tokens that merges name; made for reading those.
  std::unordered_map<std::string_view, TokenId, SeededHash> pieces_;
};

Result<VocabSpec> VocabReader::run() {
  LLM_RETURN_IF_ERROR(read_model());
  LLM_RETURN_IF_ERROR(read_pieces());
  if (is_sentencepiece() && !is_ranked_) LLM_RETURN_IF_ERROR(read_scores());
  LLM_RETURN_IF_ERROR(read_kinds());
  LLM_RETURN_IF_ERROR(check_tokens());
  warn_duplicates();
  if (!is_sentencepiece() || is_ranked_) LLM_RETURN_IF_ERROR(read_merges());
  LLM_RETURN_IF_ERROR(read_special_tokens(gguf_, vocab_));
  LLM_RETURN_IF_ERROR(read_flags());
  if (auto fault = unknown_fault(vocab_)) return malformed(kTokensKey, *std::move(fault));
  return std::move(vocab_);
}

Status VocabReader::read_model() {
  LLM_TRY(const std::string_view model, gguf_.get_string(kModelKey));
  if (model == "llama") return Ok{};
  if (model == "gpt2") return read_pre_tokenizer();
  is_ranked_ = model == "gemma4";
  if (is_ranked_) return Ok{};
  return gguf_.value_error(
      ErrorCode::kUnsupported, kModelKey,
      fmt::format("found {}, need \"llama\" (SentencePiece), \"gpt2\" (byte-level BPE) or "
                  "\"gemma4\"",
                  quoted(model)));
}

/// A rule is never guessed: another one gives other ids, and a worse answer is all one would see.
Status VocabReader::read_pre_tokenizer() {
  vocab_.tokenizer = TokenizerKind::kByteBpe;
  if (gguf_.find(kPreKey) == nullptr) {
    return Error{.code = ErrorCode::kUnsupported,
                 .field = std::string(kPreKey),
                 .message = fmt::format("found no key, need one of {}", pre_tokenizer_names()),
                 .hint = "convert the model again: converters write it since April 2024"};
  }
  LLM_TRY(const std::string_view name, gguf_.get_string(kPreKey));
  vocab_.pre_tokenizer = name;
  if (auto fault = pre_tokenizer_fault(vocab_))
    return gguf_.value_error(ErrorCode::kUnsupported, kPreKey, *std::move(fault));
  rule_ = find_pre_tokenizer_rule(name);
  return Ok{};
}

Status VocabReader::read_pieces() {
  LLM_TRY(const GgufStrings pieces, gguf_.get_strings(kTokensKey));
  Examples invalid;
  Examples empty;
  vocab_.tokens.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    const std::size_t id = vocab_.tokens.size();
    if (piece.size() > kMaxTokenBytes) {
      return malformed(kTokensKey, fmt::format("found token id {} of {} bytes, need at most {}", id,
                                               piece.size(), kMaxTokenBytes));
    }
    if (piece.empty()) empty.add(std::to_string(id));
    if (!is_valid_utf8(piece)) invalid.add(std::to_string(id));
    vocab_.tokens.push_back({.text = std::string(piece)});
  }
  empty.warn("empty text: token ids", warnings_);
  invalid.warn("invalid UTF-8: token ids", warnings_);
  return Ok{};
}

Status VocabReader::read_scores() {
  LLM_TRY(const GgufArray<float> scores, gguf_.get_floats(kScoresKey));
  if (scores.size() != vocab_.tokens.size()) {
    return malformed(kScoresKey, fmt::format("found length {}, need {}: one for each token",
                                             scores.size(), vocab_.tokens.size()));
  }
  for (std::size_t i = 0; i < scores.size(); ++i) vocab_.tokens[i].score = scores[i];
  return Ok{};
}

Status VocabReader::read_kinds() {
  if (gguf_.find(kTypesKey) == nullptr) {
    derive_kinds();
    return Ok{};
  }
  LLM_TRY(const GgufArray<std::int32_t> kinds, gguf_.get_ints(kTypesKey));
  if (kinds.size() != vocab_.tokens.size()) {
    return malformed(kTypesKey, fmt::format("found length {}, need {}: one for each token",
                                            kinds.size(), vocab_.tokens.size()));
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] < 1 || kinds[i] > 6) {
      return malformed(kTypesKey, fmt::format("found {} at index {}, need 1 to 6", kinds[i], i));
    }
    vocab_.tokens[i].kind = static_cast<TokenKind>(kinds[i]);
  }
  return Ok{};
}

// The specification makes token_type optional. SentencePiece's own layout is <unk>, <s>, </s>;
// byte-level vocabularies write their control tokens <|so|>.
void VocabReader::derive_kinds() {
  warnings_.push_back(
      fmt::format("{}: key is absent; kinds of tokens were derived from their text", kTypesKey));
  for (VocabSpec::Token& token : vocab_.tokens) {
    if (!is_sentencepiece()) {
      const bool control = token.text.starts_with("<|") && token.text.ends_with("|>");
      if (control) token.kind = TokenKind::kControl;
      continue;
    }
    if (byte_of_spelling(token.text)) token.kind = TokenKind::kByte;
    if (token.text == "<unk>") token.kind = TokenKind::kUnknown;
    if (token.text == "<s>" || token.text == "</s>") token.kind = TokenKind::kControl;
  }
}

Status VocabReader::check_tokens() {
  std::size_t special_bytes = 0;
  for (std::size_t id = 0; id < vocab_.tokens.size(); ++id) {
    const auto& [text, score, kind] = vocab_.tokens[id];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined) continue;
    special_bytes += text.size();
    if (text.size() <= kMaxSpecialToken) continue;
    return malformed(kTokensKey, fmt::format("found token id {}, control or user-defined, of {} "
                                             "bytes, need at most {}",
                                             id, text.size(), kMaxSpecialToken));
  }
  if (special_bytes > kMaxSpecialBytes) {
    return malformed(
        kTokensKey,
        fmt::format("found {} bytes of control and user-defined tokens, need at most {}",
                    special_bytes, kMaxSpecialBytes));
  }
  if (auto fault = token_fault(vocab_)) return malformed(kTokensKey, *std::move(fault));
  if (auto fault = score_fault(vocab_)) return malformed(kScoresKey, *std::move(fault));
  if (is_sentencepiece() && !has_byte_tokens(vocab_)) {
    warnings_.push_back(fmt::format(
        "{}: no byte tokens; characters outside the vocabulary become unknown", kTokensKey));
  }
  return Ok{};
}

void VocabReader::warn_duplicates() {
  // By open addressing, at most half full: the first token of each text.
  constexpr std::uint32_t kFree = UINT32_MAX;
  std::vector<std::uint32_t> slots(std::bit_ceil(2 * vocab_.tokens.size()), kFree);
  const SeededHash hash;
  Examples duplicates;
  for (std::uint32_t id = 0; id < vocab_.tokens.size(); ++id) {
    const std::string& text = vocab_.tokens[id].text;
    if (text.empty()) continue;  // warned of as empty
    std::size_t at = hash(text) % slots.size();
    while (slots[at] != kFree && vocab_.tokens[slots[at]].text != text)
      at = (at + 1) % slots.size();
    if (slots[at] == kFree) {
      slots[at] = id;
    } else {
      duplicates.add(fmt::format("{} repeats {}", id, slots[at]));
    }
  }
  duplicates.warn("duplicate tokens, the first id is used:", warnings_);
}

/// Merges are texts of two spellings with a space between them, in the order of their ranks.
Status VocabReader::read_merges() {
  LLM_TRY(const GgufStrings merges, gguf_.get_strings(kMergesKey));
  if (merges.size() == 0) return malformed(kMergesKey, "found no merges, need at least one");
  constexpr std::size_t kMostRanked = std::size_t{1} << 24;  // floats hold their ranks
  if (is_ranked_ && merges.size() > kMostRanked)
    return malformed(kMergesKey,
                     fmt::format("found {} merges, need at most {}", merges.size(), kMostRanked));
  pieces_.reserve(vocab_.tokens.size());
  for (std::size_t id = 0; id < vocab_.tokens.size(); ++id) {
    const VocabSpec::Token& token = vocab_.tokens[id];
    if (takes_part_in_merges(token.kind, vocab_.tokenizer) && !token.text.empty())
      pieces_.emplace(token.text, static_cast<TokenId>(id));
  }
  vocab_.merges.reserve(merges.size());
  for (const std::string_view text : merges) {
    LLM_TRY(const VocabSpec::Merge merge, read_merge(text, vocab_.merges.size()));
    vocab_.merges.push_back(merge);
  }
  return Ok{};
}

Result<VocabSpec::Merge> VocabReader::read_merge(std::string_view text, std::size_t rank) const {
  const std::size_t space = text.find(' ');
  if (space == 0 || space >= text.size() - 1 || text.find(' ', space + 1) != text.npos) {
    return malformed(kMergesKey,
                     fmt::format("found {} at index {}, need two tokens with a space between them",
                                 quoted(text), rank));
  }
  const std::string joined = std::string(text.substr(0, space)).append(text.substr(space + 1));
  VocabSpec::Merge merge;
  for (const auto& [spelling, id] :
       {std::pair<std::string_view, TokenId*>(text.substr(0, space), &merge.left),
        std::pair<std::string_view, TokenId*>(text.substr(space + 1), &merge.right),
        std::pair<std::string_view, TokenId*>(joined, &merge.joined)}) {
    const auto found = pieces_.find(spelling);
    if (found == pieces_.end()) {
      return malformed(kMergesKey,
                       fmt::format("found {} at index {}, which names {}: not a normal token of {}",
                                   quoted(text), rank, quoted(spelling), kTokensKey));
    }
    *id = found->second;
  }
  return merge;
}

Status VocabReader::read_flags() {
  const bool add_bos = is_sentencepiece() || rule_->add_bos;
  LLM_TRY(vocab_.add_bos, gguf_.get_bool_or("tokenizer.ggml.add_bos_token", add_bos));
  // Gemma 4 needs it, whatever its files say.
  if (is_ranked_) vocab_.add_bos = true;
  LLM_TRY(vocab_.add_eos, gguf_.get_bool_or("tokenizer.ggml.add_eos_token", false));
  LLM_TRY(vocab_.add_space_prefix,
          gguf_.get_bool_or(kSpacePrefixKey, is_sentencepiece() && !is_ranked_));
  if (!is_sentencepiece() && vocab_.add_space_prefix) {
    warnings_.push_back(fmt::format(
        "{}: found true, but byte-level BPE has no dummy prefix; ignored", kSpacePrefixKey));
    vocab_.add_space_prefix = false;
  }
  return Ok{};
}

}  // namespace

Result<VocabSpec> vocab_from_gguf(const GgufFile& gguf, std::vector<std::string>& warnings) {
  return VocabReader(gguf, warnings).run();
}

Result<std::string_view> chat_template_from_gguf(const GgufFile& gguf) {
  LLM_TRY(const std::string_view text, gguf.get_string_or(kTemplateKey, {}));
  if (text.size() > kMaxTemplateBytes) {
    return gguf.value_error(ErrorCode::kUnsupported, kTemplateKey,
                            fmt::format("found a template of {} bytes, need at most {} (cap)",
                                        text.size(), kMaxTemplateBytes));
  }
  return text;
}

}  // namespace llm
