#include "engine/grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

namespace llm {
namespace {

constexpr unsigned kAnnotation = 0;  // says nothing of values
constexpr unsigned kOperation = kAllTypes + 1;
constexpr unsigned kNumber = kInteger | kFraction;

struct Keyword {
  std::string_view name;
  unsigned of;  ///< the types it is of, kAnnotation or kOperation
};
constexpr auto kKeywords = std::to_array<Keyword>({
    {"$anchor", kAnnotation},
    {"$comment", kAnnotation},
    {"$defs", kAnnotation},
    {"$id", kAnnotation},
    {"$schema", kAnnotation},
    {"default", kAnnotation},
    {"definitions", kAnnotation},
    {"deprecated", kAnnotation},
    {"description", kAnnotation},
    {"examples", kAnnotation},
    {"readOnly", kAnnotation},
    {"title", kAnnotation},
    {"writeOnly", kAnnotation},
    {"$ref", kOperation},
    {"allOf", kOperation},
    {"anyOf", kOperation},
    {"const", kOperation},
    {"enum", kOperation},
    {"oneOf", kOperation},
    {"type", kAllTypes},
    {"exclusiveMaximum", kNumber},
    {"exclusiveMinimum", kNumber},
    {"maximum", kNumber},
    {"minimum", kNumber},
    {"multipleOf", kNumber},
    {"format", kString},
    {"maxLength", kString},
    {"minLength", kString},
    {"pattern", kString},
    {"items", kArray},
    {"maxItems", kArray},
    {"minItems", kArray},
    {"prefixItems", kArray},
    {"uniqueItems", kArray},
    {"additionalProperties", kObject},
    {"maxProperties", kObject},
    {"minProperties", kObject},
    {"patternProperties", kObject},
    {"properties", kObject},
    {"propertyNames", kObject},
    {"required", kObject},
});

constexpr auto kTypeNames =
    std::to_array<std::pair<std::string_view, unsigned>>({{"null", kNull},
                                                          {"boolean", kBoolean},
                                                          {"integer", kInteger},
                                                          {"number", kNumber},
                                                          {"string", kString},
                                                          {"array", kArray},
                                                          {"object", kObject}});

/// The bits of a "type"; 0 for what is none.
unsigned types_named(const OrderedJson& type) {
  if (type.is_array()) {
    unsigned all = 0;
    for (const OrderedJson& one : type) {
      const unsigned bits = one.is_string() ? types_named(one) : 0;
      if (bits == 0) return 0;
      all |= bits;
    }
    return all;
  }
  if (!type.is_string()) return 0;
  for (const auto& [name, bits] : kTypeNames) {
    if (type.get_ref<const std::string&>() == name) return bits;
  }
  return 0;
}

unsigned types_of_values(std::span<const OrderedJson> values) {
  unsigned all = 0;
  for (const OrderedJson& value : values) all |= type_of(value);
  return all;
}

/// The schema that references lead to; null for a loop or nothing.
const OrderedJson* followed(const OrderedJson& schema, const Resolve& resolve) {
  constexpr int kMostSteps = 16;
  const OrderedJson* at = &schema;
  for (int step = 0; step < kMostSteps; ++step) {
    if (at == nullptr || !at->is_object()) return nullptr;
    const auto reference = at->find("$ref");
    if (reference == at->end()) return at;
    at = resolve(*reference);
  }
  return nullptr;
}

/// The only values that a schema allows; nothing where it does not list them.
std::optional<std::span<const OrderedJson>> constants_of(const OrderedJson& schema) {
  if (const auto one = schema.find("const"); one != schema.end()) return std::span(&*one, 1);
  const auto several = schema.find("enum");
  if (several == schema.end() || !several->is_array()) return std::nullopt;
  return std::span(several->get_ref<const OrderedJson::array_t&>());
}

bool have_apart_constants(const OrderedJson& one, const OrderedJson& other) {
  const auto values = constants_of(one);
  const auto others = constants_of(other);
  if (!values || !others) return false;
  return std::ranges::none_of(*values, [&](const OrderedJson& value) {
    return std::ranges::find(*others, value) != others->end();
  });
}

bool requires_property(const OrderedJson& schema, const std::string& name) {
  const auto required = schema.find("required");
  return required != schema.end() && required->is_array() &&
         std::ranges::any_of(*required, [&](const OrderedJson& one) {
           const auto* const text = one.get_ptr<const std::string*>();
           return text != nullptr && *text == name;
         });
}

}  // namespace

Error wrong(std::string pointer, std::string_view need) {
  return Error{ErrorCode::kUsage, std::move(pointer), fmt::format("need {}", need)};
}

std::string pointer_part(std::string_view name) {
  std::string part;
  for (const char c : name) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

Result<Keywords> Keywords::read(const OrderedJson& schema, const std::string& path) {
  Keywords words;
  unsigned of_keywords = 0;
  for (const auto& [name, value] : schema.items()) {
    const auto known = std::ranges::find(kKeywords, std::string_view(name), &Keyword::name);
    const std::string at = fmt::format("{}/{}", path, pointer_part(name));
    if (known == kKeywords.end())
      return Error{ErrorCode::kUsage, at,
                   "found a keyword that is not enforced, need one of docs/structured_output.md"};
    if (known->name == "$id" && !path.empty()) return wrong(at, "it only at the root");
    if (known->of == kAnnotation) continue;
    words.found_.emplace(known->name, &value);
    if (known->of == kOperation) {
      if (!words.operation_.empty())
        return wrong(at, fmt::format("no {} beside it", words.operation_));
      words.operation_ = known->name;
    } else if (known->name != "type") {
      of_keywords |= known->of;
    }
  }
  if (const OrderedJson* type = words.find("type")) {
    words.types_ = types_named(*type);
    if (words.types_ == 0) return wrong(path + "/type", "a type's name, or an array of them");
  } else if (of_keywords != 0) {
    words.types_ = of_keywords;
  }
  const bool has_constants = words.operation_ == "const" || words.operation_ == "enum";
  for (const auto& [name, value] : words.found_) {
    if (!words.operation_.empty() && name != words.operation_ && !(has_constants && name == "type"))
      return wrong(fmt::format("{}/{}", path, name),
                   fmt::format("no {} beside it", words.operation_));
  }
  return words;
}

const OrderedJson* Keywords::find(std::string_view name) const {
  const auto found = found_.find(name);
  return found == found_.end() ? nullptr : found->second;
}

const OrderedJson* Keywords::members(std::string_view name) const {
  const OrderedJson* value = find(name);
  return value == nullptr || *value == OrderedJson::object() ? nullptr : value;
}

Result<Counts> Keywords::counts(std::string_view least, std::string_view most,
                                const std::string& path) const {
  Counts counts;
  for (const auto& [name, target] :
       {std::pair(least, &counts.least), std::pair(most, &counts.most)}) {
    const OrderedJson* value = find(name);
    if (value == nullptr) continue;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!(number >= 0 && number <= std::numeric_limits<std::int32_t>::max() &&
          number == std::floor(number)))
      return wrong(fmt::format("{}/{}", path, name), "a whole number in 0..2147483647");
    *target = static_cast<std::int64_t>(number);
  }
  if (counts.most >= 0 && counts.least > counts.most)
    return wrong(fmt::format("{}/{}", path, most),
                 fmt::format("at least {}, the {}", counts.least, least));
  return counts;
}

Result<bool> Keywords::flag(std::string_view name, const std::string& path) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return wrong(fmt::format("{}/{}", path, name), "true or false");
  return value->get<bool>();
}

Result<std::vector<std::string>> Keywords::names(std::string_view name,
                                                 const std::string& path) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::vector<std::string>();
  const bool is_list = value->is_array() && std::ranges::all_of(*value, [](const OrderedJson& one) {
                         return one.is_string();
                       });
  if (!is_list) return wrong(fmt::format("{}/{}", path, name), "an array of names");
  return value->get<std::vector<std::string>>();
}

unsigned type_of(const OrderedJson& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number_integer()) return kInteger;
  if (value.is_number()) {
    const double number = value.get<double>();
    return number == std::floor(number) ? kInteger : kFraction;
  }
  return value.is_string() ? kString : value.is_array() ? kArray : kObject;
}

bool is_exact(const OrderedJson& value) {
  constexpr double kMost = 9007199254740992;  // 2^53
  if (value.is_structured()) return std::ranges::all_of(value, is_exact);
  return !value.is_number() || std::abs(value.get<double>()) < kMost;
}

unsigned types_of(const OrderedJson& given, const Resolve& resolve) {
  const OrderedJson* schema = followed(given, resolve);
  if (schema == nullptr) return kAllTypes;
  if (const auto values = constants_of(*schema)) return types_of_values(*values);
  const auto words = Keywords::read(*schema, "/");
  return words.ok() && words->operation().empty() ? words->types() : kAllTypes;
}

/// Types of what is valid: without a `type`, keywords of one type say nothing of the others.
static unsigned valid_types(const OrderedJson& given, const Resolve& resolve) {
  const OrderedJson* schema = followed(given, resolve);
  const bool says_types =
      schema != nullptr && (schema->contains("type") || constants_of(*schema).has_value());
  return says_types ? types_of(given, resolve) : kAllTypes;
}

bool are_apart(const OrderedJson& given, const OrderedJson& other_given, const Resolve& resolve) {
  // What is written by one of them must not be valid by the other.
  const unsigned types = types_of(given, resolve);
  const unsigned others_types = types_of(other_given, resolve);
  const unsigned shared = types & others_types;
  // A fraction like 1.0 is an integer, too: of numbers nothing is told by their type.
  if ((types & valid_types(other_given, resolve)) == 0 &&
      (others_types & valid_types(given, resolve)) == 0)
    return true;
  const OrderedJson* one = followed(given, resolve);
  const OrderedJson* other = followed(other_given, resolve);
  if (one == nullptr || other == nullptr) return false;
  if (have_apart_constants(*one, *other)) return true;
  const auto properties = one->find("properties");
  const auto others = other->find("properties");
  if (shared != kObject || properties == one->end() || others == other->end()) return false;
  if (!properties->is_object() || !others->is_object()) return false;
  for (const auto& [name, schema] : properties->items()) {
    if (!requires_property(*one, name) || !requires_property(*other, name)) continue;
    const auto its = others->find(name);
    if (its == others->end()) continue;
    const OrderedJson* mine = followed(schema, resolve);
    const OrderedJson* theirs = followed(*its, resolve);
    if (mine != nullptr && theirs != nullptr && have_apart_constants(*mine, *theirs)) return true;
  }
  return false;
}

std::optional<std::string> format_pattern(std::string_view format) {
  const std::string date =
      "[1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
      "02-(0[1-9]|1\\d|2[0-8]))";
  const std::string time =
      "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
  const std::string byte = "(25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)";
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  const std::string host = label + "(\\." + label + "){0,3}";
  const std::string word = "[A-Za-z0-9_+-]{1,16}";
  const std::string path = "[A-Za-z0-9._~-]{1,64}";
  const std::map<std::string_view, std::string> known = {
      {"date", date},
      {"date-time", date + "T" + time},
      {"email", word + "(\\." + word + "){0,3}@" + label + "(\\." + label + "){1,2}"},
      {"hostname", host},
      {"ipv4", "(" + byte + "\\.){3}" + byte},
      {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
      {"time", time},
      {"uri", "[a-z][a-z0-9+.-]{1,15}://" + host + "(:\\d{1,4})?(/" + path + ")*/?"},
      {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"}};
  const auto found = known.find(format);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

std::string format_names() {
  return "date, date-time, email, hostname, ipv4, ipv6, time, uri, uuid";
}

}  // namespace llm
