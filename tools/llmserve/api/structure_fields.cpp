#include "tools/llmserve/api/structure_fields.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tools/llmserve/http/worker_pool.h"

namespace llm {
namespace {

JsonSchema format_schema() {
  const auto of_type = [](const char* name) -> JsonSchema {
    return {{"type", "object"},
            {"required", {"type"}},
            {"additionalProperties", false},
            {"properties", {{"type", {{"enum", {name}}}}}}};
  };
  JsonSchema by_schema = of_type("json_schema");
  by_schema["required"].push_back("json_schema");
  by_schema["properties"]["json_schema"] = {{"type", "object"},
                                            {"required", {"schema"}},
                                            {"additionalProperties", false},
                                            {"properties",
                                             {{"name", {{"type", {"string", "null"}}}},
                                              {"description", {{"type", {"string", "null"}}}},
                                              {"schema", {{"type", "object"}}},
                                              {"strict", {{"type", {"boolean", "null"}}}}}}};
  return {{"oneOf", JsonSchema::array({of_type("text"), of_type("json_object"), by_schema})}};
}

/// Errors: kUsage naming the field.
Status read_format(const OrderedJson& format, const std::string& path,
                   std::vector<StructureField>& wanted) {
  std::string type;
  const OrderedJson* by_schema = nullptr;
  JsonFields fields;
  fields.text("type", &type).needed("\"text\", \"json_object\" or \"json_schema\"");
  fields.value("json_schema", {}, JsonFields::keep(&by_schema));
  LLM_RETURN_IF_ERROR(fields.read(format, path + "."));
  if ((type == "json_schema") != (by_schema != nullptr))
    return wrong_field(path + ".json_schema", by_schema == nullptr ? "none" : "one",
                       "one with the type \"json_schema\", and only with it");
  if (type == "text") return Ok{};
  if (type == "json_object") {
    wanted.push_back({path, {GrammarKind::kJsonObject, ""}});
    return Ok{};
  }
  if (type != "json_schema")
    return wrong_field(path + ".type", shown_json(OrderedJson(type)),
                       "\"text\", \"json_object\" or \"json_schema\"");
  const OrderedJson* schema = nullptr;
  JsonFields of_schema;
  of_schema.ignored({"name", "description"});
  of_schema.only("strict", OrderedJson::array({true, false}));  // either is kept to
  of_schema.value("schema", {}, JsonFields::keep(&schema)).needed("a JSON schema");
  LLM_RETURN_IF_ERROR(of_schema.read(*by_schema, path + ".json_schema."));
  wanted.push_back({path + ".json_schema.schema", {GrammarKind::kJsonSchema, json_text(*schema)}});
  return Ok{};
}

/// The same where type and schema stand beside each other.
Status read_flat_format(const OrderedJson& format, const std::string& path,
                        std::vector<StructureField>& wanted) {
  if (!format.is_object()) return wrong_field(path, shown_json(format), "an object");
  OrderedJson nested = {{"type", format.value("type", OrderedJson())}};
  OrderedJson by_schema = format;
  by_schema.erase("type");
  if (!by_schema.empty()) nested["json_schema"] = std::move(by_schema);
  LLM_RETURN_IF_ERROR(read_format(nested, path, wanted));
  if (!wanted.empty() && nested.contains("json_schema")) wanted.back().path = path + ".schema";
  return Ok{};
}

JsonFields::Take keep_text(GrammarKind kind, std::vector<StructureField>& wanted) {
  return [kind, &wanted](const OrderedJson& value, const std::string& path) -> Status {
    if (!value.is_string()) return wrong_field(path, shown_json(value), "a string");
    wanted.push_back({path, {kind, value.get<std::string>()}});
    return Ok{};
  };
}

}  // namespace

void add_structure(JsonFields& fields, std::vector<StructureField>& wanted) {
  fields.value(
      "response_format", format_schema(),
      [&wanted](const OrderedJson& value, const std::string& path) {
        return read_format(value, path, wanted);
      },
      "Structured output: a JSON object, or JSON that matches a schema; enforced, on one line.");
  fields.value(
      "json_schema", {{"type", "object"}},
      [&wanted](const OrderedJson& value, const std::string& path) -> Status {
        if (!value.is_object()) return wrong_field(path, shown_json(value), "a JSON schema");
        if (!value.empty()) wanted.push_back({path, {GrammarKind::kJsonSchema, json_text(value)}});
        return Ok{};
      },
      "The output matches this JSON schema, as with response_format.");
  fields.value("grammar", {{"type", "string"}}, keep_text(GrammarKind::kEbnf, wanted),
               "The output matches the rule root of this EBNF grammar.");
  fields.value("regex", {{"type", "string"}}, keep_text(GrammarKind::kRegex, wanted),
               "The whole output matches this regular expression.");
}

JsonFields::Field& add_nested_format(JsonFields& fields, std::string name,
                                     std::vector<StructureField>& wanted) {
  return fields.value(
      std::move(name),
      {{"type", "object"}, {"properties", {{"format", {{"type", {"object", "null"}}}}}}},
      [&wanted](const OrderedJson& value, const std::string& path) -> Status {
        if (!value.is_object()) return wrong_field(path, shown_json(value), "an object");
        const OrderedJson format = value.value("format", OrderedJson());
        return format.is_null() ? Status(Ok{}) : read_flat_format(format, path + ".format", wanted);
      },
      "Structured output: its format has a type and a schema.");
}

JsonFields::Field& add_ollama_format(JsonFields& fields, std::vector<StructureField>& wanted) {
  return fields.value(
      "format", {{"oneOf", JsonSchema::array({{{"enum", {"", "json"}}}, {{"type", "object"}}})}},
      [&wanted](const OrderedJson& value, const std::string& path) -> Status {
        if (value == "") return Ok{};
        if (value != "json" && !value.is_object())
          return wrong_field(path, shown_json(value), "\"json\" or a JSON schema");
        const bool is_any = value == "json";
        wanted.push_back({path,
                          {is_any ? GrammarKind::kJsonObject : GrammarKind::kJsonSchema,
                           is_any ? "" : json_text(value)}});
        return Ok{};
      },
      "Structured output: a JSON object, or JSON that matches a schema; enforced.");
}

Result<std::shared_ptr<const Grammar>> compile_structure(const std::vector<StructureField>& wanted,
                                                         const ServedModel& served) {
  if (wanted.empty()) return std::shared_ptr<const Grammar>();
  if (wanted.size() > 1)
    return wrong_field(wanted[1].path, fmt::format("it with {}", wanted[0].path), "one of them");
  const auto& [path, source] = wanted.front();
  GrammarCompiler alone(served.tokenizer());
  GrammarCompiler& compiler = served.grammars != nullptr ? *served.grammars : alone;
  auto grammar = compiler.compile(source, {.units = CompileLimits::kFewUnits});
  if (!grammar.ok() && grammar.error().field == CompileLimits::kExceeded) {
    LLM_RETURN_IF_ERROR(WorkerPool::step_aside());
    grammar = compiler.compile(source, {.is_given_up = WorkerPool::has_owner_gone()});
  }
  if (grammar.ok()) return grammar;
  Error error = std::move(grammar).error();
  if (error.code == ErrorCode::kResource) return error;  // the server's, not the field's
  error.field = error.field.starts_with('/') ? path + error.field : path;
  error.code = ErrorCode::kUsage;
  return error;
}

}  // namespace llm
