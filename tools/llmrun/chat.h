#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "base/result.h"
#include "engine/generation/conversation.h"
#include "tools/common/tool.h"
#include "tools/llmrun/arguments.h"
#include "tools/llmrun/line_reader.h"
#include "tools/llmrun/loaded.h"
#include "tools/llmrun/output.h"

namespace llm {

/// The template of --chat-template, with the date that it is told. Errors: as ChatStyle::choose().
Result<std::shared_ptr<const ChatStyle>> choose_chat_style(const RunArguments& arguments,
                                                           const Model& model, bool quiet);

/// Says on stderr how much of the front of a prompt or message had to go, if any.
void report_cropped(std::size_t n_tokens, std::size_t context);

/// -i: a conversation over standard input and output, as text or as lines of JSON. The commands
/// are in chat_commands.cpp.
class Chat {
 public:
  /// Errors: those of choose_chat_style() and of --session.
  static Result<Chat> open(const RunArguments& arguments, const ToolContext& context,
                           Loaded& loaded, const GenerateOptions& generation);

  /// Until the input ends or somebody leaves. @return the exit code
  Result<int> run();

  // What commands do. What another message or command cures is told on stderr, and the chat goes
  // on; a Status that is an error ends it.
  Status answer(std::string message);
  Status regenerate();
  /// Answers `message` in place of the last one.
  Status edit(std::string message);
  Status undo();
  /// Keeps the conversation under the name of its branch, and goes on with that of `name`: a copy
  /// of it where there is none of that name yet. Without a name, lists them.
  Status branch(const std::string& name);
  /// Adds the text of a file to the next message.
  Status read(const std::string& path);
  /// Sets an option of generation: "NAME VALUE".
  Status set(const std::string& words);
  /// Tells what the chat is with, and the options of generation.
  void show();
  Status save(const std::string& path);
  Status load(const std::string& path);
  void leave() { leaves_ = true; }
  /// Tells on stderr how long the conversation is, and the last reply's statistics.
  void print_stats() const;
  Conversation& conversation() { return *conversation_; }

 private:
  Chat(const RunArguments& arguments, const ToolContext& context, Loaded& loaded,
       GenerateOptions generation)
      : arguments_(arguments),
        context_(context),
        loaded_(loaded),
        generation_(std::move(generation)) {}

  /// Answers a line, or does what it commands.
  Status take(const Line& line);
  /// The reply to what was asked, streamed as text or given as a line of JSON.
  Status reply(const Result<Conversation::Forgotten>& asked);
  Status print_reply(const GenerateResult& result, std::size_t dropped_turns,
                     std::size_t cropped_tokens, const RunStats& stats);
  Status tell(const Error& error) const;
  /// After a reply on a terminal: how it went, in a few words.
  void print_end(const GenerateResult& result, const RunStats& stats) const;
  /// What the chat is with, and how to leave it.
  void greet() const;
  void tell_of_dropped_turns(std::size_t n_turns);
  /// Writes --session, if there is one.
  Status keep_session();
  /// Whether a signal came that means more than the reply.
  bool is_ended() const;

  const RunArguments& arguments_;
  const ToolContext& context_;
  Loaded& loaded_;
  GenerateOptions generation_;
  /// Nobody else writes --session while this chat lives.
  FileLock session_lock_;
  std::unique_ptr<Conversation> conversation_;
  std::map<std::string, Conversation::State> branches_;  ///< without the one at hand
  std::string branch_ = "main";
  std::string attached_;  ///< goes in front of the next message
  std::string last_stats_;
  bool is_terminal_ = false;
  bool told_of_dropped_turns_ = false;
  bool leaves_ = false;
};

/// A typed line that is a command: it starts with a slash. Two slashes begin a message that starts
/// with one.
bool is_command(const std::string& line);

/// Runs one. One that is unknown or lacks its argument is told on stderr.
/// Errors: what ends the chat.
Status run_command(Chat& chat, const std::string& line);

/// What /help prints.
std::string command_help();
/// "/help", ...
std::vector<std::string> command_names();

}  // namespace llm
