#define PCRE2_CODE_UNIT_WIDTH 8
#include "validate/selftest/naive_splitter.h"

#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace llm {

namespace {

using Codes = std::u32string;
using Set = std::function<bool(char32_t)>;

Codes codes_of(std::string_view text) {
  Codes codes;
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    codes += utf8_code_point(text.substr(0, head.size));
    text.remove_prefix(head.size);
  }
  return codes;
}

/// Unicode's White_Space (PropList.txt).
bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Characters of a general category ("L", "Lu"), each asked once.
Set category(const std::string& name) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::string regex = "\\p{" + name + "}";
  const std::shared_ptr<pcre2_code> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(), PCRE2_UTF, &error,
                    &offset, nullptr),
      pcre2_code_free);
  LLM_CHECK(code != nullptr);
  const std::shared_ptr<pcre2_match_data> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  const auto known = std::make_shared<std::map<char32_t, bool>>();
  return [code, data, known](char32_t c) {
    const auto [entry, is_new] = known->try_emplace(c);
    if (is_new) {
      std::string text;
      append_utf8(c, text);
      entry->second = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), 0, 0, data.get(), nullptr) > 0;
    }
    return entry->second;
  };
}

Set one_of(std::vector<Set> sets, bool negated) {
  return [sets = std::move(sets), negated](char32_t c) {
    return std::ranges::any_of(sets, [c](const Set& set) { return set(c); }) != negated;
  };
}

Set character(char32_t wanted, bool fold) {
  return [wanted, fold](char32_t c) {
    if (fold && c < 0x80 && c >= 'A' && c <= 'Z') c += 'a' - 'A';
    if (fold && c == 0x17F) c = 's';
    return c == wanted;
  };
}

}  // namespace

std::array<char32_t, 256> naive_byte_alphabet() {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte < 0xAD) || byte > 0xAD;
    out[byte] = printable ? byte : next++;
  }
  return out;
}

struct NaiveSplitter::Item {
  enum class Kind { kCharacters, kNotAhead, kEnd, kMaybe };
  Kind kind = Kind::kCharacters;
  Set set = {};
  std::size_t least = 1;
  std::size_t most = 1;
  std::vector<std::vector<Item>> words = {};  ///< of kMaybe: one of them, or none
};

struct NaiveSplitter::Step {
  std::vector<std::vector<Item>> alternatives;
  bool after_byte_level = false;
};

namespace {

/// Reads an expression from left to right.
struct Reader {
  Codes regex;
  std::size_t at = 0;

  bool done() const { return at == regex.size(); }
  bool take(std::u32string_view text) {
    if (regex.compare(at, text.size(), text) != 0) return false;
    at += text.size();
    return true;
  }

  /// A character of a class or outside: "a", "\s", "\p{L}", "\n". Sets `literal` if it is one.
  Set set(bool fold, std::optional<char32_t>& literal) {
    literal.reset();
    if (!take(U"\\")) return character(*(literal = regex[at++]), fold);
    const char32_t c = regex[at++];
    if (c == 's') return is_space;
    if (c == 'S') return [](char32_t code) { return !is_space(code); };
    if (c == 'p') {
      const std::size_t end = regex.find(U'}', at);
      const std::string name(regex.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                             regex.begin() + static_cast<std::ptrdiff_t>(end));
      at = end + 1;
      return category(name);
    }
    literal = c == 'r' ? U'\r' : c == 'n' ? U'\n' : c;
    return character(*literal, fold);
  }

  Set bracket(bool fold) {
    const bool negated = take(U"^");
    std::vector<Set> sets;
    while (!take(U"]")) {
      std::optional<char32_t> low;
      sets.push_back(set(fold, low));
      if (!low || regex[at] != '-') continue;
      ++at;
      std::optional<char32_t> high;
      set(fold, high);
      sets.back() = [low = *low, high = high.value()](char32_t c) { return c >= low && c <= high; };
    }
    return one_of(std::move(sets), negated);
  }
};

}  // namespace

NaiveSplitter::Step NaiveSplitter::parse(const PublishedStep& step) {
  using Kind = Item::Kind;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  Step out{{{}}, step.after_byte_level};
  Reader reader{codes_of(step.regex)};
  bool fold = false;
  std::optional<char32_t> literal;
  while (!reader.done()) {
    if (reader.take(U"|")) {
      out.alternatives.emplace_back();
      continue;
    }
    if (out.alternatives.back().empty() &&
        reader.take(U"(?i:")) {  // only as the first of all; its alternatives are the expression's
      fold = true;
      continue;
    }
    if (fold && reader.take(U")")) {
      fold = false;
      continue;
    }
    std::vector<Item>& items = out.alternatives.back();
    if (!items.empty() && reader.take(U"(?i:")) {  // words of single characters
      Item maybe{.kind = Kind::kMaybe, .words = {{}}};
      while (!reader.take(U")?")) {
        if (reader.take(U"|")) maybe.words.emplace_back();
        maybe.words.back().push_back({Kind::kCharacters, reader.set(true, literal)});
      }
      items.push_back(std::move(maybe));
      continue;
    }
    if (reader.take(U"(?!")) {
      items.push_back({Kind::kNotAhead, reader.set(fold, literal)});
      LLM_CHECK(reader.take(U")"));
      continue;
    }
    if (reader.take(U"$")) {
      items.push_back({Kind::kEnd});
      continue;
    }
    Item item{Kind::kCharacters,
              reader.take(U"[") ? reader.bracket(fold) : reader.set(fold, literal)};
    if (reader.take(U"+")) {
      item.most = kAny;
    } else if (reader.take(U"*")) {
      item.least = 0;
      item.most = kAny;
    } else if (reader.take(U"?")) {
      item.least = 0;
    } else if (reader.take(U"{")) {  // {n,m}, one digit each
      item.least = reader.regex[reader.at] - U'0';
      item.most = reader.regex[reader.at + 2] - U'0';
      reader.at += 4;
    }
    items.push_back(std::move(item));
  }
  return out;
}

/// The end of the match that begins at `at`, or `at`: none does.
std::size_t NaiveSplitter::match(const Step& step, const Codes& text, std::size_t at) {
  const auto go = [&text](const auto& self, const std::vector<Item>& items, std::size_t i,
                          std::size_t place) -> std::optional<std::size_t> {
    if (i == items.size()) return place;
    const Item& item = items[i];
    switch (item.kind) {
      case Item::Kind::kNotAhead:
        if (place < text.size() && item.set(text[place])) return std::nullopt;
        return self(self, items, i + 1, place);
      case Item::Kind::kEnd:
        return place == text.size() ? self(self, items, i + 1, place) : std::nullopt;
      case Item::Kind::kMaybe:
        for (std::vector<Item> path : item.words) {
          path.insert(path.end(), items.begin() + static_cast<std::ptrdiff_t>(i) + 1, items.end());
          if (const auto end = self(self, path, 0, place)) return end;
        }
        return self(self, items, i + 1, place);
      case Item::Kind::kCharacters:
        break;
    }
    std::size_t n = 0;
    while (n < item.most && place + n < text.size() && item.set(text[place + n])) ++n;
    for (; n >= item.least; --n) {
      if (const auto end = self(self, items, i + 1, place + n)) return end;
      if (n == 0) break;
    }
    return std::nullopt;
  };
  for (const std::vector<Item>& items : step.alternatives) {
    if (const auto end = go(go, items, 0, at)) return *end;
  }
  return at;
}

NaiveSplitter::NaiveSplitter(const PublishedRule& rule) {
  for (const PublishedStep& step : rule.steps) steps_.push_back(parse(step));
}

NaiveSplitter::~NaiveSplitter() = default;

std::vector<std::string> NaiveSplitter::split(std::string_view text) const {
  static const std::array<char32_t, 256> kAlphabet = naive_byte_alphabet();
  std::vector<std::string> pieces = {std::string(text)};
  for (const Step& step : steps_) {
    std::vector<std::string> finer;
    for (const std::string& piece : pieces) {
      Codes codes;
      if (step.after_byte_level) {
        for (const char c : piece) codes += kAlphabet[static_cast<unsigned char>(c)];
      } else {
        codes = codes_of(piece);
      }
      const auto add = [&](std::size_t begin, std::size_t end) {
        std::string part;
        for (std::size_t i = begin; i < end; ++i) {
          if (step.after_byte_level) {
            part += piece[i];
          } else {
            append_utf8(codes[i], part);
          }
        }
        if (!part.empty()) finer.push_back(std::move(part));
      };
      std::size_t begin = 0;
      for (std::size_t at = 0; at < codes.size();) {
        const std::size_t end = match(step, codes, at);
        if (end == at) {
          ++at;
          continue;
        }
        add(begin, at);
        add(at, end);
        begin = at = end;
      }
      add(begin, codes.size());
    }
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace llm
