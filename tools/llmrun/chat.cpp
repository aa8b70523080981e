#include "tools/llmrun/chat.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <optional>

#include "tools/common/log.h"
#include "tools/common/signals.h"
#include "tools/llmrun/output.h"

namespace llm {
namespace {

/// One message from stdin; lines that end with a backslash go on. Nothing at the end of input.
std::optional<std::string> read_message(bool is_terminal) {
  std::string message;
  std::string line;
  const char* prompt = "> ";
  while (true) {
    if (is_terminal) {
      write_message(prompt);
    }
    if (!std::getline(std::cin, line)) break;
    if (!line.ends_with('\\')) return message + line;
    line.back() = '\n';
    message += line;
    prompt = "  ";
  }
  if (message.empty()) return std::nullopt;
  return message;
}

}  // namespace

Result<ChatFormat> choose_chat_format(const RunArguments& arguments, const Model& model) {
  if (arguments.chat_format) return *arguments.chat_format;
  if (const auto format = recognize_chat_format(model.chat_template())) return *format;
  return Error{.code = ErrorCode::kUsage,
               .field = "--chat-template",
               .message = model.chat_template().empty()
                              ? "found no chat template in the model, need the name of one"
                              : "found an unknown chat template in the model, need the name of one",
               .hint = "one of zephyr, llama2, chatml, llama3"};
}

void add_reply_ends(ChatFormat format, const Tokenizer& tokenizer, GenerateOptions& options) {
  for (std::string& spelling : reply_ends(format)) {
    const auto id = tokenizer.find(spelling);
    if (id && tokenizer.kind(*id) != TokenKind::kNormal) {
      options.stop_tokens.push_back(*id);
    } else {
      options.stop.push_back(std::move(spelling));
    }
  }
}

std::vector<ChatMessage> opening_messages(const RunArguments& arguments, std::string user_message) {
  std::vector<ChatMessage> messages;
  if (!arguments.system.empty()) {
    messages.push_back({ChatMessage::Role::kSystem, arguments.system});
  }
  messages.push_back({ChatMessage::Role::kUser, std::move(user_message)});
  return messages;
}

Result<int> run_chat(const RunArguments& arguments, const ToolContext& context, Sequence& session,
                     const GenerateOptions& generation, double load_seconds) {
  const Model& model = session.model();
  LLM_TRY(const ChatFormat format, choose_chat_format(arguments, model));
  GenerateOptions options = generation;
  options.continues_text = false;
  add_reply_ends(format, model.tokenizer(), options);
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  const GenerateSink sink = [](const GenerateEvent& event) { return write_generated(event.text); };

  Generator generator(session);
  std::size_t n_messages = 0;
  std::optional<std::string> message = arguments.prompt;
  if (message->empty()) message = read_message(is_terminal);
  for (; message; message = read_message(is_terminal)) {
    const std::vector<ChatMessage> messages =
        n_messages == 0 ? opening_messages(arguments, std::move(*message))
                        : std::vector<ChatMessage>{{ChatMessage::Role::kUser, std::move(*message)}};
    const auto parts = format_chat(format, messages, n_messages);
    const auto ids = encode_chat(model.tokenizer(), parts, n_messages == 0);
    const GracefulInterrupt graceful;
    LLM_TRY(const GenerateResult result, generator.run(ids, options, sink));
    n_messages += messages.size() + 1;
    LLM_RETURN_IF_ERROR(write_stdout("\n"));
    if (result.stop_reason == StopReason::kContextFull) {
      spdlog::warn("context full: {} tokens; start anew, raise -c or use --context-shift",
                   session.context());
    }
    if (context.verbosity > 0) {
      write_message(
          fmt::format("llmrun: {}\n", stats_line(make_stats(model, result, load_seconds))));
    }
    if (GracefulInterrupt::requested() && !is_terminal) return GracefulInterrupt::exit_code();
    GracefulInterrupt::clear();
  }
  return 0;
}

}  // namespace llm
