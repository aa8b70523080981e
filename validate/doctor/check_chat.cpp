// The chat template, what begins a text and what ends a turn.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/shown_text.h"
#include "engine/generate/chat_style.h"
#include "tokenizer/pre_tokenizer_rules.h"
#include "validate/doctor/checks.h"

namespace llm {
namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";
constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
constexpr std::string_view kFirst = "First question?";
constexpr std::string_view kAnswer = "An answer.";
constexpr std::string_view kSecond = "Second question?";

/// The built-in templates of formats whose marks are tokens of their own.
constexpr std::array<std::string_view, 4> kFormats = {"chatml", "llama3", "gemma", "mistral-nemo"};

OrderedJson conversation(bool has_system) {
  OrderedJson messages = OrderedJson::array();
  if (has_system) messages.push_back(chat_message("system", "Be brief."));
  messages.push_back(chat_message("user", std::string(kFirst)));
  messages.push_back(chat_message("assistant", std::string(kAnswer)));
  messages.push_back(chat_message("user", std::string(kSecond)));
  return messages;
}

/// A template at work: a conversation as it writes it.
struct Rendered {
  std::shared_ptr<const Tokenizer> tokenizer;  ///< which the style and the markers view
  std::shared_ptr<ChatStyle> style;
  ChatMarkers markers;
  std::vector<ChatPart> parts;
  std::string text;
  std::string_view end;  ///< of a turn
};

/// A mark of a chat's form: <|...|>, or what other templates write.
bool is_mark(std::string_view text) {
  constexpr std::array<std::string_view, 6> kOthers = {
      "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"};
  constexpr std::string_view kWideBar = "\uFF5C";
  const auto is_between = [text](std::string_view begin, std::string_view end) {
    return text.size() > begin.size() + end.size() && text.starts_with(begin) &&
           text.ends_with(end);
  };
  return is_between("<|", "|>") ||
         is_between(fmt::format("<{}", kWideBar), fmt::format("{}>", kWideBar)) ||
         std::ranges::find(kOthers, text) != kOthers.end();
}

/// The marks that `text` spells, in order.
std::vector<std::string_view> marks_of(std::string_view text) {
  std::vector<std::string_view> marks;
  for (std::size_t at = text.find('<'); at < text.size(); at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end >= text.size()) break;
    const std::string_view mark = text.substr(at, end + 1 - at);
    if (mark.size() <= 64 && is_mark(mark)) marks.push_back(mark);
  }
  return marks;
}

/// The first mark in `text`, a token of the vocabulary or not; empty where there is none.
std::string_view first_mark(std::string_view text, const ChatMarkers& markers) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (const auto token = markers.at_start(text.substr(at))) return token->spelling;
    const auto spelled =
        text[at] == '<' ? marks_of(text.substr(at)) : std::vector<std::string_view>();
    if (!spelled.empty() && spelled.front().data() == text.data() + at) return spelled.front();
  }
  return {};
}

/// The mark that the template writes at the end of an answer; empty where it writes none, and what
/// stands before the next question opens it as it opens the first.
std::string_view end_of_turn(std::string_view text, const ChatMarkers& markers) {
  const std::size_t answer = text.find(kAnswer);
  const std::size_t second = text.find(kSecond, std::min(answer, text.size()));
  if (second >= text.size()) return {};
  const std::size_t behind = answer + kAnswer.size();
  const std::string_view mark = first_mark(text.substr(behind, second - behind), markers);
  if (mark.empty()) return {};
  std::string_view before = text.substr(0, text.find(mark));
  while (!before.empty()) {  // a text that begins with it, or with BOS and it
    const std::string_view begin = first_mark(before, markers);
    const bool is_at_start = before.find_first_not_of(" \n") == before.find(begin);
    if (begin.empty() || !is_at_start) break;
    before.remove_prefix(before.find(begin) + begin.size());
  }
  const bool is_opener = before.find_first_not_of(" \n") == std::string_view::npos;
  return is_opener ? std::string_view() : mark;
}

Result<Rendered> render(std::string_view jinja, std::shared_ptr<const Tokenizer> tokenizer) {
  LLM_TRY(auto style, ChatStyle::create("file", std::string(jinja), *tokenizer));
  style->set_date(std::chrono::year_month_day(std::chrono::year(2024), std::chrono::July,
                                              std::chrono::day(26)));
  auto parts = style->render(conversation(true));
  if (!parts.ok()) parts = style->render(conversation(false));
  // Some take one question only.
  if (!parts.ok())
    parts = style->render(OrderedJson::array({chat_message("user", std::string(kFirst))}));
  if (!parts.ok()) return std::move(parts).error();
  ChatMarkers markers(*tokenizer, jinja);
  Rendered rendered{std::move(tokenizer), style, std::move(markers), *parts, chat_text(*parts), {}};
  rendered.end = end_of_turn(rendered.text, rendered.markers);
  return rendered;
}

void check_absent(Patient& patient, const Tokenizer& tokenizer) {
  for (const std::string_view format : kFormats) {
    const auto style = ChatStyle::choose(std::string(format), "", tokenizer);
    if (!style.ok()) continue;
    const bool is_chat = patient.is_chat_model();
    Finding finding{
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
void check_marks(Patient& patient, const Rendered& chat) {
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
  patient.report({.severity = is_end     ? Severity::kError
                              : is_mixed ? Severity::kWarning
                                         : Severity::kNote,
                  .where = std::string(kTemplate),
                  .what = fmt::format("found {} in what the template writes, no control token of "
                                      "this vocabulary",
                                      list),
                  .why = is_end ? "the model cannot end its turn: replies run on to the limit"
                                : "the model reads the mark as several pieces of text",
                  .remedy = "take the template of the model that this vocabulary belongs to, or "
                            "convert again with its added tokens"});
}

/// The turn's end among the ids that end a text.
void check_turn_end(Patient& patient, const Rendered& chat) {
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
  Finding finding{
      .severity = !is_spelled ? Severity::kError
                  : is_base   ? Severity::kNote
                              : Severity::kWarning,
      .where = "tokenizer.ggml.eot_token_id",
      .what = fmt::format("found {}, need {} ({}), with which the template ends a turn",
                          ids.empty() ? "no end of a text" : ids, mark->id, mark->spelling),
      .why = fmt::format("programs that go by the ids do not stop: after {} the model writes the "
                         "user's next turn{}",
                         mark->spelling, is_spelled ? "; some know the token by its spelling" : ""),
      .remedy = fmt::format("set tokenizer.ggml.eot_token_id to {}", mark->id)};
  if (is_base && is_spelled) return patient.report(std::move(finding));
  patient.set(std::move(finding), "tokenizer.ggml.eot_token_id",
              static_cast<std::uint32_t>(mark->id));
}

void check_doubled_bos(Patient& patient, const Rendered& chat) {
  const VocabSpec& spec = chat.tokenizer->spec();
  if (!spec.bos || !spec.add_bos) return;
  const std::string& bos = chat.tokenizer->spelling(*spec.bos);
  if (!chat.text.starts_with(bos)) return;
  // What an engine that avoids doubling does: it gives the template no BOS to write.
  const auto plain = ChatTemplate::parse(chat.style->source());
  ChatInput input{.messages = conversation(false),
                  .date = std::chrono::year_month_day(std::chrono::year(2024), std::chrono::July,
                                                      std::chrono::day(26))};
  const auto without =
      plain.ok() ? plain->render(input) : Result<std::vector<ChatPart>>(plain.error());
  const bool is_literal = without.ok() && chat_text(*without).starts_with(bos);
  const auto ids = chat.style->encode(chat.parts, true);
  const bool is_twice =
      ids.ok() && ids->size() > 1 && (*ids)[0] == *spec.bos && (*ids)[1] == *spec.bos;
  Finding finding{.severity = Severity::kWarning,
                  .where = std::string(kAddBos),
                  .what = fmt::format("found true, and the template writes {} {}", bos,
                                      is_literal ? "in its own letters" : "by its bos_token"),
                  .why =
                      "a chat begins with two of it, which no text of the training did: answers "
                      "get worse",
                  .remedy = "set it to false: the template writes it"};
  if (is_literal || is_twice) return patient.set(std::move(finding), kAddBos, false);
  finding.severity = Severity::kNote;
  finding.why = "engines that do not strip one of the two begin a chat with both";
  finding.remedy = "none is needed here; elsewhere, turn one of the two off";
  patient.report(std::move(finding));
}

/// @param chat  what the template writes; empty where there is none that works
void check_missing_bos(Patient& patient, const Tokenizer& tokenizer, std::string_view chat) {
  const VocabSpec& spec = tokenizer.spec();
  const std::string_view architecture = patient.text("general.architecture");
  if (spec.add_bos) {
    // Qwen has no BOS; its converters name the end of documents so.
    if (!spec.bos || spec.bos != spec.eos || !architecture.starts_with("qwen")) return;
    return patient.set(
        {.severity = Severity::kWarning,
         .where = std::string(kAddBos),
         .what = fmt::format("found true, and BOS is {}, which ends documents",
                             tokenizer.spelling(*spec.bos)),
         .why = "every text begins with a token that this family's texts do not begin with",
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
  patient.set({.severity = is_gemma ? Severity::kError : Severity::kWarning,
               .where = std::string(kAddBos),
               .what = fmt::format("found false, and nothing else writes {}", bos),
               .why = "every text of the training began with it: without it answers are worse, of "
                      "Gemma nonsense",
               .remedy = "set it to true"},
              kAddBos, true);
}

/// BOS is another token than the vocabulary's own.
void check_which_bos(Patient& patient, const Tokenizer& tokenizer) {
  const VocabSpec& spec = tokenizer.spec();
  constexpr std::array<std::string_view, 5> kSpellings = {
      "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>",
      "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"};
  const std::string found = spec.bos ? tokenizer.spelling(*spec.bos) : "none";
  if (!spec.add_bos || std::ranges::find(kSpellings, found) != kSpellings.end()) return;
  for (const std::string_view spelling : kSpellings) {
    const auto id = patient.marker(spelling);
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

void check_chat(Patient& patient) {
  if (const auto tokenizer = patient.tokenizer()) check_which_bos(patient, *tokenizer);
  const std::shared_ptr<const Tokenizer> tokenizer = patient.tokenizer();
  if (tokenizer == nullptr) return;
  const std::string jinja(patient.text(kTemplate));
  if (jinja.empty()) {
    check_absent(patient, *tokenizer);
    return check_missing_bos(patient, *tokenizer, {});
  }
  const auto chat = render(jinja, tokenizer);
  if (!chat.ok()) {
    const bool is_ours = chat.error().code == ErrorCode::kUnsupported;
    patient.report({.severity = is_ours ? Severity::kNote : Severity::kError,
                    .where = std::string(kTemplate),
                    .what = chat.error().to_string(),
                    .why = "no chat can be rendered: programs refuse it or fall back on a format "
                           "that the model does not know",
                    .remedy = "take the template of the original tokenizer_config.json"});
    return check_missing_bos(patient, *tokenizer, {});
  }
  check_marks(patient, *chat);
  check_turn_end(patient, *chat);
  check_doubled_bos(patient, *chat);
  check_missing_bos(patient, *tokenizer, chat->text);
}

}  // namespace llm
