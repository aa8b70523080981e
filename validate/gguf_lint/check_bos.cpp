#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tokenizer/pre_tokenizer_rules.h"
#include "validate/gguf_lint/checks.h"
#include "validate/gguf_lint/rendered_chat.h"

namespace llm {
namespace {

constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";

void check_doubled_bos(LintContext& patient, const RenderedChat& chat) {
  const VocabSpec& spec = chat.tokenizer->spec();
  if (!spec.bos) return;
  const std::string& bos = chat.tokenizer->spelling(*spec.bos);
  if (chat.text.starts_with(bos + bos)) {
    return patient.report({.severity = Severity::kWarning,
                           .where = "tokenizer.chat_template",
                           .what = fmt::format("found {} twice at the beginning", bos),
                           .why = "no training text begins like this: output gets worse",
                           .remedy = "remove one of them from the template"});
  }
  if (!spec.add_bos || !chat.text.starts_with(bos)) return;
  const bool is_literal = render_without_bos(chat).starts_with(bos);
  FileFinding finding{
      .severity = Severity::kWarning,
      .where = std::string(kAddBos),
      .what = fmt::format("found true, and the template writes {} {}", bos,
                          is_literal ? "in its own letters" : "by its bos_token"),
      .why = "a chat begins with two of it, which no training text did: output gets worse",
      .remedy = "set it to false: the template writes it"};
  if (is_literal) return patient.set(std::move(finding), kAddBos, false);
  finding.severity = Severity::kNote;
  finding.why = "engines that do not strip one of the two begin a chat with both";
  finding.remedy = "none is needed here; elsewhere, turn one of the two off";
  patient.report(std::move(finding));
}

/// @param chat  what the template writes; empty where there is none that works
void check_missing_bos(LintContext& patient, const Tokenizer& tokenizer, std::string_view chat) {
  const VocabSpec& spec = tokenizer.spec();
  const std::string_view architecture = patient.text("general.architecture");
  if (spec.add_bos) {
    // Qwen has no BOS; its converters name the end of documents so.
    if (!spec.bos || !architecture.starts_with("qwen") ||
        tokenizer.spelling(*spec.bos) != "<|endoftext|>" || chat.starts_with("<|endoftext|>"))
      return;
    return patient.set(
        {.severity = Severity::kWarning,
         .where = std::string(kAddBos),
         .what = fmt::format("found true, and BOS is {}, which ends documents",
                             tokenizer.spelling(*spec.bos)),
         .why = "every text begins with a token with which texts of this family do not begin",
         .remedy = "set it to false"},
        kAddBos, false);
  }
  if (!spec.bos || spec.bos == spec.eos) return;
  const std::string& bos = tokenizer.spelling(*spec.bos);
  if (chat.starts_with(bos)) return;
  const bool is_gemma = architecture.starts_with("gemma");
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(spec.pre_tokenizer);
  const bool needs_it = spec.tokenizer == TokenizerKind::kSentencePiece
                            ? is_gemma || (architecture == "llama" && bos == "<s>")
                            : rule != nullptr && rule->add_bos && bos == "<|begin_of_text|>";
  if (!needs_it) return;
  patient.set(
      {.severity = is_gemma ? Severity::kError : Severity::kWarning,
       .where = std::string(kAddBos),
       .what = fmt::format("found false, and nothing else writes {}", bos),
       .why = "all training texts began with it: without it output is worse, with Gemma nonsense",
       .remedy = "set it to true"},
      kAddBos, true);
}

/// BOS is another token than the vocabulary's own.
void check_which_bos(LintContext& patient, const Tokenizer& tokenizer) {
  const VocabSpec& spec = tokenizer.spec();
  constexpr std::array<std::string_view, 5> kSpellings = {
      "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>",
      "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"};
  const std::string found = spec.bos ? tokenizer.spelling(*spec.bos) : "none";
  if (!spec.add_bos || std::ranges::find(kSpellings, found) != kSpellings.end()) return;
  for (const std::string_view spelling : kSpellings) {
    const auto id = patient.control_token(spelling);
    if (!id) continue;
    return patient.set({.severity = Severity::kWarning,
                        .where = "tokenizer.ggml.bos_token_id",
                        .what = fmt::format("found {}, and the vocabulary has {}", found, spelling),
                        .why = "texts begin with another token than in training",
                        .remedy = fmt::format("set it to {}", *id)},
                       "tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*id));
  }
}

}  // namespace

void check_bos(LintContext& patient) {
  if (const auto tokenizer = patient.tokenizer()) check_which_bos(patient, *tokenizer);
  const auto tokenizer = patient.tokenizer();
  if (tokenizer == nullptr) return;
  const std::string_view jinja = patient.text("tokenizer.chat_template");
  const auto chat = render_chat(std::string(jinja), tokenizer);
  const bool has_chat = !jinja.empty() && chat.ok();
  if (has_chat) check_doubled_bos(patient, *chat);
  check_missing_bos(patient, *tokenizer, has_chat ? std::string_view(chat->text) : "");
}

}  // namespace llm
