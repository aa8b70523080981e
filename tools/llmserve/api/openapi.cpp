#include "tools/llmserve/api/openapi.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json.h"
#include "tools/llmserve/api/embedded.h"
#include "tools/llmserve/api/prompts.h"

namespace llm {
namespace {

constexpr std::size_t kWidth = 120;

/// A part stands on one line where it fits, so that what changes are few lines.
std::string spread(const JsonSchema& json, std::size_t indent) {
  std::string line = json_text(json);
  if (!json.is_structured() || line.size() + indent <= kWidth) return line;
  std::string text;
  for (const auto& [name, value] : json.items()) {
    text += (text.empty() ? "\n" : ",\n") + std::string(indent + 1, ' ');
    if (json.is_object()) text += json_text(JsonSchema(name)) + ": ";
    text += spread(value, indent + 1);
  }
  text += "\n" + std::string(indent, ' ');
  return json.is_object() ? "{" + text + "}" : "[" + text + "]";
}

JsonSchema reference(std::string_view part, std::string_view name) {
  return {{"$ref", "#/components/" + std::string(part) + "/" + std::string(name)}};
}

void add_error(JsonSchema& responses, const char* status, const char* name = "Error") {
  if (!responses.contains(status)) responses[status] = reference("responses", name);
}

/// What any request may meet: the HTTP server's and the gate's refusals.
void add_common_errors(JsonSchema& responses) {
  for (const char* status : {"400", "403", "431"}) add_error(responses, status);
}

JsonSchema describe(const Operation& operation, JsonSchema responses) {
  const bool is_post = operation.method == "POST";
  add_common_errors(responses);
  if (operation.needs_key) add_error(responses, "401");
  const bool needs_model = is_post || operation.asks_model;
  if (needs_model || operation.path.ends_with('}')) add_error(responses, "404");
  if (is_post) {
    for (const char* status : {"413", "415"}) add_error(responses, status);
  }
  if (needs_model) {
    for (const char* status : {"500", "503", "507"}) add_error(responses, status);
    add_error(responses, "429", "Busy");
  }
  JsonSchema json = {{"operationId", operation.id}, {"summary", operation.summary}};
  if (operation.asks_model) {
    json["parameters"] = JsonSchema::array(
        {{{"name", "model"},
          {"in", "query"},
          {"description", "Name of a model from /v1/models; the default is the first one."},
          {"schema", {{"type", "string"}}}}});
  }
  if (!operation.needs_key) json["security"] = JsonSchema::array();
  if (operation.body.name != nullptr) {
    const JsonSchema schema = reference("schemas", operation.body.name);
    json["requestBody"] = {{"required", true},
                           {"content", {{"application/json", {{"schema", schema}}}}}};
  }
  json["responses"] = std::move(responses);
  return json;
}

/// OPTIONS, which every path has.
JsonSchema describe_options() {
  JsonSchema responses = {{"204", reference("responses", "Allowed")}};
  add_common_errors(responses);
  return {{"summary", "The methods of this path"},
          {"security", JsonSchema::array()},
          {"responses", std::move(responses)}};
}

}  // namespace

std::string openapi_text(std::span<const Operation> operations) {
  const JsonSchema answers = parse_ordered_json(kAnswers);
  JsonSchema paths = JsonSchema::object();
  JsonSchema components = answers["components"];
  for (const Operation& operation : operations) {
    JsonSchema& path = paths[std::string(operation.path)];
    if (const std::size_t at = operation.path.find('{'); at != std::string_view::npos) {
      path["parameters"] = JsonSchema::array(
          {{{"name", operation.path.substr(at + 1, operation.path.size() - at - 2)},
            {"in", "path"},
            {"required", true},
            {"schema", {{"type", "string"}}}}});
    }
    std::string method(operation.method);
    std::ranges::transform(method, method.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    path[method] = describe(operation, answers["responses"].value(operation.id, JsonSchema()));
    path["options"] = describe_options();
    if (operation.body.name == nullptr) continue;
    operation.body.describe([&schema = components["schemas"][operation.body.name]](
                                const JsonFields& fields) { schema = fields.schema(); });
  }
  components["schemas"]["Message"] = chat_message_schema();
  const JsonSchema document = {{"openapi", "3.1.0"},
                               {"info", answers["info"]},
                               {"security", JsonSchema::array({{{"key", JsonSchema::array()}}})},
                               {"paths", std::move(paths)},
                               {"components", std::move(components)}};
  return spread(document, 0) + "\n";
}

}  // namespace llm
