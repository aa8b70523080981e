#include "engine/chat/reply_parser.h"

#include <algorithm>
#include <array>
#include <utility>

namespace llm {
namespace {

using Text = std::string_view;

constexpr Text kSpaces = " \t\r\n";
// gpt-oss's format, "harmony". Source: OpenAI's "Harmony response format".
constexpr Text kStart = "<|start|>";
constexpr Text kChannel = "<|channel|>";
constexpr Text kMessage = "<|message|>";
constexpr Text kEnd = "<|end|>";
constexpr Text kRecipient = "to=functions.";

Text without_front(Text text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text;
}

Text trimmed(Text text) {
  text = without_front(text);
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

/// Whether `text` may become one that starts with `marker`, which it does not yet.
bool may_become(Text text, Text marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

void skip_spaces(Text text, std::size_t& at) {
  at = text.size() - without_front(text.substr(at)).size();
}

/// One line break at each end goes: it stands around values that are lines of their own.
std::string without_line_breaks(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.starts_with('\n')) text.erase(0, 1);
  return text;
}

/// Of an object that may not be there.
const OrderedJson* member_of(const OrderedJson* object, Text name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() ? nullptr : &*at;
}

/// What OpenAI's list of tools says of a function; nullptr: there is none of that name.
const OrderedJson* function_of(const OrderedJson& tools, const std::string& name) {
  for (const OrderedJson& tool : tools) {
    const OrderedJson* const function = member_of(&tool, "function");
    const OrderedJson* const known = member_of(function, "name");
    if (known != nullptr && *known == name) return function;
  }
  return nullptr;
}

}  // namespace

ReplyParser::ReplyParser(const ReplyFormat& format, const OrderedJson& tools, bool is_thinking,
                         std::size_t most_calls)
    : format_(format),
      tools_(tools),
      calls_left_(most_calls),
      state_(is_thinking ? State::kThought : State::kContent) {
  const bool is_harmony = format.call == ReplyFormat::Call::kChannels;
  if (is_harmony) {
    state_ = State::kHeader;
    format_.think_end = kEnd;
  } else if (!tools.is_array() || tools.empty()) {
    format_.call = ReplyFormat::Call::kNone;
  }
  for (std::string* text :
       {&format_.think_begin, &format_.think_end, &format_.begin, &format_.between, &format_.end,
        &format_.middle, &format_.key_begin, &format_.key_end, &format_.value_end})
    *text = std::string(trimmed(*text));
  if (format_.call == ReplyFormat::Call::kNone) format_.begin.clear();
}

std::vector<ReplyPart> ReplyParser::push(Text text) {
  if (calls_left_ == 0) return {};
  pending_ += text;
  run();
  return std::exchange(parts_, {});
}

std::vector<ReplyPart> ReplyParser::finish() {
  ended_ = true;
  run();
  if (!has_parts_ && !spaces_.empty())
    parts_.push_back({ReplyPart::Kind::kContent, std::exchange(spaces_, ""), {}});
  return std::exchange(parts_, {});
}

void ReplyParser::run() {
  for (bool goes_on = true; goes_on && !(pending_.empty() && !ended_);) {
    if (calls_left_ == 0) return pending_.clear();
    switch (state_) {
      case State::kContent:
        goes_on = content();
        break;
      case State::kThought:
        goes_on = thought();
        break;
      case State::kCall:
        goes_on = call();
        break;
      case State::kHeader:
        goes_on = header();
        break;
    }
  }
}

bool ReplyParser::content() {
  const bool is_object = format_.call == ReplyFormat::Call::kObject;
  if (is_object && format_.begin.empty() && !has_content_) {
    const Text rest = without_front(pending_);
    if (rest.empty()) {
      if (ended_) add(ReplyPart::Kind::kContent, std::exchange(pending_, ""));
      return false;
    }
    if (rest.front() == '{') {
      spaces_ += pending_.substr(0, pending_.size() - rest.size());
      pending_.erase(0, pending_.size() - rest.size());
      begun_.clear();
      state_ = State::kCall;
      return true;
    }
  }
  const std::size_t thought = find(format_.think_begin);
  const std::size_t call = find(format_.begin);
  const std::size_t end = format_.call == ReplyFormat::Call::kChannels ? find(kEnd) : Text::npos;
  const std::size_t at = std::min({thought, call, end});
  if (at == Text::npos) {
    const std::size_t size = ended_ ? pending_.size() : safe_size(pending_);
    add(ReplyPart::Kind::kContent, Text(pending_).substr(0, size));
    pending_.erase(0, size);
    return false;
  }
  add(ReplyPart::Kind::kContent, Text(pending_).substr(0, at));
  const Text marker = at == thought ? Text(format_.think_begin)
                      : at == call  ? Text(format_.begin)
                                    : kEnd;
  state_ = at == thought ? State::kThought : at == call ? State::kCall : State::kHeader;
  if (state_ == State::kCall) begun_ = marker;
  pending_.erase(0, at + marker.size());
  if (state_ == State::kCall) return true;  // it may be content after all
  spaces_.clear();
  has_parts_ = true;
  has_content_ = false;
  return true;
}

bool ReplyParser::thought() {
  const std::size_t at = find(format_.think_end);
  const bool found = at != Text::npos;
  const std::size_t size = found ? at : ended_ ? pending_.size() : safe_size(pending_);
  add(ReplyPart::Kind::kThought, Text(pending_).substr(0, size));
  pending_.erase(0, found ? at + format_.think_end.size() : size);
  if (!found) return false;
  spaces_.clear();
  has_parts_ = true;
  has_content_ = false;
  state_ = format_.call == ReplyFormat::Call::kChannels ? State::kHeader : State::kContent;
  return true;
}

bool ReplyParser::call() {
  std::size_t at = 0;
  skip_spaces(pending_, at);
  FunctionCall call;
  Step step = read_body(at, call);
  if (step == Step::kNeedsMore && !ended_) return false;
  if (step != Step::kDone) {
    // No call: its marker, or one character, is content, and so is what follows as far as it goes.
    if (begun_.empty()) begun_ = pending_.substr(0, 1), pending_.erase(0, 1);
    state_ = State::kContent;
    add(ReplyPart::Kind::kContent, std::exchange(begun_, ""));
    return !pending_.empty();
  }
  const Text rest = without_front(Text(pending_).substr(at));
  const auto is_next = [&](Text marker) { return !marker.empty() && rest.starts_with(marker); };
  const bool ends = is_next(format_.end);
  const bool goes_on = !ends && is_next(format_.between);
  const bool waits = !ended_ && !ends && !goes_on &&
                     (may_become(rest, format_.end) || may_become(rest, format_.between));
  if (waits) return false;
  add_call(std::move(call));
  const Text marker = ends ? Text(format_.end) : goes_on ? Text(format_.between) : Text();
  begun_ = marker;
  pending_.erase(0, marker.empty() ? at : pending_.size() - rest.size() + marker.size());
  if (!goes_on) state_ = State::kContent;
  return !pending_.empty();
}

bool ReplyParser::header() {
  const std::size_t at = find(kMessage);
  if (at == Text::npos) {
    const Text rest = without_front(pending_);
    const auto fits = [&](Text marker) {
      return rest.starts_with(marker) || may_become(rest, marker);
    };
    const bool is_header = fits(kStart) || fits(kChannel) || fits(kRecipient);
    if (is_header && !ended_) return false;
    if (is_header) pending_.clear();  // a message without its text
    state_ = State::kContent;
    return !pending_.empty();
  }
  const std::string head = pending_.substr(0, at);
  pending_.erase(0, at + kMessage.size());
  const std::size_t to = head.find(kRecipient);
  if (to != std::string::npos) {
    const Text name = Text(head).substr(to + kRecipient.size());
    channel_ = name.substr(0, name.find_first_of(" \t\r\n<"));
    begun_.clear();
    state_ = is_known(channel_) ? State::kCall : State::kContent;
    return true;
  }
  state_ = head.find("analysis") != std::string::npos ? State::kThought : State::kContent;
  return true;
}

ReplyParser::Step ReplyParser::read_body(std::size_t& at, FunctionCall& call) const {
  switch (format_.call) {
    case ReplyFormat::Call::kNone:
      return Step::kFailed;
    case ReplyFormat::Call::kObject:
      return read_object(at, call);
    case ReplyFormat::Call::kJson:
      return read_named(at, call);
    case ReplyFormat::Call::kPairs:
      return read_pairs(at, call);
    case ReplyFormat::Call::kChannels:
      break;
  }
  OrderedJson arguments;
  const Step step = read_json(at, arguments);
  if (step == Step::kDone) call = {channel_, json_text(arguments)};
  return step;
}

ReplyParser::Step ReplyParser::read_object(std::size_t& at, FunctionCall& call) const {
  OrderedJson object;
  const Step step = read_json(at, object);
  if (step != Step::kDone) return step;
  const auto name = object.find(format_.name_key);
  if (name == object.end() || !name->is_string() || !is_known(name->get<std::string>()))
    return Step::kFailed;
  OrderedJson arguments = OrderedJson::object();
  for (const std::string& key :
       {format_.arguments_key, std::string("arguments"), std::string("parameters")}) {
    if (!object.contains(key)) continue;
    arguments = object[key];
    break;
  }
  if (arguments.is_string()) arguments = parse_ordered_json(arguments.get<std::string>());
  if (!arguments.is_object()) return Step::kFailed;
  call = {name->get<std::string>(), json_text(arguments)};
  return Step::kDone;
}

ReplyParser::Step ReplyParser::read_named(std::size_t& at, FunctionCall& call) const {
  std::string name;
  if (format_.middle.empty()) {
    const std::size_t brace = pending_.find('{', at);
    if (brace == std::string::npos) return Step::kNeedsMore;
    name = pending_.substr(at, brace - at);
    at = brace;
  } else if (const Step step = read_until(format_.middle, at, name); step != Step::kDone) {
    return step;
  }
  name = trimmed(name);
  if (!is_known(name)) name.resize(std::min(name.rfind(':'), name.size()));  // Kimi's "f:0"
  if (!is_known(name)) return Step::kFailed;
  at = std::min(pending_.find('{', at), pending_.size());  // an id may stand before
  OrderedJson arguments;
  const Step step = read_json(at, arguments);
  if (step == Step::kDone) call = {std::move(name), json_text(arguments)};
  return step;
}

ReplyParser::Step ReplyParser::read_pairs(std::size_t& at, FunctionCall& call) const {
  const std::size_t key = pending_.find(format_.key_begin, at);
  const std::size_t end = format_.end.empty() ? std::string::npos : pending_.find(format_.end, at);
  const std::size_t name_end = std::min(key, end);
  if (name_end == std::string::npos) return Step::kNeedsMore;
  Text name_text = trimmed(Text(pending_).substr(at, name_end - at));
  if (name_text.ends_with(format_.middle)) name_text.remove_suffix(format_.middle.size());
  const std::string name(trimmed(name_text));
  if (!is_known(name)) return Step::kFailed;
  at = name_end;
  OrderedJson arguments = OrderedJson::object();
  while (Text(pending_).substr(at).starts_with(format_.key_begin)) {
    at += format_.key_begin.size();
    std::string one;
    std::string value;
    for (const auto& [marker, text] :
         {std::pair(&format_.key_end, &one), std::pair(&format_.value_end, &value)})
      if (const Step step = read_until(*marker, at, *text); step != Step::kDone) return step;
    one = trimmed(one);
    arguments[one] = value_of(name, one, without_line_breaks(std::move(value)));
    const std::size_t after = at;
    skip_spaces(pending_, at);
    const Text rest = Text(pending_).substr(at);
    if (!ended_ && may_become(rest, format_.key_begin)) return Step::kNeedsMore;
    if (!rest.starts_with(format_.key_begin)) {
      at = after;
      break;
    }
  }
  call = {name, json_text(arguments)};
  return Step::kDone;
}

ReplyParser::Step ReplyParser::read_json(std::size_t& at, OrderedJson& value) const {
  if (at >= pending_.size()) return Step::kNeedsMore;
  if (pending_[at] != '{') return Step::kFailed;
  const std::size_t end = json_object_end(pending_, at);
  if (end == std::string::npos) return Step::kNeedsMore;
  value = parse_ordered_json(Text(pending_).substr(at, end - at));
  if (!value.is_object()) return Step::kFailed;
  at = end;
  return Step::kDone;
}

ReplyParser::Step ReplyParser::read_until(Text end, std::size_t& at, std::string& text) const {
  const std::size_t found = pending_.find(end, at);
  if (found == std::string::npos) return Step::kNeedsMore;
  text = pending_.substr(at, found - at);
  at = found + end.size();
  return Step::kDone;
}

bool ReplyParser::is_known(const std::string& name) const {
  return function_of(tools_, name) != nullptr;
}

OrderedJson ReplyParser::value_of(const std::string& function, const std::string& key,
                                  std::string text) const {
  const OrderedJson* schema = function_of(tools_, function);
  for (const std::string_view step :
       {Text("parameters"), Text("properties"), Text(key), Text("type")})
    schema = member_of(schema, step);
  const bool is_string = schema != nullptr && *schema == "string";
  OrderedJson value = is_string ? OrderedJson() : parse_ordered_json(text);
  return is_string || value.is_discarded() ? OrderedJson(std::move(text)) : value;
}

void ReplyParser::add(ReplyPart::Kind kind, Text text) {
  const bool is_content = kind == ReplyPart::Kind::kContent;
  std::string all = std::exchange(spaces_, "").append(text);
  const std::size_t end = all.find_last_not_of(kSpaces) + 1;
  spaces_ = all.substr(end);
  all.resize(end);
  if (all.empty()) return;
  if (!has_content_ && (has_parts_ || !is_content)) all = std::string(without_front(all));
  has_content_ = true;
  if (!parts_.empty() && parts_.back().kind == kind)
    parts_.back().text += all;
  else
    parts_.push_back({kind, std::move(all), {}});
}

void ReplyParser::add_call(FunctionCall call) {
  spaces_.clear();
  has_parts_ = true;
  has_content_ = false;
  parts_.push_back({ReplyPart::Kind::kCall, "", std::move(call)});
  --calls_left_;
}

std::size_t ReplyParser::find(Text marker) const {
  return marker.empty() ? Text::npos : pending_.find(marker);
}

std::size_t ReplyParser::safe_size(Text text) const {
  std::size_t held = 0;
  const bool is_harmony = format_.call == ReplyFormat::Call::kChannels;
  for (const Text marker : {Text(format_.think_begin), Text(format_.think_end), Text(format_.begin),
                            is_harmony ? kEnd : Text()}) {
    for (std::size_t n = std::min(text.size(), marker.empty() ? 0 : marker.size() - 1); n > held;
         --n)
      if (text.ends_with(marker.substr(0, n))) held = n;
  }
  return text.size() - held;
}

}  // namespace llm
