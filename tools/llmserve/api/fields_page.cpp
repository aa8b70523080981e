#include "tools/llmserve/api/fields_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/llmserve/api/compat_fields.h"
#include "tools/llmserve/conversations/request_notes.h"

namespace llm {
namespace {

using Effect = JsonFields::Effect;

constexpr std::string_view kHead =
    "# What fields of requests do\n\n"
    "Made by `llmserve --fields` from the tables that read requests. A request is refused only for "
    "a\n"
    "field that would change the meaning of its answer and is not supported.\n\n"
    "- *nothing*: the field is accepted without effect. The answer's header `{0}` names it,\n"
    "  and the log once.\n"
    "- *as* another field: a second name for it. Requests may give both if they are equal.\n"
    "- *only* some values: these have no effect. Other values are refused, 400.\n"
    "- A capital letter (N, P, X, ...) in a description is the field's value.\n"
    "- Case and `_` in names do not matter: `maxTokens` is `max_tokens`.\n"
    "- A field that is not listed has no effect either, and `{0}` names it. It is refused if it "
    "may\n"
    "  be a typing error: its name is a field of another path, or differs from one by a letter "
    "(two\n"
    "  in long names), or has a word such as `penalty` or `temperature`. `null`, `false`, 0 and\n"
    "  empty values have no effect.\n\n"
    "| field | of | what it does |\n|---|---|---|\n";

std::string one_line(std::string text) {
  std::ranges::replace(text, '|', '/');
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string words_of(const JsonFields::Field& field) {
  if (field.effect == Effect::kIgnored) return "nothing";
  if (field.effect == Effect::kSpelling) return fmt::format("as `{}`", field.other);
  if (field.effect == Effect::kNothing) {
    std::string values;
    for (const JsonSchema& value : field.schema.value("enum", JsonSchema::array()))
      values += fmt::format("{}`{}`", values.empty() ? "" : ", ", json_text(value));
    return values.empty() ? "only `null`" : "only " + values;
  }
  const JsonSchema text = field.schema.value("description", JsonSchema(""));
  return text == "" ? "used" : one_line(text.get<std::string>());
}

}  // namespace

std::string fields_page(std::span<const Operation> operations) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> rows;
  const auto add = [&rows](const JsonFields& fields, const std::string& where) {
    for (const JsonFields::Field& field : fields.all())
      rows[{field.name, words_of(field)}].push_back(where);
  };
  std::size_t n_bodies = 0;
  for (const Operation& operation : operations) {
    if (operation.body.name == nullptr) continue;
    RequestBody body;
    add(operation.body.fields(nullptr, body), fmt::format("`{}`", operation.path));
    ++n_bodies;
  }
  RequestBody body;
  add(ollama_options(body), "Ollama's `options`");
  std::string page = fmt::format(kHead, kIgnoredHeader);
  for (const auto& [row, where] : rows) {
    page += fmt::format(
        "| `{}` | {} | {} |\n", row.first,
        where.size() >= n_bodies ? "all" : fmt::format("{}", fmt::join(where, ", ")), row.second);
  }
  return page;
}

}  // namespace llm
