// Schemas made wider until all of their keywords are enforced.

#include <utility>

#include "base/json_reference.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_rules.h"

namespace llm {
namespace {

Result<std::string> written(const OrderedJson& schema, const ArgumentForm& form) {
  RuleText rules;
  return arguments_expression(json_text(schema), form, rules);
}

bool has(const OrderedJson& object, const char* name) { return object.contains(name); }

/// The keyword of an object that gives way to the others, where `keyword` is refused.
std::string given_up(const OrderedJson& schema, const std::string& keyword) {
  const bool is_text = keyword == "pattern" || keyword == "format";
  if (is_text && (has(schema, "minLength") || has(schema, "maxLength"))) {
    const OrderedJson alone = {{"type", "string"}, {keyword, schema[keyword]}};
    if (written(alone, {}).ok()) return has(schema, "minLength") ? "minLength" : "maxLength";
  }
  if (keyword == "pattern" && has(schema, "format")) {
    const OrderedJson alone = {{"type", "string"}, {keyword, schema[keyword]}};
    if (written(alone, {}).ok()) return "format";
  }
  for (const char* const operation : {"anyOf", "oneOf", "allOf"})
    if (has(schema, operation) && has(schema, "properties")) return operation;
  return keyword;
}

/// Takes back what is refused at `pointer`. @return whether there was something
bool widen(OrderedJson& schema, const std::string& pointer, std::vector<std::string>& dropped) {
  if (pointer.empty() || JsonReferences(schema).at(pointer) == nullptr) return false;
  const OrderedJson::json_pointer place(pointer);
  OrderedJson& around = schema[place.parent_pointer()];
  if (!around.is_object()) {
    schema[place] = true;
    dropped.push_back(pointer);
    return true;
  }
  const std::string all = place.parent_pointer().to_string();
  const bool is_property = all.ends_with("/properties");
  const std::string keyword = is_property ? place.back() : given_up(around, place.back());
  if (is_property && around[keyword] != OrderedJson(false) &&
      around[keyword] != OrderedJson(true)) {
    around[keyword] = true;
  } else if (keyword == "oneOf" && !has(around, "anyOf") && !has(around, "properties")) {
    around["anyOf"] = around["oneOf"];
    around.erase("oneOf");
  } else {
    around.erase(keyword);
  }
  dropped.push_back(all + "/" + pointer_part(keyword));
  return true;
}

}  // namespace

OrderedJson enforceable_schema(const OrderedJson& given, const ArgumentForm& form,
                               std::vector<std::string>& dropped, std::size_t& bytes_left) {
  OrderedJson schema = given;
  while (true) {
    const std::string text = json_text(schema);
    RuleText rules;
    const auto expression = arguments_expression(text, form, rules);
    if (expression.ok()) return schema;
    if (text.size() > bytes_left || !widen(schema, expression.error().field, dropped)) break;
    bytes_left -= text.size();
  }
  dropped.emplace_back("");
  return {{"type", "object"}};
}

}  // namespace llm
