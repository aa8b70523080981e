// The JSON of bodies.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tools/common/options.h"
#include "tools/llmserve/json_fields.h"

namespace llm {
namespace {

/// The most brackets that are open at once, outside of strings.
std::size_t levels_of(std::string_view text) {
  std::size_t levels = 0;
  std::size_t most = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++levels);
    } else if ((c == ']' || c == '}') && levels > 0) {
      --levels;
    }
  }
  return most;
}

/// Builds the value of a JSON text from its parts. Members are appended, which is quick however
/// many there are, and the first name that an object has twice is kept.
class Builder : public nlohmann::json_sax<OrderedJson> {
 public:
  OrderedJson root;
  std::optional<std::string> name_twice;
  std::string fault;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(OrderedJson::object()); }
  bool start_array(std::size_t) override { return open(OrderedJson::array()); }
  bool key(string_t& name) override {
    if (!open_.back().names.insert(name).second && !name_twice) name_twice = name;
    open_.back().name = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fault = error.what();
    return false;
  }

 private:
  struct Level {
    OrderedJson value;
    std::string name;  ///< of the member that comes next
    std::unordered_set<std::string> names = {};
  };

  bool add(OrderedJson value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (Level& level = open_.back(); level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      level.value.get_ref<OrderedJson::object_t&>().emplace_back(std::move(level.name),
                                                                 std::move(value));
    }
    return true;
  }
  bool open(OrderedJson empty) {
    open_.push_back({std::move(empty), {}});
    return true;
  }
  bool close() {
    OrderedJson value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  std::vector<Level> open_;
};

}  // namespace

Result<OrderedJson> parse_json(std::string_view text, std::size_t most_levels) {
  if (const std::size_t levels = levels_of(text); levels > most_levels)
    return usage_error(
        "body", fmt::format("found {} levels of JSON, need at most {}", levels, most_levels));
  // The parser would take it for the end.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return usage_error("body", fmt::format("found no JSON: a NUL at byte {}", at));
  Builder builder;
  if (!OrderedJson::sax_parse(text, &builder)) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = builder.fault;
    return usage_error("body", fmt::format("found no JSON: {}", what.substr(what.find("] ") + 2)));
  }
  if (!builder.name_twice) return std::move(builder.root);
  return usage_error("body", fmt::format("found the field {} twice in an object, need it once",
                                         shown_json(*builder.name_twice)));
}

}  // namespace llm
