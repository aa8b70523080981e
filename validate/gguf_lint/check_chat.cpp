// The chat template, and what ends a turn.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "engine/generation/chat_style.h"
#include "validate/gguf_lint/checks.h"
#include "validate/gguf_lint/rendered_chat.h"

namespace llm {
namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";
/// The built-in templates of formats whose marks are tokens of their own.
constexpr std::array<std::string_view, 4> kFormats = {"chatml", "llama3", "gemma", "mistral-nemo"};

void check_absent(LintContext& patient, const Tokenizer& tokenizer) {
  for (const std::string_view format : kFormats) {
    const auto style = ChatStyle::choose(std::string(format), "", tokenizer);
    if (!style.ok()) continue;
    const bool is_chat = patient.is_chat_model();
    FileFinding finding{
        .severity = is_chat ? Severity::kWarning : Severity::kNote,
        .where = std::string(kTemplate),
        .what = fmt::format("found no template in {}, whose vocabulary has the marks of {}",
                            is_chat ? "a chat model" : "what seems a base model", format),
        .why =
            "programs guess a format or send plain text, and the model rambles or answers for "
            "the user",
        .remedy = fmt::format("take the template of the original tokenizer_config.json; until then "
                              "--chat-template {} fits",
                              format)};
    if (!is_chat) return patient.report(std::move(finding));
    return patient.set_text(std::move(finding), kTemplate, (*style)->source(),
                            fmt::format("{} = our template {}", kTemplate, format));
  }
}

/// Marks that are no tokens here.
void check_marks(LintContext& patient, const RenderedChat& chat) {
  std::set<std::string_view> known;
  std::set<std::string_view> lacking;
  for (const std::string_view mark : marks_of(chat.text)) {
    const auto found = chat.markers.at_start(mark);
    (found && found->spelling == mark ? known : lacking).insert(mark);
  }
  if (lacking.empty()) return;
  const bool is_end = lacking.contains(chat.end);
  // Zephyr and TinyLlama were trained with openers that are text.
  const bool is_mixed = std::ranges::any_of(
      known, [](std::string_view mark) { return mark.starts_with("<|") && mark.ends_with("|>"); });
  std::string list;
  for (const std::string_view mark : lacking)
    list += (list.empty() ? "" : ", ") + std::string(mark);
  patient.report(
      {.severity = is_end     ? Severity::kError
                   : is_mixed ? Severity::kWarning
                              : Severity::kNote,
       .where = std::string(kTemplate),
       .what = fmt::format(
           "found {} in the output of the template, not a control token of this vocabulary", list),
       .why = is_end ? "the model cannot end its turn: replies run on to the limit"
                     : "the model reads the mark as several pieces of text",
       .remedy = "take the template of the model that this vocabulary belongs to, or "
                 "convert again with its added tokens"});
}

/// The turn's end among the ids that end a text.
void check_turn_end(LintContext& patient, const RenderedChat& chat) {
  const Tokenizer& tokenizer = *chat.tokenizer;
  const auto mark = chat.end.empty() ? std::nullopt : chat.markers.at_start(chat.end);
  if (!mark || mark->spelling != chat.end) return;
  std::string ids;
  for (const std::string_view part : {"eos", "eot", "eom"}) {
    const auto id = patient.integer(fmt::format("tokenizer.ggml.{}_token_id", part));
    if (id == mark->id) return;
    if (id) ids += fmt::format("{}{} {}", ids.empty() ? "" : ", ", part, *id);
  }
  const VocabSpec& spec = tokenizer.spec();
  const bool is_spelled = tokenizer.is_end_of_generation(mark->id);
  const bool is_base = !patient.has_weights() || (spec.bos == spec.eos && !patient.is_chat_model());
  FileFinding finding{
      .severity = !is_spelled ? Severity::kError
                  : is_base   ? Severity::kNote
                              : Severity::kWarning,
      .where = "tokenizer.ggml.eot_token_id",
      .what = fmt::format("found {}, need {} ({}), with which the template ends a turn",
                          ids.empty() ? "not an end token" : ids, mark->id, mark->spelling),
      .why = fmt::format("programs that go by the ids do not stop: after {} the model writes the "
                         "user's next turn{}",
                         mark->spelling, is_spelled ? "; some know the token by its spelling" : ""),
      .remedy = fmt::format("set tokenizer.ggml.eot_token_id to {}", mark->id)};
  if (is_base && is_spelled) return patient.report(std::move(finding));
  patient.set(std::move(finding), "tokenizer.ggml.eot_token_id",
              static_cast<std::uint32_t>(mark->id));
}

}  // namespace

void check_chat(LintContext& patient) {
  const auto tokenizer = patient.tokenizer();
  if (tokenizer == nullptr) return;
  if (patient.text(kTemplate).empty()) check_absent(patient, *tokenizer);
  const std::string jinja(patient.text(kTemplate));
  if (jinja.empty()) return;
  const auto chat = render_chat(jinja, tokenizer);
  FileFinding broken{.where = std::string(kTemplate),
                     .why =
                         "no chat can be rendered: programs reject it or use a format that the "
                         "model does not know",
                     .remedy = "take the template of the original tokenizer_config.json"};
  if (!chat.ok()) {
    const bool is_ours = chat.error().code == ErrorCode::kUnsupported;
    broken.severity = is_ours ? Severity::kNote : Severity::kError;
    broken.what = chat.error().to_string();
    return patient.report(std::move(broken));
  }
  if (!chat->has_question()) {
    broken.what = "found a template that does not write the user's message";
    return patient.report(std::move(broken));
  }
  check_marks(patient, *chat);
  check_turn_end(patient, *chat);
}

}  // namespace llm
