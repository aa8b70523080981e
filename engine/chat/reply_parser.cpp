#include "engine/chat/reply_parser.h"

#include <algorithm>
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

/// What of a format is looked for, its texts without white space at their ends.
ReplyFormat looked_for(ReplyFormat format, const OrderedJson& tools) {
  for (std::string* text :
       {&format.think_begin, &format.think_end, &format.begin, &format.between, &format.end,
        &format.middle, &format.key_begin, &format.key_end, &format.value_end})
    *text = std::string(without_spaces(*text));
  if (format.call == ReplyFormat::Call::kChannels) {
    format.think_end = kEnd;
  } else if (!tools.is_array() || tools.empty()) {
    format.call = ReplyFormat::Call::kNone;
    format.begin.clear();
  }
  return format;
}

}  // namespace

ReplyParser::ReplyParser(const ReplyFormat& format, const OrderedJson& tools, bool is_thinking,
                         std::size_t most_calls)
    : format_(looked_for(format, tools)),
      reader_(format_, tools),
      calls_left_(most_calls),
      state_(format.call == ReplyFormat::Call::kChannels ? State::kHeader
             : is_thinking                               ? State::kThought
                                                         : State::kContent) {}

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
    const Text rest = without_leading_spaces(pending_);
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
  std::size_t at = pending_.size() - without_leading_spaces(pending_).size();
  FunctionCall call;
  CallReader::Step step = reader_.read(pending_, ended_, channel_, at, call);
  if (step == CallReader::Step::kNeedsMore && !ended_) return false;
  if (step != CallReader::Step::kDone) {
    // No call: its marker, or one character, is content, and so is what follows as far as it goes.
    if (begun_.empty()) begun_ = pending_.substr(0, 1), pending_.erase(0, 1);
    state_ = State::kContent;
    add(ReplyPart::Kind::kContent, std::exchange(begun_, ""));
    return !pending_.empty();
  }
  const Text rest = without_leading_spaces(Text(pending_).substr(at));
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
    const Text rest = without_leading_spaces(pending_);
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
    state_ = reader_.is_known(channel_) ? State::kCall : State::kContent;
    return true;
  }
  state_ = head.find("analysis") != std::string::npos ? State::kThought : State::kContent;
  return true;
}

void ReplyParser::add(ReplyPart::Kind kind, Text text) {
  const bool is_content = kind == ReplyPart::Kind::kContent;
  std::string all = std::exchange(spaces_, "").append(text);
  const std::size_t end = all.find_last_not_of(kSpaces) + 1;
  spaces_ = all.substr(end);
  all.resize(end);
  if (all.empty()) return;
  if (!has_content_ && (has_parts_ || !is_content)) all = std::string(without_leading_spaces(all));
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
