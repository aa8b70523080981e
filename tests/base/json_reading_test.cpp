#include "base/json.h"
#include "tests/support/test.h"

namespace llm::test {
namespace {

/// A random document, with names from few, so that many come twice.
std::string random_json(std::mt19937& random, int levels) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  static const std::vector<std::string> kLeaves = {"null", "true", "-1", "18446744073709551615",
                                                   "1.5",  "\"\"", "{}", "[]"};
  const int kind = levels == 0 ? 0 : pick(3);
  if (kind == 0) return kLeaves[static_cast<std::size_t>(pick(static_cast<int>(kLeaves.size())))];
  std::string text;
  for (int i = pick(24); i > 0; --i) {
    text += text.empty() ? "" : ", ";
    if (kind == 1) text += fmt::format("\"n{}\": ", pick(40));
    text += random_json(random, levels - 1);
  }
  return kind == 1 ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace

TEST_CASE("JSON is read as nlohmann's own parser reads it", "[base][json]") {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_json(random, 4);
    const OrderedJson expected = OrderedJson::parse(text);
    REQUIRE(json_text(parse_ordered_json(text)) == json_text(expected));
    const std::string cut = text.substr(0, random() % (text.size() + 1));
    REQUIRE(parse_ordered_json(cut).is_discarded() != OrderedJson::accept(cut));
  }
  for (const char* none : {"", " ", "{", "[1,]", "{\"a\":1,}", "nul", "1 2", "\"\xff\"", "1e999"}) {
    CAPTURE(none);
    CHECK(parse_ordered_json(none).is_discarded());
    CHECK_FALSE(read_ordered_json(none).fault.empty());
  }
}

TEST_CASE("of a name twice the last value counts, and it is told", "[base][json]") {
  const ParsedJson few = read_ordered_json(R"({"a": 1, "b": {"c": 1, "c": 2}, "a": 3})");
  CHECK(json_text(few.value) == R"({"a":3,"b":{"c":2}})");
  CHECK(few.name_twice == "c");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += fmt::format("\"{}\": 0, ", i);
  CHECK_FALSE(read_ordered_json(many + "\"x\": 1}").name_twice);
  const ParsedJson twice = read_ordered_json(many + "\"3\": 1, \"99\": 2}");
  CHECK(twice.name_twice == "3");
  CHECK(twice.value.size() == 100);
  CHECK(twice.value["3"] == 1);
  CHECK(twice.value["99"] == 2);
}

// Compared with all names before it, each takes longer than the last one: hours.
TEST_CASE("a million names of an object are read", "[base][json]") {
  const std::size_t n = effort(1'000'000, 100'000);
  std::string text = "{";
  for (std::size_t i = 0; i < n; ++i) text += fmt::format("\"{}\":{},", i, i);
  text += "\"end\":[]}";
  CHECK(parse_ordered_json(text).size() == n + 1);
}

TEST_CASE("levels are brackets that are open at once, outside of strings", "[base][json]") {
  CHECK(json_levels("") == 0);
  CHECK(json_levels("1") == 0);
  CHECK(json_levels("[[], [[]], {}]") == 3);
  CHECK(json_levels(R"({"[[[\"[[": "[[[["})") == 1);
  CHECK(json_levels("]]]][") == 1);
  CHECK(json_levels(std::string(100, '[')) == 100);
}

}  // namespace llm::test
