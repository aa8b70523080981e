#include "engine/grammar/schema_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_reference.h"
#include "engine/grammar/number_rules.h"
#include "engine/grammar/object_rules.h"
#include "engine/grammar/pattern_rules.h"
#include "engine/grammar/schema_keywords.h"

namespace llm {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostRuleBytes = std::size_t{4} << 20;
constexpr std::size_t kMostChoices = 256;  // of oneOf, each of which is held against each
constexpr std::size_t kMostHeldApart = std::size_t{4} << 20;

class SchemaWriter {
 public:
  SchemaWriter(const OrderedJson& root, RuleText& rules) : references_(root), rules_(rules) {}

  /// What an object's schema describes, in another form than JSON.
  Result<std::string> arguments(const OrderedJson& given, const ArgumentForm& form) {
    const OrderedJson* schema = &given;
    std::string path;
    for (std::size_t i = 0; i < kMostDepth && schema->is_object(); ++i) {
      const auto reference = schema->find("$ref");
      if (reference == schema->end()) break;
      const OrderedJson* target = target_of(*reference);
      if (target == nullptr) return wrong(path + "/$ref", "the place of a schema in this one");
      path = pointer_of(*reference);
      schema = target;
    }
    if (!schema->is_object()) return wrong(path, "an object");
    LLM_TRY(const Keywords words, Keywords::read(*schema, path));
    if (!words.operation().empty())
      return wrong(fmt::format("{}/{}", path, words.operation()), "properties in its place");
    return object_in(words, path, form);
  }

  /// One value.
  Result<std::string> value(const OrderedJson& schema, const std::string& path) {
    if (depth_ == kMostDepth) return wrong(path, fmt::format("at most {} levels", kMostDepth));
    if (rules_.size() > kMostRuleBytes)
      return wrong(path, fmt::format("a schema of at most {} MiB of rules", kMostRuleBytes >> 20));
    ++depth_;
    auto expression = of_schema(schema, path);
    --depth_;
    return expression;
  }

 private:
  Result<std::string> of_schema(const OrderedJson& schema, const std::string& path) {
    if (schema.is_boolean() && schema.get<bool>()) return any_value(rules_);
    if (!schema.is_object()) return wrong(path, "an object or true, so that a value exists");
    LLM_TRY(const Keywords words, Keywords::read(schema, path));
    const OrderedJson* operand = words.operand();
    if (operand == nullptr) return of_types(words, path);
    const std::string at = fmt::format("{}/{}", path, words.operation());
    if (words.operation() == "$ref") return reference(*operand, at);
    if (words.operation() == "const") return constants(OrderedJson::array({*operand}), words, at);
    if (!operand->is_array() || operand->empty()) return wrong(at, "an array that is not empty");
    if (words.operation() == "enum") return constants(*operand, words, at);
    if (words.operation() == "allOf" && operand->size() > 1)
      return wrong(at, "one schema: several at once are not supported");
    if (words.operation() == "oneOf") LLM_RETURN_IF_ERROR(check_apart(*operand, at));
    std::vector<std::string> choices;
    for (std::size_t i = 0; i < operand->size(); ++i) {
      LLM_TRY(std::string choice, value((*operand)[i], fmt::format("{}/{}", at, i)));
      choices.push_back(std::move(choice));
    }
    return rules_.rule(either(choices));
  }

  /// The rule of the schema that a pointer into the root names.
  Result<std::string> reference(const OrderedJson& uri, const std::string& at) {
    const OrderedJson* target = target_of(uri);
    if (target == nullptr)
      return wrong(at, "\"#\" or \"#/...\", the place of a schema in this one");
    const std::string name = "#" + pointer_of(uri);
    if (!open_.insert(name).second)
      return wrong(at, "a reference that does not lead back to itself without a value in between");
    const auto [known, is_new] = named_.try_emplace(name);
    if (is_new) {
      known->second = rules_.declare();
      LLM_TRY(const std::string body, value(*target, name.substr(1)));
      rules_.define(named_[name], body);
    }
    open_.erase(name);
    return named_[name];
  }

  const OrderedJson* target_of(const OrderedJson& uri) { return references_.at(pointer_of(uri)); }

  /// The JSON pointer that a reference is; "?" for what is none of this schema.
  std::string pointer_of(const OrderedJson& uri) { return references_.pointer_of(uri); }

  Result<std::string> constants(const OrderedJson& values, const Keywords& words,
                                const std::string& at) {
    std::vector<std::string> choices;
    for (const OrderedJson& one : values) {
      if ((words.types() & type_of(one)) == 0) continue;
      if (!is_exact(one))
        return wrong(at, "numbers below 2^53, which all JSON parsers read in the same way");
      choices.push_back(literal(json_text(one)));
    }
    if (choices.empty()) return wrong(at, "a value of the type beside it");
    return rules_.rule(either(choices));
  }

  Status check_apart(const OrderedJson& choices, const std::string& at) {
    const auto resolve = [this](const OrderedJson& reference) { return target_of(reference); };
    if (choices.size() > kMostChoices) return wrong(at, fmt::format("at most {}", kMostChoices));
    if (choices.size() * json_text(choices).size() > kMostHeldApart)
      return wrong(at,
                   fmt::format("fewer or shorter ones: at most {} bytes, all of them as often as "
                               "there are schemas",
                               kMostHeldApart));
    for (std::size_t i = 0; i < choices.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!are_apart(choices[i], choices[j], resolve))
          return wrong(at,
                       "schemas of different types, or of a required property with different "
                       "constants; or anyOf");
      }
    }
    return Ok{};
  }

  /// The values of each type that is allowed. A value of a type lies between references.
  Result<std::string> of_types(const Keywords& words, const std::string& path) {
    if (words.types() == kAllTypes && !words.any()) return any_value(rules_);
    const std::set<std::string> outer = std::exchange(open_, {});
    std::vector<std::string> choices;
    for (const auto& [bit, write] : kTypes) {
      if ((words.types() & bit) == 0 || (bit == kInteger && (words.types() & kFraction) != 0))
        continue;
      LLM_TRY(std::string choice, (this->*write)(words, path));
      choices.push_back(std::move(choice));
    }
    open_ = outer;
    return rules_.rule(either(choices));
  }

  Result<std::string> null(const Keywords&, const std::string&) { return literal("null"); }
  Result<std::string> boolean(const Keywords&, const std::string&) {
    return either({literal("true"), literal("false")});
  }
  Result<std::string> integer(const Keywords& words, const std::string& path) {
    return number_of(words, path, true);
  }
  Result<std::string> number(const Keywords& words, const std::string& path) {
    return number_of(words, path, false);
  }
  Result<std::string> number_of(const Keywords& words, const std::string& path, bool is_integer) {
    return below(path, number_expression({.minimum = words.find("minimum"),
                                          .exclusive_minimum = words.find("exclusiveMinimum"),
                                          .maximum = words.find("maximum"),
                                          .exclusive_maximum = words.find("exclusiveMaximum"),
                                          .multiple_of = words.find("multipleOf")},
                                         is_integer));
  }

  Result<std::string> string(const Keywords& words, const std::string& path) {
    LLM_TRY(const Counts counts, words.counts("minLength", "maxLength", path));
    const OrderedJson* pattern = words.find("pattern");
    const OrderedJson* format = words.find("format");
    const std::string at = fmt::format("{}/{}", path, pattern != nullptr ? "pattern" : "format");
    if (pattern == nullptr && format == nullptr) {
      if (!counts.any()) return any_string(rules_);
      return quoted(repeated(string_character(rules_), counts.least, counts.most));
    }
    if ((pattern != nullptr && format != nullptr) || counts.any())
      return wrong(at, "only one of pattern, format, and lengths");
    const OrderedJson& text = pattern != nullptr ? *pattern : *format;
    if (!text.is_string()) return wrong(at, "a string");
    auto wanted = text.get<std::string>();
    if (format != nullptr) {
      const auto known = format_pattern(wanted);
      if (!known) return wrong(at, "one of " + format_names());
      wanted = *known;
    }
    LLM_TRY(const std::string body, below(at, pattern_expression(wanted, true)));
    return quoted(body);
  }

  Result<std::string> array(const Keywords& words, const std::string& path) {
    LLM_TRY(Counts counts, words.counts("minItems", "maxItems", path));
    LLM_TRY(const bool is_set, words.flag("uniqueItems", path));
    if (is_set && (counts.most < 0 || counts.most > 1))
      return wrong(path + "/uniqueItems", "false, or maxItems of 1");
    ArrayParts parts{.first = {}, .rest = {}, .counts = counts};
    if (const OrderedJson* first = words.find("prefixItems")) {
      if (!first->is_array()) return wrong(path + "/prefixItems", "an array of schemas");
      for (std::size_t i = 0; i < first->size() && static_cast<std::int64_t>(i) != counts.most;
           ++i) {
        LLM_TRY(std::string item, value((*first)[i], fmt::format("{}/prefixItems/{}", path, i)));
        parts.first.push_back(std::move(item));
      }
    }
    const OrderedJson* items = words.find("items");
    if (items == nullptr) {
      parts.rest = any_value(rules_);
    } else if (*items != OrderedJson(false)) {
      LLM_TRY(parts.rest, value(*items, path + "/items"));
    }
    if (!parts.rest && counts.least > static_cast<std::int64_t>(parts.first.size()))
      return wrong(path + "/minItems", "as many items as there may be");
    return array_expression(parts, rules_);
  }

  Result<std::string> object(const Keywords& words, const std::string& path) {
    return object_in(words, path, {});
  }

  Result<std::string> object_in(const Keywords& words, const std::string& path,
                                const ArgumentForm& form) {
    const bool names_end = form.kind == ArgumentForm::Kind::kElements;
    const bool has_text = names_end || form.kind == ArgumentForm::Kind::kPairs;
    const auto value = [&](const OrderedJson& schema, const std::string& at) {
      return has_text ? text_or_value(schema, at, form, false) : this->value(schema, at);
    };
    ObjectParts parts;
    LLM_TRY(parts.counts, words.counts("minProperties", "maxProperties", path));
    LLM_TRY(const std::vector<std::string> required, words.names("required", path));
    const OrderedJson* properties = words.members("properties");
    const OrderedJson* extra = words.find("additionalProperties");
    const OrderedJson* patterns = words.members("patternProperties");
    for (const auto& [name, found] :
         {std::pair("properties", properties), std::pair("patternProperties", patterns)}) {
      if (found != nullptr && !found->is_object())
        return wrong(fmt::format("{}/{}", path, name), "an object of schemas");
    }
    std::set<std::string> names;
    if (properties != nullptr) {
      for (const auto& [name, schema] : properties->items()) {
        LLM_TRY(std::string inner,
                value(schema, fmt::format("{}/properties/{}", path, pointer_part(name))));
        parts.properties.push_back({name, std::move(inner), false});
        names.insert(name);
      }
    }
    // Properties that are declared to be none are none, unless some are asked for.
    const bool has_none = words.find("properties") != nullptr && required.empty() &&
                          parts.counts.least == 0 && patterns == nullptr;
    const bool is_open =
        extra == nullptr ? names.empty() && !has_none : *extra != OrderedJson(false);
    if (is_open) {
      parts.extra = any_value(rules_);
      if (extra != nullptr) {
        LLM_TRY(parts.extra, value(*extra, path + "/additionalProperties"));
      }
    }
    for (const std::string& name : required) {
      if (!names.insert(name).second) continue;
      if (!is_open) return wrong(path + "/required", fmt::format("a property \"{}\"", name));
      parts.properties.push_back({name, *parts.extra, false});
    }
    const std::set<std::string> needed(required.begin(), required.end());
    for (ObjectParts::Property& property : parts.properties)
      property.is_required = needed.contains(property.name);
    LLM_RETURN_IF_ERROR(extra_names(words, path, patterns, parts));
    if (form.kind == ArgumentForm::Kind::kJson)
      return below(path, object_expression(std::move(parts), rules_));
    for (const ObjectParts::Property& property : parts.properties) {
      if (!is_bare_name(property.name))
        return wrong(fmt::format("{}/properties/{}", path, pointer_part(property.name)),
                     "a name of letters, digits, \"_\" and \"-\"");
    }
    parts.extra_name.reset();
    if (names_end) parts.extra.reset();  // whose name would have to come twice
    const ObjectStyle style =
        has_text ? ObjectStyle{"", "", "", form.key_begin, form.key_end, form.value_end, names_end}
                 : ObjectStyle{"(", ")", ", ", "", "=", ""};
    return below(path, object_expression(std::move(parts), rules_, style, true));
  }

  static bool is_bare_name(const std::string& name) {
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    return !name.empty() && is_letter(name.front()) && std::ranges::all_of(name, [&](char c) {
      return is_letter(c) || (c >= '0' && c <= '9') || c == '-';
    });
  }

  /// A value where strings stand as they are. @param is_mixed  it may be none, so that a string
  /// must not read as another value
  Result<std::string> text_or_value(const OrderedJson& schema, const std::string& path,
                                    const ArgumentForm& form, bool is_mixed) {
    if (depth_ == kMostDepth) return wrong(path, fmt::format("at most {} levels", kMostDepth));
    if (!schema.is_object()) return value(schema, path);
    LLM_TRY(const Keywords words, Keywords::read(schema, path));
    const OrderedJson* operand = words.operand();
    const std::string at = fmt::format("{}/{}", path, words.operation());
    if (operand == nullptr) {
      const unsigned types = words.types();
      if ((types & kString) == 0 || !words.any()) return value(schema, path);
      LLM_TRY(std::string text, text_value(words, path, form, is_mixed || types != kString));
      if (types == kString) return text;
      OrderedJson others = schema;
      others["type"] = names_of(types & ~static_cast<unsigned>(kString));
      LLM_TRY(std::string other, value(others, path));
      return rules_.rule(either({std::move(text), std::move(other)}));
    }
    if (words.operation() == "$ref") {
      const OrderedJson* target = target_of(*operand);
      if (target == nullptr) return wrong(at, "the place of a schema in this one");
      ++depth_;
      auto expression = text_or_value(*target, pointer_of(*operand), form, is_mixed);
      --depth_;
      return expression;
    }
    const bool is_one = words.operation() == "const";
    if (is_one || words.operation() == "enum") {
      LLM_RETURN_IF_ERROR(value(schema, path));
      std::vector<std::string> choices;
      for (const OrderedJson& one : is_one ? OrderedJson::array({*operand}) : *operand)
        choices.push_back(literal(one.is_string() ? one.get<std::string>() : json_text(one)));
      return rules_.rule(either(choices));
    }
    if (!operand->is_array() || operand->empty() ||
        (words.operation() == "allOf" && operand->size() > 1))
      return value(schema, path);
    if (words.operation() == "oneOf") LLM_RETURN_IF_ERROR(check_apart(*operand, at));
    std::vector<std::string> choices;
    ++depth_;
    for (std::size_t i = 0; i < operand->size(); ++i) {
      auto choice = text_or_value((*operand)[i], fmt::format("{}/{}", at, i), form,
                                  is_mixed || operand->size() > 1);
      if (!choice.ok()) {
        --depth_;
        return choice;
      }
      choices.push_back(*std::move(choice));
    }
    --depth_;
    return rules_.rule(either(choices));
  }

  /// A string's text, up to form.value_end.
  Result<std::string> text_value(const Keywords& words, const std::string& path,
                                 const ArgumentForm& form, bool is_mixed) {
    std::string_view mark = form.value_end;
    mark = mark.substr(std::min(mark.find_first_not_of(" \t\r\n"), mark.size()));
    const CodeSet begin(
        {{static_cast<unsigned char>(mark.front()), static_cast<unsigned char>(mark.front())}});
    LLM_TRY(const Counts counts, words.counts("minLength", "maxLength", path));
    const OrderedJson* pattern = words.find("pattern");
    const OrderedJson* format = words.find("format");
    if (pattern != nullptr || format != nullptr) {
      LLM_RETURN_IF_ERROR(string(words, path));  // what is refused there
      const auto wanted = pattern != nullptr ? pattern->get<std::string>()
                                             : *format_pattern(format->get<std::string>());
      return pattern_expression(wanted, false);
    }
    const CodeSet breaks({{'\n', '\n'}, {'\r', '\r'}});
    if (counts.any()) {
      const CodeSet plain = CodeSet::all().without(begin).without(breaks);
      return repeated(plain.text(), counts.least, counts.most);
    }
    const std::string text = text_without(mark, rules_);
    if (!is_mixed) return text;
    // No number, no word and no bracket begins it.
    const CodeSet others({{' ', ' '},
                          {'\t', '\t'},
                          {'"', '"'},
                          {'-', '-'},
                          {'0', '9'},
                          {'[', '['},
                          {'{', '{'},
                          {'f', 'f'},
                          {'n', 'n'},
                          {'t', 't'},
                          {'F', 'F'},
                          {'N', 'N'},
                          {'T', 'T'}});
    const CodeSet first = CodeSet::all().without(begin).without(breaks).without(others);
    return rules_.rule(fmt::format("{} {}", first.text(), text));
  }

  static OrderedJson names_of(unsigned types) {
    OrderedJson names = OrderedJson::array();
    for (const auto& [bit, name] : {std::pair(kNull, "null"), std::pair(kBoolean, "boolean"),
                                    std::pair(kArray, "array"), std::pair(kObject, "object")})
      if ((types & bit) != 0) names.push_back(name);
    if ((types & kFraction) != 0)
      names.push_back("number");
    else if ((types & kInteger) != 0)
      names.push_back("integer");
    return names;
  }

  /// What the names of properties must be that are not declared.
  Status extra_names(const Keywords& words, const std::string& path, const OrderedJson* patterns,
                     ObjectParts& parts) {
    const OrderedJson* wanted = words.find("propertyNames");
    if (patterns != nullptr) {
      const std::string at = path + "/patternProperties";
      if (patterns->size() > 1 || !parts.properties.empty() || wanted != nullptr)
        return wrong(at, "one pattern, no properties, no required and no propertyNames");
      const auto only = patterns->begin();
      const std::string& pattern = only.key();
      const OrderedJson& schema = only.value();
      LLM_TRY(const std::string body, below(at, pattern_expression(pattern, true)));
      parts.extra_name = quoted(body);
      LLM_TRY(parts.extra, value(schema, fmt::format("{}/{}", at, pointer_part(pattern))));
    } else if (wanted != nullptr && parts.extra) {
      const std::string at = path + "/propertyNames";
      const auto resolve = [this](const OrderedJson& reference) { return target_of(reference); };
      if (!parts.properties.empty()) return wrong(at, "no properties and no required beside it");
      if (types_of(*wanted, resolve) != kString)
        return wrong(at, "\"type\": \"string\" or its keywords");
      LLM_TRY(parts.extra_name, value(*wanted, at));
    }
    return Ok{};
  }

  static constexpr std::array<std::pair<unsigned, Result<std::string> (SchemaWriter::*)(
                                                      const Keywords&, const std::string&)>,
                              7>
      kTypes = {{{kNull, &SchemaWriter::null},
                 {kBoolean, &SchemaWriter::boolean},
                 {kInteger, &SchemaWriter::integer},
                 {kFraction, &SchemaWriter::number},
                 {kString, &SchemaWriter::string},
                 {kArray, &SchemaWriter::array},
                 {kObject, &SchemaWriter::object}}};

  JsonReferences references_;
  RuleText& rules_;
  std::size_t depth_ = 0;
  std::map<std::string, std::string> named_;  ///< rules of "#/..."
  std::set<std::string> open_;                ///< references with no value between them and here
};

}  // namespace

Result<std::string> schema_expression(std::string_view text, RuleText& rules) {
  const OrderedJson schema = parse_ordered_json(text);
  if (schema.is_discarded()) return wrong("", "JSON");
  return SchemaWriter(schema, rules).value(schema, "");
}

Result<std::string> arguments_expression(std::string_view text, const ArgumentForm& form,
                                         RuleText& rules) {
  if (form.kind == ArgumentForm::Kind::kJson) return schema_expression(text, rules);
  const OrderedJson schema = parse_ordered_json(text);
  if (schema.is_discarded()) return wrong("", "JSON");
  return SchemaWriter(schema, rules).arguments(schema, form);
}

std::string any_object_expression(RuleText& rules) { return any_object(rules); }

}  // namespace llm
