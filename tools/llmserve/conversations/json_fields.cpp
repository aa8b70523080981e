#include "tools/llmserve/conversations/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/json.h"
#include "tools/common/options.h"

namespace llm {
namespace {

constexpr std::size_t kShownBytes = 60;
constexpr std::size_t kMostUnknown = 64;  // each is compared with all names

/// Whether no field of that value could have an effect.
bool asks_for_nothing(const OrderedJson& value) {
  return value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

/// The schema of a field that may be absent.
JsonSchema or_null(JsonSchema schema) {
  if (schema.contains("type") && schema["type"] != "null") {
    schema["type"] = JsonSchema::array({schema["type"], "null"});
  } else if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  } else if (schema.contains("oneOf")) {
    schema["oneOf"].push_back({{"type", "null"}});
  }
  return schema;
}

}  // namespace

Result<OrderedJson> parse_body(std::string_view text) {
  if (const std::size_t levels = json_levels(text); levels > kMostJsonLevels)
    return usage_error(
        "body", fmt::format("found {} levels of JSON, need at most {}", levels, kMostJsonLevels));
  // The parser would take it for the end.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return usage_error("body", fmt::format("found no JSON: a NUL at byte {}", at));
  ParsedJson parsed = read_ordered_json(text);
  if (!parsed.fault.empty()) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = parsed.fault;
    return usage_error("body", fmt::format("found no JSON: {}", what.substr(what.find("] ") + 2)));
  }
  if (!parsed.name_twice) return std::move(parsed.value);
  return usage_error("body", fmt::format("found the field {} twice in an object, need it once",
                                         shown_json(*parsed.name_twice)));
}

std::string shown_json(const OrderedJson& value) {
  std::string text = json_text(value, -1, /*ascii=*/true);
  if (text.size() <= kShownBytes) return text;
  text.resize(kShownBytes);
  return text + "...";
}

std::string at_index(std::string_view path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

Error wrong_field(std::string field, const std::string& found, std::string_view need) {
  return usage_error(std::move(field), fmt::format("found {}, need {}", found, need));
}

JsonSchema array_of(JsonSchema items, bool filled) {
  JsonSchema schema = {{"type", "array"}, {"items", std::move(items)}};
  if (filled) schema["minItems"] = 1;
  return schema;
}

JsonFields::Field& JsonFields::value(std::string name, JsonSchema schema, Take take,
                                     std::string_view text) {
  if (!text.empty()) schema["description"] = text;
  return fields_.emplace_back(
      Field{.name = std::move(name), .schema = std::move(schema), .take = std::move(take)});
}

JsonFields::Field& JsonFields::flag(std::string name, bool* target, std::string_view text) {
  return value(
      std::move(name), {{"type", "boolean"}, {"default", *target}},
      [target](const OrderedJson& value, const std::string& path) -> Status {
        if (!value.is_boolean()) return wrong_field(path, shown_json(value), "true or false");
        *target = value.get<bool>();
        return Ok{};
      },
      text);
}

JsonFields::Field& JsonFields::text(std::string name, std::string* target, std::string_view text) {
  return value(
      std::move(name), {{"type", "string"}},
      [target](const OrderedJson& value, const std::string& path) -> Status {
        if (!value.is_string()) return wrong_field(path, shown_json(value), "a string");
        *target = value.get<std::string>();
        return Ok{};
      },
      text);
}

JsonFields::Field& JsonFields::real(std::string name, float* target, double lowest, double highest,
                                    std::string_view text) {
  return value(
      std::move(name),
      {{"type", "number"}, {"minimum", lowest}, {"maximum", highest}, {"default", *target}},
      [=](const OrderedJson& value, const std::string& path) -> Status {
        const double number = value.is_number() ? value.get<double>() : lowest - 1;
        if (number < lowest || number > highest) {
          return wrong_field(path, shown_json(value),
                             fmt::format("a number in {}..{}", lowest, highest));
        }
        *target = static_cast<float>(number);
        return Ok{};
      },
      text);
}

JsonFields::Field& JsonFields::integer_with(std::string name, JsonSchema usual,
                                            std::function<void(std::int64_t)> store,
                                            std::int64_t lowest, std::int64_t highest,
                                            std::string_view text) {
  JsonSchema schema = {{"type", "integer"}, {"minimum", lowest}, {"maximum", highest}};
  if (!usual.is_null()) schema["default"] = std::move(usual);
  return value(
      std::move(name), std::move(schema),
      [=, store = std::move(store)](const OrderedJson& value, const std::string& path) -> Status {
        constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
        const bool wraps = value.is_number_unsigned() && value.get<std::uint64_t>() > kMost;
        if (!value.is_number_integer() || wraps || value.get<std::int64_t>() < lowest ||
            value.get<std::int64_t>() > highest) {
          return wrong_field(path, shown_json(value),
                             fmt::format("an integer in {}..{}", lowest, highest));
        }
        store(value.get<std::int64_t>());
        return Ok{};
      },
      text);
}

JsonFields::Field& JsonFields::object(std::string name, JsonFields fields, std::string_view text) {
  JsonSchema schema = fields.schema();
  return value(
      std::move(name), std::move(schema),
      [fields = std::move(fields)](const OrderedJson& value, const std::string& path) {
        return fields.read(value, path + ".");
      },
      text);
}

JsonFields::Field& JsonFields::only(std::string name, const OrderedJson& values) {
  JsonSchema schema = {{"enum", values}};
  if (values.empty()) schema = {{"type", "null"}};
  Field& field =
      value(std::move(name), std::move(schema),
            [values](const OrderedJson& value, const std::string& path) -> Status {
              std::string need;
              for (const OrderedJson& one : values) {
                if (value == one) return Ok{};
                need += shown_json(one) + " or ";
              }
              return wrong_field(path, shown_json(value), need + "nothing: it is not supported");
            });
  field.effect = Effect::kNothing;
  return field;
}

void JsonFields::ignored(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    value(
        name, JsonSchema::object(),
        [](const OrderedJson&, const std::string&) -> Status { return Ok{}; },
        "Accepted without effect.")
        .effect = Effect::kIgnored;
  }
}

void JsonFields::spelling(std::string name, const std::string& other) {
  const auto meant = std::ranges::find(fields_, other, &Field::name);
  LLM_CHECK(meant != fields_.end());
  Field field = *meant;
  field.name = std::move(name);
  field.need.clear();
  field.schema["description"] = fmt::format("Another name for {}.", other);
  field.effect = Effect::kSpelling;
  field.other = other;
  fields_.push_back(std::move(field));
}

JsonFields::Take JsonFields::keep(const OrderedJson** target) {
  return [target](const OrderedJson& value, const std::string&) -> Status {
    *target = &value;
    return Ok{};
  };
}

Status JsonFields::read(const OrderedJson& object, const std::string& path) const {
  if (!object.is_object()) {
    const std::string where = path.empty() ? "body" : path.substr(0, path.size() - 1);
    return wrong_field(where, shown_json(object), "an object");
  }
  const auto given = [&object](const std::string& name) -> const OrderedJson* {
    const auto at = object.find(name);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  };
  std::set<std::string_view> spelled;
  for (const Field& field : fields_) {
    const OrderedJson* value = given(field.name);
    if (value == nullptr) continue;
    if (field.effect == Effect::kIgnored && notes_ != nullptr && !asks_for_nothing(*value))
      notes_->ignore(path + field.name);
    if (field.effect == Effect::kSpelling) {
      const OrderedJson* same = given(field.other);
      if (same != nullptr && *same != *value)
        return wrong_field(path + field.name, shown_json(*value),
                           fmt::format("{}, the same as {}, because both are names of one field",
                                       shown_json(*same), field.other));
      spelled.insert(field.other);
    }
    LLM_RETURN_IF_ERROR(field.take(*value, path + field.name));
  }
  std::size_t n_unknown = 0;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::ranges::count(fields_, name, &Field::name) > 0) continue;
    if (++n_unknown > kMostUnknown)
      return wrong_field(path + name.substr(0, kShownBytes),
                         fmt::format("more than {} fields that are not supported", kMostUnknown),
                         "fewer");
    const auto same = std::ranges::find_if(
        fields_, [&](const Field& field) { return is_same_name(field.name, name); });
    if (effective_ == nullptr || same == fields_.end()) {
      LLM_RETURN_IF_ERROR(read_unknown(name, value, path));
      continue;
    }
    if (given(same->name) != nullptr && *given(same->name) != value)
      return wrong_field(path + name, shown_json(value),
                         fmt::format("one value for it and {}", same->name));
    LLM_RETURN_IF_ERROR(same->take(value, path + name));
  }
  for (const Field& field : fields_) {
    if (!field.need.empty() && given(field.name) == nullptr && !spelled.contains(field.name))
      return wrong_field(path + field.name, "nothing", field.need);
  }
  const auto& [one, other] = either_;
  const bool has_other = given(other) != nullptr;
  if (!one.empty() && (given(one) != nullptr) == has_other) {
    return wrong_field(path + one, has_other ? other + " as well" : "nothing",
                       fmt::format("either {} or {}", one, other));
  }
  return Ok{};
}

Status JsonFields::read_unknown(const std::string& name, const OrderedJson& value,
                                const std::string& path) const {
  const std::string place = path + name.substr(0, kShownBytes);
  if (effective_ == nullptr)
    return wrong_field(place, "a field that is not supported", "none of that name");
  if (asks_for_nothing(value)) return Ok{};
  const std::string meant = effective_().contains(name) ? name : meant_field(name, effective_());
  if (!meant.empty())
    return wrong_field(place, "a field that is not supported",
                       meant == name ? "none of that name here" : "another name: " + meant);
  if (notes_ != nullptr) notes_->ignore(place);
  return Ok{};
}

JsonSchema JsonFields::schema() const {
  JsonSchema required = JsonSchema::array();
  JsonSchema properties = JsonSchema::object();
  for (const Field& field : fields_) {
    if (!field.need.empty()) required.push_back(field.name);
    properties[field.name] = field.need.empty() ? or_null(field.schema) : field.schema;
  }
  JsonSchema schema = {{"type", "object"}};
  if (!required.empty()) schema["required"] = std::move(required);
  if (effective_ == nullptr) schema["additionalProperties"] = {{"type", "null"}};
  schema["properties"] = std::move(properties);
  if (!either_.first.empty()) {
    const auto only = [](const std::string& name) { return JsonSchema{{"required", {name}}}; };
    schema["oneOf"] = JsonSchema::array({only(either_.first), only(either_.second)});
  }
  return schema;
}

}  // namespace llm
