#include "engine/model/special_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "tokenizer/vocab_check.h"

namespace llm {
namespace {

// "No such token" in the ids of special tokens.
constexpr std::uint64_t kNoToken = 0xFFFFFFFF;
constexpr TokenId kNone = -1;

using Fim = VocabSpec::FillInMiddle;

/// A key, or a token's text, that says which token a part of fill-in-the-middle is.
struct FimName {
  std::string_view name;
  std::optional<TokenId> Fim::*token;
};

// The names of before 2025 stand last.
constexpr std::array kFimKeys = {
    FimName{"tokenizer.ggml.fim_pre_token_id", &Fim::prefix},
    FimName{"tokenizer.ggml.fim_suf_token_id", &Fim::suffix},
    FimName{"tokenizer.ggml.fim_mid_token_id", &Fim::middle},
    FimName{"tokenizer.ggml.fim_pad_token_id", &Fim::pad},
    FimName{"tokenizer.ggml.fim_rep_token_id", &Fim::repository},
    FimName{"tokenizer.ggml.fim_sep_token_id", &Fim::file_separator},
    FimName{"tokenizer.ggml.prefix_token_id", &Fim::prefix},
    FimName{"tokenizer.ggml.suffix_token_id", &Fim::suffix},
    FimName{"tokenizer.ggml.middle_token_id", &Fim::middle},
};

// As the models' tokenizers spell them, for files that have none of the keys.
constexpr std::array kFimTexts = {
    FimName{"<|fim_prefix|>", &Fim::prefix},  // Qwen2.5-Coder
    FimName{"<|fim_suffix|>", &Fim::suffix},
    FimName{"<|fim_middle|>", &Fim::middle},
    FimName{"<|fim_pad|>", &Fim::pad},
    FimName{"<|fim_repo|>", &Fim::repository},
    FimName{"<|repo_name|>", &Fim::repository},
    FimName{"<|file_sep|>", &Fim::file_separator},
    FimName{"<fim_prefix>", &Fim::prefix},  // StarCoder, Granite, Refact
    FimName{"<fim_suffix>", &Fim::suffix},
    FimName{"<fim_middle>", &Fim::middle},
    FimName{"<fim_pad>", &Fim::pad},
    FimName{"<reponame>", &Fim::repository},
    FimName{"<repo_name>", &Fim::repository},  // StarCoder2
    FimName{"<file_sep>", &Fim::file_separator},
    FimName{"<fim-prefix>", &Fim::prefix},
    FimName{"<fim-suffix>", &Fim::suffix},
    FimName{"<fim-middle>", &Fim::middle},
    FimName{"<fim-pad>", &Fim::pad},
    FimName{"<fim-repo>", &Fim::repository},
    FimName{"<\uFF5Cfim\u2581begin\uFF5C>", &Fim::prefix},  // DeepSeek
    FimName{"<\uFF5Cfim\u2581hole\uFF5C>", &Fim::suffix},
    FimName{"<\uFF5Cfim\u2581end\uFF5C>", &Fim::middle},
    FimName{"\u2581<PRE>", &Fim::prefix},  // CodeLlama
    FimName{"\u2581<SUF>", &Fim::suffix},
    FimName{"\u2581<MID>", &Fim::middle},
    FimName{"<PRE>", &Fim::prefix},
    FimName{"<SUF>", &Fim::suffix},
    FimName{"<MID>", &Fim::middle},
    FimName{"<PAD>", &Fim::pad},
    FimName{"[PAD]", &Fim::pad},  // Kimi-K2
    FimName{"<REPO>", &Fim::repository},
    FimName{"<|code_prefix|>", &Fim::prefix},  // GLM-4.5
    FimName{"<|code_suffix|>", &Fim::suffix},
    FimName{"<|code_middle|>", &Fim::middle},
    FimName{"<|prefix|>", &Fim::prefix},  // Falcon-H1
    FimName{"<|suffix|>", &Fim::suffix},
    FimName{"<|middle|>", &Fim::middle},
};

// Chat models whose metadata names no end of turn still mark it with one of these.
constexpr std::array<std::string_view, 15> kEndTexts = {"<|im_end|>",
                                                        "<|eot_id|>",
                                                        "<|eom_id|>",
                                                        "<|end|>",
                                                        "<|endoftext|>",
                                                        "<|end_of_text|>",
                                                        "<end_of_turn>",
                                                        "<EOT>",
                                                        "_<EOT>",
                                                        "[EOT]",
                                                        "<|EOT|>",
                                                        "<end_of_utterance>",
                                                        "<turn|>",
                                                        "<|tool_response>",
                                                        "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

/// Whether any of the texts above can begin so: most tokens of a vocabulary need no search.
bool may_be_listed(std::string_view text) {
  if (text.starts_with("\u2581")) text.remove_prefix(std::string_view("\u2581").size());
  return !text.empty() && (text[0] == '<' || text[0] == '[' || text[0] == '_');
}

class SpecialTokenReader {
 public:
  SpecialTokenReader(const GgufFile& gguf, VocabSpec& vocab) : gguf_(gguf), vocab_(vocab) {}

  Status run() {
    constexpr TokenKind kControl = TokenKind::kControl;
    // SentencePiece's own layout; byte-level vocabularies have none.
    const bool has_layout =
        vocab_.tokenizer == TokenizerKind::kSentencePiece && vocab_.merges.empty();
    const auto usual = [has_layout](TokenId id) { return has_layout ? id : kNone; };
    LLM_TRY(vocab_.bos, read_id("tokenizer.ggml.bos_token_id", usual(1), kControl));
    LLM_TRY(vocab_.eos, read_id("tokenizer.ggml.eos_token_id", usual(2), kControl));
    LLM_TRY(vocab_.unknown,
            read_id("tokenizer.ggml.unknown_token_id", usual(0), TokenKind::kUnknown));
    LLM_RETURN_IF_ERROR(read_fim_keys());
    auto& ends = vocab_.end_of_generation;
    for (const std::string_view key :
         {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      LLM_TRY(const std::optional<TokenId> id, read_id(key, kNone, kControl));
      if (id) ends.push_back(*id);
    }
    find_texts();
    const Fim& fim = vocab_.fim;
    for (const auto& id : {vocab_.eos, fim.pad, fim.repository, fim.file_separator}) {
      if (id) ends.push_back(*id);
    }
    std::ranges::sort(ends);
    const auto repeated = std::ranges::unique(ends);
    ends.erase(repeated.begin(), repeated.end());
    return Ok{};
  }

 private:
  Result<std::optional<TokenId>> read_id(std::string_view key, TokenId usual,
                                         TokenKind kind) const {
    const std::size_t n = vocab_.tokens.size();
    if (gguf_.find(key) == nullptr) {
      const bool fits = usual >= 0 && static_cast<std::size_t>(usual) < n &&
                        vocab_.tokens[static_cast<std::size_t>(usual)].kind == kind;
      return fits ? std::optional(usual) : std::nullopt;
    }
    LLM_TRY(const std::uint64_t id, gguf_.get_unsigned(key));
    if (id == kNoToken) return std::optional<TokenId>();
    if (auto fault = token_id_fault(id, n))
      return gguf_.value_error(ErrorCode::kMalformed, key, *std::move(fault));
    return std::optional(static_cast<TokenId>(id));
  }

  Status read_fim_keys() {
    for (const auto& [key, token] : kFimKeys) {
      LLM_TRY(const std::optional<TokenId> id, read_id(key, kNone, TokenKind::kControl));
      if (!(vocab_.fim.*token)) vocab_.fim.*token = id;
    }
    return Ok{};
  }

  /// What the keys left open, and ends of turns. Converters give the tokens of fill-in-the-middle
  /// any kind; the end of a turn is text where its kind says so.
  void find_texts() {
    std::array<std::optional<TokenId>, kFimTexts.size()> found;
    for (std::size_t i = 0; i < vocab_.tokens.size(); ++i) {
      const auto& [text, score, kind] = vocab_.tokens[i];
      if (!may_be_listed(text)) continue;
      const auto id = static_cast<TokenId>(i);
      const bool is_marker = kind == TokenKind::kControl || kind == TokenKind::kUserDefined;
      if (is_marker && std::ranges::find(kEndTexts, text) != kEndTexts.end())
        vocab_.end_of_generation.push_back(id);
      const auto known = std::ranges::find(kFimTexts, text, &FimName::name);
      if (known == kFimTexts.end()) continue;
      auto& first = found[static_cast<std::size_t>(known - kFimTexts.begin())];
      if (!first) first = id;
    }
    for (std::size_t i = 0; i < kFimTexts.size(); ++i) {
      auto& token = vocab_.fim.*kFimTexts[i].token;
      if (!token) token = found[i];
    }
  }

  const GgufFile& gguf_;
  VocabSpec& vocab_;
};

}  // namespace

Status read_special_tokens(const GgufFile& gguf, VocabSpec& vocab) {
  return SpecialTokenReader(gguf, vocab).run();
}

}  // namespace llm
