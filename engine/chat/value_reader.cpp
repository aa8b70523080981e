#include "engine/chat/value_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace llm {
namespace {

using Text = std::string_view;
using Step = ValueReader::Step;

constexpr std::size_t kMostLevels = 100;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// JSON's grammar of numbers.
bool is_number(std::string_view text) {
  const auto skip_digits = [&] {
    const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(n);
    return n;
  };
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool has_zero = text.starts_with('0');
  const std::size_t n = skip_digits();
  if (n == 0 || (has_zero && n > 1)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (skip_digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (skip_digits() == 0) return false;
  }
  return text.empty();
}

}  // namespace

void append_escaped(char c, std::string& json) {
  constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
  constexpr std::string_view kTo = "\"\\nrtbf";
  if (const std::size_t at = kFrom.find(c); at != std::string_view::npos) {
    json += '\\';
    json += kTo[at];
  } else if (static_cast<unsigned char>(c) < 0x20) {
    json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  } else {
    json += c;
  }
}

Step ValueReader::take(std::string_view text, std::string& json, bool& is_taken) {
  is_taken = true;
  if (text == kQuote) {
    const bool in_string =
        state_ == State::kString || state_ == State::kEscape || state_ == State::kCode;
    if (state_ == State::kString && quote_ == '|') {
      end_string(json);
      return open_.empty() && state_ == State::kEnd ? Step::kDone : Step::kMore;
    }
    if (!in_string && (state_ == State::kValue || state_ == State::kKey)) {
      begin_string('|', state_ == State::kKey, json);
      return Step::kMore;
    }
  }
  for (const char c : text) {
    const Step done = step(c, json, is_taken);
    if (done != Step::kMore) return done;
  }
  return Step::kMore;
}

Step ValueReader::step(char c, std::string& json, bool& is_taken) {
  switch (state_) {
    case State::kValue:
      return begin_value(c, json);
    case State::kToken:
      if (is_word(c) || c == '.' || c == '+' || c == '-') {
        token_ += c;
        return Step::kMore;
      }
      if (!end_token(json)) return Step::kFailed;
      if (after_value() == Step::kDone) {
        is_taken = false;
        return Step::kDone;
      }
      return next(c, json);
    case State::kString:
      if (c != '\\') end_pair(json);
      if (c == quote_ && quote_ != '|') {
        end_string(json);
        return state_ == State::kEnd ? Step::kDone : Step::kMore;
      }
      if (c == '\\' && quote_ != '|')
        state_ = State::kEscape;
      else
        append_escaped(c, json);
      return Step::kMore;
    case State::kEscape:
      return escape(c, json);
    case State::kCode:
      return code(c, json);
    case State::kKey:
      return key(c, json);
    case State::kName:
      if (is_word(c) || c == '-' || c == '.') {
        json += c;
        return Step::kMore;
      }
      json += '"';
      state_ = State::kColon;
      return colon(c, json);
    case State::kColon:
      return colon(c, json);
    case State::kNext:
      return next(c, json);
    case State::kEnd:
      break;
  }
  is_taken = false;
  return Step::kDone;
}

bool ValueReader::finish(std::string& json) {
  if (state_ == State::kToken && open_.empty()) {
    if (!end_token(json)) return false;
    after_value();
  }
  return state_ == State::kEnd;
}

Step ValueReader::begin_value(char c, std::string& json) {
  if (is_space(c)) return Step::kMore;
  if (c == ']') return close(c, json);
  add_comma(json);
  if (c == '{' || c == '[' || (c == '(' && open_.empty())) return open(c, json);
  if (c == '"' || c == '\'') {
    begin_string(c, false, json);
    return Step::kMore;
  }
  if (!is_word(c) && c != '-') return Step::kFailed;
  token_ = c;
  state_ = State::kToken;
  return Step::kMore;
}

Step ValueReader::open(char bracket, std::string& json) {
  if (open_.size() == kMostLevels) return Step::kFailed;
  open_ += bracket;
  json += bracket == '[' ? '[' : '{';
  needs_comma_ = false;
  state_ = bracket == '[' ? State::kValue : State::kKey;
  return Step::kMore;
}

Step ValueReader::close(char bracket, std::string& json) {
  const char opened = open_.empty() ? '\0' : open_.back();
  const bool fits = (opened == '{' && bracket == '}') || (opened == '[' && bracket == ']') ||
                    (opened == '(' && bracket == ')');
  if (!fits) return Step::kFailed;
  open_.pop_back();
  json += bracket == ']' ? ']' : '}';
  return after_value();
}

Step ValueReader::after_value() {
  needs_comma_ = true;
  state_ = open_.empty() ? State::kEnd : State::kNext;
  return open_.empty() ? Step::kDone : Step::kMore;
}

void ValueReader::add_comma(std::string& json) {
  if (std::exchange(needs_comma_, false)) json += ',';
}

Step ValueReader::key(char c, std::string& json) {
  if (is_space(c)) return Step::kMore;
  if (c == '}' || c == ')') return close(c, json);
  if (c == '"' || c == '\'') {
    begin_string(c, true, json);
    return Step::kMore;
  }
  if (!is_word(c) || is_digit(c)) return Step::kFailed;
  add_comma(json);
  json += '"';
  json += c;
  state_ = State::kName;
  return Step::kMore;
}

Step ValueReader::colon(char c, std::string& json) {
  if (is_space(c)) return Step::kMore;
  if (c != (open_.back() == '(' ? '=' : ':')) return Step::kFailed;
  json += ':';
  state_ = State::kValue;
  return Step::kMore;
}

Step ValueReader::next(char c, std::string& json) {
  if (is_space(c)) return Step::kMore;
  if (c != ',') return close(c, json);
  state_ = open_.back() == '[' ? State::kValue : State::kKey;
  return Step::kMore;
}

void ValueReader::begin_string(char quote, bool is_key, std::string& json) {
  add_comma(json);
  json += '"';
  quote_ = quote;
  is_key_ = is_key;
  state_ = State::kString;
}

void ValueReader::end_string(std::string& json) {
  json += '"';
  if (is_key_)
    state_ = State::kColon;
  else
    after_value();
}

Step ValueReader::escape(char c, std::string& json) {
  state_ = State::kString;
  if (c != 'u') end_pair(json);
  if (c == 'u' || c == 'x') {
    token_ = c;
    state_ = State::kCode;
  } else if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    json += '\\';
    json += c;
  } else {
    if (c != '\'') json += "\\\\";
    append_escaped(c, json);
  }
  return Step::kMore;
}

Step ValueReader::code(char c, std::string& json) {
  const std::size_t wanted = token_.front() == 'u' ? 5 : 3;
  state_ = State::kString;
  if (is_hex(c)) {
    token_ += c;
    if (token_.size() == wanted)
      add_code((wanted == 5 ? "\\u" : "\\u00") + token_.substr(1), json);
    else
      state_ = State::kCode;
    return Step::kMore;
  }
  end_pair(json);
  json += "\\\\" + token_;  // no code: a backslash of a path or a pattern
  bool is_taken = true;
  return step(c, json, is_taken);
}

/// Surrogates come in pairs; one alone is no character.
void ValueReader::add_code(std::string code, std::string& json) {
  const bool is_surrogate = code[2] == 'd' || code[2] == 'D';
  const bool is_high = is_surrogate && Text("89abAB").find(code[3]) != Text::npos;
  const bool is_low = is_surrogate && Text("cdefCDEF").find(code[3]) != Text::npos;
  if (is_low && !high_.empty()) {
    json += std::exchange(high_, "") + code;
    return;
  }
  end_pair(json);
  if (is_high)
    high_ = std::move(code);
  else
    json += is_low ? "\\ufffd" : code;
}

void ValueReader::end_pair(std::string& json) {
  if (!std::exchange(high_, "").empty()) json += "\\ufffd";
}

bool ValueReader::end_token(std::string& json) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"true", "true"},   {"True", "true"}, {"false", "false"},
      {"False", "false"}, {"null", "null"}, {"None", "null"}};
  const auto* const word = std::ranges::find(kWords, std::string_view(token_),
                                             &std::pair<std::string_view, std::string_view>::first);
  if (word != std::end(kWords))
    json += word->second;
  else if (is_number(token_))
    json += token_;
  else
    return false;
  return true;
}

std::optional<std::string> json_of_value(std::string_view text) {
  ValueReader reader;
  std::string json;
  bool is_done = false;
  while (!text.empty()) {
    const std::size_t size = text.starts_with(ValueReader::kQuote) ? ValueReader::kQuote.size() : 1;
    if (is_done) {
      if (!is_space(text.front())) return std::nullopt;
      text.remove_prefix(1);
      continue;
    }
    bool is_taken = true;
    const Step step = reader.take(text.substr(0, size), json, is_taken);
    if (step == Step::kFailed) return std::nullopt;
    is_done = step == Step::kDone;
    if (is_taken) text.remove_prefix(size);
  }
  if (!is_done && !reader.finish(json)) return std::nullopt;
  return json;
}

}  // namespace llm
