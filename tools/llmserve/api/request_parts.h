#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/llmserve/api/request_fields.h"

namespace llm {

// What tables of bodies are made of.

/// A bound on the tokens of a text, which is cut to what fits (check_lengths()). Below 0: none.
JsonFields::Field& add_most_tokens(JsonFields& fields, std::string name,
                                   std::optional<std::size_t>* target, std::string_view text = "");

/// Has `read` put into the body's conversation what stands at `name`.
JsonFields::Field& add_chat(JsonFields& fields, RequestBody& body, std::string name,
                            JsonSchema schema,
                            Status (*read)(const OrderedJson&, const std::string&, RequestedChat&),
                            std::string_view text = "");
/// For add_chat(): a word for the template; "none" is no thoughts.
Status read_effort(const OrderedJson& value, const std::string& path, RequestedChat& chat);
/// The fields by which clients ask for thoughts, or for none: variables for the template.
void add_thoughts(JsonFields& fields, RequestBody& body);

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
