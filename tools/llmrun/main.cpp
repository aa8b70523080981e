#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "base/atomic_file.h"
#include "engine/engine.h"
#include "engine/generation/conversation.h"
#include "engine/generation/generate.h"
#include "engine/gguf/gguf_split.h"
#include "engine/model/vocab_from_gguf.h"
#include "tools/common/log.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/common/word_wrap.h"
#include "tools/llmrun/arguments.h"
#include "tools/llmrun/chat.h"
#include "tools/llmrun/loaded.h"
#include "tools/llmrun/output.h"
#include "tools/llmrun/subcommands.h"
#include "validate/provenance/audit_proof.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm {
namespace {

GenerateOptions generation_of(const RunArguments& arguments, const Loaded& loaded,
                              ProgressBar& progress) {
  GenerateOptions options;
  options.sampler = arguments.sampler;
  if (arguments.max_tokens >= 0) options.max_tokens = arguments.max_tokens;
  options.stop = arguments.stop;
  options.ignore_eos = arguments.ignore_eos;
  options.context_shift = arguments.context_shift;
  options.continues_text = !arguments.prompt.empty();
  if (arguments.want_logprobs) options.logprobs = arguments.logprobs;
  options.speculation = loaded.speculation.get();
  options.interrupted = GracefulInterrupt::requested;
  options.progress = std::ref(progress);
  return options;
}

/// Puts what --json-schema and the like ask for into `options`.
Status add_grammar(const RunArguments& arguments, const Model& model, GenerateOptions& options) {
  if (!arguments.grammar_source) return Ok{};
  auto grammar = Grammar::compile(*arguments.grammar_source, model.tokenizer());
  if (!grammar.ok()) {
    Error error = std::move(grammar).error();
    error.field = arguments.grammar_option + (error.field.empty() ? "" : ": " + error.field);
    return error;
  }
  options.grammar = *std::move(grammar);
  return Ok{};
}

/// The ids of a prompt that is to be continued. @pre its size, which read_prompt() limits
std::vector<TokenId> encode_prompt(const RunArguments& arguments, const Model& model) {
  EncodeOptions encoding;
  encoding.add_eos = false;
  encoding.parse_special = arguments.parse_special;
  return model.tokenizer().encode(arguments.prompt, encoding);
}

/// What goes to stderr after a text; on a line of its own even where both streams are one file.
/// @param has_all  there are rows of logits of all positions
void print_summary(const RunArguments& arguments, const ToolContext& context,
                   const GenerateResult& result, const RunStats& stats, const Sequence& session,
                   const LogitsHash& hash, bool has_all) {
  const bool streamed = !arguments.json && !arguments.jsonl;
  const bool has_summary = arguments.logits_hash || !context.quiet();
  if (streamed && has_summary && !result.text.ends_with('\n')) write_message("\n");
  if (result.stop_reason == StopReason::kContextFull) {
    spdlog::warn("context full: {} tokens; raise -c or use --context-shift", session.context());
  }
  if (arguments.logits_hash) {
    // What a cache held has no logits here.
    if (has_all) write_message(fmt::format("logits-sha256: {}\n", hash.all()));
    write_message(fmt::format("drawn-logits-sha256: {}\n", hash.drawn()));
  }
  if (!context.quiet() && result.ids.empty() && result.stop_reason == StopReason::kEos)
    spdlog::warn("the text is empty: the model ended it at once");
  if (!context.quiet()) write_message(fmt::format("llmrun: {}\n", stats_line(stats)));
}

Status write_receipt(const RunArguments& arguments, const Loaded& loaded, Receipt receipt) {
  if (arguments.receipt_rows) {
    LLM_TRY(receipt.rows_sha256, rows_sha256(loaded.model, receipt));
  }
  const std::string json = receipt_json(receipt);
  return write_file_atomically(arguments.receipt, std::as_bytes(std::span(json)));
}

Status write_dump(const RunArguments& arguments, Sequence& session, Recorder recorder) {
  session.set_probe(nullptr);
  LLM_TRY(const Dump dump, std::move(recorder).finish(
                               engine_meta(session, "llmrun", session.model().file_sha256())));
  return dump.write(arguments.dump_layers);
}

/// The one question of a chat without -i.
Result<std::unique_ptr<Conversation>> ask(const RunArguments& arguments, const Loaded& loaded,
                                          bool quiet) {
  LLM_TRY(auto style, choose_chat_style(arguments, *loaded.model, quiet));
  auto conversation = std::make_unique<Conversation>(*loaded.session, std::move(style));
  conversation->set_system(arguments.system_message());
  LLM_TRY(const auto forgotten, conversation->ask(arguments.prompt, arguments.context_shift));
  report_cropped(forgotten.tokens, loaded.session->context());
  return conversation;
}

Result<GenerateResult> continue_prompt(Sequence& session, std::span<const TokenId> prompt_ids,
                                       const GenerateOptions& options, const GenerateSink& sink) {
  Generator generator(session);
  if (session.position() == 0) return generator.run(prompt_ids, options, sink);
  generator.hold(session.tokens());
  generator.set_text(prompt_ids);
  return generator.run({}, options, sink);
}

Result<int> run_once(const RunArguments& arguments, const ToolContext& context, Loaded& loaded,
                     GenerateOptions options) {
  Sequence& session = *loaded.session;
  std::unique_ptr<Conversation> conversation;
  if (arguments.is_chat()) {
    LLM_TRY(conversation, ask(arguments, loaded, context.quiet()));
  }
  LLM_TRY(const std::vector<TokenId> prompt_ids,
          conversation ? conversation->text() : encode_prompt(arguments, *loaded.model));
  // A receipt and a dump have rows of all positions.
  if (arguments.receipt.empty() && arguments.dump_layers.empty() && !prompt_ids.empty())
    session.adopt(std::span(prompt_ids).first(prompt_ids.size() - 1));
  const bool has_all = session.position() == 0;
  if (conversation) conversation->hold(session.tokens());

  const std::size_t last = std::max<std::size_t>(prompt_ids.size(), 1) - 1;
  Recorder recorder;
  const bool dumps = !arguments.dump_layers.empty();
  options.only_drawn = !arguments.logits_hash && !dumps;
  LogitsHash hash(session.n_vocab(), last,
                  options.only_drawn ? last : std::min(session.position(), last));
  if (!options.only_drawn || !arguments.receipt.empty()) {
    options.on_logits = [&hash](std::span<const float> rows) { hash.add(rows); };
  }
  if (dumps) session.set_probe(&recorder);
  const bool streams = !arguments.json && !arguments.jsonl;
  WordWrap wrap;
  if (streams && arguments.echo) LLM_RETURN_IF_ERROR(write_wrapped(arguments.prompt, wrap));
  const GenerateSink sink = [&](const GenerateEvent& event) -> Status {
    if (streams) return write_wrapped(event.text, wrap);
    return arguments.jsonl ? write_stdout(event_json(event)) : Status(Ok{});
  };

  PassProfile profile;
  if (arguments.profile) session.executor().set_profile(&profile);
  const GracefulInterrupt graceful;
  LLM_TRY(const GenerateResult result, conversation
                                           ? conversation->reply(options, sink)
                                           : continue_prompt(session, prompt_ids, options, sink));
  report_cropped(result.cropped, session.context());
  const RunStats stats = make_stats(loaded, result);
  FirstError error;
  if (!streams) {
    error.add(write_stdout(result_json(arguments, session, prompt_ids, result, stats)));
  } else if (isatty(STDOUT_FILENO) == 1) {
    error.add(write_stdout("\n"));
  }
  print_summary(arguments, context, result, stats, session, hash, has_all);
  if (arguments.profile) write_message(profile_text(profile, session.model().load_times(), stats));
  loaded.report_speculation();
  if (!arguments.receipt.empty()) {
    error.add(write_receipt(
        arguments, loaded,
        receipt_of(arguments, session, conversation.get(), prompt_ids, result, hash)));
  }
  if (dumps) error.add(write_dump(arguments, session, std::move(recorder)));
  LLM_RETURN_IF_ERROR(error.status());
  return GracefulInterrupt::exit_code();
}

/// Whether a model's file has a template that is understood here.
bool is_chat_template(std::string_view jinja) {
  return !jinja.empty() && ChatTemplate::parse(std::string(jinja)).ok();
}

/// Who continues a text with a model that was made to answer may not know that it can.
void note_chat_template(const RunArguments& arguments, const Model& model) {
  if (arguments.is_chat() || !arguments.has_prompt || arguments.parse_special) return;
  if (!is_chat_template(model.chat_template())) return;
  write_message(
      "llmrun: info: the model has a chat template, and the prompt is continued without it; --chat "
      "asks it as a question\n");
}

/// Who names nothing but a model, on a terminal, wants to talk to it if it can.
bool wants_chat(const RunArguments& a) {
  const bool is_for_programs = a.json || a.jsonl || a.logits_hash || a.profile ||
                               !a.receipt.empty() || !a.dump_layers.empty();
  if (a.interactive || a.has_prompt || is_for_programs) return false;
  if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) return false;
  if (a.is_chat()) return true;
  const auto open = open_gguf_file(a.model);  // what is wrong with it, loading tells
  if (!open.ok()) return false;
  const auto jinja = chat_template_from_gguf(open->gguf);
  return jinja.ok() && is_chat_template(*jinja);
}

/// What is written after the text can be written.
Status check_outputs(const RunArguments& arguments) {
  const std::vector<std::string> read = {arguments.model, arguments.prompt_file, arguments.draft,
                                         arguments.json_schema_file, arguments.grammar_file};
  for (const auto& [option, path] : {std::pair("--receipt", &arguments.receipt),
                                     std::pair("--dump-layers", &arguments.dump_layers)}) {
    if (!path->empty()) LLM_RETURN_IF_ERROR(check_output(option, *path, read));
  }
  // A session is read first: what is none is refused then.
  if (!arguments.session.empty())
    LLM_RETURN_IF_ERROR(check_output("--session", arguments.session, {}));
  return Ok{};
}

Result<int> run(RunArguments& arguments, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(complete(arguments, context));
  LLM_RETURN_IF_ERROR(check_outputs(arguments));
  arguments.interactive = arguments.interactive || wants_chat(arguments);
  use_utf8();
  ProgressBar progress(!context.quiet());
  LLM_TRY(Loaded loaded, load(arguments, progress));
  if (!context.quiet()) note_chat_template(arguments, *loaded.model);
  ProgressBar prefill(!context.quiet(), "tokens");
  GenerateOptions options = generation_of(arguments, loaded, prefill);
  LLM_RETURN_IF_ERROR(add_grammar(arguments, *loaded.model, options));
  if (!arguments.interactive) return run_once(arguments, context, loaded, options);
  LLM_TRY(Chat chat, Chat::open(arguments, context, loaded, options));
  return chat.run();
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  const int code = llm::run_subcommand(argc, argv);
  return code >= 0 ? code : llm::run_tool(argc, argv, llm::make_run_table, llm::run);
}
