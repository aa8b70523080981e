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
    "# Request fields\n\n"
    "`llmserve --fields` prints this page from the tables with which requests are parsed. A "
    "request is\n"
    "rejected only if it has an unsupported field that would change the meaning of the "
    "response.\n\n"
    "- *nothing*: the field is accepted without effect. It is listed in the response header\n"
    "  `{0}`, and logged once.\n"
    "- *as* a different field: a second name for it. A request may have both if they are equal.\n"
    "- *only* some values: these are accepted and have no effect. Other values are rejected "
    "(400).\n"
    "- A capital letter (N, P, X, ...) in a description is the value of the field.\n"
    "- Upper and lower case and `_` in names do not matter: `maxTokens` is `max_tokens`.\n"
    "- A field that is not listed is also accepted without effect and listed in `{0}`.\n"
    "  But it is rejected if its name may be a typing error: if it is a field of a different path, "
    "if it\n"
    "  differs from one by a letter (two letters in long names), or if it has a word such as "
    "`penalty` or\n"
    "  `temperature`. The values `null`, `false`, 0 and empty values have no effect.\n\n"
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
    operation.body.describe(
        [&](const JsonFields& fields) { add(fields, fmt::format("`{}`", operation.path)); });
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
