#include "engine/chat/element_reader.h"

#include <string_view>
#include <utility>

#include "engine/chat/argument_types.h"

namespace llm {
namespace {

using Step = ElementReader::Step;

constexpr std::size_t kMostNameBytes = 200;
constexpr std::size_t kMostLevels = 64;

bool is_space(const Atom& atom) {
  return atom.mark < 0 && std::string_view(" \t\r\n").find(atom.c) != std::string_view::npos;
}

}  // namespace

void ElementReader::begin(const std::string& function) {
  const OrderedJson* const parameters = member_of(function_of(tools_, function), "parameters");
  parameters_ = parameters == nullptr ? OrderedJson() : *parameters;
  levels_.assign(1, {"", &parameters_, 0, false});
  levels_.front().bracket = '{';
  held_.clear();
  name_.clear();
  state_ = State::kName;
}

Step ElementReader::take(const Atom& atom, std::string& json) {
  if (state_ == State::kText) return text(atom, json);
  if (state_ == State::kClosed) return closed(atom, json);
  return name(atom, json);
}

bool ElementReader::may_have_parts() const {
  return !has_text_ && levels_.size() < kMostLevels &&
         (levels_.back().bracket != 0 || value_types(parameters_, levels_.back().schema).other);
}

Step ElementReader::text(const Atom& atom, std::string& json) {
  const unsigned is = roles(atom);
  const bool opens = (is & kBeginsKey) != 0 && may_have_parts();
  const bool closes = (is & kEndsValue) != 0 && levels_.size() > 1;
  if (!opens && !closes) {
    add(atom, json);
    return Step::kMore;
  }
  held_ = {atom};
  name_.clear();
  state_ = opens ? State::kName : State::kCloseName;
  return Step::kMore;
}

Step ElementReader::name(const Atom& atom, std::string& json) {
  const bool is_end = marks_.lexer.text(atom) == format_.key_end;
  if (!is_end &&
      (atom.mark >= 0 || atom.c == '<' || atom.c == '\n' || name_.size() == kMostNameBytes)) {
    if (levels_.size() == 1 && !levels_.front().has_items) return Step::kFailed;
    return give_back(atom, json);
  }
  if (is_end && state_ == State::kCloseName && name_ != levels_.back().name)
    return give_back(atom, json);
  held_.push_back(atom);
  if (!is_end) {
    name_ += atom.c;
  } else if (state_ == State::kName) {
    open(json);
    state_ = State::kText;
  } else {
    state_ = State::kClosed;
  }
  return Step::kMore;
}

Step ElementReader::closed(const Atom& atom, std::string& json) {
  if (is_space(atom)) {
    held_.push_back(atom);
    return Step::kMore;
  }
  const unsigned is = roles(atom);
  const bool ends = (is & (kEndsCall | kBeginsCall)) != 0 && levels_.size() == 2;
  const bool opens = (is & kBeginsKey) != 0;
  const bool closes = (is & kEndsValue) != 0 && levels_.size() > 2;
  if (!ends && !opens && !closes) return give_back(atom, json);
  close(json);
  held_ = {atom};
  name_.clear();
  state_ = opens ? State::kName : State::kCloseName;
  if (!ends) return Step::kMore;
  json += '}';
  return Step::kDone;
}

char ElementReader::bracket_of(std::string_view first) const {
  const OrderedJson* const schema = referred(parameters_, levels_.back().schema);
  const OrderedJson* const type = member_of(schema, "type");
  if (type != nullptr && *type == "array") return '[';
  if (type != nullptr && *type == "object") return '{';
  return first == "item" ? '[' : '{';
}

void ElementReader::open(std::string& json) {
  Level& around = levels_.back();
  if (around.bracket == 0) around.bracket = bracket_of(name_);
  if (around.has_items)
    json += ',';
  else
    json += around.bracket;
  around.has_items = true;
  const OrderedJson* const schema = referred(parameters_, around.schema);
  const OrderedJson* inner = nullptr;
  if (around.bracket == '[') {
    inner = member_of(schema, "items");
  } else {
    json += json_text(OrderedJson(name_)) + ":";
    inner = member_of(member_of(schema, "properties"), name_);
  }
  levels_.push_back({name_, inner});
  value_.begin(value_types(parameters_, inner), false);
  has_text_ = false;
  blanks_.clear();
}

void ElementReader::close(std::string& json) {
  const Level& level = levels_.back();
  const ArgumentTypes types = value_types(parameters_, level.schema);
  if (level.bracket != 0) {
    json += level.bracket == '[' ? ']' : '}';
  } else if (!has_text_ && !types.string) {
    json += bracket_of("") == '[' ? "[]" : "{}";
  } else {
    if (!has_text_) value_.add(blanks_, json);
    value_.finish(json);
  }
  levels_.pop_back();
  has_text_ = false;
  blanks_.clear();
}

Step ElementReader::give_back(const Atom& atom, std::string& json) {
  for (const Atom& held : std::exchange(held_, {})) add(held, json);
  state_ = State::kText;
  return text(atom, json);
}

/// Between elements no text counts.
void ElementReader::add(const Atom& atom, std::string& json) {
  if (levels_.back().bracket != 0) return;
  if (!has_text_ && is_space(atom)) {
    blanks_ += atom.c;
    return;
  }
  if (!has_text_) value_.add(std::exchange(blanks_, ""), json);
  has_text_ = true;
  value_.add(marks_.lexer.text(atom), json);
}

bool ElementReader::finish(bool is_cut, std::string& json) {
  const bool is_whole = state_ == State::kClosed && levels_.size() == 2;
  if (is_whole) {
    close(json);
    if (!is_cut) json += '}';
  }
  held_.clear();
  return is_whole && !is_cut;
}

std::vector<Atom> ElementReader::left() { return std::exchange(held_, {}); }

}  // namespace llm
