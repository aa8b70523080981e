#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/generation/chat_style.h"
#include "engine/generation/generate.h"

namespace llm {

/// A chat of any length: its messages, and the text that the model sees of them.
///
/// The text is always the system message, the turns and what asks for the next reply, rendered
/// as one conversation, so a chat that has lost turns gives the bits of one that never had them.
/// When the context is full, whole turns go, the oldest first, until a quarter of it is free;
/// never the system message, and never the turn at hand.
class Conversation {
 public:
  struct Turn {
    std::string message;
    std::string reply;  ///< as it was shown
    std::vector<TokenId>
        reply_ids;  ///< what of it the model sees, where the template leaves it as it is
  };

  /// What had to go so that a message fits.
  struct Forgotten {
    std::size_t turns = 0;
    std::size_t tokens = 0;  ///< at the front of the message
  };

  /// What a conversation is gone on with.
  struct State {
    std::optional<std::string> system = {};
    std::vector<Turn> turns = {};
    std::size_t forgotten_turns = 0;
    std::uint64_t next_draw = 0;
  };

  /// @param session  nobody else moves it meanwhile
  Conversation(Session& session, std::shared_ptr<const ChatStyle> style)
      : session_(session), style_(std::move(style)), generator_(session) {}

  /// As Generator::hold().
  void hold(std::span<const TokenId> held) { generator_.hold(held); }

  const ChatStyle& style() const { return *style_; }
  const std::shared_ptr<const ChatStyle>& style_pointer() const { return style_; }
  const std::optional<std::string>& system() const { return system_; }
  const std::vector<Turn>& turns() const { return turns_; }
  std::size_t forgotten_turns() const { return forgotten_turns_; }
  /// As Generator::next_draw().
  std::uint64_t next_draw() const { return generator_.next_draw(); }

  /// Replaces the system message for all turns. Nothing: none, where some templates have one of
  /// their own; an empty one is a message without words. Takes effect with the next reply.
  void set_system(std::optional<std::string> text) { system_ = std::move(text); }
  /// Forgets every turn; the system message stays.
  void clear();
  /// What restore() goes on with.
  State state() const { return {system_, turns_, forgotten_turns_, next_draw()}; }
  /// Goes on with an earlier conversation, which has the same draws ahead as it would have had.
  /// @pre the session is empty. Errors: as ChatStyle::render() and encode_chat().
  Status restore(State state);

  /// Opens a turn with the user's message. A message that does not fit into the context by itself
  /// loses its front if `crop` says so.
  /// Errors: kUsage for a message that does not fit or that the template refuses, kResource for one
  /// above 64 MiB; the conversation is then as before.
  Result<Forgotten> ask(std::string message, bool crop = false);
  /// Takes the last turn's reply back, so that reply() gives another, and replaces its message
  /// where there is one. Errors: kUsage without a turn; as ask().
  Result<Forgotten> ask_again(std::optional<std::string> message = {}, bool crop = false);
  /// Removes the last turn. Errors: kUsage without one.
  Status drop_last();

  /// The tokens of the whole conversation, as reply() evaluates them. Errors: as
  /// ChatStyle::render() and encode_chat().
  Result<std::vector<TokenId>> text() const;

  /// Generates the reply to the last turn. Its text stays in the conversation however it ended.
  /// Where it fills the context, older turns go; once the turn is alone, `options.context_shift`
  /// forgets the older half of the reply, and without it the reply ends (kContextFull).
  /// `options` need not say how a reply ends. @pre ask(). Errors: as Generator::run.
  Result<GenerateResult> reply(GenerateOptions options, const GenerateSink& sink = {});

 private:
  Result<std::vector<TokenId>> encode(std::span<const Turn> turns,
                                      std::vector<std::size_t>* message_ends = nullptr) const;
  Result<bool> last_turn_fits() const;
  Status drop_oldest();
  Status crop_message();
  Result<Forgotten> make_room(bool crop);
  Result<std::vector<TokenId>> shorten(bool context_shift);
  /// The reply in the generator's text, which begins behind `n_before_` tokens.
  void take_reply_ids();

  Session& session_;
  std::shared_ptr<const ChatStyle> style_;
  Generator generator_;
  std::optional<std::string> system_;
  std::vector<Turn> turns_;
  std::size_t forgotten_turns_ = 0;
  std::size_t n_before_ = 0;
};

}  // namespace llm
