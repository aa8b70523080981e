#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/chat/render_limits.h"

namespace llm {

/// A part of a rendered conversation. Special tokens are spelled in markup alone; content is text
/// and never becomes one, whatever it spells.
struct ChatPart {
  std::string text;
  bool is_markup;
  /// The part is the content of messages[n], unchanged and whole, between markup.
  std::optional<std::size_t> message = {};
};

/// What a template is rendered with: the variables that transformers gives it.
struct ChatInput {
  OrderedJson messages = OrderedJson::array();  ///< objects with role, content, ...
  OrderedJson tools = {};                       ///< null: none
  bool add_generation_prompt = true;
  std::string bos_token = {};  ///< empty: the variable is not defined
  std::string eos_token = {};
  OrderedJson variables = OrderedJson::object();  ///< chat_template_kwargs: enable_thinking, ...
  /// What strftime_now formats, at midnight; nothing: that function is not defined.
  std::optional<std::chrono::year_month_day> date = {};
};

/// A chat template as model files have it, in Jinja: the language of jinja2 as transformers
/// configures it (docs/chat.md lists what there is of it).
///
/// Every character keeps where it came from: what the template, bos_token and eos_token spell is
/// markup, and so are the roles system, developer, user, assistant and tool; what comes from
/// messages, tools and variables, or is made of them (JSON, numbers), is content.
class ChatTemplate {
 public:
  /// Errors: kMalformed for what is no Jinja and kUnsupported for what there is not of it, naming
  /// the line and what was found; kResource above kMaxBytes, 40 MiB of tokens and nodes or 150
  /// levels, and where there is no thread for it.
  static Result<ChatTemplate> parse(std::string jinja);

  /// No part is empty.
  /// Errors: kUsage with the template's own message where it raises one; kMalformed where Python
  /// would raise another exception; kUnsupported; kResource above `limits`, 10 million steps, 64
  /// MiB of values, 16 MiB of text, 1000 levels, and where there is no thread for it. All name the
  /// template's line.
  /// Cost: linear in the steps that the template takes, on a thread with a stack of its own. Any
  /// number of threads may render at once.
  Result<std::vector<ChatPart>> render(const ChatInput& input,
                                       const RenderLimits& limits = {}) const;

  const std::string& source() const { return source_; }

  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

 private:
  struct Parsed;
  ChatTemplate(std::string source, std::shared_ptr<const Parsed> parsed)
      : source_(std::move(source)), parsed_(std::move(parsed)) {}

  std::string source_;
  std::shared_ptr<const Parsed> parsed_;
};

/// The text of all parts.
std::string chat_text(const std::vector<ChatPart>& parts);

}  // namespace llm
