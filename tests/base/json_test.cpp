#include "base/json.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/support/test.h"

namespace {

thread_local bool refuses = false;
std::atomic<long> n_held = 0;

}  // namespace

void* operator new(std::size_t size) {
  void* const made = refuses ? nullptr : std::malloc(size);
  if (made == nullptr) throw std::bad_alloc();
  ++n_held;
  return made;
}
void operator delete(void* made) noexcept {
  if (made != nullptr) --n_held;
  std::free(made);
}
void operator delete(void* made, std::size_t) noexcept { operator delete(made); }

namespace llm {
namespace {

/// `levels` of `open` and `close` around a number.
std::string nested(std::size_t levels, std::string_view open, std::string_view close) {
  std::string text;
  for (std::size_t i = 0; i < levels; ++i) text += open;
  text += '7';
  for (std::size_t i = 0; i < levels; ++i) text += close;
  return text;
}

}  // namespace

// Where the destructor asked for memory, std::bad_alloc would end the test here. What nlohmann's
// own does.
TEST_CASE("freeing JSON allocates no memory and frees all of it", "[base][bad_input]") {
  std::string wide = "[";
  for (int i = 0; i < 100000; ++i) wide += "[1],";
  const std::string text = GENERATE_COPY(values<std::string>(
      {"null", "[]", "{}", "3.5", R"("a text that is longer than its object")",
       R"([1,[2,[],{}],{"a":[3,{"b":null}],"c":"x"},[[[]]],{"d":{"e":{}}}])",
       nested(20000, "[", "]"), nested(20000, "[[],1,", ",{\"a\":[2]}]"),
       nested(500, R"({"a":[],"b":)", R"(,"c":"a long text of its own"})"), wide + "{\"a\":[]}]"}));
  CAPTURE(text.substr(0, 80));
  const auto check = [&text](auto parse) {
    const long n_before = n_held;
    {
      auto json = parse(text);
      auto copy = json;
      REQUIRE_FALSE(json.is_discarded());
      refuses = true;
      json = nullptr;
      refuses = false;
      auto moved = std::move(copy);
      refuses = true;
      moved = 1;
      refuses = false;
    }
    CHECK(n_held == n_before);
  };
  check([](const std::string& of) { return parse_json(of); });
  check([](const std::string& of) { return parse_ordered_json(of); });
}

TEST_CASE("JSON is compared with a text without memory", "[base][bad_input]") {
  const Json json = {{"a", "a text that is longer than its object"}, {"b", 1}};
  const OrderedJson ordered = json;
  refuses = true;
  const bool are_equal = json["a"] == "a text that is longer than its object" &&
                         ordered["a"] == "a text that is longer than its object";
  const bool are_unequal = json["a"] != "another text that is longer than its object" &&
                           ordered["b"] != "a text that is longer than its object";
  refuses = false;
  CHECK(are_equal);
  CHECK(are_unequal);
}

// A parser that is stopped halfway frees what it has; so does a value that could not be made.
TEST_CASE("JSON that could not be read for want of memory is freed", "[base][bad_input]") {
  const long n_before = n_held;
  {
    Json json;
    refuses = true;
    CHECK_THROWS_AS(json.push_back(1), std::bad_alloc);
    refuses = false;
    OrderedJson object;
    refuses = true;
    CHECK_THROWS_AS(object["a"] = 1, std::bad_alloc);
    refuses = false;
  }
  CHECK(n_held == n_before);
}

}  // namespace llm
