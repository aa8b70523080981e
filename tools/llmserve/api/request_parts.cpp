#include "tools/llmserve/api/request_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "engine/sampler/sampler_fields.h"

namespace llm {
namespace {

constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 1024;
constexpr int kMostBias = 100;

Status read_variables(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  if (!value.is_object()) return wrong_field(path, shown_json(value), "an object");
  OrderedJson variables = value;  // they may be very many, those from other fields are few
  for (const auto& [name, earlier] : chat.variables.items()) {
    if (!variables.contains(name)) variables[name] = earlier;
  }
  chat.variables = std::move(variables);
  return Ok{};
}

/// /v1/responses' "reasoning", which chats of some servers have as well.
Status read_reasoning(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  if (!value.is_object()) return wrong_field(path, shown_json(value), "an object");
  if (value.value("enabled", OrderedJson()) == false) chat.variables["enable_thinking"] = false;
  const OrderedJson effort = value.value("effort", OrderedJson());
  return effort.is_null() ? Status(Ok{}) : read_effort(effort, path + ".effort", chat);
}

/// Ollama's "think", and "enable_thinking" where it stands outside of chat_template_kwargs.
Status read_think(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  if (value.is_string()) return read_effort(value, path, chat);
  if (!value.is_boolean()) return wrong_field(path, shown_json(value), "true or false");
  chat.variables["enable_thinking"] = value;
  return Ok{};
}

/// /v1/messages' "thinking", which chats of some servers have as well.
Status read_thinking(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  const OrderedJson type = value.is_object() ? value.value("type", OrderedJson()) : OrderedJson();
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return wrong_field(path, shown_json(value), "{\"type\": \"enabled\"} or disabled or adaptive");
  if (type != "adaptive") chat.variables["enable_thinking"] = type == "enabled";
  return Ok{};
}

Status read_stops(const OrderedJson& stop, const std::string& path,
                  std::vector<std::string>& stops) {
  const std::size_t n = stop.is_array() ? stop.size() : 1;
  if (n > kMostStops)
    return wrong_field(path, fmt::format("{} strings", n), fmt::format("at most {}", kMostStops));
  for (std::size_t i = 0; i < n; ++i) {
    const OrderedJson& one = stop.is_array() ? stop[i] : stop;
    if (!one.is_string() || one.get_ref<const std::string&>().empty() ||
        one.get_ref<const std::string&>().size() > kMostStopBytes) {
      return wrong_field(path, shown_json(one),
                         fmt::format("strings of 1 to {} bytes", kMostStopBytes));
    }
    stops.push_back(one.get<std::string>());
  }
  return Ok{};
}

Status read_logit_bias(const OrderedJson& biases, const std::string& path,
                       const Tokenizer& tokenizer, GenerateOptions& options) {
  if (!biases.is_object()) return wrong_field(path, shown_json(biases), "an object");
  if (biases.empty()) return Ok{};
  auto list = std::make_shared<std::vector<LogitBias>>();
  for (const auto& [name, value] : biases.items()) {
    TokenId id = -1;
    std::from_chars(name.data(), name.data() + name.size(), id);
    // An id has one spelling, so that none comes twice.
    if (!tokenizer.contains(id) || std::to_string(id) != name)
      return wrong_field(path, shown_json(name),
                         fmt::format("token ids 0..{}", tokenizer.size() - 1));
    if (!value.is_number() || std::abs(value.get<double>()) > kMostBias) {
      return wrong_field(path, shown_json(value),
                         fmt::format("numbers in -{}..{}", kMostBias, kMostBias));
    }
    list->push_back({id, value.get<float>()});
  }
  options.logit_bias = std::move(list);
  return Ok{};
}

/// @param schema  of the value called `name`
void add_stops_as(JsonFields& fields, RequestBody& body, std::string name, JsonSchema schema) {
  fields.value(
      std::move(name), std::move(schema),
      [&body](const OrderedJson& value, const std::string& path) {
        return read_stops(value, path, body.options.stop);
      },
      "Stop strings: the output ends before the first of them.");
}

/// -1 is off as well: transformers' and vLLM's word for it.
template <typename T>
void add_top_k(JsonFields& fields, const SamplerField& field, T& target) {
  const auto highest = static_cast<std::int64_t>(field.highest);
  fields.value(
      field.name, {{"type", "integer"}, {"minimum", -1}, {"maximum", highest}, {"default", target}},
      [&target, highest](const OrderedJson& value, const std::string& path) -> Status {
        const std::int64_t k = value.is_number_integer() ? value.get<std::int64_t>() : -2;
        if (k < -1 || k > highest)
          return wrong_field(path, shown_json(value), fmt::format("an integer in -1..{}", highest));
        target = static_cast<T>(std::max<std::int64_t>(k, 0));
        return Ok{};
      },
      field.text);
}

void add_biases(JsonFields& fields, const ServedModel* served, RequestBody& body) {
  fields.value(
      "logit_bias",
      {{"type", "object"},
       {"propertyNames", {{"pattern", "^[0-9]+$"}}},
       {"additionalProperties",
        {{"type", "number"}, {"minimum", -kMostBias}, {"maximum", kMostBias}}}},
      [served, &body](const OrderedJson& value, const std::string& path) {
        return read_logit_bias(value, path, served->tokenizer(), body.options);
      },
      "Object from token ids to numbers that are added to their logits before any other step of "
      "sampling.");
}

}  // namespace

JsonFields::Field& add_most_tokens(JsonFields& fields, std::string name,
                                   std::optional<std::size_t>* target, std::string_view text) {
  static constexpr auto kMost = std::int64_t{1} << 53;
  JsonSchema schema = {{"type", "integer"}, {"minimum", -2}, {"maximum", kMost}};
  return fields.value(
      std::move(name), std::move(schema),
      [target](const OrderedJson& value, const std::string& path) -> Status {
        const std::int64_t n = value.is_number_integer() ? value.get<std::int64_t>() : kMost + 1;
        // -1 and -2 are llama-server's and Ollama's words for all that fits.
        if (n < -2 || n > kMost)
          return wrong_field(path, shown_json(value), fmt::format("an integer in -2..{}", kMost));
        *target = static_cast<std::size_t>(n < 0 ? kMost : n);
        return Ok{};
      },
      text);
}

JsonFields::Field& add_chat(JsonFields& fields, RequestBody& body, std::string name,
                            JsonSchema schema,
                            Status (*read)(const OrderedJson&, const std::string&, RequestedChat&),
                            std::string_view text) {
  return fields.value(
      std::move(name), std::move(schema),
      [&body, read](const OrderedJson& value, const std::string& path) {
        return read(value, path, body.chat);
      },
      text);
}

Status read_effort(const OrderedJson& value, const std::string& path, RequestedChat& chat) {
  if (!value.is_string()) return wrong_field(path, shown_json(value), "a string");
  if (value == "none") chat.variables["enable_thinking"] = false;
  chat.variables["reasoning_effort"] = value;
  return Ok{};
}

void add_thoughts(JsonFields& fields, RequestBody& body) {
  const JsonSchema word = {{"type", "string"}};
  const JsonSchema either = {{"oneOf", JsonSchema::array({{{"type", "boolean"}}, word})}};
  constexpr std::string_view kText = "A variable for the chat template.";
  add_chat(fields, body, "reasoning", {{"type", "object"}}, read_reasoning,
           "Its effort is a variable for the chat template.");
  add_chat(fields, body, "reasoning_effort", word, read_effort, kText);
  add_chat(fields, body, "thinking", {{"type", "object"}}, read_thinking, kText);
  add_chat(fields, body, "think", either, read_think, kText);
  add_chat(fields, body, "enable_thinking", {{"type", "boolean"}}, read_think, kText);
}

void add_model(JsonFields& fields, RequestBody& body) {
  fields.value(
      "model", {{"type", "string"}},
      [&body](const OrderedJson& value, const std::string&) -> Status {
        if (value.is_string()) body.model = value.get<std::string>();
        return Ok{};
      },
      "Name of a model from /v1/models; the default is the first one.");
}

void add_adapters(JsonFields& fields, RequestBody& body) {
  const JsonSchema id = {{"oneOf", {{{"type", "integer"}}, {{"type", "string"}}}}};
  const JsonSchema entry = {{"type", "object"},
                            {"required", {"id"}},
                            {"properties", {{"id", id}, {"scale", {{"type", "number"}}}}}};
  fields.value(
      "lora", array_of(entry),
      [&body](const OrderedJson& value, const std::string& path) -> Status {
        if (!value.is_array()) return wrong_field(path, shown_json(value), "an array");
        body.lora = &value;
        return Ok{};
      },
      "Adapters of /lora-adapters with their scales; others are not applied.");
}

void add_tools(JsonFields& fields, RequestBody& body, bool is_flat) {
  fields.value(
      "tools", tools_schema(is_flat),
      [&body, is_flat](const OrderedJson& value, const std::string& path) {
        return read_tools(value, path, is_flat, body.chat);
      },
      "Functions that the reply may call.");
}

void add_calls(JsonFields& fields, RequestBody& body, bool is_flat) {
  add_tools(fields, body, is_flat);
  add_chat(fields, body, "tool_choice",
           {{"oneOf",
             JsonSchema::array({{{"enum", {"auto", "none", "required"}}}, {{"type", "object"}}})}},
           read_tool_choice);
  fields.flag("parallel_tool_calls", &body.chat.parallel_calls, "Allow several calls in a reply.");
  add_chat(fields, body, "chat_template_kwargs", {{"type", "object"}}, read_variables,
           "Variables for the chat template, such as enable_thinking.");
}

void add_sampling(JsonFields& fields, RequestBody& body) {
  for (const SamplerField& field : kSamplerFields) {
    field.visit(body.options.sampler, [&](auto& value) {
      if constexpr (std::is_floating_point_v<std::remove_reference_t<decltype(value)>>) {
        fields.real(field.name, &value, field.lowest, field.highest, field.text);
      } else if (field.name == std::string_view("top_k")) {
        add_top_k(fields, field, value);
      } else {
        fields.integer(field.name, &value, static_cast<std::int64_t>(field.lowest),
                       static_cast<std::int64_t>(field.highest), field.text);
      }
    });
  }
  fields.integer("seed", &body.seed, -1, std::numeric_limits<std::int64_t>::max(), kSeedText);
  fields.flag("ignore_eos", &body.options.ignore_eos,
              "never sample the tokens that end the output");
}

void add_stops(JsonFields& fields, RequestBody& body) {
  const JsonSchema one_stop = {{"type", "string"}, {"minLength", 1}};
  JsonSchema stops = array_of(one_stop);
  stops["maxItems"] = kMostStops;
  add_stops_as(fields, body, "stop", {{"oneOf", JsonSchema::array({one_stop, stops})}});
}

void add_stop_sequences(JsonFields& fields, RequestBody& body) {
  add_stops_as(fields, body, "stop_sequences", array_of({{"type", "string"}}));
}

void add_common(JsonFields& fields, const ServedModel* served, RequestBody& body) {
  add_model(fields, body);
  add_adapters(fields, body);
  add_sampling(fields, body);
  add_stops(fields, body);
  add_biases(fields, served, body);
  add_structure(fields, body.structure);
  add_most_tokens(
      fields, "max_tokens", &body.max_tokens,
      "Maximum number of tokens of each choice; reduced to what fits into the context.");
  fields.flag("stream", &body.stream, "Send server-sent events.");
  JsonFields options;
  options.flag("include_usage", &body.include_usage);
  options.ignored({"include_obfuscation", "continuous_usage_stats"});
  JsonSchema schema = options.schema();
  fields.value(
      "stream_options", std::move(schema),
      [&body, options = std::move(options)](const OrderedJson& value, const std::string& path) {
        body.has_stream_options = true;
        return options.read(value, path + ".");
      });
  fields.flag("timings_per_token", &body.timings, "Add llama-server's timings to the response.");
  fields.flag("return_progress", &body.progress,
              "With stream: send llama-server's prompt_progress while the prompt is evaluated.");
  fields.flag("logits_hash", &body.logits_hash,
              "Adds the header x-logits-sha256; not with stream.");
}

}  // namespace llm
