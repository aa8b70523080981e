#include "tools/llmserve/request_fields.h"

#include <memory>
#include <utility>

#include "tools/llmserve/prompts.h"
#include "tools/llmserve/request_parts.h"

namespace llm {
namespace {

constexpr std::int64_t kMostLogprobs = 20;
constexpr std::int64_t kMostChoices = 128;
constexpr std::string_view kSpecialText = "Spellings of special tokens in texts are those tokens.";

JsonSchema ids_schema(bool filled) {
  return array_of({{"type", "integer"}, {"minimum", 0}}, filled);
}

JsonSchema messages_schema() { return array_of({{"$ref", "#/components/schemas/Message"}}, true); }

/// /v1/responses' "reasoning".
Status read_reasoning(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  if (!value.is_object()) return wrong_field(path, shown_json(value), "an object");
  const OrderedJson effort = value.value("effort", OrderedJson());
  return effort.is_null() ? Status(Ok{}) : read_effort(effort, path + ".effort", chat);
}

/// /v1/messages' "thinking".
Status read_thinking(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  const OrderedJson type = value.is_object() ? value.value("type", OrderedJson()) : OrderedJson();
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return wrong_field(path, shown_json(value), "{\"type\": \"enabled\"} or disabled or adaptive");
  if (type != "adaptive") chat.variables["enable_thinking"] = type == "enabled";
  return Ok{};
}

/// /api/chat's "think".
Status read_think(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  if (value.is_string()) return read_effort(value, path, chat);
  if (!value.is_boolean()) return wrong_field(path, shown_json(value), "true or false");
  chat.variables["enable_thinking"] = value;
  return Ok{};
}

void add_choices(JsonFields& fields, RequestBody& body) {
  fields.integer("n", &body.n, 1, kMostChoices, "Choices of each prompt.");
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

}  // namespace

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
              "What stands after the text to be generated; needs a vocabulary with tokens for it.");
  fields.only("tools", OrderedJson::array({OrderedJson::array()}));
  fields.flag("echo", &body.echo, "The choice begins with the prompt.");
  fields.flag("parse_special", &body.parse_special, kSpecialText);
  fields.integer("logprobs", &body.options.logprobs, 0, kMostLogprobs,
                 "Log probabilities, with so many most likely tokens.");
  add_choices(fields, body);
  add_common(fields, served, body);
  return fields;
}

JsonFields chat_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_chat(fields, body, "messages", messages_schema(), read_chat_messages,
           "The last is the user's or a function's result.")
      .needed("an array of messages");
  add_calls(fields, body, /*is_flat=*/false);
  add_chat(fields, body, "reasoning_effort", {{"type", "string"}}, read_effort,
           "A variable for the chat template.");
  fields.flag("logprobs", &body.wants_logprobs);
  fields.integer("top_logprobs", &body.top_logprobs, 0, kMostLogprobs);
  fields.integer("max_completion_tokens", &body.max_completion_tokens, 0, most_new(served),
                 "As max_tokens; not both.");
  add_choices(fields, body);
  add_common(fields, served, body);
  return fields;
}

JsonFields responses_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_chat(
      fields, body, "input",
      {{"oneOf", JsonSchema::array({{{"type", "string"}}, array_of({{"type", "object"}}, true)})}},
      read_response_input, "A text, or messages, calls and their results.")
      .needed("a string or an array of items");
  fields.text("instructions", &body.instructions, "The system message.");
  add_calls(fields, body, /*is_flat=*/true);
  add_chat(fields, body, "reasoning", {{"type", "object"}}, read_reasoning,
           "Its effort is a variable for the chat template.");
  fields.integer("max_output_tokens", &body.max_tokens, 1, most_new(served));
  add_model(fields);
  add_sampling(fields, body);
  fields.flag("stream", &body.stream, "Send server-sent events.");
  add_nested_format(fields, "text", body.structure);
  const OrderedJson nothing = OrderedJson::array();
  fields.only("previous_response_id", nothing);
  fields.only("conversation", nothing);
  fields.only("background", OrderedJson::array({false}));
  fields.only("store", OrderedJson::array({false}));
  fields.only("include", OrderedJson::array({nothing}));
  fields.only("top_logprobs", OrderedJson::array({0}));
  fields.only("truncation", OrderedJson::array({"disabled"}));
  fields.only("service_tier", OrderedJson::array({"auto", "default"}));
  fields.ignored({"metadata", "user", "safety_identifier", "prompt_cache_key", "stream_options",
                  "max_tool_calls"});
  return fields;
}

/// What /v1/messages and its count have in common.
static void add_anthropic(JsonFields& fields, RequestBody& body) {
  add_chat(fields, body, "messages", array_of({{"type", "object"}}, true), read_anthropic_messages,
           "The last is the user's.")
      .needed("an array of messages");
  add_chat(fields, body, "system",
           {{"oneOf", JsonSchema::array({{{"type", "string"}}, array_of({{"type", "object"}})})}},
           read_anthropic_system);
  add_chat(fields, body, "tools", array_of({{"type", "object"}}), read_anthropic_tools,
           "Functions that the reply may call.");
  add_chat(fields, body, "tool_choice", {{"type", "object"}}, read_anthropic_choice);
  add_chat(fields, body, "thinking", {{"type", "object"}}, read_thinking,
           "A variable for the chat template.");
  add_model(fields);
}

JsonFields messages_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_anthropic(fields, body);
  fields.integer("max_tokens", &body.max_tokens, 1, most_new(served)).needed("a number");
  add_sampling(fields, body);
  add_stop_sequences(fields, body);
  add_nested_format(fields, "output_config", body.structure);
  fields.flag("stream", &body.stream, "Send server-sent events.");
  fields.ignored(
      {"metadata", "service_tier", "context_management", "cache_control", "inference_geo"});
  return fields;
}

JsonFields count_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_anthropic(fields, body);
  return fields;
}

/// What /api/chat and /api/generate have in common; the defaults are Ollama's.
static void add_ollama(JsonFields& fields, const ServedModel* served, RequestBody& body) {
  body.stream = true;
  body.options.sampler.temperature = 0.8F;
  body.options.sampler.top_k = 40;
  body.options.sampler.top_p = 0.9F;
  add_model(fields);
  JsonFields options;
  add_sampling(options, body);
  options.integer("num_predict", &body.n_predict, -2, most_new(served), "Below 0: all that fits.");
  add_stops(options, body);
  options.ignored({"num_ctx", "num_batch", "num_gpu", "num_thread", "num_keep", "use_mmap",
                   "main_gpu", "numa", "low_vram"});
  for (const char* penalty : {"presence_penalty", "frequency_penalty"})
    options.only(penalty, OrderedJson::array({0}));
  fields.object("options", std::move(options));
  add_ollama_format(fields, body.structure);
  add_chat(fields, body, "think",
           {{"oneOf", JsonSchema::array({{{"type", "boolean"}}, {{"type", "string"}}})}},
           read_think, "A variable for the chat template.");
  fields.flag("stream", &body.stream, "Lines of JSON; true unless it is said.");
  fields.ignored({"keep_alive"});
}

JsonFields ollama_chat_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_chat(fields, body, "messages", array_of({{"type", "object"}}, true), read_ollama_messages,
           "The last is the user's or a function's result.")
      .needed("an array of messages");
  add_tools(fields, body, /*is_flat=*/false);
  add_ollama(fields, served, body);
  return fields;
}

JsonFields ollama_text_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  fields.text("prompt", &body.more, "What the user says.").needed("a string");
  fields.text("system", &body.instructions, "The system message.");
  fields.only("raw", OrderedJson::array({false}));
  for (const char* absent : {"suffix", "template", "context", "images"})
    fields.only(absent, OrderedJson::array({"", OrderedJson::array()}));
  add_ollama(fields, served, body);
  return fields;
}

JsonFields infill_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  fields.text("input_prefix", &body.gap.before);
  fields.text("input_suffix", &body.gap.after);
  fields.text("prompt", &body.more, "Stands after input_prefix.");
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
  fields.integer("n_predict", &body.n_predict, -1, most_new(served), "As max_tokens; -1: all.");
  fields.ignored({"cache_prompt", "id_slot", "n_indent", "response_fields", "samplers",
                  "t_max_predict_ms", "t_max_prompt_ms"});
  fields.only("n", OrderedJson::array({1}));
  fields.only("receipt", OrderedJson::array({false}));
  add_common(fields, served, body);
  return fields;
}

JsonFields tokenize_fields(const ServedModel*, RequestBody& body) {
  JsonFields fields;
  add_model(fields);
  fields.value("prompt", {{"type", "string"}}, JsonFields::keep(&body.prompt));
  add_chat(fields, body, "messages", messages_schema(), read_chat_messages);
  add_calls(fields, body, /*is_flat=*/false);
  fields.either("prompt", "messages");
  fields.flag("add_special_tokens", &body.add_special);
  fields.flag("parse_special", &body.parse_special, kSpecialText);
  return fields;
}

JsonFields detokenize_fields(const ServedModel* served, RequestBody& body) {
  JsonFields fields;
  add_model(fields);
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
