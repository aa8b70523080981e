#include "engine/grammar/number_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/grammar/rules.h"

namespace llm {
namespace {

constexpr int kIntegerDigits = 18;
constexpr int kNumberDigits = 15;
constexpr int kUsualDecimals = 6;
constexpr std::int64_t kMostMultiples = 1000;
constexpr std::int64_t kBeyond = 1'000'000'000'000'000'000;  // what no number here reaches

std::int64_t power(int exponent) {
  std::int64_t value = 1;
  while (exponent-- > 0) value *= 10;
  return value;
}

/// A number as it is written: mantissa * 10^exponent.
struct Decimal {
  std::int64_t mantissa = 0;
  int exponent = 0;

  int decimals() const { return std::max(0, -exponent); }
  int integer_digits() const {
    return std::max(0, static_cast<int>(fmt::formatted_size("{}", std::abs(mantissa))) + exponent);
  }
  /// This times 10^places, rounded down or up; at most 10^18 of either sign.
  std::int64_t scaled(int places, bool up) const {
    std::int64_t value = mantissa;
    int shift = exponent + places;
    for (; shift > 0 && value != 0; --shift) {
      if (std::abs(value) > kBeyond / 10) return value < 0 ? -kBeyond : kBeyond;
      value *= 10;
    }
    bool is_cut = false;
    for (; shift < 0 && value != 0; ++shift) {
      is_cut = is_cut || value % 10 != 0;
      value /= 10;
    }
    if (is_cut && up && mantissa > 0) ++value;
    if (is_cut && !up && mantissa < 0) --value;
    return std::clamp(value, -kBeyond, kBeyond);
  }
};

/// The shortest decimal that reads back as the same double; of integers beyond kBeyond, that.
Decimal decimal_of(const OrderedJson& number) {
  if (number.is_number_unsigned()) {
    const auto value = std::min<std::uint64_t>(number.get<std::uint64_t>(), kBeyond);
    return {static_cast<std::int64_t>(value), 0};
  }
  if (number.is_number_integer())
    return {std::clamp(number.get<std::int64_t>(), -kBeyond, kBeyond), 0};
  std::string text = fmt::format("{}", number.get<double>());
  Decimal result;
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    const char* digits = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
    std::from_chars(digits, text.data() + text.size(), result.exponent);
    text.resize(e);
  }
  if (const std::size_t point = text.find('.'); point != std::string::npos) {
    result.exponent -= static_cast<int>(text.size() - point - 1);
    text.erase(point, 1);
  }
  std::from_chars(text.data(), text.data() + text.size(), result.mantissa);
  return result;
}

std::string digits_of(std::int64_t value, std::size_t width) {
  return fmt::format("{:0{}}", value, width);
}

std::string digit_class(char low, char high) {
  if (low == high) return fmt::format("\"{}\"", low);
  return fmt::format("[{}-{}]", low, high);
}

/// Digits from `low` to `high`, texts of equal length.
std::string digits_between(std::string_view low, std::string_view high) {
  if (low.empty()) return "\"\"";
  const auto is_all = [](std::string_view text, char c) {
    return std::ranges::all_of(text, [c](char x) { return x == c; });
  };
  const std::size_t n = low.size();
  if (is_all(low, '0') && is_all(high, '9')) return fmt::format("[0-9]{{{},{}}}", n, n);
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  const auto behind = [](const std::string& first, const std::string& rest) {
    return rest == "\"\"" ? first : fmt::format("{} {}", first, rest);
  };
  if (low[0] == high[0])
    return behind(digit_class(low[0], low[0]), digits_between(low_rest, high_rest));
  std::vector<std::string> choices;
  char first = low[0];
  char last = high[0];
  if (!is_all(low_rest, '0')) {
    choices.push_back(
        behind(digit_class(first, first), digits_between(low_rest, std::string(n - 1, '9'))));
    ++first;
  }
  if (!is_all(high_rest, '9')) {
    choices.push_back(
        behind(digit_class(last, last), digits_between(std::string(n - 1, '0'), high_rest)));
    --last;
  }
  if (first <= last) {
    choices.push_back(behind(digit_class(first, last),
                             digits_between(std::string(n - 1, '0'), std::string(n - 1, '9'))));
  }
  return either(choices);
}

/// Whole numbers in [low, high], low >= 0, without zeros in front.
std::string whole_between(std::int64_t low, std::int64_t high) {
  std::vector<std::string> choices;
  for (int width = 1; width <= kIntegerDigits; ++width) {
    const std::int64_t from = std::max(low, width == 1 ? 0 : power(width - 1));
    const std::int64_t to = std::min(high, power(width) - 1);
    if (from > to) continue;
    const auto size = static_cast<std::size_t>(width);
    choices.push_back(digits_between(digits_of(from, size), digits_of(to, size)));
  }
  return either(choices);
}

/// The whole part `whole` with 1 to `places` decimals that make [low, high] of them.
void add_edge(std::vector<std::string>& choices, std::int64_t whole, std::int64_t low,
              std::int64_t high, int places) {
  std::vector<std::string> decimals;
  for (int width = 1; width <= places; ++width) {
    const std::int64_t unit = power(places - width);
    const std::int64_t from = (low + unit - 1) / unit;
    const std::int64_t to = high / unit;
    const auto size = static_cast<std::size_t>(width);
    if (from <= to) decimals.push_back(digits_between(digits_of(from, size), digits_of(to, size)));
  }
  if (low == 0) choices.push_back(literal(std::to_string(whole)));
  if (!decimals.empty())
    choices.push_back(fmt::format("{} {}", literal(std::to_string(whole) + "."), either(decimals)));
}

/// Numbers n / 10^places with n in [low, high], low >= 0, zeros at their ends left out or not.
std::string fixed_between(std::int64_t low, std::int64_t high, int places) {
  if (places == 0) return whole_between(low, high);
  const std::int64_t unit = power(places);
  const std::int64_t first = low / unit;
  const std::int64_t last = high / unit;
  std::vector<std::string> choices;
  if (first == last) {
    add_edge(choices, first, low % unit, high % unit, places);
    return either(choices);
  }
  add_edge(choices, first, low % unit, unit - 1, places);
  add_edge(choices, last, 0, high % unit, places);
  if (first + 1 < last) {
    choices.push_back(
        fmt::format("{} (\".\" [0-9]{{1,{}}})?", whole_between(first + 1, last - 1), places));
  }
  return either(choices);
}

/// Multiples of `factor` in [low, high]: all, or kMostMultiples, those next to zero.
std::string multiples(std::int64_t factor, std::int64_t low, std::int64_t high) {
  const std::int64_t reach = factor * (kMostMultiples / 2);
  const std::int64_t from = std::max(low, high < 0 ? high - 2 * reach : -reach);
  const std::int64_t to = std::min(high, low > 0 ? low + 2 * reach : reach);
  std::vector<std::string> choices;
  // Division rounds to zero, so the first multiple from `from` on is one higher above zero.
  std::int64_t n = from / factor * factor;
  if (n < from) n += factor;
  for (; n <= to; n += factor) choices.push_back(literal(std::to_string(n)));
  return choices.empty() ? "" : either(choices);
}

}  // namespace

Result<std::string> number_expression(const NumberBounds& bounds, bool is_integer) {
  if (!bounds.any()) {
    if (is_integer) return std::string("\"-\"? (\"0\" | [1-9] [0-9]{0,17})");
    return std::string(
        "\"-\"? (\"0\" | [1-9] [0-9]{0,14}) (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?");
  }
  const int most_digits =
      is_integer || bounds.multiple_of != nullptr ? kIntegerDigits : kNumberDigits;
  int places = 0;
  int whole_digits = 0;
  for (const auto& [name, bound] :
       {std::pair("minimum", bounds.minimum), std::pair("maximum", bounds.maximum),
        std::pair("exclusiveMinimum", bounds.exclusive_minimum),
        std::pair("exclusiveMaximum", bounds.exclusive_maximum)}) {
    if (bound == nullptr) continue;
    if (!bound->is_number() || !std::isfinite(bound->get<double>()))
      return Error{ErrorCode::kUsage, name,
                   fmt::format("found {}, need a number", json_text(*bound))};
    places = std::max(places, decimal_of(*bound).decimals());
    whole_digits = std::max(whole_digits, decimal_of(*bound).integer_digits());
  }
  places = std::min(std::max(places, kUsualDecimals),
                    kNumberDigits - std::min(whole_digits, kNumberDigits));
  if (most_digits == kIntegerDigits) places = 0;
  std::int64_t low = 1 - power(most_digits);
  std::int64_t high = power(most_digits) - 1;
  if (bounds.minimum != nullptr)
    low = std::max(low, decimal_of(*bounds.minimum).scaled(places, true));
  if (bounds.exclusive_minimum != nullptr)
    low = std::max(low, decimal_of(*bounds.exclusive_minimum).scaled(places, false) + 1);
  if (bounds.maximum != nullptr)
    high = std::min(high, decimal_of(*bounds.maximum).scaled(places, false));
  if (bounds.exclusive_maximum != nullptr)
    high = std::min(high, decimal_of(*bounds.exclusive_maximum).scaled(places, true) - 1);
  if (low > high) {
    return Error{ErrorCode::kUsage, bounds.maximum != nullptr ? "maximum" : "minimum",
                 fmt::format("found bounds with no number of at most {} digits, {} of them "
                             "decimals, between them",
                             most_digits, places)};
  }
  if (bounds.multiple_of != nullptr) {
    const OrderedJson& factor = *bounds.multiple_of;
    const double value = factor.is_number() ? factor.get<double>() : 0;
    if (!(value >= 1 && value <= 1e12 && value == std::floor(value))) {
      return Error{ErrorCode::kUsage, "multipleOf",
                   fmt::format("found {}, need a whole number in 1..1e12", json_text(factor))};
    }
    std::string all = multiples(static_cast<std::int64_t>(value), low, high);
    if (!all.empty()) return all;
    return Error{ErrorCode::kUsage, "multipleOf", "found none within the bounds"};
  }
  std::vector<std::string> choices;
  if (low < 0) {
    const std::int64_t least = std::max<std::int64_t>(1, high < 0 ? -high : 1);
    choices.push_back(fmt::format("\"-\" {}", fixed_between(least, -low, places)));
  }
  if (high >= 0) choices.push_back(fixed_between(std::max<std::int64_t>(0, low), high, places));
  return either(choices);
}

}  // namespace llm
