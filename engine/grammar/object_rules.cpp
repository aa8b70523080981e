#include "engine/grammar/object_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "engine/grammar/number_rules.h"

namespace llm {
namespace {

constexpr std::string_view kNameCharacters =
    "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

CodeSet set_of(std::string_view characters) {
  std::vector<CodeRange> ranges;
  for (const char c : characters) ranges.emplace_back(c, c);
  return CodeSet(std::move(ranges));
}

constexpr std::size_t kMostNameBytes = 64;

/// What follows the first `depth` characters of a name of 1 to kMostNameBytes of kNameCharacters
/// other than `taken`.
/// @param taken  names with these first characters
std::string other_name(const std::vector<std::string>& taken, std::size_t depth, RuleText& rules) {
  std::map<char, std::vector<std::string>> next;
  bool is_taken = depth == 0;
  for (const std::string& name : taken) {
    if (name.size() == depth) {
      is_taken = true;
    } else if (depth < kMostNameBytes &&
               kNameCharacters.find(name[depth]) != std::string_view::npos) {
      next[name[depth]].push_back(name);
    }
  }
  std::string begins;
  std::vector<std::string> choices;
  if (!is_taken) choices.emplace_back("\"\"");
  for (const auto& [c, names] : next) {
    begins += c;
    choices.push_back(fmt::format("{} {}", literal({&c, 1}), other_name(names, depth + 1, rules)));
  }
  const CodeSet all = set_of(kNameCharacters);
  if (depth < kMostNameBytes) {
    const auto left = static_cast<std::int64_t>(kMostNameBytes - depth - 1);
    choices.push_back(
        fmt::format("{} {}", all.without(set_of(begins)).text(), repeated(all.text(), 0, left)));
  }
  return rules.rule(either(choices));
}

/// Makes the counts say nothing of declared properties.
/// @return how many further ones there are
Result<Counts> settle_counts(ObjectParts& parts) {
  std::vector<ObjectParts::Property>& all = parts.properties;
  const auto is_required = [](const ObjectParts::Property& p) { return p.is_required; };
  std::int64_t required = std::ranges::count_if(all, is_required);
  const Counts counts = parts.counts;
  if (counts.most >= 0 && required > counts.most)
    return wrong("maxProperties", fmt::format("at least {}, the required ones", required));
  if (counts.most >= 0) {
    // The first of those that are not required stay, as many as there is room for.
    std::int64_t room = counts.most - required;
    std::erase_if(all,
                  [&](const ObjectParts::Property& p) { return !p.is_required && room-- <= 0; });
  }
  for (ObjectParts::Property& property : all) {
    if (required >= counts.least) break;
    if (!property.is_required) ++required;
    property.is_required = true;
  }
  const auto declared = static_cast<std::int64_t>(all.size());
  Counts further{std::max<std::int64_t>(0, counts.least - declared),
                 counts.most < 0 ? -1 : counts.most - declared};
  if (further.least > 1)  // two that have no name of their own may have the same
    return wrong("minProperties",
                 fmt::format("at most {} here, one more than properties", declared + 1));
  if (further.least > 0 && !parts.extra)
    return wrong("minProperties",
                 fmt::format("at most {}: there are no more properties", declared));
  return further;
}

std::string chosen(std::vector<std::string> choices, RuleText& rules) {
  return rules.rule(either(choices));
}

}  // namespace

std::string quoted(const std::string& body) { return fmt::format("\"\\\"\" {} \"\\\"\"", body); }

std::string string_character(RuleText& rules) {
  const std::string hex = "[0-9A-Fa-f]";
  // Surrogates come in pairs, which two of these would not be.
  const std::string code =
      fmt::format("\"\\\\u\" ([0-9A-CE-Fa-ce-f] {0} | [Dd] [0-7]) {0} {0}", hex);
  return rules.rule(either({json_character(CodeSet::all()), literal("\\/"), code}));
}

std::string any_string(RuleText& rules) {
  return rules.rule(quoted(fmt::format("{}*", string_character(rules))));
}

std::string any_object(RuleText& rules) {
  any_value(rules);
  return "anyobject";
}

std::string any_value(RuleText& rules) {
  const std::string text = any_string(rules);
  const std::string number = *number_expression({}, false);
  // Rules of fixed names, which stand in each other.
  rules.define_once("anyvalue", either({"anyobject", "anyarray", text, number, literal("true"),
                                        literal("false"), literal("null")}));
  rules.define_once(
      "anyobject",
      fmt::format("\"{{\" (\"\" | {0} \": \" anyvalue (\", \" {0} \": \" anyvalue)*) \"}}\"",
                  text));
  rules.define_once("anyarray", "\"[\" (\"\" | anyvalue (\", \" anyvalue)*) \"]\"");
  return "anyvalue";
}

std::string array_expression(const ArrayParts& parts, RuleText& rules) {
  const auto [least, most] = parts.counts;
  const auto n = static_cast<std::int64_t>(parts.first.size());
  const auto left = [](std::int64_t count, std::int64_t gone) {
    return count < 0 ? count : std::max<std::int64_t>(0, count - gone);
  };
  std::string head = "\"\"";
  std::string tail = "\"\"";
  if (parts.rest) {
    const std::string further = fmt::format("\", \" {}", *parts.rest);
    tail = repeated(further, left(least, n), left(most, n));
    if (n == 0 && most != 0) {
      head = fmt::format("{} {}", *parts.rest, repeated(further, left(least, 1), left(most, 1)));
      if (least == 0) head = chosen({"\"\"", head}, rules);
    }
  }
  for (std::int64_t i = n; i-- > 0;) {
    const std::string& item = parts.first[static_cast<std::size_t>(i)];
    const std::string with = fmt::format("{} {}", item, tail);
    head = i < least ? with : chosen({"\"\"", with}, rules);
    const std::string behind = fmt::format("\", \" {}", with);
    tail = i < least ? rules.rule(behind) : chosen({"\"\"", behind}, rules);
  }
  return fmt::format("\"[\" {} \"]\"", head);
}

std::string text_without(std::string_view mark, RuleText& rules) {
  const auto one = [](char32_t code) { return CodeSet({{code, code}}); };
  std::vector<char32_t> codes;
  for (std::string_view rest = mark; !rest.empty();) {
    const std::size_t size = utf8_head(rest).size;
    codes.push_back(utf8_code_point(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
  while (std::ranges::count(codes, codes.front()) > 1) codes.erase(codes.begin());
  const CodeSet first = one(codes.front());
  // What begins as the mark and is another, or may be the beginning of the mark itself.
  std::vector<std::string> others;
  std::vector<std::string> begins;
  std::string begun = first.text();
  for (std::size_t i = 1; i < codes.size(); ++i) {
    begins.push_back(begun);
    others.push_back(
        fmt::format("{} {}", begun, CodeSet::all().without(one(codes[i])).without(first).text()));
    begun += " " + one(codes[i]).text();
  }
  const std::string begin = repeated(rules.rule(either(begins)), 0, -1);
  const std::string other = fmt::format("{} {}", begin, rules.rule(either(others)));
  const std::string part = rules.rule(either({CodeSet::all().without(first).text(), other}));
  return rules.rule(fmt::format("{} {}", repeated(part, 0, -1), begin));
}

Result<std::string> object_expression(ObjectParts parts, RuleText& rules, const ObjectStyle& style,
                                      bool has_bare_names) {
  const std::string between = literal(style.separator);
  const std::string value_end = literal(style.value_end);

  LLM_TRY(const Counts further, settle_counts(parts));
  std::string head = "\"\"";
  std::string tail = "\"\"";
  if (parts.extra && further.most != 0) {
    std::vector<std::string> names;
    for (const ObjectParts::Property& property : parts.properties) names.push_back(property.name);
    const std::string name = has_bare_names     ? other_name(names, 0, rules)
                             : parts.extra_name ? *parts.extra_name
                             : names.empty()    ? any_string(rules)
                                                : quoted(other_name(names, 0, rules));
    const std::string one =
        rules.rule(fmt::format("{} {} {} {} {}", literal(style.name_begin), name,
                               literal(style.name_end), *parts.extra, value_end));
    const std::string next = fmt::format("{} {}", between, one);
    tail = rules.rule(repeated(next, further.least, further.most));
    head = fmt::format("{} {}", one, repeated(next, 0, further.most < 0 ? -1 : further.most - 1));
    if (further.least == 0) head = chosen({"\"\"", head}, rules);
  }
  for (std::size_t i = parts.properties.size(); i-- > 0;) {
    const auto& [name, value, is_required] = parts.properties[i];
    const std::string spelled = has_bare_names ? name : json_text(Json(name));
    const std::string name_again = style.names_end ? spelled + style.name_end : "";
    const std::string with =
        fmt::format("{} {} {} {}", literal(style.name_begin + spelled + style.name_end), value,
                    literal(style.value_end + name_again), tail);
    const std::string behind = fmt::format("{} {}", between, with);
    head = is_required ? rules.rule(with) : chosen({with, head}, rules);
    tail = is_required ? rules.rule(behind) : chosen({behind, tail}, rules);
  }
  return fmt::format("{} {} {}", literal(style.open), head, literal(style.close));
}

}  // namespace llm
