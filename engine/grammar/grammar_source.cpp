#include "engine/grammar/grammar_source.h"

#include <fmt/format.h>

#include <map>
#include <span>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "engine/grammar/grammar_reader.h"
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
    std::vector<CallTags::Tag::AuditProof> openings = tag.more;
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
    case GrammarKind::kEbnf: {
      LLM_TRY(std::string text, read_grammar(source.text));
      return Ebnf{std::move(text)};
    }
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
