// The vocabulary: what is listed, which ids are special, and what the tokenizer makes of its
// tokens.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/shown_text.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::int64_t kNoToken = 0xFFFFFFFF;

bool looks_special(std::string_view text) {
  return text.size() > 2 && ((text.front() == '<' && text.back() == '>') ||
                             (text.front() == '[' && text.back() == ']'));
}

bool is_placeholder(const VocabSpec::Token& token) {
  constexpr std::array<std::string_view, 6> kNames = {"<unused",   "<|reserved", "[PAD",
                                                      "<|unused_", "[unused",    "<reserved_"};
  return token.kind == TokenKind::kUnused ||
         std::ranges::any_of(kNames, [&](std::string_view name) {
           return token.text.starts_with(name) && token.text.size() > name.size() + 1;
         });
}

/// Small letters of ASCII, perhaps behind a space: no pre-tokenizer splits these.
bool is_word(std::string_view text) {
  if (text.starts_with(' ')) text.remove_prefix(1);
  return text.size() > 1 && std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

/// How published vocabularies call a special token whose id a file gives wrongly.
struct UsualSpelling {
  std::string_view part;
  std::string_view spelling;
};
constexpr std::array kUsual = {
    UsualSpelling{"eos", "</s>"},
    UsualSpelling{"eos", "<eos>"},
    UsualSpelling{"eos", "<|end_of_text|>"},
    UsualSpelling{"eos", "<|endoftext|>"},
    UsualSpelling{"eos", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"},
    UsualSpelling{"bos", "<s>"},
    UsualSpelling{"bos", "<bos>"},
    UsualSpelling{"bos", "<|begin_of_text|>"},
    UsualSpelling{"bos", "<|startoftext|>"},
    UsualSpelling{"bos", "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"},
    UsualSpelling{"eot", "<|im_end|>"},
    UsualSpelling{"eot", "<|eot_id|>"},
    UsualSpelling{"eot", "<end_of_turn>"},
    UsualSpelling{"eot", "<|end|>"},
    UsualSpelling{"unknown", "<unk>"},
};

/// The key gets the id of the part's usual spelling, or goes where the vocabulary has none.
void mend_id(LintContext& patient, FileFinding finding, const std::string& key,
             std::string_view part) {
  for (const auto& [of, spelling] : kUsual) {
    const auto id = of == part ? patient.control_token(spelling) : std::nullopt;
    if (!id) continue;
    finding.remedy = fmt::format("{} = {} ({})", key, *id, spelling);
    return patient.set(std::move(finding), key, static_cast<std::uint32_t>(*id));
  }
  patient.remove(std::move(finding), key);
}

void check_special_id(LintContext& patient, const std::string& key, std::string_view part) {
  const auto id = patient.integer(key);
  if (id && *id == kNoToken) return;
  FileFinding finding{
      .where = key,
      .why = "programs reject the file, read past the vocabulary, or never end a text",
      .remedy = "leave the key out, or give it the id of the original tokenizer"};
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= patient.n_tokens()) {
    finding.what = fmt::format("found {}, need the id of one of {} tokens",
                               id ? fmt::format("{}", *id) : "no whole number", patient.n_tokens());
    return mend_id(patient, std::move(finding), key, part);
  }
  const VocabSpec::Token& token = patient.tokens()[static_cast<std::size_t>(*id)];
  const bool is_ordinary = token.kind == TokenKind::kNormal || token.kind == TokenKind::kByte;
  const bool marks_text = part == "bos" || part == "eos" || part == "eot" || part == "eom";
  if (!is_ordinary || !marks_text) return;
  finding.what = fmt::format("found {}, the ordinary token {}, need a control token", *id,
                             llm::quoted(token.text));
  finding.why = "texts begin with, or end at, a word of the text";
  if (!looks_special(token.text)) return mend_id(patient, std::move(finding), key, part);
  finding.severity = Severity::kNote;
  finding.why = "users can write it into a text";
  finding.remedy = "its tokenizer.ggml.token_type should be 3, control";
  patient.report(std::move(finding));
}

void check_lengths(LintContext& patient) {
  for (const std::string_view key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    const GgufValue* value = patient.gguf().find(key);
    if (value == nullptr || value->count == patient.n_tokens()) continue;
    patient.report({.where = std::string(key),
                    .what = fmt::format("found {} values, need {}: one for each token",
                                        value->count, patient.n_tokens()),
                    .why = "tokens get wrong scores and kinds, or the file is rejected",
                    .remedy = "convert the original tokenizer again"});
  }
}

void check_scores(LintContext& patient) {
  if (patient.text(kModel) != "llama") return;
  const auto scores = patient.gguf().get_floats("tokenizer.ggml.scores");
  if (!scores.ok() || scores->size() != patient.n_tokens()) return;
  for (std::size_t i = 0; i < scores->size(); ++i)
    if (patient.tokens()[i].kind == TokenKind::kNormal && (*scores)[i] != (*scores)[0]) return;
  patient.report({.where = "tokenizer.ggml.scores",
                  .what = fmt::format("found {} equal scores, need the order in which pieces merge",
                                      scores->size()),
                  .why = "text becomes other tokens than in training: answers get worse or wrong",
                  .remedy = "convert the original tokenizer.model again"});
}

void count_duplicates(LintContext& patient) {
  std::unordered_map<std::string_view, std::size_t> first;
  std::size_t n = 0;
  std::string example;
  for (std::size_t id = 0; id < patient.n_tokens(); ++id) {
    const std::string& text = patient.tokens()[id].text;
    const auto [at, is_new] = first.emplace(text, id);
    if (is_new || is_placeholder(patient.tokens()[id])) continue;
    if (n++ == 0) example = fmt::format("{} is {} and {}", llm::quoted(text), at->second, id);
  }
  if (n == 0) return;
  patient.report({.severity = Severity::kWarning,
                  .where = std::string(kTokens),
                  .what = fmt::format("found {} token{} twice: {}", n, n == 1 ? "" : "s", example),
                  .why = "one of the two is never written, and programs differ in which",
                  .remedy = "convert the original tokenizer again: its added tokens have replaced "
                            "others"});
}

void count_unused(LintContext& patient) {
  const auto n = std::ranges::count_if(patient.tokens(), is_placeholder);
  if (n == 0) return;
  patient.report({.severity = Severity::kNote,
                  .where = std::string(kTokens),
                  .what = fmt::format("found {} tokens that stand for nothing", n),
                  .why = "they were never trained; their rows take room in the file",
                  .remedy = "none is needed"});
}

}  // namespace

void check_tokens_listed(LintContext& patient) {
  if (patient.n_tokens() == 0) {
    return patient.report({.where = std::string(kTokens),
                           .what = "found no tokens",
                           .why = "no text can be read or written",
                           .remedy = "convert the model again, with its tokenizer"});
  }
  check_lengths(patient);
  check_scores(patient);
  count_duplicates(patient);
  count_unused(patient);
}

void check_special_ids(LintContext& patient) {
  constexpr std::string_view kBegin = "tokenizer.ggml.";
  constexpr std::string_view kEnd = "_token_id";
  std::vector<std::string> keys;  // mends change the entries
  for (const GgufEntry& entry : patient.gguf().entries())
    if (entry.key.starts_with(kBegin) && entry.key.ends_with(kEnd)) keys.emplace_back(entry.key);
  for (const std::string& key : keys) {
    const std::size_t size = key.size() - kBegin.size() - kEnd.size();
    check_special_id(patient, key, std::string_view(key).substr(kBegin.size(), size));
  }
}

void check_merges(LintContext& patient) {
  const std::shared_ptr<const Tokenizer> tokenizer = patient.tokenizer();
  if (tokenizer == nullptr) return;
  constexpr std::size_t kSample = 10'000;
  const std::size_t step = tokenizer->size() / kSample + 1;
  std::size_t n = 0;
  std::size_t n_lost = 0;
  std::string example;
  for (std::size_t i = 0; i < tokenizer->size(); i += step) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer->kind(id) != TokenKind::kNormal) continue;
    const std::string text = tokenizer->piece_text(id);
    if (!is_word(text)) continue;
    const auto ids =
        tokenizer->encode(text, {.add_bos = false, .add_eos = false, .add_space_prefix = false});
    ++n;
    if (ids.size() == 1) continue;
    if (n_lost++ == 0) example = llm::quoted(text);
  }
  // Published vocabularies lose one in a hundred at most.
  if (n < 100 || n_lost * 20 < n) return;
  patient.report(
      {.where = patient.text(kModel) == "llama" ? "tokenizer.ggml.scores" : "tokenizer.ggml.merges",
       .what = fmt::format("found {} of {} words that are tokens and not what their own "
                           "text becomes, such as {}",
                           n_lost, n, example),
       .why = "the order of merges is another vocabulary's, or incomplete: text becomes "
              "other tokens than in training",
       .remedy = "convert the original tokenizer again"});
}

}  // namespace llm
