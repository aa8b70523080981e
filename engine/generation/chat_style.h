#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/chat_template.h"
#include "engine/generation/chat_encode.h"
#include "engine/generation/generate.h"

namespace llm {

/// How a model converses: a chat template over its vocabulary, and what follows from both.
/// Immutable but for set_date(), so usable from any thread.
class ChatStyle {
 public:
  /// The style of `word`: "auto" for the file's template, the name of a built-in one, or a file
  /// with Jinja text.
  /// @param from_file  the model's template, may be empty
  /// @param tokenizer  outlives the style
  /// Errors: kUsage where the model has no template or a built-in one's markers are no tokens of
  /// this vocabulary; kIo; those of ChatTemplate::parse().
  static Result<std::shared_ptr<ChatStyle>> choose(const std::string& word,
                                                   const std::string& from_file,
                                                   const Tokenizer& tokenizer);
  /// The style of name(): a built-in one, or the file's if it has that hash.
  /// Errors: kUnsupported for another; as choose().
  static Result<std::shared_ptr<ChatStyle>> find(const std::string& name,
                                                 const std::string& from_file,
                                                 const Tokenizer& tokenizer);

  /// The style of a template's text. Markers that the vocabulary lacks are text.
  /// Errors: those of ChatTemplate::parse().
  static Result<std::shared_ptr<ChatStyle>> create(std::string name, std::string jinja,
                                                   const Tokenizer& tokenizer);

  /// Names of the built-in templates: "chatml", ...
  static std::vector<std::string_view> built_in();
  static std::string_view built_in_text(std::string_view name);  ///< @pre a built-in's name
  /// Whether `name` is one that a style may have.
  static bool is_name(std::string_view name);

  /// A built-in's name, or the SHA-256 of the template's text in lower-case hex.
  const std::string& name() const { return name_; }
  /// A name for people: the first digits of a hash.
  std::string shown_name() const { return name_.size() == 64 ? name_.substr(0, 12) : name_; }
  const std::string& source() const { return template_.source(); }

  /// The date that the template is told, if any. Usual conversations need one where
  /// needs_date() says so: the template asks for it, and has none of its own.
  void set_date(std::chrono::year_month_day date) { date_ = date; }
  bool has_date() const { return date_.has_value(); }
  bool needs_date() const { return needs_date_; }

  /// A conversation; where it asks for a reply, up to where that begins.
  /// Errors: as ChatTemplate::render(); at once, where the shortest conversation was too much for
  /// trial_limits().
  Result<std::vector<ChatPart>> render(OrderedJson messages, OrderedJson tools = {},
                                       OrderedJson variables = OrderedJson::object(),
                                       bool asks = true, const RenderLimits& limits = {}) const;
  /// As encode_chat().
  Result<std::vector<TokenId>> encode(std::span<const ChatPart> parts, bool is_start,
                                      std::vector<std::size_t>* message_ends = nullptr) const {
    return encode_chat(tokenizer_, markers_, parts, is_start, message_ends);
  }
  /// Ids of a reply that stands behind the part that asks for it, as if the model had written it.
  Result<std::vector<TokenId>> encode_reply(const std::string& reply) const;
  /// What the model writes itself between the text that asks for a reply and the reply: a blank of
  /// Llama 2's, mostly nothing.
  const std::string& reply_begin() const { return reply_begin_; }

  /// Adds what ends a reply beside the vocabulary's own ends: what the template writes behind one,
  /// and before the user's next message. Special tokens, else spellings.
  void add_reply_ends(GenerateOptions& options) const;

 private:
  ChatStyle(std::string name, ChatTemplate chat_template, const Tokenizer& tokenizer);
  static Result<std::shared_ptr<ChatStyle>> create_built_in(std::string_view name,
                                                            const Tokenizer& tokenizer);
  ChatInput input(OrderedJson messages) const;
  void derive();
  /// The first marker of `markup` ends a reply, or what stands before it.
  void add_end(std::string_view markup, bool is_opener);

  std::string name_;
  ChatTemplate template_;
  const Tokenizer& tokenizer_;
  ChatMarkers markers_;
  std::optional<std::chrono::year_month_day> date_;
  bool needs_date_ = false;
  std::optional<Error> exhausted_;  ///< by the shortest conversation
  std::string reply_begin_;
  std::vector<TokenId> end_tokens_;
  std::vector<std::string> end_texts_;
};

/// One message of a conversation: {"role": role, "content": content}.
OrderedJson chat_message(std::string_view role, std::string content);

}  // namespace llm
