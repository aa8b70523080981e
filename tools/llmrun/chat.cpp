#include "tools/llmrun/chat.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shown_text.h"
#include "tokenizer/tokenizer.h"
#include "tools/common/compute_options.h"
#include "tools/common/log.h"
#include "tools/common/options.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/common/word_wrap.h"
#include "tools/llmrun/line_reader.h"
#include "tools/llmrun/loop_detector.h"
#include "tools/llmrun/session_file.h"

namespace llm {
namespace {

/// A line of -i --json: {"role": "user", "content": "..."}, or the content alone as a string.
Result<std::string> parse_json_message(const std::string& line) {
  const auto wrong = [](std::string found) {
    return usage_error(
        "message",
        fmt::format(R"(found {}, need {{"role": "user", "content": "..."}} or a string in JSON)",
                    found));
  };
  const auto json = parse_json(line);
  if (json.is_discarded()) return wrong("no JSON");
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_object()) return wrong(json.type_name());
  const auto role = json.find("role");
  if (role != json.end() && *role != "user") return wrong("role " + role->dump());
  const auto content = json.find("content");
  if (content == json.end() || !content->is_string()) return wrong("no content");
  return content->get<std::string>();
}

}  // namespace

Result<std::shared_ptr<const ChatStyle>> choose_chat_style(const RunArguments& arguments,
                                                           const Model& model, bool quiet) {
  const ChatOptions& options = arguments.chat_options;
  LLM_TRY(const auto style,
          ChatStyle::choose(options.chat_template, model.chat_template(), model.tokenizer()));
  LLM_TRY(const auto date, chat_date(options, style->needs_date(), "llmrun", quiet));
  if (date) style->set_date(*date);
  return std::shared_ptr<const ChatStyle>(style);
}

void report_cropped(std::size_t n_tokens, std::size_t context) {
  if (n_tokens == 0) return;
  spdlog::warn("prompt: the first {} tokens are dropped, so that the rest fits into {} (-c)",
               n_tokens, context);
}

Result<Chat> Chat::open(const RunArguments& arguments, const ToolContext& context, Loaded& loaded,
                        const GenerateOptions& generation) {
  Chat chat(arguments, context, loaded, generation);
  chat.is_terminal_ = isatty(STDIN_FILENO) == 1;
  LLM_TRY(auto style, choose_chat_style(arguments, *loaded.model, context.quiet()));
  if (!arguments.session.empty()) {
    LLM_TRY(chat.session_lock_, FileLock::take(arguments.session, FileLock::IfHeld::kFail));
  }
  std::error_code ignored;
  if (arguments.session.empty() || !std::filesystem::exists(arguments.session, ignored)) {
    chat.conversation_ = std::make_unique<Conversation>(*loaded.session, std::move(style));
    chat.conversation_->set_system(arguments.system_message());
    LLM_RETURN_IF_ERROR(chat.keep_session());  // a path that cannot be written is told now
    return chat;
  }
  LLM_TRY(chat.conversation_, load_session(arguments.session, std::move(style), *loaded.session));
  if (arguments.has_system && arguments.system != chat.conversation_->system()) {
    return in_file(usage_error("--system",
                               "found a different message from that of the conversation, need none",
                               "/system TEXT in the chat replaces it"),
                   arguments.session);
  }
  if (!context.quiet() && !arguments.json) chat.print_stats();
  return chat;
}

Status Chat::keep_session() {
  loaded_.session->publish();
  if (arguments_.session.empty()) return Ok{};
  return save_session(arguments_.session, *conversation_, *loaded_.session, &session_lock_);
}

Status Chat::tell(const Error& error) const {
  if (arguments_.json) return write_stdout(error_json(error));
  report_error("llmrun", error);
  return Ok{};
}

Status Chat::save(const std::string& path) {
  FileLock* held = session_lock_.is_on(path) ? &session_lock_ : nullptr;
  Status saved = check_output("/save", path, std::vector{arguments_.model, arguments_.draft}, held);
  if (saved.ok()) saved = save_session(path, *conversation_, *loaded_.session, held);
  if (!saved.ok()) return tell(saved.error());
  write_message(fmt::format("wrote {}: {} turns with {} tokens evaluated\n", shown(path),
                            conversation_->turns().size(), loaded_.session->position()));
  return saved;
}

Status Chat::load(const std::string& path) {
  auto loaded = load_session(path, conversation_->style_pointer(), *loaded_.session);
  if (!loaded.ok()) return tell(loaded.error());
  conversation_ = std::move(loaded).value();
  print_stats();
  return keep_session();
}

Status Chat::edit(std::string message) {
  return reply(conversation_->ask_again(std::move(message), arguments_.context_shift));
}

Status Chat::undo() {
  const Status dropped = conversation_->drop_last();
  if (!dropped.ok()) return tell(dropped.error());
  print_stats();
  return keep_session();
}

Status Chat::branch(const std::string& name) {
  if (name.empty()) {
    write_message(fmt::format("* {}: {} turns\n", branch_, conversation_->turns().size()));
    for (const auto& [other, state] : branches_)
      write_message(fmt::format("  {}: {} turns\n", other, state.turns.size()));
    return Ok{};
  }
  if (name == branch_) return Ok{};
  Conversation::State state = conversation_->state();
  branches_[branch_] = state;
  if (const auto other = branches_.extract(name)) state = other.mapped();
  branch_ = name;
  LLM_TRY(conversation_,
          open_conversation(std::move(state), conversation_->style_pointer(), *loaded_.session));
  print_stats();
  return keep_session();
}

Status Chat::read(const std::string& path) {
  const std::size_t room = Tokenizer::kMaxTextBytes - attached_.size();
  const auto text = read_text_file(path, room);
  if (!text.ok()) return tell(text.error());
  attached_ += fmt::format("--- {} ---\n{}{}\n", path, *text, text->ends_with('\n') ? "" : "\n");
  write_message(fmt::format("read {}: {} bytes, which go in front of the next message\n",
                            shown(path), text->size()));
  return Ok{};
}

namespace {

/// The options that /set changes.
OptionTable generation_options(SamplerOptions& sampler, std::int64_t& max_tokens) {
  OptionTable table("/set", "");
  add_sampler_options(table, sampler);
  table.integer("seed,s", "N", &sampler.seed, 0, INT64_MAX, "");
  table.integer("n,num-predict,max-tokens", "N", &max_tokens, -1, INT32_MAX, "");
  return table;
}

}  // namespace

Status Chat::set(const std::string& words) {
  const std::size_t space = std::min(words.find_first_of(" \t="), words.size());
  std::string name = words.substr(0, space);
  const std::size_t at = std::min(words.find_first_not_of(" \t=", space), words.size());
  if (name == "parameter") return set(words.substr(at));  // as Ollama's users type it
  std::ranges::replace(name, '_', '-');
  SamplerOptions sampler = generation_.sampler;
  std::int64_t max_tokens = -1;
  OptionTable table = generation_options(sampler, max_tokens);
  const std::string option = OptionTable::dashed(name);
  const std::string value = words.substr(at);
  const Status parsed = table.parse(std::vector{option.c_str(), value.c_str()});
  if (!parsed.ok()) return tell(parsed.error());
  generation_.sampler = sampler;
  if (table.given("n")) {
    generation_.max_tokens.reset();
    if (max_tokens >= 0) generation_.max_tokens = static_cast<std::size_t>(max_tokens);
  }
  return Ok{};
}

void Chat::show() {
  const Model& model = *loaded_.model;
  write_message(fmt::format("{}: {}\ncontext {} tokens, chat template {}\n", shown(model.name()),
                            shown(arguments_.model), loaded_.session->context(),
                            conversation_->style().shown_name()));
  SamplerOptions sampler = generation_.sampler;
  std::int64_t max_tokens =
      generation_.max_tokens ? static_cast<std::int64_t>(*generation_.max_tokens) : -1;
  const OptionTable table = generation_options(sampler, max_tokens);
  for (const Option& option : table.options())
    if (!option.default_text.empty())
      write_message(fmt::format("  {:<18} {}\n", option.names.front(), option.default_text));
}

void Chat::print_stats() const {
  const auto text = conversation_->text();
  write_message(fmt::format("{} turns, {} tokens of {}; {} turns dropped\n",
                            conversation_->turns().size(), text.ok() ? text->size() : 0,
                            loaded_.session->context(), conversation_->forgotten_turns()));
  std::string_view rest = last_stats_;  // " | " between its parts
  for (constexpr std::size_t kWidth = 79; !rest.empty();) {
    std::size_t end = rest.size() <= kWidth ? rest.size() : rest.rfind(" | ", kWidth);
    if (end == std::string_view::npos) end = rest.size();
    write_message(fmt::format("{}\n", rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 3, rest.size()));
  }
}

void Chat::tell_of_dropped_turns(std::size_t n_turns) {
  if (n_turns == 0) return;
  const std::string what = fmt::format("context full ({} tokens): the {} oldest turns are dropped",
                                       loaded_.session->context(), n_turns);
  if (told_of_dropped_turns_) {
    spdlog::info("{}", what);
  } else {
    spdlog::warn("{}, and older ones will be from now on; -c makes it larger", what);
  }
  told_of_dropped_turns_ = true;
}

Status Chat::answer(std::string message) {
  if (!attached_.empty()) message = std::exchange(attached_, "") + message;
  return reply(conversation_->ask(std::move(message), arguments_.context_shift));
}

Status Chat::regenerate() { return reply(conversation_->ask_again()); }

Status Chat::reply(const Result<Conversation::Forgotten>& asked) {
  if (!asked.ok()) return tell(asked.error());
  report_cropped(asked->tokens, loaded_.session->context());
  tell_of_dropped_turns(asked->turns);
  const std::size_t before = conversation_->forgotten_turns();
  LoopDetector loop;
  const bool may_loop = arguments_.json || arguments_.limits_tokens;
  WordWrap wrap;
  const GenerateSink sink = [&](const GenerateEvent& event) {
    if (event.id && !may_loop) loop.add(*event.id);
    return arguments_.json ? Status(Ok{}) : write_wrapped(event.text, wrap);
  };
  GenerateOptions options = generation_;
  options.interrupted = [&] { return loop.period() > 0 || generation_.interrupted(); };
  LLM_TRY(const GenerateResult result, conversation_->reply(options, sink));
  const std::size_t dropped_meanwhile = conversation_->forgotten_turns() - before;
  const RunStats stats = make_stats(loaded_, result);
  last_stats_ = stats_line(stats);
  LLM_RETURN_IF_ERROR(print_reply(result, asked->turns + dropped_meanwhile, asked->tokens, stats));
  tell_of_dropped_turns(dropped_meanwhile);
  if (loop.period() > 0) {
    spdlog::warn(
        "the reply is stopped: its last {} tokens repeat the same {}; -n N sets a different limit, "
        "-n -1 no limit",
        LoopDetector::kTokens, loop.period());
  }
  return keep_session();
}

Status Chat::print_reply(const GenerateResult& result, std::size_t dropped_turns,
                         std::size_t cropped_tokens, const RunStats& stats) {
  if (arguments_.json) {
    return write_stdout(
        reply_json(arguments_, *loaded_.session, result, dropped_turns, cropped_tokens, stats));
  }
  LLM_RETURN_IF_ERROR(write_stdout("\n"));
  if (result.stop_reason == StopReason::kContextFull) {
    spdlog::warn("context full: message and reply have {} tokens; raise -c or use --context-shift",
                 loaded_.session->context());
  }
  if (context_.verbosity > 0) write_message(fmt::format("llmrun: {}\n", last_stats_));
  if (!context_.quiet()) print_end(result, stats);
  loaded_.report_speculation();
  return Ok{};
}

void Chat::print_end(const GenerateResult& result, const RunStats& stats) const {
  if (result.ids.empty() && result.stop_reason == StopReason::kEos)
    spdlog::warn("the reply is empty: the model ended it at once");
  if (!is_terminal_ || context_.verbosity > 0) return;
  const bool is_cut = result.stop_reason == StopReason::kInterrupted;
  const double rate = stats.decode_seconds > 0
                          ? static_cast<double>(stats.decode_tokens) / stats.decode_seconds
                          : 0;
  write_message(fmt::format("[{}{} tokens, {:.1f} tokens/s]\n", is_cut ? "stopped after " : "",
                            result.ids.size(), rate));
}

bool Chat::is_ended() const {
  const int code = GracefulInterrupt::exit_code();
  return code != 0 && (!is_terminal_ || code != 128 + SIGINT);
}

void Chat::greet() const {
  write_message(fmt::format(
      "{}: context {} tokens, chat template {}\n/help lists the commands, Ctrl-D quits\n",
      shown(loaded_.model->name()), loaded_.session->context(),
      conversation_->style().shown_name()));
}

Result<int> Chat::run() {
  const GracefulInterrupt graceful;
  if (is_terminal_ && !context_.quiet() && !arguments_.json) greet();
  const std::string history =
      arguments_.no_history || arguments_.json ? "" : default_history_path();
  const auto reader =
      arguments_.json ? make_plain_reader(false) : make_line_reader(history, command_names());
  if (!arguments_.prompt.empty()) {
    if (is_terminal_ && !context_.quiet() && !arguments_.json)
      write_message(fmt::format("> {}\n", shown(arguments_.prompt)));
    LLM_RETURN_IF_ERROR(answer(arguments_.prompt));
  }
  while (!is_ended() && !leaves_) {
    GracefulInterrupt::clear();
    const auto read = arguments_.json ? reader->read("") : read_message(*reader);
    if (!read.ok() && read.error().code != ErrorCode::kResource) return read.error();
    LLM_RETURN_IF_ERROR(read.ok() ? take(*read) : tell(read.error()));
  }
  const int code = is_ended() ? GracefulInterrupt::exit_code() : 0;
  LLM_RETURN_IF_ERROR(keep_session());
  return code;
}

Status Chat::take(const Line& line) {
  if (line.kind == Line::Kind::kEnd) leave();
  if (line.kind != Line::Kind::kText || line.text.empty()) return Ok{};
  if (arguments_.json) {
    auto message = parse_json_message(line.text);
    return message.ok() ? answer(std::move(message).value()) : tell(message.error());
  }
  if (line.is_quoted) return answer(line.text);
  if (is_command(line.text)) return run_command(*this, line.text);
  return answer(line.text.starts_with("//") ? line.text.substr(1) : line.text);
}

}  // namespace llm
