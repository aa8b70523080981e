#include "engine/chat/pair_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "engine/chat/call_reader.h"
#include "engine/chat/value_reader.h"

namespace llm {
namespace {

using Text = std::string_view;

constexpr std::size_t kMostKeyBytes = 200;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_space(const Atom& atom) { return atom.mark < 0 && (is_blank(atom.c) || atom.c == '\n'); }
bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

/// A value that may be a string and something else.
std::string json_of(std::string text, ArgumentTypes types) {
  const auto as_text = [&] { return json_text(OrderedJson(text)); };
  if (!types.other) return as_text();
  const std::optional<std::string> json = json_of_value(text);
  if (!json) return as_text();
  // Quotation marks, and words of other languages, are text where there may be text.
  const bool is_other =
      !types.string || (!json->starts_with('"') && !parse_ordered_json(text).is_discarded());
  return is_other ? *json : as_text();
}

}  // namespace

void ValueText::begin(ArgumentTypes types, bool has_lines) {
  *this = ValueText();
  types_ = types;
  has_lines_ = has_lines;
}

void ValueText::add(Text text, std::string& json) {
  for (const char c : text) put(c, json);
}

void ValueText::put(char c, std::string& json) {
  if (is_first_) {
    if (c == '\n') {
      is_first_ = false;
      begins_line_ = true;
      if (has_lines_)
        text_.clear();
      else
        text_ += c;
      return;
    }
    text_ += c;
    if (is_blank(c)) return;
    is_first_ = false;
    return give(json);
  }
  if (is_streamed_ && has_lines_) {
    const bool goes_on =
        (c == '\n' && text_ == "\r") || (is_blank(c) && text_.find('\n') != std::string::npos);
    if (!goes_on && (c == '\n' || c == '\r')) give(json);
    text_ += c;
    if (c == '\n' || c == '\r' || goes_on) return;
    return give(json);
  }
  text_ += c;
  give(json);
}

void ValueText::give(std::string& json) {
  if (!is_streamed_) {
    if (!is_surely_string()) return;
    is_streamed_ = true;
    json += '"';
    // What has been held is not layout, but for a line break at its end.
    std::string held;
    held.swap(text_);
    for (const char c : held) put(c, json);
    return;
  }
  for (const char c : text_) append_escaped(c, json);
  text_.clear();
}

bool ValueText::is_surely_string() const {
  if (!types_.string || (begins_line_ && !has_lines_)) return false;
  if (!types_.other) return true;
  constexpr std::size_t kMostWord = 64;
  const std::size_t at = std::min(text_.find_first_not_of(" \t\r\n"), text_.size());
  const Text text = Text(text_).substr(at, kMostWord);
  if (text.empty() || Text("{[\"").find(text.front()) != Text::npos) return false;
  if (Text("-0123456789").find(text.front()) != Text::npos)
    return text.find_first_not_of("-+.eE0123456789 \t\r\n") != Text::npos;
  return std::ranges::none_of(std::array<Text, 3>{"true", "false", "null"}, [&](Text word) {
    return word.starts_with(text) ||
           (text.starts_with(word) && text.find_first_not_of(" \t\r\n", word.size()) == Text::npos);
  });
}

bool ValueText::ends_line() const {
  const std::size_t line = text_.rfind('\n');
  return line != std::string::npos && text_.find_first_not_of(" \t\r\n", line) == std::string::npos;
}

void ValueText::finish(std::string& json) {
  const std::size_t line = text_.rfind('\n');
  if (ends_line() && (has_lines_ || (begins_line_ && line > 0))) {
    text_.erase(line > 0 && text_[line - 1] == '\r' ? line - 1 : line);
    if (!has_lines_) text_.erase(0, text_.find('\n') + 1);
  }
  if (is_streamed_) {
    for (const char c : text_) append_escaped(c, json);
    json += '"';
  } else {
    json += json_of(text_, types_);
  }
}

void PairReader::begin(const std::string& function) {
  const OrderedJson* const parameters = member_of(function_of(tools_, function), "parameters");
  parameters_ = parameters == nullptr ? OrderedJson() : *parameters;
  keys_.clear();
  key_.clear();
  held_.clear();
  end_ = 0;
  lacks_close_ = false;
  state_ = State::kKey;
}

PairReader::Step PairReader::take(const Atom& atom, std::string& json) {
  switch (state_) {
    case State::kKey:
    case State::kKeyEnd:
      return key(atom, json);
    case State::kValue:
      return value(atom, json);
    case State::kClose:
      return close(atom, json);
    case State::kNextKey:
    case State::kNextKeyEnd:
      return next_key(atom, json);
    case State::kChain:
      return chain(atom, json);
    case State::kTail:
      return tail(atom);
    case State::kHead:
      break;
  }
  return head(atom, json);
}

PairReader::Step PairReader::key(const Atom& atom, std::string& json) {
  const unsigned is = roles(atom);
  const bool ends = state_ == State::kKey && (is & kEndsKey) != 0;
  if ((ends || state_ == State::kKeyEnd) && (is & kBeginsValue) != 0) {
    accept_key(json);
    return Step::kMore;
  }
  if (ends) {
    state_ = State::kKeyEnd;
    return Step::kMore;
  }
  const Text text = marks_.lexer.text(atom);
  if (state_ == State::kKey) key_ += text;
  const bool fails = key_.size() > kMostKeyBytes || (is != 0 && state_ == State::kKey) ||
                     held_.size() > kMostKeyBytes;
  if (state_ == State::kKeyEnd) held_.push_back(atom);
  return fails ? Step::kFailed : Step::kMore;
}

PairReader::Step PairReader::value(const Atom& atom, std::string& json) {
  const unsigned is = roles(atom);
  if ((is & (kEndsValue | kEndsCall)) == 0) {
    value_.add(marks_.lexer.text(atom), json);
    return Step::kMore;
  }
  held_ = {atom};
  close_ = 0;
  lacks_close_ = (is & kEndsValue) == 0;
  state_ = lacks_close_ ? State::kChain : State::kClose;
  return Step::kMore;
}

PairReader::Step PairReader::close(const Atom& atom, std::string& json) {
  const unsigned is = roles(atom);
  const bool goes_on = is_space(atom) || (is & (kEndsValue | kBeginsKey | kEndsCall | kBeginsCall));
  if (!goes_on) return go_back(atom, json);
  held_.push_back(atom);
  if ((is & kEndsCall) != 0) {
    end_close_ = close_;
    end_ = held_.size();
    state_ = State::kChain;
  } else if ((is & kBeginsKey) != 0) {
    key_.clear();
    state_ = State::kNextKey;
  } else if ((is & kBeginsCall) != 0) {
    name_.clear();
    head_ = held_.size() - 1;
    head_from_ = state_;
    state_ = State::kHead;
  }
  return Step::kMore;
}

PairReader::Step PairReader::next_key(const Atom& atom, std::string& json) {
  const unsigned is = roles(atom);
  bool fails = false;
  if (state_ == State::kNextKey && (is & kEndsKey) != 0) {
    fails = !is_key();
    state_ = State::kNextKeyEnd;
  } else if (state_ == State::kNextKey) {
    key_ += marks_.lexer.text(atom);
    fails = is != 0 || atom.c == '\n' || atom.c == '<' || key_.size() > kMostKeyBytes;
  } else if ((is & ~static_cast<unsigned>(kEndsKey | kBeginsValue)) != 0) {
    fails = true;
  } else {
    key_ += ' ';  // counts what stands between
    fails = key_.size() > 2 * kMostKeyBytes;
  }
  if (fails) return go_back(atom, json);
  held_.push_back(atom);
  if (state_ != State::kNextKeyEnd || (is & kBeginsValue) == 0) return Step::kMore;
  end_value(close_, json);
  accept_key(json);
  return Step::kMore;
}

bool PairReader::is_key() const {
  const std::string key(without_spaces(key_));
  if (key.empty() || std::ranges::find(keys_, key) != keys_.end()) return false;
  const OrderedJson* const properties = member_of(&parameters_, "properties");
  if (properties == nullptr || !properties->is_object() || properties->empty() ||
      properties->contains(key) || !marks_.has_lines)
    return true;
  // One that the function has not is an argument only where it is laid out as such.
  const bool begins_line = close_ > 0 ? held_[close_ - 1].c == '\n' : !value_.lacks_line_end();
  const std::size_t at = held_.size() - key_.size() - 1;
  return begins_line && at > 0 && held_[at - 1].c == '\n';
}

PairReader::Step PairReader::chain(const Atom& atom, std::string& json) {
  const unsigned is = roles(atom);
  const bool goes_on = is_space(atom) || (is & (kEndsCall | kBeginsCall)) != 0;
  const bool is_close = (is & kEndsValue) != 0;
  if (!goes_on && lacks_close_) return go_back(atom, json);
  held_.push_back(atom);
  if (is_close) {
    close_ = held_.size() - 1;
    state_ = State::kClose;
  } else if ((is & kEndsCall) != 0) {
    if (!lacks_close_) end_ = held_.size();
  } else if ((is & kBeginsCall) != 0) {
    name_.clear();
    head_ = held_.size() - 1;
    head_from_ = state_;
    state_ = State::kHead;
  } else if (!goes_on) {
    state_ = State::kTail;
  }
  return Step::kMore;
}

PairReader::Step PairReader::tail(const Atom& atom) {
  held_.push_back(atom);
  const unsigned is = roles(atom);
  if ((is & kEndsValue) != 0) {
    close_ = held_.size() - 1;
    state_ = State::kClose;
  } else if ((is & kBeginsCall) != 0) {
    name_.clear();
    head_ = held_.size() - 1;
    head_from_ = State::kTail;
    state_ = State::kHead;
  }
  return Step::kMore;
}

PairReader::Step PairReader::head(const Atom& atom, std::string& json) {
  const bool is_name = atom.mark < 0 && is_name_character(atom.c);
  const bool is_before = name_.empty() && (is_space(atom) || (roles(atom) & kBeginsCall) != 0);
  if (is_name) name_ += atom.c;
  if (is_name || is_before) {
    held_.push_back(atom);
    return Step::kMore;
  }
  if (function_of(tools_, name_) == nullptr) return go_back(atom, json);
  held_.push_back(atom);
  if (end_ > 0 && head_from_ != State::kClose) return end_call(end_close_, end_, json);
  return end_call(close_, head_, json);
}

PairReader::Step PairReader::go_back(const Atom& atom, std::string& json) {
  if (end_ > 0) {
    state_ = State::kTail;
    return tail(atom);
  }
  value_.add(held_text(0, held_.size()), json);
  held_.clear();
  lacks_close_ = false;
  state_ = State::kValue;
  return value(atom, json);
}

void PairReader::accept_key(std::string& json) {
  key_ = without_spaces(key_);
  json += (keys_.empty() ? '{' : ',') + json_text(OrderedJson(key_)) + ":";
  keys_.push_back(key_);
  value_.begin(argument_types(parameters_, key_), marks_.has_lines);
  held_.clear();
  end_ = 0;
  state_ = State::kValue;
}

void PairReader::end_value(std::size_t close, std::string& json) {
  value_.add(held_text(0, close), json);
  // Of doubled ends the first one counts, but for a value of lines the first one that begins a
  // line.
  std::size_t from = close;
  for (std::size_t i = close + 1; i < held_.size() && !lacks_close_; ++i) {
    if ((roles(held_[i]) & kEndsValue) == 0) {
      if (is_space(held_[i])) continue;
      break;
    }
    if (!marks_.has_lines || !value_.lacks_line_end()) break;
    value_.add(held_text(from, i), json);
    from = i;
  }
  value_.finish(json);
}

PairReader::Step PairReader::end_call(std::size_t close, std::size_t end, std::string& json) {
  end_value(close, json);
  json += '}';
  end_ = end;
  return Step::kDone;
}

bool PairReader::finish(bool is_cut, std::string& json) {
  const bool has_key = !keys_.empty();
  if (!has_key || state_ == State::kValue) return false;
  if (state_ == State::kClose) {
    end_close_ = close_;
    end_ = held_.size();
    if (!is_cut) return end_call(end_close_, end_, json) == Step::kDone;
    end_value(end_close_, json);
    return false;
  }
  if (end_ > 0) return end_call(end_close_, end_, json) == Step::kDone;
  if (lacks_close_ && is_cut) return false;
  const bool is_head = state_ == State::kHead;
  if (state_ == State::kChain || (is_head && !is_cut))
    return end_call(close_, is_head ? head_ : held_.size(), json) == Step::kDone;
  end_ = held_.size();
  end_value(close_, json);
  return false;
}

std::vector<Atom> PairReader::left() {
  std::vector<Atom> rest(held_.begin() + static_cast<std::ptrdiff_t>(std::min(end_, held_.size())),
                         held_.end());
  held_.clear();
  end_ = 0;
  return rest;
}

std::string PairReader::held_text(std::size_t from, std::size_t to) const {
  return marks_.lexer.text_of(std::span(held_).subspan(from, to - from));
}

}  // namespace llm
