#include "engine/chat/object_reader.h"

namespace llm {
namespace {

bool is_space(std::string_view text) {
  return text.size() == 1 && std::string_view(" \t\r\n").find(text) != std::string_view::npos;
}

/// A JSON string's text; of another value, its JSON.
std::string text_of(const std::string& json) {
  const OrderedJson value = parse_ordered_json(json);
  return value.is_string() ? value.get<std::string>() : json;
}

}  // namespace

void ObjectReader::begin(bool is_strict) {
  is_strict_ = is_strict;
  state_ = State::kKey;
  name_.clear();
  arguments_.clear();
  has_name_ = has_arguments_ = is_streamed_ = is_given_ = false;
}

bool ObjectReader::is_arguments() const {
  return key_ == format_.arguments_key || key_ == "arguments" || key_ == "parameters";
}

bool ObjectReader::is_name() const {
  return key_ == format_.name_key || key_ == "name" || key_ == "function";
}

ObjectReader::Step ObjectReader::take(std::string_view text, std::string& json) {
  const bool is_quote = text == "\"" || text == "'" || text == ValueReader::kQuote;
  switch (state_) {
    case State::kKey:
      if (is_space(text)) return Step::kMore;
      if (text == "}") return Step::kEnd;
      if (!is_quote) return Step::kFailed;
      reader_ = ValueReader();
      key_.clear();
      state_ = State::kInKey;
      [[fallthrough]];
    case State::kInKey: {
      bool is_taken = true;
      const auto step = reader_.take(text, key_, is_taken);
      if (step == ValueReader::Step::kFailed) return Step::kFailed;
      if (step != ValueReader::Step::kDone) return Step::kMore;
      key_ = text_of(key_);
      state_ = State::kColon;
      const bool is_calls =
          is_arguments() || is_name() || key_ == "type" || key_ == "id" || key_ == "tool_call_id";
      return is_calls || !is_strict_ ? Step::kMore : Step::kFailed;
    }
    case State::kColon:
      if (is_space(text)) return Step::kMore;
      if (text != ":") return Step::kFailed;
      reader_ = ValueReader();
      value_.clear();
      is_streamed_ = false;
      state_ = State::kValue;
      return Step::kMore;
    case State::kValue:
      return value(text, json);
    case State::kNext:
      break;
  }
  if (is_space(text)) return Step::kMore;
  if (text == "}") return Step::kEnd;
  if (text != ",") return Step::kFailed;
  state_ = State::kKey;
  return Step::kMore;
}

ObjectReader::Step ObjectReader::value(std::string_view text, std::string& json) {
  if (reader_.is_blank() && text == "{") {
    if (key_ == "function" && name_.empty()) {  // {"type": "function", "function": {...}}
      state_ = State::kKey;
      return Step::kMore;
    }
    is_streamed_ = is_arguments() && has_name_ && !has_arguments_;
    has_arguments_ |= is_streamed_;
  }
  bool is_taken = true;
  const auto step = reader_.take(text, is_streamed_ ? json : value_, is_taken);
  if (step == ValueReader::Step::kFailed) return Step::kFailed;
  if (step != ValueReader::Step::kDone) return is_streamed_ ? Step::kArguments : Step::kMore;
  state_ = State::kNext;
  const Step done = end_value();
  if (is_taken) return done;
  const Step next = take(text, json);
  return done == Step::kMore || next == Step::kFailed ? next : done;
}

ObjectReader::Step ObjectReader::end_value() {
  if (is_streamed_) {
    is_given_ = true;
    return Step::kArguments;
  }
  if (is_arguments() && !has_arguments_) {
    has_arguments_ = true;
    arguments_ = value_;
    return Step::kMore;
  }
  if (!is_name() || !name_.empty()) return Step::kMore;
  name_ = text_of(value_);
  return Step::kName;
}

std::optional<std::string> ObjectReader::other_arguments() const {
  if (arguments_.empty() || arguments_ == "null") return "{}";
  std::optional<std::string> json = arguments_;
  if (arguments_.starts_with('"')) json = json_of_value(text_of(arguments_));
  if (json == "null") return "{}";
  return json && json->starts_with('{') ? json : std::nullopt;
}

}  // namespace llm
