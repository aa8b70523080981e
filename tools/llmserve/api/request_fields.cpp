#include "tools/llmserve/api/request_fields.h"

#include <memory>
#include <utility>

#include "tools/llmserve/api/compat_fields.h"
#include "tools/llmserve/api/embeddings.h"
#include "tools/llmserve/api/prompts.h"
#include "tools/llmserve/api/request_parts.h"

namespace llm {
namespace {

constexpr std::int64_t kMostLogprobs = 20;
constexpr std::int64_t kMostChoices = 128;
constexpr std::string_view kSpecialText = "Parse special tokens in the text.";

JsonSchema ids_schema(bool filled) {
  return array_of({{"type", "integer"}, {"minimum", 0}}, filled);
}

JsonSchema messages_schema() { return array_of({{"$ref", "#/components/schemas/Message"}}, true); }

/// The fields of other servers, after the body's own.
void finish(JsonFields& fields, RequestBody& body, BodyKind kind) {
  add_foreign_fields(fields, kind);
  fields.tolerate(&body.chat.notes, effective_fields);
}

void add_choices(JsonFields& fields, RequestBody& body) {
  fields.integer("n", &body.n, 1, kMostChoices, "Number of choices for each prompt.");
  fields.flag("receipt", &body.receipt,
              "Each choice gets a receipt for llmcheck --replay; not with stream.");
}

/// The files of /infill's input_extra.
/// @param file  where `fields` puts one
Status read_files(const OrderedJson& list, const std::string& path, const JsonFields& fields,
                  Gap::File& file, std::vector<Gap::File>& files) {
  if (!list.is_array()) return wrong_field(path, shown_json(list), "an array of files");
  for (std::size_t i = 0; i < list.size(); ++i) {
    file = {.name = "file", .text = ""};
    LLM_RETURN_IF_ERROR(fields.read(list[i], at_index(path, i) + "."));
    files.push_back(std::move(file));
  }
  return Ok{};
}

void add_effective(const JsonFields& table, std::set<std::string>& names) {
  for (const JsonFields::Field& field : table.all())
    if (field.effect != JsonFields::Effect::kIgnored) names.insert(field.name);
}

/// Of all tables.
std::set<std::string> find_effective_fields() {
  std::set<std::string> names;
  for (const auto describe :
       {describe_fields<completion_fields>, describe_fields<chat_fields>,
        describe_fields<responses_fields>, describe_fields<messages_fields>,
        describe_fields<ollama_chat_fields>, describe_fields<ollama_text_fields>,
        describe_fields<infill_fields>, describe_fields<tokenize_fields>,
        describe_fields<embedding_fields>}) {
    describe([&names](const JsonFields& table) { add_effective(table, names); });
  }
  RequestBody body;
  add_effective(ollama_options(body), names);
  return names;
}

void add_probabilities(JsonFields& fields, RequestBody& body) {
  fields.integer("n_probs", &body.top_logprobs, 0, kMostLogprobs,
                 "Log probabilities of each token and of the most likely ones; 0 for none.");
}

}  // namespace

const std::set<std::string>& effective_fields() {
  static const std::set<std::string> names = find_effective_fields();
  return names;
}

JsonSchema prompts_schema() {
  const JsonSchema text = {{"type", "string"}};
  const JsonSchema one = {{"oneOf", JsonSchema::array({text, ids_schema(true)})}};
  return {{"oneOf", JsonSchema::array({text, ids_schema(true), array_of(one, true)})}};
}

JsonFields completion_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  fields.value("prompt", prompts_schema(), JsonFields::keep(&body.prompt))
      .needed(std::string(kPromptNeed));
  fields.text("suffix", &body.suffix,
              "The text that follows the generated text; needs a vocabulary with "
              "fill-in-the-middle tokens.");
  fields.flag("echo", &body.echo, "The response begins with the prompt.");
  fields.flag("parse_special", &body.parse_special, kSpecialText);
  fields.integer("logprobs", &body.options.logprobs, 0, kMostLogprobs,
                 "Log probabilities, with this many most likely tokens.");
  add_choices(fields, body);
  add_common(fields, served, body);
  finish(fields, body, kCompletionBody);
  return fields;
}

static void add_logprobs(JsonFields& fields, RequestBody& body) {
  fields.flag("logprobs", &body.wants_logprobs);
  fields.integer("top_logprobs", &body.top_logprobs, 0, kMostLogprobs);
}

JsonFields chat_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_chat(fields, body, "messages", messages_schema(), read_chat_messages,
           "The conversation so far.")
      .needed("an array of messages");
  add_calls(fields, body, /*is_flat=*/false);
  add_thoughts(fields, body);
  add_logprobs(fields, body);
  add_most_tokens(fields, "max_completion_tokens", &body.max_completion_tokens,
                  "The same as max_tokens; if both are given, the smaller one is used.");
  fields.flag("continue_final_message", &body.continue_final,
              "Continue the last message, which must be the assistant's.");
  fields.flag("add_generation_prompt", &body.add_generation_prompt,
              "False only with continue_final_message.");
  add_choices(fields, body);
  add_common(fields, served, body);
  finish(fields, body, kChatBody);
  return fields;
}

JsonFields responses_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_chat(
      fields, body, "input",
      {{"oneOf", JsonSchema::array({{{"type", "string"}}, array_of({{"type", "object"}}, true)})}},
      read_response_input, "A text, or messages, calls and their results.")
      .needed("a string or an array of items");
  fields.text("instructions", &body.instructions, "The system message.");
  add_calls(fields, body, /*is_flat=*/true);
  add_thoughts(fields, body);
  add_most_tokens(fields, "max_output_tokens", &body.max_tokens,
                  "Maximum number of tokens; reduced to what fits into the context.");
  add_model(fields, body);
  add_adapters(fields, body);
  add_sampling(fields, body);
  fields.flag("stream", &body.stream, "Send server-sent events.");
  add_nested_format(fields, "text", body.structure);
  add_stops(fields, body);
  finish(fields, body, kResponsesBody);
  return fields;
}

/// What /v1/messages and its count have in common.
static void add_anthropic(JsonFields& fields, RequestBody& body) {
  add_chat(
      fields, body, "messages", array_of({{"type", "object"}}, true), read_anthropic_messages,
      "The conversation so far; if the last message is the assistant's, the reply continues it.")
      .needed("an array of messages");
  add_chat(fields, body, "system",
           {{"oneOf", JsonSchema::array({{{"type", "string"}}, array_of({{"type", "object"}})})}},
           read_anthropic_system);
  add_chat(fields, body, "tools", array_of({{"type", "object"}}), read_anthropic_tools,
           "Functions that the reply may call.");
  add_chat(fields, body, "tool_choice", {{"type", "object"}}, read_anthropic_choice);
  add_thoughts(fields, body);
  add_model(fields, body);
}

JsonFields messages_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_anthropic(fields, body);
  add_adapters(fields, body);
  add_most_tokens(fields, "max_tokens", &body.max_tokens,
                  "Maximum number of tokens; reduced to what fits into the context.");
  add_sampling(fields, body);
  add_stop_sequences(fields, body);
  JsonFields::Field& config = add_nested_format(fields, "output_config", body.structure);
  config.take = [format = config.take, &body](const OrderedJson& value,
                                              const std::string& path) -> Status {
    LLM_RETURN_IF_ERROR(format(value, path));
    const OrderedJson effort = value.value("effort", OrderedJson());
    return effort.is_null() ? Status(Ok{}) : read_effort(effort, path + ".effort", body.chat);
  };
  fields.flag("stream", &body.stream, "Send server-sent events.");
  finish(fields, body, kMessagesBody);
  return fields;
}

JsonFields count_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_anthropic(fields, body);
  finish(fields, body, kCountBody);
  return fields;
}

JsonFields ollama_options(RequestBody& body) {
  JsonFields options;
  add_sampling(options, body);
  add_most_tokens(options, "num_predict", &body.max_tokens,
                  "Maximum number of tokens; below 0: all that fit into the context.");
  add_stops(options, body);
  finish(options, body, kOllamaOptions);
  return options;
}

/// What /api/chat and /api/generate have in common; the defaults are Ollama's.
static void add_ollama(JsonFields& fields, RequestBody& body) {
  body.stream = true;
  body.options.sampler.temperature = 0.8F;
  body.options.sampler.top_k = 40;
  body.options.sampler.top_p = 0.9F;
  add_model(fields, body);
  add_adapters(fields, body);
  fields.object("options", ollama_options(body), "Sampling.");
  add_ollama_format(fields, body.structure);
  add_thoughts(fields, body);
  fields.flag("stream", &body.stream, "Stream the response as lines of JSON; the default is true.");
  add_logprobs(fields, body);
}

JsonFields ollama_chat_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_chat(fields, body, "messages", array_of({{"type", "object"}}), read_ollama_messages,
           "The conversation so far; an empty one loads the model.");
  add_tools(fields, body, /*is_flat=*/false);
  add_ollama(fields, body);
  finish(fields, body, kOllamaChatBody);
  return fields;
}

JsonFields ollama_text_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  fields.text("prompt", &body.more, "The user's message; an empty one loads the model.");
  fields.text("system", &body.instructions, "The system message.");
  fields.flag("raw", &body.is_raw, "The prompt is continued, without a chat template.");
  fields.text("suffix", &body.suffix, "The text that follows the generated text.");
  add_ollama(fields, body);
  finish(fields, body, kOllamaTextBody);
  return fields;
}

JsonFields infill_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  fields.text("input_prefix", &body.gap.before);
  fields.text("input_suffix", &body.gap.after);
  fields.text("prompt", &body.more, "The text after input_prefix.");
  fields.flag("parse_special", &body.gap.parse_special, kSpecialText);
  const auto file = std::make_shared<Gap::File>();
  JsonFields of_file;
  of_file.text("filename", &file->name);
  of_file.text("text", &file->text);
  of_file.ignored({"time"});  // of llama.vim, for itself
  JsonSchema schema = array_of(of_file.schema());
  fields.value(
      "input_extra", std::move(schema),
      [&body, file, of_file = std::move(of_file)](const OrderedJson& value,
                                                  const std::string& path) {
        return read_files(value, path, of_file, *file, body.gap.files);
      },
      "Other files, the least important first.");
  add_probabilities(fields, body);
  add_common(fields, served, body);
  finish(fields, body, kInfillBody);
  return fields;
}

JsonFields llama_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  fields.value("prompt", prompts_schema(), JsonFields::keep(&body.prompt))
      .needed(std::string(kPromptNeed));
  fields.flag("parse_special", &body.parse_special, kSpecialText);
  add_probabilities(fields, body);
  add_common(fields, served, body);
  finish(fields, body, kLlamaBody);
  return fields;
}

JsonFields template_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_model(fields, body);
  add_chat(fields, body, "messages", messages_schema(), read_chat_messages)
      .needed("an array of messages");
  add_calls(fields, body, /*is_flat=*/false);
  add_thoughts(fields, body);
  finish(fields, body, kTokenizeBody);
  return fields;
}

JsonFields show_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_model(fields, body);
  fields.ignored({"name", "verbose", "system", "template", "options"});
  fields.tolerate(&body.chat.notes, effective_fields);
  return fields;
}

JsonFields tokenize_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_model(fields, body);
  fields.value("prompt", {{"type", "string"}}, JsonFields::keep(&body.prompt));
  add_chat(fields, body, "messages", messages_schema(), read_chat_messages);
  add_calls(fields, body, /*is_flat=*/false);
  fields.either("prompt", "messages");
  fields.flag("add_special_tokens", &body.add_special);
  fields.flag("parse_special", &body.parse_special, kSpecialText);
  finish(fields, body, kTokenizeBody);
  return fields;
}

JsonFields adapter_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_model(fields, body);
  add_adapters(fields, body);
  return fields;
}

JsonFields detokenize_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_model(fields, body);
  fields
      .value("tokens", ids_schema(false),
             [served, &body](const OrderedJson& value, const std::string& path) -> Status {
               if (!value.is_array())
                 return wrong_field(path, shown_json(value), "an array of token ids");
               LLM_TRY(body.tokens, ids_of(value, served->tokenizer(), path));
               return Ok{};
             })
      .needed("an array of token ids");
  return fields;
}

}  // namespace llm
