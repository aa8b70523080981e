#include "engine/chat/call_reader.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace llm {
namespace {

using Text = std::string_view;
using Kind = ReplyPart::Kind;

constexpr Text kSpaces = " \t\r\n";
constexpr std::size_t kMostHead = 256;  // bytes of a name, and between it and the arguments

bool is_space(char c) { return kSpaces.find(c) != Text::npos; }
bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

Text without_leading_spaces(Text text) {
  return text.substr(std::min(text.find_first_not_of(kSpaces), text.size()));
}

Text without_spaces(Text text) {
  text = without_leading_spaces(text);
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

void CallReader::restart(State state) {
  state_ = state;
  raw_.clear();
  all_.clear();
  held_.clear();
  name_.clear();
  middle_.clear();
  tag_.clear();
  is_begun_ = has_calls_ = is_list_ = is_fenced_ = is_bare_ = false;
  is_sure_ = true;
}

void CallReader::begin(const Atom& mark, bool is_fenced) {
  restart(State::kOpen);
  is_open_ = true;
  is_fenced_ = is_fenced;
  raw_.push_back(mark);
}

void CallReader::begin_bare(bool is_sure) {
  restart(State::kOpen);
  is_bare_ = true;
  is_sure_ = is_sure;
}

void CallReader::begin_arguments(const std::string& name) {
  restart(State::kMiddle);
  name_ = name;
}

std::string CallReader::declared(Text name) const {
  if (is_known(name)) return std::string(name);
  const std::size_t dot = name.find('.');  // "functions.f"
  if (dot == Text::npos || !is_known(name.substr(dot + 1))) return "";
  return std::string(name.substr(dot + 1));
}

CallReader::Step CallReader::take(const Atom& atom, std::vector<ReplyPart>& parts) {
  parts_ = is_bare_ && !is_sure_ ? &held_ : &parts;
  if (is_bare_ && !is_sure_) all_.push_back(atom);
  raw_.push_back(atom);
  is_text_ = is_again_ = false;
  if (handle(atom)) return Step::kTaken;
  return is_again_ ? Step::kAgain : Step::kOver;
}

bool CallReader::handle(const Atom& atom) {
  switch (state_) {
    case State::kOpen:
      return open(atom);
    case State::kName:
      return name(atom);
    case State::kMiddle:
      return middle(atom);
    case State::kObject:
      return object(atom);
    case State::kArguments:
      return arguments(atom);
    case State::kPairs:
      return pairs(atom);
    case State::kBroken:
      return broken(atom);
    case State::kAfter:
      return after(atom);
    case State::kTag:
      break;
  }
  return tag(atom);
}

bool CallReader::open(const Atom& atom) {
  const unsigned is = roles(atom);
  if ((is & kBeginsCall) != 0) {
    if ((is_bare_ && (has_calls_ || !tag_.empty())) || raw_.size() > kMostHead) return give_up();
    is_open_ = is_sure_ = true;
    is_bare_ = false;
    return true;
  }
  if ((is & kFence) != 0) {
    is_fenced_ = true;
    return true;
  }
  if (atom.mark >= 0 && marks_.lexer.text(atom) != "\"") return give_up();
  if (is_space(atom.c) || (atom.mark >= 0 && !is_bare_)) return true;
  if (atom.c == '[' || (is_list_ && (atom.c == ',' || atom.c == ';'))) {
    is_list_ = true;
    return true;
  }
  if (atom.c == '{') {
    object_.begin(is_bare_ && !is_sure_);
    name_.clear();
    state_ = State::kObject;
    return true;
  }
  if (atom.c == '<' && is_bare_ && tag_.empty()) {
    state_ = State::kTag;
    return true;
  }
  const bool may_be_name = !is_bare_ || is_list_ || is_fenced_;
  if (may_be_name && is_name_character(atom.c)) {
    name_.clear();
    state_ = State::kName;
    return name(atom);
  }
  return !is_bare_ && atom.c == ':' && !name_.empty() ? true : give_up();
}

bool CallReader::name(const Atom& atom) {
  if (name_.empty() && (atom.mark >= 0 || !is_name_character(atom.c))) {
    state_ = State::kOpen;
    return open(atom);
  }
  if (atom.mark < 0 && is_name_character(atom.c)) {
    name_ += atom.c;
    return name_.size() <= kMostHead || give_up();
  }
  // The word of a fence, one of the template's, or an id that stands before the name.
  const std::string found = declared(name_);
  const bool is_word = std::ranges::find(marks_.words, name_) != marks_.words.end() ||
                       (is_fenced_ && !is_list_) || (roles(atom) & kBeginsCall) != 0;
  if (found.empty()) {
    if (!is_word) return give_up();
    state_ = State::kOpen;
    return open(atom);
  }
  if (is_bare_ && !is_list_) return give_up();
  name_ = found;
  middle_.clear();
  state_ = State::kMiddle;
  return middle(atom);
}

bool CallReader::middle(const Atom& atom) {
  const unsigned is = roles(atom);
  const bool is_blank = without_spaces(middle_).empty();
  if ((is & kBeginsKey) != 0 && is_pairs()) {
    has_elements() ? elements_.begin(name_) : pairs_.begin(name_);
    state_ = State::kPairs;
    return true;
  }
  if (atom.c == '{' || (atom.c == '(' && is_blank)) {
    if (is_bare_ && atom.c == '{') return give_up();
    value_ = ValueReader();
    begin_call();
    state_ = State::kArguments;
    return arguments(atom);
  }
  if (is_bare_ && !(is_blank && atom.mark < 0 && is_space(atom.c))) return give_up();
  const bool ends = (is & kEndsCall) != 0;
  if (ends || ((is & kBeginsCall) != 0 && is_pairs())) {
    const bool has_none = is_pairs() || without_spaces(middle_).ends_with("null");
    if (!has_none) return give_up();
    begin_call();
    add_arguments("{}");
    end_call(true);
    raw_.assign(1, atom);
    state_ = State::kAfter;
    return after(atom);
  }
  middle_ += marks_.lexer.text(atom);
  return middle_.size() <= kMostHead || give_up();
}

bool CallReader::object(const Atom& atom) {
  std::string json;
  const auto step = object_.take(marks_.lexer.text(atom), json);
  const bool is_over = object_.is_given() && !is_begun_;
  add_arguments(std::move(json));
  switch (step) {
    case ObjectReader::Step::kMore:
      return true;
    case ObjectReader::Step::kName:
      name_ = declared(object_.name());
      if (name_.empty()) return give_up();
      object_.accept_name();
      return true;
    case ObjectReader::Step::kArguments:
      if (object_.is_given() && !is_over) end_call(true);
      return true;
    case ObjectReader::Step::kEnd:
      if (!object_.is_given()) {
        const auto given = object_.other_arguments();
        const bool lacks = is_bare_ && !is_sure_ && !object_.has_arguments();
        if (name_.empty() || object_.name().empty() || !given || lacks) return give_up();
        begin_call();
        add_arguments(*given);
        end_call(true);
      }
      raw_.clear();
      state_ = State::kAfter;
      return true;
    case ObjectReader::Step::kFailed:
      break;
  }
  if (object_.is_given()) {  // it lacks its last brace
    state_ = State::kAfter;
    return after(atom);
  }
  if (!is_begun_) return give_up();
  state_ = State::kBroken;
  return broken(atom);
}

bool CallReader::arguments(const Atom& atom) {
  std::string json;
  bool is_taken = true;
  const auto step = value_.take(marks_.lexer.text(atom), json, is_taken);
  add_arguments(std::move(json));
  if (step == ValueReader::Step::kFailed) {
    state_ = State::kBroken;
    return broken(atom);
  }
  if (step == ValueReader::Step::kDone) {
    end_call(true);
    state_ = State::kAfter;
  }
  return true;
}

bool CallReader::pairs(const Atom& atom) {
  std::string json;
  const auto step = has_elements() ? elements_.take(atom, json) : pairs_.take(atom, json);
  if (!json.empty() && !is_begun_) begin_call();
  add_arguments(std::move(json));
  if (step == PairReader::Step::kFailed) return give_up();
  if (step == PairReader::Step::kMore) return true;
  end_call(true);
  raw_ = has_elements() ? elements_.left() : pairs_.left();
  state_ = State::kAfter;
  is_again_ = true;
  return false;
}

bool CallReader::broken(const Atom& atom) {
  const unsigned is = roles(atom);
  if ((is & (kEndsCall | kBeginsCall)) == 0) {
    add_arguments(std::string(marks_.lexer.text(atom)));
    return true;
  }
  end_call(false);
  raw_.assign(1, atom);
  state_ = State::kAfter;
  return after(atom);
}

bool CallReader::after(const Atom& atom) {
  const unsigned is = roles(atom);
  const bool is_list = is_list_ || is_open_ || (is_bare_ && is_sure_);
  if ((is & kEndsCall) != 0 && (is & (kBeginsThought | kHeader)) == 0) {
    raw_.clear();
    is_open_ = false;
    return true;
  }
  if ((is & kBeginsCall) != 0) {
    raw_.assign(1, atom);
    name_.clear();
    is_open_ = true;
    state_ = State::kOpen;
    return true;
  }
  const bool has_fence = is_fenced_ || (!is_bare_ && format_.end.find("```") != std::string::npos);
  if ((is & kFence) != 0 && has_fence) {
    raw_.clear();
    is_fenced_ = false;
    return true;
  }
  if (atom.c == ']' && is_list_) {
    raw_.clear();
    is_list_ = false;
    return true;
  }
  if (atom.mark < 0 && (is_space(atom.c) || Text(",;]})").find(atom.c) != Text::npos)) return true;
  if (atom.c == '{' && (is_list || is_bare_)) {
    object_.begin(is_bare_ && !is_sure_);
    name_.clear();
    state_ = State::kObject;
    return true;
  }
  const bool follows = std::ranges::any_of(raw_, [](const Atom& one) { return one.c == ','; });
  if (follows && is_list_ && is_name_character(atom.c)) {
    name_.clear();
    state_ = State::kName;
    return name(atom);
  }
  if (is_bare_ && !is_sure_ && !tag_.empty() && atom.c == '<') {
    state_ = State::kTag;
    middle_.clear();
    return true;
  }
  return is_bare_ && !is_sure_ ? give_up() : false;
}

/// A tag around a bare call: any one that encloses it.
bool CallReader::tag(const Atom& atom) {
  std::string& text = has_calls_ ? middle_ : tag_;
  if (atom.c == '>' || marks_.lexer.text(atom) == ">") {
    state_ = has_calls_ ? State::kAfter : State::kOpen;
    if (text.empty() || (has_calls_ && text != "/" + tag_)) return give_up();
    return true;
  }
  const bool fits = atom.mark < 0 && (is_name_character(atom.c) || (has_calls_ && atom.c == '/'));
  if (!fits || text.size() == 32) return give_up();
  text += atom.c;
  return true;
}

void CallReader::begin_call() {
  call_ = {name_, ""};
  is_begun_ = true;
  parts_->push_back({Kind::kCall, "", {name_, ""}});
}

void CallReader::add_arguments(std::string text) {
  if (text.empty()) return;
  if (!is_begun_) begin_call();
  call_.arguments += text;
  if (!parts_->empty() && parts_->back().kind == Kind::kArguments)
    parts_->back().text += text;
  else
    parts_->push_back({Kind::kArguments, std::move(text), {}});
}

void CallReader::end_call(bool is_whole) {
  is_begun_ = false;
  has_calls_ = true;
  parts_->push_back({Kind::kCallEnd, marks_.lexer.text_of(raw_), std::move(call_), is_whole});
  raw_.clear();
}

bool CallReader::give_up() {
  is_text_ = true;
  is_open_ = false;
  if (is_bare_ && !is_sure_) raw_ = std::exchange(all_, {});
  held_.clear();
  return false;
}

std::vector<Atom> CallReader::left(bool& is_text) {
  is_text = is_text_;
  return std::exchange(raw_, {});
}

void CallReader::finish(bool is_cut, std::vector<ReplyPart>& parts) {
  const bool is_held = is_bare_ && !is_sure_;
  parts_ = is_held ? &held_ : &parts;
  is_text_ = false;
  if (state_ == State::kPairs) {
    std::string json;
    const bool is_whole =
        has_elements() ? elements_.finish(is_cut, json) : pairs_.finish(is_cut, json);
    add_arguments(std::move(json));
    if (is_begun_) {
      end_call(is_whole);
      raw_ = has_elements() ? elements_.left() : pairs_.left();
      state_ = State::kAfter;
    } else {
      give_up();
    }
  } else if (state_ == State::kMiddle && is_pairs() && !is_cut && !is_bare_) {
    begin_call();
    add_arguments("{}");
    end_call(true);
    state_ = State::kAfter;
  } else if (state_ == State::kObject && object_.is_given()) {
    raw_.clear();
  } else if (state_ == State::kAfter && !(is_held && held_.empty())) {
    raw_.clear();
  } else if (is_begun_ && !is_held) {
    end_call(false);
  } else {
    give_up();
  }
  if (is_text_) return;
  if (is_held) std::ranges::move(held_, std::back_inserter(parts));
  held_.clear();
  all_.clear();
}

}  // namespace llm
