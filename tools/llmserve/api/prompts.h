#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "tools/llmserve/api/served_model.h"
#include "tools/llmserve/conversations/conversations.h"
#include "tools/llmserve/conversations/json_fields.h"

namespace llm {

struct Prompt {
  std::vector<TokenId> ids;
  std::vector<std::size_t> message_ends = {};  ///< of a chat: GenerateOptions::message_ends
  std::optional<std::string> text;  ///< as it was given, or a chat's one message; else only ids
  std::string system;               ///< of that chat
  /// Of a chat that `text` does not tell, where texts alone do; else null.
  OrderedJson messages = {};
};

/// How texts become prompts.
struct PromptOptions {
  bool parse_special = false;    ///< spellings of special tokens are those tokens
  std::string suffix = {};       ///< what stands after the text to be generated; empty: nothing
  std::string field = "prompt";  ///< of the request
  bool add_eos = false;          ///< EOS behind texts, where the vocabulary wants it
};

/// What a completion's prompt may be.
inline constexpr std::string_view kPromptNeed =
    "a string, an array of token ids, or an array of either";
/// How many prompts a completion has.
std::size_t count_prompts(const OrderedJson& prompt);

/// The prompts of a completion. Errors: kUsage naming the element.
Result<std::vector<Prompt>> read_prompts(const OrderedJson& prompt, const Tokenizer& tokenizer,
                                         const PromptOptions& options);

struct ChatPrompt {
  Prompt prompt;
  bool is_thinking = false;  ///< a thought has begun already
  RequestNotes notes = {};   ///< of the conversation
  std::string text = {};     ///< as the template wrote it
};

/// How a model that converses in that style writes calls and thoughts.
ReplyFormat reply_format_of(const ChatStyle& style, const Tokenizer& tokenizer);
/// Whether texts of the format are control tokens, which a reply must then show.
bool has_control_tokens(const ReplyFormat& format, const Tokenizer& tokenizer);

/// A conversation up to where the reply begins. Errors: kUsage naming the message.
Result<ChatPrompt> chat_prompt(RequestedChat chat, const ServedModel& served);

/// The ids of a text as a prompt, as llmrun's. @param add_special  BOS, where the vocabulary wants
/// it. @param parse_special, add_eos  as PromptOptions
std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const std::string& text,
                                bool add_special, bool parse_special, bool add_eos = false);

/// The ids of a JSON array. Errors: kUsage with `path` for what is no id of the vocabulary.
Result<std::vector<TokenId>> ids_of(const OrderedJson& array, const Tokenizer& tokenizer,
                                    const std::string& path);

/// A gap in a text, and what a model is told of it.
struct Gap {
  struct File {
    std::string name;
    std::string text;
  };
  std::string before;
  std::string after;
  std::vector<File> files = {};  ///< other ones, the least important first
  bool parse_special = false;    ///< spellings of special tokens in the texts are those tokens
};

/// Ids that ask for the text of a gap, in the order prefix, suffix, middle:
///
///   [BOS] [files] FIM_PRE before FIM_SUF after FIM_MID
///
/// A file is FIM_SEP name "\n" text, after FIM_REP and a repository's name; without these tokens a
/// line "--- name ---" and the text. Files that `most` tokens do not hold are left out, the first
/// ones first.
/// @param field  of the request that asks for it
/// Errors: kUsage where the vocabulary has no tokens for it.
Result<std::vector<TokenId>> fill_in_prompt(const Tokenizer& tokenizer, const Gap& gap,
                                            std::size_t most, const std::string& field);

}  // namespace llm
