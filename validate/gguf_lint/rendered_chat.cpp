#include "validate/gguf_lint/rendered_chat.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace llm {
namespace {

constexpr std::string_view kFirst = "First question?";
constexpr std::string_view kAnswer = "An answer.";
constexpr std::string_view kSecond = "Second question?";
constexpr std::chrono::year_month_day kDate(std::chrono::year(2024), std::chrono::July,
                                            std::chrono::day(26));

OrderedJson conversation(bool has_system) {
  OrderedJson messages = OrderedJson::array();
  if (has_system) messages.push_back(chat_message("system", "Be brief."));
  messages.push_back(chat_message("user", std::string(kFirst)));
  messages.push_back(chat_message("assistant", std::string(kAnswer)));
  messages.push_back(chat_message("user", std::string(kSecond)));
  return messages;
}

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

}  // namespace

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

bool RenderedChat::has_question() const { return text.find(kFirst) != std::string::npos; }

Result<RenderedChat> render_chat(const std::string& jinja,
                                 std::shared_ptr<const Tokenizer> tokenizer) {
  LLM_TRY(auto style, ChatStyle::create("file", jinja, *tokenizer));
  style->set_date(kDate);
  // Some know no system, some take one question only.
  const OrderedJson question = OrderedJson::array({chat_message("user", std::string(kFirst))});
  Result<std::vector<ChatPart>> parts = std::vector<ChatPart>();
  for (const OrderedJson& messages : {conversation(true), conversation(false), question}) {
    parts = style->render(messages, {}, OrderedJson::object(), true, trial_limits());
    if (parts.ok() || is_exhausting(parts.error())) break;
  }
  if (!parts.ok()) return std::move(parts).error();
  ChatMarkers markers(*tokenizer, jinja);
  std::string text = chat_text(*parts);
  std::string end(end_of_turn(text, markers));
  return RenderedChat{std::move(tokenizer), std::move(style), std::move(markers), std::move(text),
                      std::move(end)};
}

std::string render_without_bos(const RenderedChat& chat) {
  const auto plain = ChatTemplate::parse(chat.style->source());
  if (!plain.ok()) return {};
  ChatInput input;
  input.messages = conversation(false);
  input.date = kDate;
  const auto parts = plain->render(input, trial_limits());
  return parts.ok() ? chat_text(*parts) : std::string();
}

}  // namespace llm
