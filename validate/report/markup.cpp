#include "validate/report/markup.h"

#include <algorithm>
#include <span>
#include <utility>

namespace llm {
namespace {

using Entity = std::pair<char, std::string_view>;

constexpr Entity kXml[] = {
    {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
constexpr Entity kMarkdown[] = {{'&', "&amp;"}, {'<', "&lt;"},  {'>', "&gt;"},  {'|', "&#124;"},
                                {'[', "&#91;"}, {'*', "&#42;"}, {'`', "&#96;"}, {'\\', "&#92;"}};

std::string with_entities(std::string_view text, std::span<const Entity> entities) {
  std::string out;
  for (const char c : text) {
    const auto found = std::ranges::find(entities, c, &Entity::first);
    out += found == entities.end() ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) { return with_entities(text, kXml); }

std::string markdown_text(std::string_view text) { return with_entities(text, kMarkdown); }

}  // namespace llm
