#include "tools/llmserve/api/compat_fields.h"

#include <algorithm>

namespace llm {
namespace {

using Effect = JsonFields::Effect;

constexpr unsigned kLlama = kInfillBody | kLlamaBody;
constexpr unsigned kOpenAi = kCompletionBody | kChatBody | kResponsesBody;
constexpr unsigned kOllamaTexts = kOllamaChatBody | kOllamaTextBody;
/// Bodies that have fields of sampling.
constexpr unsigned kSampled = kOpenAi | kMessagesBody | kLlama | kOllamaOptions;
constexpr unsigned kEmbeds = kEmbeddingBody | kOllamaEmbedBody | kRerankBody;
constexpr unsigned kAll = kSampled | kCountBody | kOllamaTexts | kEmbeds | kTokenizeBody;

struct ForeignField {
  const char* name;
  unsigned bodies;
  Effect effect;
  /// Of kSpelling the field's name here; of kNothing the values that ask for nothing, as JSON.
  const char* what = "";
};

constexpr ForeignField kForeign[] = {
    // Other names of fields, of vLLM, transformers, llama-server and Ollama.
    {"repetition_penalty", kSampled, Effect::kSpelling, "repeat_penalty"},
    {"penalty_repeat", kSampled, Effect::kSpelling, "repeat_penalty"},
    {"penalty_last_n", kSampled, Effect::kSpelling, "repeat_last_n"},
    {"repetition_penalty_range", kSampled, Effect::kSpelling, "repeat_last_n"},
    {"typical", kSampled, Effect::kSpelling, "typical_p"},
    {"typ_p", kSampled, Effect::kSpelling, "typical_p"},
    {"nsigma", kSampled, Effect::kSpelling, "top_n_sigma"},
    {"dynatemp_exp", kSampled, Effect::kSpelling, "dynatemp_exponent"},
    {"dry_range", kSampled, Effect::kSpelling, "dry_penalty_last_n"},
    {"min_new_tokens", kSampled, Effect::kSpelling, "min_tokens"},
    {"random_seed", kSampled, Effect::kSpelling, "seed"},
    {"n_predict", kSampled, Effect::kSpelling, "max_tokens"},
    {"num_predict", kOpenAi | kLlama, Effect::kSpelling, "max_tokens"},
    {"max_new_tokens", kSampled, Effect::kSpelling, "max_tokens"},
    {"max_length", kSampled, Effect::kNothing, "[]"},
    {"max_tokens", kResponsesBody, Effect::kSpelling, "max_output_tokens"},
    {"max_completion_tokens", kResponsesBody, Effect::kSpelling, "max_output_tokens"},
    {"max_completion_tokens", kCompletionBody | kMessagesBody | kLlama, Effect::kSpelling,
     "max_tokens"},
    {"max_output_tokens", kCompletionBody | kChatBody | kMessagesBody, Effect::kSpelling,
     "max_tokens"},
    {"n_predict", kResponsesBody, Effect::kSpelling, "max_output_tokens"},
    {"stop", kMessagesBody, Effect::kSpelling, "stop_sequences"},
    {"stop_sequences", kOpenAi | kLlama, Effect::kSpelling, "stop"},
    {"stop_strings", kOpenAi | kLlama, Effect::kSpelling, "stop"},
    {"chat_template_args", kChatBody | kResponsesBody | kTokenizeBody, Effect::kSpelling,
     "chat_template_kwargs"},
    {"ignore_eos_token", kSampled, Effect::kSpelling, "ignore_eos"},
    {"guided_regex", kOpenAi | kLlama, Effect::kSpelling, "regex"},
    {"guided_grammar", kOpenAi | kLlama, Effect::kSpelling, "grammar"},
    {"guided_json", kOpenAi | kLlama, Effect::kSpelling, "json_schema"},

    // Names, accounts, prices, caches, speed: nothing that a text depends on.
    {"user", kAll, Effect::kIgnored},
    {"metadata", kAll, Effect::kIgnored},
    {"client_metadata", kAll, Effect::kIgnored},
    {"safety_identifier", kAll, Effect::kIgnored},
    {"prompt_cache_key", kAll, Effect::kIgnored},
    {"prompt_cache_retention", kAll, Effect::kIgnored},
    {"prompt_cache_options", kAll, Effect::kIgnored},
    {"service_tier", kAll, Effect::kIgnored},
    {"store", kAll, Effect::kIgnored},
    {"verbosity", kAll, Effect::kIgnored},
    {"prediction", kAll, Effect::kIgnored},
    {"web_search_options", kAll, Effect::kIgnored},
    {"include", kAll, Effect::kIgnored},
    {"max_tool_calls", kAll, Effect::kIgnored},
    {"truncation", kResponsesBody, Effect::kIgnored},
    {"stream_options", kResponsesBody | kMessagesBody | kOllamaTexts, Effect::kIgnored},
    {"context_management", kResponsesBody | kMessagesBody | kCountBody, Effect::kIgnored},
    {"cache_control", kMessagesBody | kCountBody | kChatBody, Effect::kIgnored},
    {"inference_geo", kMessagesBody, Effect::kIgnored},
    {"betas", kMessagesBody | kCountBody, Effect::kIgnored},
    {"anthropic_beta", kMessagesBody | kCountBody, Effect::kIgnored},
    {"anthropic_version", kMessagesBody | kCountBody, Effect::kIgnored},
    {"mcp_servers", kMessagesBody | kCountBody, Effect::kIgnored},
    {"container", kMessagesBody, Effect::kIgnored},
    {"speed", kMessagesBody, Effect::kIgnored},
    {"output_config", kCountBody, Effect::kIgnored},
    {"max_tokens", kCountBody, Effect::kIgnored},
    {"temperature", kCountBody, Effect::kIgnored},
    {"top_p", kCountBody, Effect::kIgnored},
    {"top_k", kCountBody, Effect::kIgnored},
    {"stop_sequences", kCountBody, Effect::kIgnored},
    {"stream", kCountBody | kTokenizeBody | kEmbeds, Effect::kIgnored},
    {"extra_body", kAll, Effect::kIgnored},
    {"extra_headers", kAll, Effect::kIgnored},
    {"request_id", kAll, Effect::kIgnored},
    {"session_id", kAll, Effect::kIgnored},
    {"priority", kAll, Effect::kIgnored},
    {"cache_salt", kAll, Effect::kIgnored},
    {"provider", kAll, Effect::kIgnored},
    {"models", kAll, Effect::kIgnored},
    {"route", kAll, Effect::kIgnored},
    {"transforms", kAll, Effect::kIgnored},
    {"plugins", kAll, Effect::kIgnored},
    {"usage", kAll, Effect::kIgnored},
    {"ttl", kAll, Effect::kIgnored},
    {"draft_model", kAll, Effect::kIgnored},
    {"keep_alive", kAll, Effect::kIgnored},
    {"cache_prompt", kAll, Effect::kIgnored},
    {"id_slot", kAll, Effect::kIgnored},
    {"slot_id", kAll, Effect::kIgnored},
    {"timings_per_token", kAll, Effect::kIgnored},
    {"return_progress", kAll, Effect::kIgnored},
    {"n_cache_reuse", kAll, Effect::kIgnored},
    {"t_max_predict_ms", kAll, Effect::kIgnored},
    {"t_max_prompt_ms", kAll, Effect::kIgnored},
    {"n_indent", kAll, Effect::kIgnored},
    {"response_fields", kAll, Effect::kIgnored},
    {"skip_special_tokens", kAll, Effect::kIgnored},
    {"spaces_between_special_tokens", kAll, Effect::kIgnored},
    {"parse_tool_calls", kChatBody, Effect::kNothing, "[true]"},
    {"reasoning_format", kChatBody | kLlamaBody, Effect::kNothing, R"(["auto","deepseek"])"},
    {"thinking_forced_open", kChatBody, Effect::kNothing, "[false]"},
    {"thinking_budget_tokens", kAll, Effect::kIgnored},
    {"include_reasoning", kOpenAi, Effect::kNothing, "[true]"},
    {"samplers", kInfillBody, Effect::kIgnored},
    {"stream_interval", kAll, Effect::kIgnored},
    {"num_ctx", kOllamaOptions | kOpenAi, Effect::kIgnored},
    {"num_batch", kOllamaOptions, Effect::kIgnored},
    {"num_gpu", kOllamaOptions, Effect::kIgnored},
    {"num_gqa", kOllamaOptions, Effect::kIgnored},
    {"num_thread", kOllamaOptions, Effect::kIgnored},
    {"num_keep", kOllamaOptions, Effect::kIgnored},
    {"main_gpu", kOllamaOptions, Effect::kIgnored},
    {"numa", kOllamaOptions, Effect::kIgnored},
    {"low_vram", kOllamaOptions, Effect::kIgnored},
    {"f16_kv", kOllamaOptions, Effect::kIgnored},
    {"use_mmap", kOllamaOptions, Effect::kIgnored},
    {"use_mlock", kOllamaOptions, Effect::kIgnored},
    {"vocab_only", kOllamaOptions, Effect::kIgnored},
    {"logits_all", kOllamaOptions, Effect::kIgnored},
    {"embedding_only", kOllamaOptions, Effect::kIgnored},
    {"draft_num_predict", kOllamaOptions, Effect::kIgnored},
    {"truncate", kOllamaTexts | kOllamaOptions, Effect::kIgnored},
    {"shift", kOllamaTexts | kOllamaOptions, Effect::kIgnored},
    {"options", kOllamaEmbedBody, Effect::kIgnored},
    {"mm_processor_kwargs", kAll, Effect::kIgnored},
    {"kv_transfer_params", kAll, Effect::kIgnored},

    // Steps of other samplers. Parameters of a step that is off change nothing.
    {"tfs_z", kSampled, Effect::kNothing, "[1]"},
    {"tfs", kSampled, Effect::kNothing, "[1]"},
    {"top_a", kSampled, Effect::kNothing, "[0]"},
    {"mirostat", kSampled, Effect::kNothing, "[0,false]"},
    {"mirostat_mode", kSampled, Effect::kNothing, "[0,false]"},
    {"mirostat_tau", kSampled, Effect::kIgnored},
    {"mirostat_eta", kSampled, Effect::kIgnored},
    {"dynamic_temperature", kSampled, Effect::kNothing, "[false]"},
    {"smoothing_factor", kSampled, Effect::kNothing, "[0]"},
    {"smoothing_curve", kSampled, Effect::kIgnored},
    {"adaptive_target", kSampled, Effect::kNothing, "[-1]"},
    {"adaptive_decay", kSampled, Effect::kIgnored},
    {"dry_sequence_breakers", kSampled, Effect::kNothing, R"([["\n",":","\"","*"]])"},
    {"epsilon_cutoff", kSampled, Effect::kNothing, "[0]"},
    {"eta_cutoff", kSampled, Effect::kNothing, "[0]"},
    {"penalty_alpha", kSampled, Effect::kNothing, "[0]"},
    {"penalize_nl", kSampled, Effect::kNothing, "[false]"},
    {"penalize_newline", kSampled, Effect::kNothing, "[false]"},
    {"no_repeat_ngram_size", kSampled, Effect::kNothing, "[0]"},
    {"encoder_repetition_penalty", kSampled, Effect::kNothing, "[1]"},
    {"length_penalty", kSampled, Effect::kNothing, "[1]"},
    {"guidance_scale", kSampled, Effect::kNothing, "[1]"},
    {"do_sample", kSampled, Effect::kNothing, "[true]"},
    {"min_keep", kSampled, Effect::kNothing, "[0,1]"},
    {"samplers", kSampled & ~kInfillBody, Effect::kNothing, "[[]]"},
    {"best_of", kOpenAi, Effect::kNothing, "[1]"},
    {"num_beams", kOpenAi, Effect::kNothing, "[1]"},
    {"use_beam_search", kOpenAi, Effect::kNothing, "[false]"},
    {"early_stopping", kOpenAi, Effect::kNothing, "[false]"},
    {"bad_words", kSampled, Effect::kNothing, "[[]]"},
    {"bad_words_ids", kSampled, Effect::kNothing, "[[]]"},
    {"banned_tokens", kSampled, Effect::kNothing, "[[]]"},
    {"banned_strings", kSampled, Effect::kNothing, "[[]]"},
    {"stop_token_ids", kSampled, Effect::kNothing, "[[]]"},
    {"allowed_token_ids", kSampled, Effect::kNothing, "[]"},
    {"logits_processors", kSampled, Effect::kNothing, "[[]]"},
    {"n_discard", kLlama, Effect::kIgnored},
    {"n_keep", kLlama, Effect::kIgnored},

    // What an answer would have besides its text, or in place of it.
    {"functions", kChatBody, Effect::kNothing, "[[]]"},
    {"function_call", kChatBody, Effect::kNothing, R"(["auto","none"])"},
    {"tools", kCompletionBody | kLlama, Effect::kNothing, "[[]]"},
    {"tool_choice", kCompletionBody, Effect::kNothing, R"(["auto","none"])"},
    {"modalities", kChatBody | kResponsesBody, Effect::kNothing, R"([["text"]])"},
    {"audio", kChatBody, Effect::kNothing, "[]"},
    {"documents", kChatBody, Effect::kNothing, "[[]]"},
    {"chat_template", kChatBody, Effect::kNothing, "[]"},
    {"add_special_tokens", kChatBody, Effect::kNothing, "[false]"},
    {"echo", kChatBody, Effect::kNothing, "[false]"},
    {"include_stop_str_in_output", kOpenAi, Effect::kNothing, "[false]"},
    {"detokenize", kOpenAi, Effect::kNothing, "[true]"},
    {"prompt_logprobs", kOpenAi, Effect::kNothing, "[0,false]"},
    {"return_token_ids", kOpenAi, Effect::kNothing, "[false]"},
    {"return_tokens_as_token_ids", kOpenAi, Effect::kNothing, "[false]"},
    {"return_tokens", kOpenAi | kInfillBody, Effect::kNothing, "[false]"},
    {"top_logprobs", kResponsesBody, Effect::kNothing, "[0]"},
    {"n_probs", kOpenAi, Effect::kNothing, "[0]"},
    {"post_sampling_probs", kLlama | kOpenAi, Effect::kNothing, "[false]"},
    {"lora", kAll, Effect::kNothing, "[[]]"},
    {"n", kInfillBody | kResponsesBody | kMessagesBody, Effect::kNothing, "[1]"},
    {"receipt", kInfillBody, Effect::kNothing, "[false]"},

    // What a server would have to keep, or to do elsewhere.
    {"previous_response_id", kResponsesBody, Effect::kNothing, "[]"},
    {"conversation", kResponsesBody, Effect::kNothing, "[]"},
    {"prompt", kResponsesBody, Effect::kNothing, "[]"},
    {"background", kResponsesBody, Effect::kNothing, "[false]"},
    {"template", kOllamaTextBody, Effect::kNothing, R"([""])"},
    {"context", kOllamaTextBody, Effect::kNothing, "[[]]"},
    {"images", kOllamaTextBody, Effect::kNothing, "[[]]"},
};

}  // namespace

void add_foreign_fields(JsonFields& fields, BodyKind body) {
  const auto has = [&](const char* name) {
    return std::ranges::find(fields.all(), name, &JsonFields::Field::name) != fields.all().end();
  };
  for (const ForeignField& field : kForeign) {
    if ((field.bodies & body) == 0 || has(field.name)) continue;
    if (field.effect == Effect::kIgnored) fields.ignored({field.name});
    if (field.effect == Effect::kNothing) fields.only(field.name, parse_ordered_json(field.what));
    if (field.effect == Effect::kSpelling && has(field.what))
      fields.spelling(field.name, field.what);
  }
}

}  // namespace llm
