#include "tools/llmrun/arguments.h"

#include <fmt/format.h>

#include <random>
#include <tuple>

#include "base/hex.h"
#include "engine/generation/chat_style.h"
#include "engine/generation/speculation_policy.h"
#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"
#include "tools/llmrun/model_choice.h"

namespace llm {
namespace {

void add_prompt_options(OptionTable& table, RunArguments& a) {
  table.group("Model and prompt");
  table
      .file("m,model", "FILE", &a.model,
            "instead of MODEL: a GGUF file, or a directory with exactly one GGUF file")
      .in_place_of("MODEL")
      .shown_default("environment variable LLM_MODEL, else the bundled model");
  add_hub_option(table, &a.hub_model);
  table.text("p,prompt", "TEXT", &a.prompt, "prompt, or - to read it from standard input");
  table.file("f,file", "FILE", &a.prompt_file,
             "read the prompt from a file; one newline at its end is removed");
  table.flag("e,escape", &a.escapes,
             "interpret the escapes \\n, \\t, \\xHH and so on in the prompt and in -r");
  table.flag("parse-special", &a.parse_special, "parse special tokens such as </s> in the prompt");

  table.group("Chat");
  table.flag("i,interactive,conversation,cnv", &a.interactive,
             "chat: read messages line by line; /help lists the commands. This is the default on a "
             "terminal if no prompt is given and the file has a chat template");
  table.flag(
      "chat", &a.chat,
      "treat the prompt as a chat message: format it with the chat template and print the reply");
  table
      .text("system,system-prompt,sys", "TEXT", &a.system, "system message; \"\" sets an empty one")
      .shown_default("that of the chat template, if it has one");
  add_chat_options(table, &a.chat_options,
                   fmt::format("{}", fmt::join(ChatStyle::built_in(), ", ")),
                   "; with a prompt and without -i, implies --chat");
  table.file("session", "FILE", &a.session,
             "continue the conversation that is saved in FILE, and save it there after every turn");
  table.flag("no-history", &a.no_history, "do not save the typed lines in a history file");
}

void add_generation_options(OptionTable& table, RunArguments& a) {
  table.group("Generation");
  table.integer("n,n-predict,predict", "N", &a.max_tokens, -1, INT32_MAX,
                "maximum number of tokens to generate; -1: until an end token or a full context");
  table.texts("r,reverse-prompt,stop", "TEXT", &a.stop,
              "stop string: end the output before TEXT; may be repeated");
  table.flag("ignore-eos", &a.ignore_eos, "never sample end tokens");
  table.flag("context-shift", &a.context_shift,
             "when the context is full, drop the older half of the tokens and recompute the rest; "
             "if the prompt does not fit, drop its oldest tokens");

  table.group("Sampling");
  table.integer("s,seed", "N", &a.seed, -1, INT64_MAX, kSeedText).shown_default("random");
  add_sampler_options(table, a.sampler);
}

void add_grammar_options(OptionTable& table, RunArguments& a) {
  table.group("Structured output");
  table.flag("json-object", &a.json_object, "output a JSON object");
  table.text("j,json-schema", "TEXT", &a.json_schema,
             "output JSON that matches this schema, on one line");
  table.file("jf,json-schema-file", "FILE", &a.json_schema_file,
             "like --json-schema, with the schema in a file");
  table.text("grammar", "TEXT", &a.grammar,
             "constrain the output to this GBNF grammar (start rule: root)");
  table.file("grammar-file", "FILE", &a.grammar_file, "like --grammar, with the grammar in a file");
  table.text("regex", "TEXT", &a.regex,
             "constrain the output: this regular expression must match all of it");
}

/// What the text must be, and the option that says it.
Status read_grammar(RunArguments& a, const OptionTable& table) {
  const auto take = [&](const std::string& option, GrammarKind kind, std::string text) -> Status {
    if (a.grammar_source)
      return usage_error(option, fmt::format("found with {}, need one of them", a.grammar_option));
    if (a.ignore_eos)
      return usage_error(option, "found with --ignore-eos, need a text that may end");
    a.grammar_option = option;
    a.grammar_source = GrammarSource{kind, std::move(text)};
    return Ok{};
  };
  if (a.json_object) LLM_RETURN_IF_ERROR(take("--json-object", GrammarKind::kJsonObject, ""));
  for (const auto& [name, kind, text] :
       {std::tuple("json-schema", GrammarKind::kJsonSchema, &a.json_schema),
        std::tuple("grammar", GrammarKind::kEbnf, &a.grammar),
        std::tuple("regex", GrammarKind::kRegex, &a.regex)}) {
    if (table.given(name)) LLM_RETURN_IF_ERROR(take(fmt::format("--{}", name), kind, *text));
  }
  for (const auto& [name, kind, path] :
       {std::tuple("json-schema-file", GrammarKind::kJsonSchema, &a.json_schema_file),
        std::tuple("grammar-file", GrammarKind::kEbnf, &a.grammar_file)}) {
    if (!table.given(name)) continue;
    LLM_TRY(std::string text, read_text_file(*path, Grammar::kMostBytes));
    LLM_RETURN_IF_ERROR(take(fmt::format("--{}", name), kind, std::move(text)));
  }
  return Ok{};
}

void add_engine_options(OptionTable& table, RunArguments& a) {
  table.group("Engine");
  table
      .integer("c,ctx-size", "N", &a.context, 0, INT32_MAX,
               "context size in tokens; 0: from the model file")
      .shown_default("from the model file");
  table.integer("b,batch-size", "N", &a.batch, 1, 65536,
                "maximum number of prompt tokens in one forward pass");
  table
      .integer("t,threads", "N", &a.threads, 0, 256,
               "number of threads; 0: all CPUs that this process may use")
      .shown_default("the number of CPUs this process may use");
  add_compute_options(table, &a.isa, &a.kv, &a.compute);
  table.choice("speculate", "KIND", &a.speculate,
               {{"auto", SpeculateKind::kAuto},
                {"off", SpeculateKind::kOff},
                {"ngram", SpeculateKind::kNgram},
                {"mtp", SpeculateKind::kMtp}},
               "how speculative decoding proposes tokens; ngram: from n-grams of the prompt and "
               "the output so far; mtp: with the model's block for multi-token prediction; auto: "
               "mtp if the model has such a block, else off. Never changes a result");
  table.file("draft,model-draft,md", "FILE", &a.draft,
             "use speculative decoding with this draft model, which must have the same vocabulary, "
             "or with Gemma 4's assistant of the model; never changes a result");
  table
      .integer(
          "speculate-length,draft-max", "N", &a.speculate_length, 0,
          static_cast<std::int64_t>(SpeculationPolicy::kMost),
          "speculative decoding: number of tokens to propose in each pass; 0: chosen automatically")
      .shown_default("chosen automatically");
  table.flag("no-cache", &a.no_cache,
             "use no KV cache: recompute all positions for each token (slow, same output)");
  table
      .file("cache-dir", "DIR", &a.cache_dir,
            "keep the KV cache in files in DIR, and reuse it for prompts that begin in the same "
            "way; processes may share DIR")
      .shown_default("FILE.kv with --session FILE, else none");
  table.integer("cache-size", "GIB", &a.cache_size, 1, 1 << 20,
                "size limit of --cache-dir; the least recently used entries are deleted");
  table.file("packed-cache", "DIR", &a.packed_cache,
             "keep the packed weights in a file in DIR and map it into memory: later starts are "
             "faster, and processes share the memory");
  table
      .texts("lora,lora-scaled", "FILE[:SCALE]", &a.lora,
             "apply this LoRA adapter, at SCALE times its strength; may be repeated")
      .file();
  table.flag("strict", &a.strict, "treat warnings about the model file as errors");
  table
      .optional_text("verify-model", "MANIFEST", &a.manifest,
                     "use the model only if it matches a manifest that llmgguf hash -o wrote; "
                     "without a value, the manifest MODEL.manifest")
      .file();
}

void add_output_options(OptionTable& table, RunArguments& a) {
  table.group("Output");
  table.flag("echo", &a.echo, "print the prompt before the output");
  table.flag("json", &a.json,
             "print one JSON object at the end; with -i, read and print one JSON object per line");
  table.flag("jsonl", &a.jsonl,
             "print one JSON object per token, and at the end the object of --json");
  table
      .integer("logprobs", "N", &a.logprobs, 0, 1000,
               "with --json or --jsonl: also print the log probability of each token and of the N "
               "most likely tokens")
      .shown_default("none");
  table.flag("profile", &a.profile,
             "print the time of each operation on stderr; llmbench --profile also compares it with "
             "the limits of the machine");
  table.flag("logits-hash", &a.logits_hash, "print the SHA-256 of all logits on stderr");
  table.file("receipt", "FILE", &a.receipt,
             "write a receipt of the run as JSON (model hash, options, tokens, hash of the "
             "logits); llmcheck --replay checks it");
  table.flag(
      "receipt-rows", &a.receipt_rows,
      "add a hash of all activations to the receipt, for llmcheck --audit; takes one more prefill");
  table.file("dump-layers", "FILE", &a.dump_layers,
             "write the activations of every layer to an NPZ file, for llmcheck --layer-diff");
}

Status check_chat_combinations(const RunArguments& a) {
  const bool of_one_text = a.jsonl || a.logits_hash || !a.receipt.empty() || !a.dump_layers.empty();
  if (a.interactive && of_one_text) {
    return usage_error(
        "-i", "found with --jsonl, --logits-hash, --receipt or --dump-layers, need one text",
        "use --chat with -p for one answer");
  }
  if (!a.session.empty() && !a.interactive)
    return usage_error("--session", "found without -i, need a chat");
  if (!a.session.empty() && a.no_cache)
    return usage_error("--session", "found with --no-cache, need keys and values that can be kept");
  return Ok{};
}

Status check_combinations(const RunArguments& a) {
  LLM_RETURN_IF_ERROR(check_chat_combinations(a));
  if (a.json && a.jsonl) return usage_error("--json", "found with --jsonl, need one of them");
  if (a.want_logprobs && !a.json && !a.jsonl) {
    return usage_error("--logprobs", "found without --json or --jsonl, need one of them");
  }
  if (a.context_shift && (a.logits_hash || !a.receipt.empty())) {
    return usage_error("--context-shift", "found with a logits hash, need each position once");
  }
  if (!a.dump_layers.empty() && (a.context_shift || a.no_cache)) {
    return usage_error("--dump-layers",
                       "found with --context-shift or --no-cache, need each position once");
  }
  for (const auto& [option, path] :
       {std::pair("--receipt", &a.receipt), std::pair("--dump-layers", &a.dump_layers)}) {
    if (!a.lora.empty() && !path->empty())
      return usage_error(option,
                         "found with --lora, need a model without adapters: the file does "
                         "not name them",
                         "merge the adapter with llmgguf merge-lora");
  }
  if (!a.cache_dir.empty() && a.no_cache)
    return usage_error("--cache-dir", "found with --no-cache, need keys and values");
  if (a.receipt_rows && a.receipt.empty())
    return usage_error("--receipt-rows", "found without --receipt, need a file");
  return Ok{};
}

Status check_speculation(const RunArguments& a, const OptionTable& table) {
  if (!a.draft.empty() && table.given("speculate"))
    return usage_error("--draft", "found with --speculate, need one of them");
  if (table.given("speculate-length") && !a.speculates())
    return usage_error("--speculate-length",
                       "found without --speculate ngram, --speculate mtp and --draft, need one");
  if (a.speculates() && !a.dump_layers.empty())
    return usage_error("--dump-layers",
                       "found with --speculate or --draft, need each position once");
  if (a.speculates() && a.profile)
    return usage_error("--profile", "found with --speculate or --draft, need one row in each pass");
  return Ok{};
}

Status find_model(RunArguments& a, const ToolContext& context) {
  LLM_RETURN_IF_ERROR(fetch_hub_model(a.hub_model, context, a.model));
  LLM_TRY(a.model, a.model.empty() ? default_model() : resolve_model(a.model));
  return Ok{};
}

/// Where the prompt comes from.
Result<PromptSource> find_prompt(const RunArguments& a, const OptionTable& table) {
  PromptSource source;
  source.may_read_stdin = !a.interactive;
  if (table.given("prompt")) source.text = a.prompt;
  if (table.given("file")) source.file = a.prompt_file;
  for (const std::string& word : {a.prompt_positional, a.stdin_positional}) {
    const bool has_prompt = source.is_given();
    if (word.empty()) continue;
    if (word == "-" && has_prompt && !source.add_stdin) {
      source.add_stdin = true;
    } else if (has_prompt || source.add_stdin) {
      return usage_error("prompt", "found more than one, need one of PROMPT, -p and -f",
                         "put a text with spaces in quotes");
    } else {
      source.text = word;
    }
  }
  if (source.text && source.file)
    return usage_error("prompt", "found more than one, need one of PROMPT, -p and -f");
  if (source.text == "-") {
    source.text.reset();
    source.file = "-";
  }
  if (a.interactive && (source.file == "-" || source.add_stdin))
    return usage_error("-", "found with -i, need standard input for the chat");
  return source;
}

}  // namespace

std::string unescape(std::string_view text) {
  constexpr std::string_view kNames = "nrt0'\"\\";
  constexpr std::string_view kValues("\n\r\t\0'\"\\", 7);
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const std::size_t known = next == '\0' ? std::string_view::npos : kNames.find(next);
    if (known != std::string_view::npos) {
      result += kValues[known];
      ++i;
    } else if (const auto byte = hex_byte(next == 'x' ? text.substr(i + 2, 2) : ""); byte) {
      result += static_cast<char>(*byte);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

OptionTable make_run_table(RunArguments& arguments) {
  OptionTable table("llmrun", "Generate text with a GGUF model");
  table.positional("MODEL", &arguments.model, false, "GGUF file (see also -m and -hf)").file();
  table.positional("PROMPT", &arguments.prompt_positional, false,
                   "prompt, or - to read it from standard input (see also -p and -f)");
  table.positional("-", &arguments.stdin_positional, false, "append standard input to the prompt");
  add_prompt_options(table, arguments);
  add_generation_options(table, arguments);
  add_grammar_options(table, arguments);
  add_engine_options(table, arguments);
  add_output_options(table, arguments);
  table.example("llmrun model.gguf",
                "start a chat on a terminal, if the model has a chat template");
  table.example("llmrun model.gguf --chat -p \"Why is the sky blue?\"", "answer one question");
  table.example("llmrun model.gguf -p \"Once upon a time\" -n 64", "continue a text");
  table.example("llmrun model.gguf -i --system \"You are terse.\"", "chat with a system message");
  table.example(
      "llmrun run OWNER/REPO[:QUANT] [PROMPT]",
      "chat with a model of the Hugging Face hub, or continue PROMPT; as in Ollama, there are "
      "also llmrun serve, list, pull, show and rm");
  table.example("llmrun model.gguf -f prompt.txt --temp 0 --json", "print a greedy output as JSON");
  table.example("llmrun model.gguf --chat -p \"Name a town.\" --regex '[A-Z][a-z]{2,12}'",
                "give an answer that matches a regular expression");
  table.example("llmrun replay r.json --at 40 --set temperature=0",
                "keep the first 40 tokens of the output recorded in r.json, and generate the rest "
                "with temperature 0");
  table.example("llmrun model.gguf -p Hi -n 8 --logits-hash",
                "print the hash of all logits, to compare it with that of another run");
  return table;
}

Status complete(RunArguments& arguments, const ToolContext& context) {
  const OptionTable& table = context.options;
  arguments.want_logprobs = table.given("logprobs");
  arguments.has_system = table.given("system");
  arguments.limits_tokens = table.given("n");
  arguments.chat = arguments.chat || table.given("chat-template");
  LLM_RETURN_IF_ERROR(check_combinations(arguments));
  LLM_RETURN_IF_ERROR(check_speculation(arguments, table));
  LLM_RETURN_IF_ERROR(read_grammar(arguments, table));
  LLM_TRY(arguments.adapters, parse_adapters(arguments.lora));
  if (table.given("draft")) {
    LLM_TRY(arguments.draft, resolve_model(arguments.draft));
  }
  LLM_TRY(const PromptSource source, find_prompt(arguments, table));
  LLM_RETURN_IF_ERROR(find_model(arguments, context));
  LLM_TRY(arguments.prompt, read_prompt(source));
  arguments.has_prompt = source.is_given() || !arguments.prompt.empty();
  if (arguments.escapes) {
    arguments.prompt = unescape(arguments.prompt);
    for (std::string& stop : arguments.stop) stop = unescape(stop);
  }
  // 32 random bits: short enough to type again.
  if (arguments.seed < 0) arguments.seed = std::random_device()();
  arguments.sampler.seed = static_cast<std::uint64_t>(arguments.seed);
  return Ok{};
}

}  // namespace llm
