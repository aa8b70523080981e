#include "engine/generation/conversation.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace llm {
namespace {

void erase_front(std::vector<TokenId>& ids, std::size_t n) {
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

bool is_utf8_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

void Conversation::clear() {
  turns_.clear();
  generator_.set_text({});
}

Status Conversation::restore(State state) {
  system_ = std::move(state.system);
  turns_ = std::move(state.turns);
  forgotten_turns_ = state.forgotten_turns;
  LLM_TRY(const auto ids, text());
  generator_.hold(ids);
  generator_.set_next_draw(state.next_draw);
  return Ok{};
}

/// The tokens of a conversation of these turns alone, up to what there is of the last reply.
Result<std::vector<TokenId>> Conversation::encode(std::span<const Turn> turns,
                                                  std::vector<std::size_t>* message_ends) const {
  if (turns.empty()) return std::vector<TokenId>();
  OrderedJson messages = OrderedJson::array();
  if (system_) messages.push_back(chat_message("system", *system_));
  const std::size_t first = messages.size();  // of the turns' messages, two each
  for (const Turn& turn : turns) {
    messages.push_back(chat_message("user", turn.message));
    if (&turn != &turns.back()) messages.push_back(chat_message("assistant", turn.reply));
  }
  LLM_TRY(std::vector<ChatPart> parts, style_->render(std::move(messages)));
  const auto is_reply = [first](const ChatPart& part) {
    return part.message && *part.message >= first && (*part.message - first) % 2 == 1;
  };
  std::vector<TokenId> all;
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto end = std::find_if(begin, parts.end(), is_reply);
    if (end != parts.end() && end != begin) {  // the model wrote reply_begin() as well
      std::string& before = (end - 1)->text;
      if (before.ends_with(style_->reply_begin()))
        before.resize(before.size() - style_->reply_begin().size());
    }
    std::vector<std::size_t> ends;
    LLM_TRY(const auto ids, style_->encode({begin, end}, begin == parts.begin(), &ends));
    for (const std::size_t at : ends)
      if (message_ends != nullptr) message_ends->push_back(all.size() + at);
    all.insert(all.end(), ids.begin(), ids.end());
    begin = end;
    if (end == parts.end()) continue;
    const std::vector<TokenId>& reply = turns[(*end->message - first) / 2].reply_ids;
    all.insert(all.end(), reply.begin(), reply.end());
    ++begin;
  }
  all.insert(all.end(), turns.back().reply_ids.begin(), turns.back().reply_ids.end());
  return all;
}

Result<std::vector<TokenId>> Conversation::text() const { return encode(turns_); }

Result<bool> Conversation::last_turn_fits() const {
  LLM_TRY(const auto ids, encode({&turns_.back(), 1}));
  return ids.size() <= session_.context();
}

/// Whole turns, until a quarter of the context is free: else every message would compute all anew.
/// Only what is kept, and at most as much again, is encoded more than once.
Status Conversation::drop_oldest() {
  const std::size_t context = session_.context();
  LLM_TRY(const auto ids, text());
  if (ids.size() <= context) return Ok{};
  const auto last = [this](std::size_t n) { return std::span(turns_).last(n); };
  const auto has_room = [&](std::size_t n) -> Result<bool> {
    LLM_TRY(const auto kept, encode(last(n)));
    return kept.size() <= context - context / 4;
  };
  // The last `kept` turns leave room, or are the turn at hand; the last `dropping` do not.
  std::size_t kept = 1;
  std::size_t dropping = turns_.size();
  for (std::size_t n = 2; n < dropping; n = std::min(2 * n, dropping)) {
    LLM_TRY(const bool fits, has_room(n));
    (fits ? kept : dropping) = n;
  }
  while (dropping - kept > 1) {
    const std::size_t middle = kept + (dropping - kept) / 2;
    LLM_TRY(const bool fits, has_room(middle));
    (fits ? kept : dropping) = middle;
  }
  forgotten_turns_ += turns_.size() - kept;
  turns_.erase(turns_.begin(), turns_.end() - static_cast<std::ptrdiff_t>(kept));
  return Ok{};
}

/// Cuts the front of the last message until it fits by itself.
Status Conversation::crop_message() {
  std::string& message = turns_.back().message;
  while (true) {
    LLM_TRY(const auto ids, encode({&turns_.back(), 1}));
    if (ids.size() <= session_.context() || message.empty()) return Ok{};
    // As many bytes as the tokens too many have on average, to the start of a character.
    const double share =
        static_cast<double>(ids.size() - session_.context()) / static_cast<double>(ids.size());
    std::size_t cut = 1 + static_cast<std::size_t>(share * static_cast<double>(message.size()));
    while (cut < message.size() && is_utf8_continuation(message[cut])) ++cut;
    message.erase(0, cut);
  }
}

Result<Conversation::Forgotten> Conversation::make_room(bool crop) {
  Forgotten forgotten;
  LLM_TRY(bool fits, last_turn_fits());
  if (!fits) {
    LLM_TRY(const auto before, encode({&turns_.back(), 1}));
    if (crop) LLM_RETURN_IF_ERROR(crop_message());
    LLM_TRY(const auto after, encode({&turns_.back(), 1}));
    forgotten.tokens = before.size() - after.size();
    if (after.size() > session_.context()) {
      return Error{
          .code = ErrorCode::kUsage,
          .field = "message",
          .message = fmt::format("found {} tokens{}, need at most {} (the context)", after.size(),
                                 system_ ? " with the system message" : "", session_.context()),
          .hint = crop ? "raise -c" : "raise -c, shorten the message or use --context-shift"};
    }
  }
  const std::size_t turns = forgotten_turns_;
  LLM_RETURN_IF_ERROR(drop_oldest());
  forgotten.turns = forgotten_turns_ - turns;
  return forgotten;
}

Result<Conversation::Forgotten> Conversation::ask(std::string message, bool crop) {
  turns_.push_back({.message = std::move(message), .reply = "", .reply_ids = {}});
  auto room = make_room(crop);
  if (!room.ok()) turns_.pop_back();
  return room;
}

Result<Conversation::Forgotten> Conversation::ask_again(std::optional<std::string> message,
                                                        bool crop) {
  if (turns_.empty()) {
    return Error{ErrorCode::kUsage, "conversation",
                 "found no message, need one that can be answered again"};
  }
  Turn before = turns_.back();
  turns_.back() = {
      .message = message ? *std::move(message) : before.message, .reply = {}, .reply_ids = {}};
  auto room = make_room(crop);
  if (!room.ok()) turns_.back() = std::move(before);
  return room;
}

Status Conversation::drop_last() {
  if (turns_.empty()) return Error{ErrorCode::kUsage, "conversation", "found no message, need one"};
  turns_.pop_back();
  return Ok{};
}

void Conversation::take_reply_ids() {
  const auto behind = generator_.text().subspan(n_before_);
  turns_.back().reply_ids.assign(behind.begin(), behind.end());
}

/// The text with which a reply that fills the context goes on; empty when there is none.
Result<std::vector<TokenId>> Conversation::shorten(bool context_shift) {
  take_reply_ids();
  LLM_TRY(bool fits, last_turn_fits());
  if (!fits && !context_shift) return std::vector<TokenId>();
  for (auto& reply = turns_.back().reply_ids; !fits && !reply.empty();) {
    erase_front(reply, (reply.size() + 1) / 2);
    LLM_TRY(fits, last_turn_fits());
  }
  LLM_RETURN_IF_ERROR(drop_oldest());
  LLM_TRY(auto ids, text());
  n_before_ = ids.size() - turns_.back().reply_ids.size();
  return ids;
}

Result<GenerateResult> Conversation::reply(GenerateOptions options, const GenerateSink& sink) {
  LLM_CHECK(!turns_.empty());
  options.continues_text = false;
  style_->add_reply_ends(options);
  std::optional<Error> failed;
  options.shorten = [this, &failed, shift = options.context_shift]() -> std::vector<TokenId> {
    auto shorter = shorten(shift);
    if (shorter.ok()) return std::move(shorter).value();
    failed = shorter.error();
    return {};
  };
  options.context_shift = false;  // shorten() has the last word
  LLM_TRY(const auto ids, encode(turns_, &options.message_ends));
  n_before_ = ids.size();
  generator_.set_text(ids);
  LLM_TRY(GenerateResult result, generator_.run({}, options, sink));
  if (failed) return *std::move(failed);
  take_reply_ids();
  Turn& turn = turns_.back();
  turn.reply = result.text;
  if (result.stop_reason == StopReason::kStopString) {
    // The stop string's own tokens were not shown.
    const std::size_t seen = turn.reply_ids.size();
    LLM_TRY(turn.reply_ids, style_->encode_reply(result.text));
    if (turn.reply_ids.size() > seen) erase_front(turn.reply_ids, turn.reply_ids.size() - seen);
    LLM_TRY(const auto shown, text());
    generator_.set_text(shown);
  }
  return result;
}

}  // namespace llm
