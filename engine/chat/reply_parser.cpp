#include "engine/chat/reply_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace llm {
namespace {

using Text = std::string_view;
using Kind = ReplyPart::Kind;

constexpr Text kSpaces = " \t\r\n";
constexpr std::size_t kMostFence = 24;  // characters of the line that opens a fence
constexpr std::size_t kMostHeader = 256;
// gpt-oss's format, "harmony". Source: OpenAI's "Harmony response format".
constexpr Text kRecipient = "to=functions.";

bool is_space(const Atom& atom) { return atom.mark < 0 && kSpaces.find(atom.c) != Text::npos; }

/// What of a format is looked for.
ReplyFormat looked_for(ReplyFormat format, bool has_tools) {
  using Call = ReplyFormat::Call;
  if (format.call != Call::kChannels && !has_tools) format.call = Call::kNone;
  return format;
}

bool has_any(const OrderedJson& tools) { return tools.is_array() && !tools.empty(); }

}  // namespace

ReplyParser::ReplyParser(const ReplyFormat& format, const OrderedJson& tools, bool is_thinking,
                         std::size_t most_calls)
    : fixed_(std::make_shared<const Fixed>(
          Fixed{looked_for(format, has_any(tools)), tools, call_marks(format, has_any(tools))})),
      lexer_(fixed_->marks.lexer),
      reader_(fixed_->format, fixed_->marks, fixed_->tools),
      calls_left_(most_calls),
      may_be_bare_(has_any(tools)) {
  if (is_channels()) {
    state_ = State::kHeader;
  } else if (is_thinking) {
    state_ = State::kThought;
  } else if (format.starts_in_call && may_be_bare_) {
    reader_.begin_name();
    state_ = State::kCall;
  }
}

std::vector<ReplyPart> ReplyParser::push(Text text) {
  if (calls_left_ == 0) return {};
  lexer_.push(text, atoms_);
  run();
  return parts();
}

std::vector<ReplyPart> ReplyParser::finish(bool is_cut) {
  if (calls_left_ == 0) return {};
  // Where a limit cuts a call before its arguments, its marks are no content.
  const auto drops_left = [&] {
    return is_cut && (has_calls_ || (state_ == State::kCall && reader_.is_open()));
  };
  drops_left_ = drops_left();
  if (!is_cut || !(has_calls_ || lexer_.is_within(kBeginsCall))) lexer_.finish(atoms_);
  run();
  while (state_ == State::kCall && calls_left_ > 0) {
    drops_left_ = drops_left();
    reader_.finish(is_cut, parts_);
    begin_part();
    take_left();
    if (atoms_.empty()) break;
    run();
  }
  for (const Atom& atom : std::exchange(fence_, {})) add(Kind::kContent, lexer_.text(atom));
  if (!has_parts_ && !spaces_.empty())
    parts_.push_back({Kind::kContent, std::exchange(spaces_, ""), {}});
  return parts();
}

void ReplyParser::run() {
  while (!atoms_.empty()) {
    const Atom atom = atoms_.front();
    atoms_.pop_front();
    switch (state_) {
      case State::kContent:
        content(atom);
        break;
      case State::kThought:
        thought(atom);
        break;
      case State::kCall:
        call(atom);
        break;
      case State::kHeader:
        header(atom);
        break;
    }
  }
}

void ReplyParser::content(const Atom& atom) {
  const unsigned is = lexer_.roles(atom);
  if ((is & kBeginsCall) != 0) {
    reader_.begin(atom, !fence_.empty());
    fence_.clear();
    state_ = State::kCall;
    return;
  }
  if (!fence_.empty()) {
    const bool goes_on = atom.mark < 0 && atom.c != '`' && fence_.size() < kMostFence;
    if (goes_on) return fence_.push_back(atom);
    for (const Atom& held : std::exchange(fence_, {})) add(Kind::kContent, lexer_.text(held));
  }
  if ((is & kBeginsThought) != 0) {
    begin_part();
    has_parts_ = true;
    spaces_.clear();
    has_content_ = false;
    state_ = State::kThought;
  } else if ((is & kHeader) != 0) {
    spaces_.clear();
    has_parts_ = true;
    has_content_ = false;
    header_ = (is & kEndsThought) != 0 ? "" : lexer_.text(atom);
    state_ = State::kHeader;
  } else if ((is & kEndsCall) != 0 && reader_.is_open()) {
    reader_.close();
  } else if (begins_bare(atom)) {
    reader_.begin_bare((fixed_->format.is_bare() && atom.c == fixed_->format.bare_begin()));
    state_ = State::kCall;
    call(atom);
  } else if ((is & kFence) != 0) {
    fence_.push_back(atom);
  } else {
    add(Kind::kContent, lexer_.text(atom));
  }
}

bool ReplyParser::begins_bare(const Atom& atom) {
  if (!may_be_bare_ || is_space(atom)) return false;
  may_be_bare_ = false;
  const bool fits =
      (lexer_.roles(atom) & kFence) != 0 || atom.c == '{' || atom.c == '[' || atom.c == '<';
  return fits && !has_content_;
}

void ReplyParser::thought(const Atom& atom) {
  if ((lexer_.roles(atom) & kEndsThought) == 0) return add(Kind::kThought, lexer_.text(atom));
  spaces_.clear();
  has_parts_ = true;
  has_content_ = false;
  may_be_bare_ = has_any(fixed_->tools);
  header_.clear();
  state_ = is_channels() ? State::kHeader : State::kContent;
}

void ReplyParser::call(const Atom& atom) {
  const CallReader::Step step = reader_.take(atom, parts_);
  begin_part();
  if (step == CallReader::Step::kTaken) return;
  if (step == CallReader::Step::kOver) state_ = State::kContent;
  take_left();
}

void ReplyParser::take_left() {
  bool is_text = false;
  std::vector<Atom> left = reader_.left(is_text);
  if (is_text && drops_left_) {
    state_ = State::kContent;
    atoms_.clear();
    return;
  }
  if (is_text) {
    state_ = State::kContent;
    const Text prefix = fixed_->format.content_begin;
    // What stands before content in place of a function's name.
    const std::string all = lexer_.text_of(left);
    if (!prefix.empty() && !has_parts_ && all == prefix) left.clear();
    if (!left.empty()) {
      add(Kind::kContent, lexer_.text(left.front()));
      left.erase(left.begin());
    }
  }
  atoms_.insert(atoms_.begin(), left.begin(), left.end());
}

/// A call that has begun ends what was before.
void ReplyParser::begin_part() {
  if (parts_.empty() || parts_.back().kind < Kind::kCall) return;
  spaces_.clear();
  has_parts_ = true;
  has_content_ = false;
}

void ReplyParser::header(const Atom& atom) {
  if ((lexer_.roles(atom) & kMessage) != 0) return end_header();
  header_ += lexer_.text(atom);
  const Text head = without_leading_spaces(header_);
  const auto fits = [&](Text mark) { return head.starts_with(mark) || mark.starts_with(head); };
  if ((fits("<|start|>") || fits("<|channel|>") || fits(kRecipient)) && head.size() < kMostHeader)
    return;
  for (const char c : std::exchange(header_, "")) add(Kind::kContent, Text(&c, 1));
  state_ = State::kContent;
}

void ReplyParser::end_header() {
  const std::string head = std::exchange(header_, "");
  const std::size_t to = head.find(kRecipient);
  state_ = head.find("analysis") != std::string::npos ? State::kThought : State::kContent;
  if (to == std::string::npos) return;
  const Text name = Text(head).substr(to + kRecipient.size());
  const std::string function(name.substr(0, name.find_first_of(" \t\r\n<")));
  state_ = State::kContent;
  if (!reader_.is_known(function)) return;
  reader_.begin_arguments(function);
  state_ = State::kCall;
}

void ReplyParser::add(Kind kind, Text text) {
  for (const char c : text) {
    if (kSpaces.find(c) != Text::npos) {
      spaces_ += c;
      continue;
    }
    const bool drops_spaces = !has_content_ && (has_parts_ || kind != Kind::kContent);
    if (drops_spaces) spaces_.clear();
    has_content_ = true;
    if (parts_.empty() || parts_.back().kind != kind) parts_.push_back({kind, "", {}});
    parts_.back().text += std::exchange(spaces_, "");
    parts_.back().text += c;
  }
}

std::vector<ReplyPart> ReplyParser::parts() {
  std::vector<ReplyPart> all = std::exchange(parts_, {});
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind != Kind::kCallEnd) continue;
    has_calls_ = true;
    if (--calls_left_ > 0) continue;
    all.resize(i + 1);
    atoms_.clear();
    state_ = State::kContent;
  }
  return all;
}

std::vector<ReplyPart> whole_parts(std::vector<ReplyPart> parts, UnfinishedCall unfinished) {
  std::vector<ReplyPart> whole;
  for (ReplyPart& part : parts) {
    if (part.kind == Kind::kCall || part.kind == Kind::kArguments) continue;
    if (part.kind == Kind::kCallEnd) {
      if (!part.is_whole && unfinished == UnfinishedCall::kLeftOut) continue;
      const bool is_call = part.is_whole || unfinished == UnfinishedCall::kCall;
      part.kind = is_call ? Kind::kCall : Kind::kContent;
      if (part.kind == Kind::kCall) part.text.clear();
    }
    const bool goes_on =
        !whole.empty() && part.kind == whole.back().kind && part.kind != Kind::kCall;
    if (goes_on)
      whole.back().text += part.text;
    else
      whole.push_back(std::move(part));
  }
  return whole;
}

}  // namespace llm
