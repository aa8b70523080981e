#include "engine/grammar/grammar_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "engine/grammar/pattern_rules.h"
#include "engine/grammar/rules.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_rules.h"

namespace llm {
namespace {

/// A marker in parts: control tokens, and the text between them.
class Marker {
 public:
  /// @param control  the vocabulary's. @param used  gets those of the marker
  Marker(std::string_view text, const Tokenizer& tokenizer, std::span<const TokenId> control,
         std::vector<TokenId>& used) {
    while (!text.empty()) {
      TokenId found = -1;
      std::size_t size = 1;
      for (const TokenId id : control) {
        const std::string& spelling = tokenizer.spelling(id);
        if (!text.starts_with(spelling) || (found >= 0 && spelling.size() <= size)) continue;
        found = id;
        size = spelling.size();
      }
      if (found < 0) {
        // Whole characters, up to the next one that may begin a token.
        size = utf8_head(text).size;
        if (parts_.empty() || parts_.back().first >= 0) parts_.emplace_back(-1, "");
        parts_.back().second += text.substr(0, size);
      } else {
        parts_.emplace_back(found, "");
        used.push_back(found);
      }
      text.remove_prefix(size);
    }
  }

  /// The token that it begins with; -1: text.
  TokenId token() const { return parts_.front().first; }
  /// The text that it begins with.
  const std::string& text() const { return parts_.front().second; }
  /// What follows the first part, or all of it.
  std::string expression(std::size_t from) const {
    std::string all = "\"\"";
    for (std::size_t i = from; i < parts_.size(); ++i) {
      const auto& [id, text] = parts_[i];
      all += " " + (id < 0 ? literal(text) : fmt::format("Token({})", id));
    }
    return all;
  }

 private:
  std::vector<std::pair<TokenId, std::string>> parts_;
};

Result<CallTags> read_tags(std::string_view text) {
  const OrderedJson json = parse_ordered_json(text);
  CallTags tags;
  try {
    for (const OrderedJson& tag : json.at("tags")) {
      const auto member = [&](const char* name) { return tag.value(name, std::string()); };
      const auto kind = static_cast<ArgumentForm::Kind>(tag.value("form", 0));
      CallTags::Tag one{
          tag.at("begin"), tag.at("schema"), tag.at("end"), member("head"),
          ArgumentForm{kind, member("key_begin"), member("key_end"), member("value_end")}};
      for (const OrderedJson& opening : tag.value("more", OrderedJson::array()))
        one.more.push_back({opening.at(0), opening.at(1), opening.at(2)});
      tags.tags.push_back(std::move(one));
    }
    tags.open = json.value("open", std::string());
    tags.close = json.value("close", std::string());
    tags.others = json.value("others", std::vector<std::string>());
    tags.free_text = json.at("free_text");
    tags.most = json.at("most");
    tags.separator = json.at("separator");
  } catch (const OrderedJson::exception& error) {
    return wrong("", fmt::format("tags as CallTags writes them ({})", error.what()));
  }
  if (tags.tags.empty() || tags.most == 0) return wrong("", "a tag, and at least one call");
  for (const CallTags::Tag& tag : tags.tags) {
    if (tag.begin.empty()) return wrong("", "a beginning of each tag");
  }
  return tags;
}

Result<Ebnf> tags_ebnf(std::string_view text, const Tokenizer& tokenizer) {
  LLM_TRY(const CallTags tags, read_tags(text));
  const std::vector<TokenId> control = control_tokens(tokenizer);
  std::vector<TokenId> used;
  RuleText rules;
  std::vector<std::string> calls;
  std::map<std::pair<TokenId, std::string>, std::vector<std::string>> by_begin;
  for (std::size_t i = 0; i < tags.tags.size(); ++i) {
    const CallTags::Tag& tag = tags.tags[i];
    auto document = arguments_expression(tag.schema, tag.form, rules);
    if (!document.ok())
      return below(fmt::format("/tags/{}/schema", i), std::move(document)).error();
    const std::string behind = rules.rule(
        fmt::format("{} {}", *document, Marker(tag.end, tokenizer, control, used).expression(0)));
    std::vector<CallTags::Tag::Opening> openings = tag.more;
    openings.push_back({tag.begin, tag.head});
    for (const auto& [begin, head, is_first] : openings) {
      const Marker marker(begin, tokenizer, control, used);
      const std::string rest =
          fmt::format("{} {}", Marker(head, tokenizer, control, used).expression(0), behind);
      calls.push_back(fmt::format("{} {}", marker.expression(0), rest));
      if (is_first) continue;
      by_begin[{marker.token(), marker.text()}].push_back(
          fmt::format("{} {}", marker.expression(1), rest));
    }
  }
  if (!tags.free_text) {
    const std::string call = rules.rule(either(calls));
    const auto marker = [&](const std::string& mark) {
      return Marker(mark, tokenizer, control, used).expression(0);
    };
    const std::string next = rules.rule(fmt::format("{} {}", marker(tags.separator), call));
    const std::string more = repeated(next, 0, static_cast<std::int64_t>(tags.most) - 1);
    std::string all = fmt::format("{} {} {} {}", marker(tags.open), call, more, marker(tags.close));
    return Ebnf{rules.finish(all), std::move(used)};
  }
  for (const std::string& other : tags.others) {
    const Marker marker(other, tokenizer, control, used);
    by_begin[{marker.token(), marker.text()}].push_back(marker.expression(1));
    calls.push_back(marker.expression(0));
  }
  const bool by_token = by_begin.begin()->first.first >= 0;
  std::string dispatch;
  for (const auto& [begin, choices] : by_begin) {
    if ((begin.first >= 0) != by_token)
      return wrong("/tags",
                   "markers that all begin with a control token, or none, where text is free");
    dispatch +=
        fmt::format("({}, {}), ", by_token ? std::to_string(begin.first) : literal(begin.second),
                    rules.rule(either(choices)));
  }
  std::string all = fmt::format("{}({}loop_after_dispatch=true, excludes=())",
                                by_token ? "TokenTagDispatch" : "TagDispatch", dispatch);
  if (!tags.others.empty()) all = fmt::format("{} {}", rules.rule(either(calls)), rules.rule(all));
  return Ebnf{rules.finish(all), std::move(used)};
}

constexpr std::uint64_t kMostNumber = 100'000;
constexpr std::size_t kMostLevels = 64;
constexpr std::size_t kMostRepeatedRules = 64;

/// Checks a grammar's text before xgrammar reads it: its end, its levels, and its numbers, which
/// xgrammar would cut to 32 bits. The rest of its syntax is xgrammar's to check.
Status check_ebnf(std::string_view text) {
  const auto found = [&](std::size_t at, std::string_view what, std::string_view need) {
    const auto line = 1 + std::ranges::count(text.substr(0, at), '\n');
    return Error{ErrorCode::kUsage, "",
                 fmt::format("found {} in line {} of the grammar, need {}", what, line, need)};
  };
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return found(at, "a character U+0000", "none: \"\\x00\" stands for it");
  std::size_t depth = 0;
  char closing = 0;  // of the text or class that `at` is in
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (closing != 0) {
      if (c == '\\') ++at;
      if (c == closing || c == '\n') closing = 0;
    } else if (c == '"' || c == '[') {
      closing = c == '"' ? '"' : ']';
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '(' && ++depth > kMostLevels) {
      return found(at, "more levels of parentheses", fmt::format("at most {}", kMostLevels));
    } else if (c == ')' && depth > 0) {
      --depth;
    } else if (c >= '0' && c <= '9') {
      const bool is_name =
          at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 ||
                     std::string_view("_-.").find(text[at - 1]) != std::string_view::npos);
      std::uint64_t value = 0;
      const std::size_t begin = at;
      for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
        value = std::min<std::uint64_t>(value * 10 + static_cast<unsigned>(text[at] - '0'),
                                        kMostNumber + 1);
      if (!is_name && value > kMostNumber)
        return found(begin, text.substr(begin, std::min<std::size_t>(at - begin, 24)),
                     fmt::format("a number in 0..{}", kMostNumber));
      --at;
    }
  }
  return Ok{};
}

/// Names, "::=", and other characters one by one; texts and classes as their first character.
std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kName =
      "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    std::size_t end = at + 1;
    if (c == '"' || c == '[') {
      const char closing = c == '"' ? '"' : ']';
      while (end < text.size() && text[end] != closing && text[end] != '\n')
        end += text[end] == '\\' ? 2 : 1;
      words.push_back(text.substr(at, 1));
      at = end + 1;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (text.substr(at).starts_with("::=")) end = at + 3;
    if (kName.find(c) != std::string_view::npos)
      end = std::min(text.find_first_not_of(kName, at), text.size());
    if (std::isspace(static_cast<unsigned char>(c)) == 0)
      words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

/// Refuses rules that repeat themselves and nothing else (`a ::= a{2}`), from which xgrammar's
/// expansion of repetitions would not return: a rule of one repeated name leads on to that name.
Status check_repetitions(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  std::map<std::string_view, std::string_view> leads_to;
  for (std::size_t at = 1; at < words.size(); ++at) {
    if (words[at] != "::=") continue;
    std::size_t next = at + 1;
    while (next < words.size() && words[next] == "(") ++next;
    const std::size_t named = next++;
    while (next < words.size() && words[next] == ")") ++next;
    if (next < words.size() && words[next] == "{") leads_to.emplace(words[at - 1], words[named]);
  }
  for (const auto& [name, first] : leads_to) {
    std::string_view next = first;
    for (std::size_t steps = 0; steps < kMostRepeatedRules; ++steps) {
      const auto rule = leads_to.find(next);
      if (rule == leads_to.end()) break;
      next = rule->second;
      if (next == name || steps + 1 == kMostRepeatedRules)
        return Error{
            ErrorCode::kUsage, "",
            fmt::format("found rule {}, which begins with a repetition of itself, need one "
                        "that begins otherwise; at most {} rules that begin with a "
                        "repetition of the next",
                        name, kMostRepeatedRules)};
    }
  }
  return Ok{};
}

}  // namespace

std::string_view grammar_kind_name(GrammarKind kind) {
  constexpr std::string_view kNames[] = {"json_object", "json_schema", "grammar", "regex", "tags"};
  return kNames[static_cast<std::size_t>(kind)];
}

GrammarSource CallTags::source() const {
  OrderedJson json = {{"tags", OrderedJson::array()}, {"free_text", free_text}, {"most", most},
                      {"separator", separator},       {"open", open},           {"close", close}};
  for (const Tag& tag : tags) {
    OrderedJson one = {
        {"begin", tag.begin}, {"schema", tag.schema}, {"end", tag.end}, {"head", tag.head}};
    if (tag.form.kind != ArgumentForm::Kind::kJson)
      one.update({{"form", static_cast<int>(tag.form.kind)},
                  {"key_begin", tag.form.key_begin},
                  {"key_end", tag.form.key_end},
                  {"value_end", tag.form.value_end}});
    for (const auto& [begin, head, is_first] : tag.more)
      one["more"].push_back({begin, head, is_first});
    json["tags"].push_back(std::move(one));
  }
  if (!others.empty()) json["others"] = others;
  return {GrammarKind::kTags, json_text(json)};
}

std::vector<TokenId> control_tokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> all;
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.kind(id) == TokenKind::kControl && !tokenizer.spelling(id).empty())
      all.push_back(id);
  }
  return all;
}

Result<Ebnf> ebnf_of(const GrammarSource& source, const Tokenizer& tokenizer) {
  if (source.text.size() > Grammar::kMostBytes) {
    return Error{
        ErrorCode::kUsage, "",
        fmt::format("found {} bytes, need at most {}", source.text.size(), Grammar::kMostBytes)};
  }
  RuleText rules;
  switch (source.kind) {
    case GrammarKind::kJsonObject:
      return Ebnf{rules.finish(any_object_expression(rules))};
    case GrammarKind::kJsonSchema: {
      LLM_TRY(const std::string document, schema_expression(source.text, rules));
      return Ebnf{rules.finish(document)};
    }
    case GrammarKind::kEbnf:
      if (!is_valid_utf8(source.text)) return wrong("", "a grammar in UTF-8");
      LLM_RETURN_IF_ERROR(check_ebnf(source.text));
      LLM_RETURN_IF_ERROR(check_repetitions(source.text));
      return Ebnf{source.text};
    case GrammarKind::kRegex: {
      LLM_TRY(const std::string text, pattern_expression(source.text, false));
      return Ebnf{rules.finish(text)};
    }
    case GrammarKind::kTags:
      return tags_ebnf(source.text, tokenizer);
  }
  return wrong("", "a kind");
}

}  // namespace llm
