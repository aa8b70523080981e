#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/generation/chat_style.h"

namespace llm {

/// What a template writes of a short conversation: a system message where it takes one, a question,
/// an answer and another question.
struct RenderedChat {
  std::shared_ptr<const Tokenizer> tokenizer;  ///< which the style and the markers view
  std::shared_ptr<ChatStyle> style;
  ChatMarkers markers;
  std::string text;
  /// The mark at the end of an answer, a token of the vocabulary or not; empty where there is none.
  std::string end;

  bool has_question() const;
};

/// Errors: those of ChatTemplate::parse() and, where no usual conversation can be rendered, of
/// ChatTemplate::render().
Result<RenderedChat> render_chat(const std::string& jinja,
                                 std::shared_ptr<const Tokenizer> tokenizer);

/// What the template writes where it is not told the BOS token, as engines do that add it
/// themselves; empty where it cannot be rendered so.
std::string render_without_bos(const RenderedChat& chat);

/// The marks of a chat's form that `text` spells, in order: <|...|>, and what other templates
/// write.
std::vector<std::string_view> marks_of(std::string_view text);

}  // namespace llm
