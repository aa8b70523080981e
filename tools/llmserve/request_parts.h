#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/llmserve/request_fields.h"

namespace llm {

// What tables of bodies are made of.

/// The most tokens of a text. @param served  null: any number
std::int64_t most_new(const ServedModel* served);

/// Has `read` put into the body's conversation what stands at `name`.
JsonFields::Field& add_chat(JsonFields& fields, RequestBody& body, std::string name,
                            JsonSchema schema,
                            Status (*read)(const OrderedJson&, const std::string&, RequestedChat&),
                            std::string_view text = "");
/// For add_chat(): a word for the template.
Status read_effort(const OrderedJson& value, const std::string& path, RequestedChat& chat);

/// Functions in OpenAI's shape.
void add_tools(JsonFields& fields, RequestBody& body, bool is_flat);
/// What conversations of OpenAI's shapes have besides their messages.
void add_calls(JsonFields& fields, RequestBody& body, bool is_flat);

void add_sampling(JsonFields& fields, RequestBody& body);
/// "stop": a text or several.
void add_stops(JsonFields& fields, RequestBody& body);
/// The same as Anthropic calls it, always a list.
void add_stop_sequences(JsonFields& fields, RequestBody& body);
/// What all bodies of OpenAI's older APIs that ask for texts have in common.
void add_common(JsonFields& fields, const ServedModel* served, RequestBody& body);

}  // namespace llm
