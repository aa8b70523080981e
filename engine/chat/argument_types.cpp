#include "engine/chat/argument_types.h"

#include <string>

#include "base/json_reference.h"

namespace llm {
namespace {

constexpr int kMostSteps = 32;  // of references and choices, which may lead back to themselves

void add_value(const OrderedJson& value, ArgumentTypes& types) {
  (value.is_string() ? types.string : types.other) = true;
}

/// Adds what `schema` allows.
void add_types(JsonReferences& references, const OrderedJson* schema, int steps,
               ArgumentTypes& types) {
  const auto has = [&](std::string_view name) { return member_of(schema, name); };
  if (schema == nullptr || !schema->is_object() || steps == kMostSteps) {
    types = {};
  } else if (const OrderedJson* reference = has("$ref")) {
    add_types(references, references.at(references.pointer_of(*reference)), steps + 1, types);
  } else if (const OrderedJson* one = has("const")) {
    add_value(*one, types);
  } else if (const OrderedJson* values = has("enum"); values != nullptr && values->is_array()) {
    for (const OrderedJson& value : *values) add_value(value, types);
  } else if (const OrderedJson* type = has("type")) {
    const OrderedJson all = type->is_array() ? *type : OrderedJson::array({*type});
    for (const OrderedJson& name : all) (name == "string" ? types.string : types.other) = true;
  } else {
    for (const char* const name : {"anyOf", "oneOf", "allOf"}) {
      const OrderedJson* const choices = has(name);
      if (choices == nullptr || !choices->is_array() || choices->empty()) continue;
      for (const OrderedJson& choice : *choices) add_types(references, &choice, steps + 1, types);
      return;
    }
    types = {};
  }
}

}  // namespace

const OrderedJson* member_of(const OrderedJson* object, std::string_view name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() ? nullptr : &*at;
}

const OrderedJson* function_of(const OrderedJson& tools, std::string_view name) {
  for (const OrderedJson& tool : tools) {
    const OrderedJson* const function = member_of(&tool, "function");
    const OrderedJson* const known = member_of(function, "name");
    if (known != nullptr && *known == name) return function;
  }
  return nullptr;
}

const OrderedJson* referred(const OrderedJson& root, const OrderedJson* schema) {
  JsonReferences references(root);
  for (int i = 0; i < kMostSteps; ++i) {
    const OrderedJson* const reference = member_of(schema, "$ref");
    if (reference == nullptr) break;
    schema = references.at(references.pointer_of(*reference));
  }
  return schema;
}

ArgumentTypes value_types(const OrderedJson& root, const OrderedJson* schema) {
  ArgumentTypes types{.string = false, .other = false};
  JsonReferences references(root);
  add_types(references, schema, 0, types);
  return types;
}

ArgumentTypes argument_types(const OrderedJson& parameters, std::string_view key) {
  return value_types(parameters,
                     member_of(member_of(referred(parameters, &parameters), "properties"), key));
}

}  // namespace llm
