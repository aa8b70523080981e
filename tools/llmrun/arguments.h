#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/speculation.h"
#include "engine/grammar/grammar.h"
#include "engine/sampler/sampler.h"
#include "tools/common/adapter_option.h"
#include "tools/common/chat_date.h"
#include "tools/common/options.h"
#include "tools/common/tool.h"

namespace llm {

/// llmrun's command line, with its defaults.
struct RunArguments {
  std::string model;
  std::string hub_model;
  std::string prompt_positional;
  std::string stdin_positional;

  std::string prompt;
  std::string prompt_file;
  bool escapes = false;
  bool parse_special = false;
  bool interactive = false;
  bool chat = false;        ///< --chat, or a format is named
  bool has_prompt = false;  ///< one was given, be it empty
  std::string system;
  bool has_system = false;
  std::string session;
  bool no_history = false;
  ChatOptions chat_options;

  std::int64_t max_tokens = -1;
  bool limits_tokens = false;  ///< -n was given, be it -1
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool json_object = false;
  std::string json_schema;
  std::string json_schema_file;
  std::string grammar;
  std::string grammar_file;
  std::string regex;
  std::string grammar_option;                   ///< which of these was given, with its dashes
  std::optional<GrammarSource> grammar_source;  ///< what it says
  bool context_shift = false;

  SamplerOptions sampler = kUsualSampling;
  std::int64_t seed = -1;

  std::size_t context = 0;
  std::size_t batch = 512;
  int threads = 0;
  std::optional<Isa> isa;
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;
  bool no_cache = false;
  SpeculateKind speculate = SpeculateKind::kAuto;  ///< without --draft
  std::string draft;
  std::size_t speculate_length = 0;  ///< 0: as many as pay
  std::string cache_dir;             ///< empty: nothing is kept on disk, but of a session
  std::size_t cache_size = 32;       ///< GiB
  std::string packed_cache;          ///< a directory
  bool strict = false;
  std::vector<std::string> lora;        ///< as typed
  std::vector<AdapterOption> adapters;  ///< what it says
  std::optional<std::string> manifest;  ///< of the model; empty: the one beside it

  bool echo = false;
  bool json = false;
  bool jsonl = false;
  std::size_t logprobs = 0;
  bool want_logprobs = false;
  bool profile = false;
  bool logits_hash = false;
  std::string receipt;
  bool receipt_rows = false;
  std::string dump_layers;

  /// Whether the prompt is a message of a conversation and not a text to continue.
  bool is_chat() const { return interactive || chat || has_system; }
  std::optional<std::string> system_message() const {
    return has_system ? std::optional(system) : std::nullopt;
  }
  /// Whether it was asked for.
  bool speculates() const {
    return speculate == SpeculateKind::kNgram || speculate == SpeculateKind::kMtp || !draft.empty();
  }
  /// What is done for a model that may have a block for further tokens.
  SpeculateKind speculate_with(bool has_mtp) const {
    if (speculate != SpeculateKind::kAuto) return speculate;
    return has_mtp && dump_layers.empty() && !profile ? SpeculateKind::kMtp : SpeculateKind::kOff;
  }
};

OptionTable make_run_table(RunArguments& arguments);

/// What parsing one option at a time cannot see: options that exclude each other; then finds the
/// model (hub_model.h, model_choice.h), reads the prompt from where it is and draws the seed.
/// Errors: kUsage; those of finding and reading.
Status complete(RunArguments& arguments, const ToolContext& context);

/// Replaces \n \r \t \0 \' \" \\ and \xHH. Any other sequence stays as it is.
std::string unescape(std::string_view text);

}  // namespace llm
