#include "validate/gguf_lint/lint_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

#include "engine/model/vocab_from_gguf.h"

namespace llm {
namespace {

constexpr std::array<std::string_view, 8> kTurnMarks = {
    "<|im_start|>",  "<|im_end|>", "<|eot_id|>", "<|start_header_id|>",
    "<end_of_turn>", "<|end|>",    "<|eom_id|>", "<start_of_turn>"};
constexpr std::array<std::string_view, 5> kChatWords = {"instruct", "chat", "it", "assistant",
                                                        "sft"};

std::vector<VocabSpec::Token> read_tokens(const GgufFile& gguf) {
  std::vector<VocabSpec::Token> tokens;
  const auto texts = gguf.get_strings("tokenizer.ggml.tokens");
  if (!texts.ok()) return tokens;
  const auto kinds = gguf.get_ints("tokenizer.ggml.token_type");
  tokens.reserve(texts->size());
  for (const std::string_view text : *texts) {
    const std::size_t id = tokens.size();
    const std::int32_t kind = kinds.ok() && id < kinds->size() ? (*kinds)[id] : 1;
    const bool is_known = kind >= 1 && kind <= 6;
    tokens.push_back({.text = std::string(text),
                      .kind = is_known ? static_cast<TokenKind>(kind) : TokenKind::kNormal});
  }
  return tokens;
}

/// Whether one of kChatWords is a word of `text`.
bool has_chat_word(std::string_view text) {
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const auto c = static_cast<unsigned char>(i < text.size() ? text[i] : ' ');
    if (std::isalpha(c) != 0) {
      word += static_cast<char>(std::tolower(c));
      continue;
    }
    if (std::ranges::find(kChatWords, word) != kChatWords.end()) return true;
    word.clear();
  }
  return false;
}

}  // namespace

LintContext::LintContext(OpenGguf open, std::string path)
    : path_(std::move(path)),
      file_(std::move(open.file)),
      gguf_(std::move(open.gguf)),
      tokens_(read_tokens(gguf_)) {}

const Architecture* LintContext::architecture() const {
  const auto n_experts = gguf_.get_unsigned_or(key(HyperParameterKeys().n_experts), 0);
  return find_architecture(text("general.architecture"), n_experts.ok() && *n_experts > 0);
}

std::string LintContext::key(std::string_view suffix) const {
  return fmt::format("{}.{}", text("general.architecture"), suffix);
}

std::optional<std::int64_t> LintContext::integer(std::string_view key) const {
  const GgufValue* value = gguf_.find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<std::int64_t> whole;
  if (gguf_fixed_size(value->type) == 0) return whole;
  visit_gguf_number(value->type, value->bytes, [&](auto number) {
    if constexpr (!std::is_same_v<decltype(number), bool> && std::is_integral_v<decltype(number)>) {
      whole = static_cast<std::int64_t>(number);
    }
  });
  return whole;
}

std::optional<double> LintContext::number(std::string_view key) const {
  if (gguf_.find(key) == nullptr) return std::nullopt;
  if (const auto real = gguf_.get_float(key); real.ok()) return static_cast<double>(*real);
  const auto whole = integer(key);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::string_view LintContext::text(std::string_view key) const {
  const auto found = gguf_.get_string_or(key, {});
  return found.ok() ? *found : std::string_view();
}

std::optional<TokenId> LintContext::control_token(std::string_view spelling) const {
  const auto found = std::ranges::find_if(tokens_, [spelling](const VocabSpec::Token& token) {
    return token.kind == TokenKind::kControl && token.text == spelling;
  });
  if (found == tokens_.end()) return std::nullopt;
  return static_cast<TokenId>(found - tokens_.begin());
}

std::shared_ptr<const Tokenizer> LintContext::tokenizer() {
  if (!tokenizer_is_current_) {
    tokenizer_is_current_ = true;
    tokenizer_.reset();
    std::vector<std::string> warnings;
    auto vocab = vocab_from_gguf(gguf_, warnings);
    if (!vocab.ok()) return tokenizer_;
    auto made = Tokenizer::create(std::move(vocab).value());
    if (made.ok()) tokenizer_ = std::make_shared<const Tokenizer>(std::move(made).value());
  }
  return tokenizer_;
}

bool LintContext::is_chat_model() const {
  const std::string_view file = std::string_view(path_).substr(path_.rfind('/') + 1);
  for (const std::string_view name :
       {file, text("general.name"), text("general.basename"), text("general.finetune")})
    if (has_chat_word(name)) return true;
  for (const std::string_view part : {"bos", "eos", "eot", "padding"}) {
    const auto id = integer(fmt::format("tokenizer.ggml.{}_token_id", part));
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= tokens_.size()) continue;
    const std::string& spelling = tokens_[static_cast<std::size_t>(*id)].text;
    if (std::ranges::find(kTurnMarks, spelling) != kTurnMarks.end()) return true;
  }
  return false;
}

void LintContext::report(FileFinding finding) {
  finding.check = check_;
  findings_.push_back(std::move(finding));
}

void LintContext::set_text(FileFinding finding, std::string_view key, std::string value,
                           std::string shown) {
  set_bytes(std::move(finding), key, GgufType::kString, std::move(value), std::move(shown));
}

void LintContext::set_bytes(FileFinding finding, std::string_view key, GgufType type,
                            std::string bytes, std::string mend) {
  put(std::move(finding), key, {.type = type, .element_type = type, .bytes = {}}, std::move(bytes),
      std::move(mend));
}

void LintContext::set_array(FileFinding finding, std::string_view key, GgufType element,
                            std::string bytes, std::string mend) {
  const GgufValue value{.type = GgufType::kArray,
                        .element_type = element,
                        .count = bytes.size() / gguf_fixed_size(element),
                        .bytes = {}};
  put(std::move(finding), key, value, std::move(bytes), std::move(mend));
}

void LintContext::put(FileFinding finding, std::string_view key, GgufValue value, std::string bytes,
                      std::string mend) {
  finding.mend = std::move(mend);
  report(std::move(finding));
  value.bytes = std::as_bytes(std::span(owned_.emplace_back(std::move(bytes))));
  const GgufEntry entry{.key = owned_.emplace_back(key), .value = value};
  std::deque<GgufEntry> entries = gguf_.entries();
  const auto old = std::ranges::find(entries, key, &GgufEntry::key);
  if (old == entries.end()) {
    entries.push_back(entry);
  } else {
    old->value = entry.value;
  }
  replace(std::move(entries));
}

void LintContext::remove(FileFinding finding, std::string_view key) {
  finding.mend = fmt::format("{} is left out", key);
  report(std::move(finding));
  std::deque<GgufEntry> entries = gguf_.entries();
  std::erase_if(entries, [key](const GgufEntry& entry) { return entry.key == key; });
  replace(std::move(entries));
}

void LintContext::copy(FileFinding finding, std::string mend) {
  finding.mend = std::move(mend);
  report(std::move(finding));
}

void LintContext::replace(std::deque<GgufEntry> entries) {
  gguf_ = gguf_.with_entries(std::move(entries));
  tokens_ = read_tokens(gguf_);
  tokenizer_is_current_ = false;
}

}  // namespace llm
