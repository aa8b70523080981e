#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "engine/engine.h"
#include "engine/generate/generate.h"
#include "tools/common/log.h"
#include "tools/common/output_paths.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmrun/arguments.h"
#include "tools/llmrun/chat.h"
#include "tools/llmrun/output.h"
#include "validate/dump/engine_dump.h"

namespace llm {
namespace {

struct Loaded {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Sequence> session;
  double seconds = 0;
};

Result<Loaded> load(const RunArguments& arguments, ProgressBar& progress) {
  const auto started = std::chrono::steady_clock::now();
  guard_mapped_file(arguments.model);
  LoadOptions options;
  options.compute = arguments.compute;
  options.isa = arguments.isa;
  options.threads = arguments.threads;
  options.strict = arguments.strict;
  options.hash_file = !arguments.receipt.empty() || !arguments.dump_layers.empty();
  options.progress = std::ref(progress);
  Loaded loaded;
  LLM_TRY(loaded.model, Model::load(arguments.model, options));
  progress.clear();
  for (const std::string& warning : loaded.model->warnings()) spdlog::warn("{}", warning);
  if (arguments.context > loaded.model->config().context) {
    spdlog::warn("-c: found {}, the model was trained for {} positions", arguments.context,
                 loaded.model->config().context);
  }
  LLM_TRY(
      loaded.session,
      open_sequence(loaded.model,
                    {.context = arguments.context, .kv = arguments.kv, .batch = arguments.batch},
                    {.use_cache = !arguments.no_cache}));
  loaded.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  spdlog::info("{}: {}, {} threads, seed {}", loaded.model->name(), isa_name(loaded.model->isa()),
               loaded.model->threads(), arguments.sampler.seed);
  return loaded;
}

GenerateOptions generation_of(const RunArguments& arguments, ProgressBar& progress) {
  GenerateOptions options;
  options.sampler = arguments.sampler;
  if (arguments.max_tokens >= 0) options.max_tokens = arguments.max_tokens;
  options.stop = arguments.stop;
  options.ignore_eos = arguments.ignore_eos;
  options.context_shift = arguments.context_shift;
  options.continues_text = !arguments.prompt.empty();
  if (arguments.want_logprobs) options.logprobs = arguments.logprobs;
  options.interrupted = GracefulInterrupt::requested;
  options.progress = std::ref(progress);
  return options;
}

/// The prompt's ids; for one question of a chat, also how its answer ends.
Result<std::vector<TokenId>> encode_prompt(const RunArguments& arguments, const Model& model,
                                           GenerateOptions& options) {
  if (!arguments.is_chat()) {
    EncodeOptions encoding;
    encoding.add_eos = false;
    encoding.parse_special = arguments.parse_special;
    return model.tokenizer().encode(arguments.prompt, encoding);
  }
  LLM_TRY(const ChatFormat format, choose_chat_format(arguments, model));
  options.continues_text = false;
  add_reply_ends(format, model.tokenizer(), options);
  const auto parts = format_chat(format, opening_messages(arguments, arguments.prompt));
  return encode_chat(model.tokenizer(), parts, true);
}

/// What goes to stderr after a text; on a line of its own even where both streams are one file.
void print_summary(const RunArguments& arguments, const ToolContext& context,
                   const GenerateResult& result, const RunStats& stats, const Sequence& session,
                   const std::string& hash) {
  const bool streamed = !arguments.json && !arguments.jsonl;
  const bool has_summary = arguments.logits_hash || !context.quiet();
  if (streamed && has_summary && !result.text.ends_with('\n')) write_message("\n");
  if (result.stop_reason == StopReason::kContextFull) {
    spdlog::warn("context full: {} tokens; raise -c or use --context-shift", session.context());
  }
  if (arguments.logits_hash) write_message(fmt::format("logits-sha256: {}\n", hash));
  if (!context.quiet()) write_message(fmt::format("llmrun: {}\n", stats_line(stats)));
}

Status write_dump(const RunArguments& arguments, Sequence& session, Recorder recorder) {
  session.set_probe(nullptr);
  LLM_TRY(const Dump dump, std::move(recorder).finish(
                               engine_meta(session, "llmrun", session.model().file_sha256())));
  return dump.write(arguments.dump_layers);
}

Result<int> run_once(const RunArguments& arguments, const ToolContext& context, Loaded& loaded,
                     GenerateOptions options) {
  Sequence& session = *loaded.session;
  LLM_TRY(const std::vector<TokenId> prompt_ids, encode_prompt(arguments, *loaded.model, options));
  LogitsHash hash;
  Recorder recorder;
  const bool dumps = !arguments.dump_layers.empty();
  if (arguments.logits_hash || !arguments.receipt.empty() || dumps) {
    options.on_logits = [&hash](std::span<const float> rows) { hash.add(rows); };
  }
  if (dumps) session.set_probe(&recorder);
  const bool streams = !arguments.json && !arguments.jsonl;
  if (streams && arguments.echo) LLM_RETURN_IF_ERROR(write_generated(arguments.prompt));
  const GenerateSink sink = [&](const GenerateEvent& event) -> Status {
    if (streams) return write_generated(event.text);
    return arguments.jsonl ? write_stdout(event_json(event)) : Status(Ok{});
  };

  const GracefulInterrupt graceful;
  LLM_TRY(const GenerateResult result, generate(session, prompt_ids, options, sink));
  const RunStats stats = make_stats(*loaded.model, result, loaded.seconds);
  FirstError error;
  if (!streams) {
    error.add(write_stdout(result_json(arguments, session, prompt_ids, result, stats)));
  } else if (isatty(STDOUT_FILENO) == 1) {
    error.add(write_stdout("\n"));
  }
  print_summary(arguments, context, result, stats, session, hash.hex());
  if (!arguments.receipt.empty()) {
    error.add(write_receipt(arguments, session, prompt_ids, result, hash.hex()));
  }
  if (dumps) error.add(write_dump(arguments, session, std::move(recorder)));
  LLM_RETURN_IF_ERROR(error.status());
  return GracefulInterrupt::exit_code();
}

/// What is written behind the text can be written.
Status check_outputs(const RunArguments& arguments) {
  const std::vector<std::string> read = {arguments.model, arguments.prompt_file};
  if (!arguments.receipt.empty()) {
    LLM_RETURN_IF_ERROR(check_output("--receipt", arguments.receipt, read));
  }
  if (!arguments.dump_layers.empty()) {
    LLM_RETURN_IF_ERROR(check_output("--dump-layers", arguments.dump_layers, read));
  }
  return Ok{};
}

Result<int> run(RunArguments& arguments, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(complete(arguments, context.options));
  LLM_RETURN_IF_ERROR(check_outputs(arguments));
  ProgressBar progress(!context.quiet());
  LLM_TRY(Loaded loaded, load(arguments, progress));
  ProgressBar prefill(!context.quiet(), "tokens");
  const GenerateOptions options = generation_of(arguments, prefill);
  if (arguments.interactive) {
    return run_chat(arguments, context, *loaded.session, options, loaded.seconds);
  }
  return run_once(arguments, context, loaded, options);
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  llm::RunArguments arguments;
  return llm::run_tool(
      argc, argv, [&] { return llm::make_run_table(arguments); },
      [&](const llm::ToolContext& context) { return llm::run(arguments, context); });
}
