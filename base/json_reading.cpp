// JSON of others, whatever its names are.

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/seeded_hash.h"

namespace llm {
namespace {

/// Builds the value of a JSON text from its parts. Names of an object that has many are found by
/// hash.
class Builder final : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit Builder(ParsedJson& parsed) : parsed_(parsed) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(OrderedJson::object()); }
  bool start_array(std::size_t) override { return open(OrderedJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = open_.back();
    auto& members = level.value->get_ref<Members&>();
    level.next = find(level, name);
    if (level.next < members.size()) {
      if (!parsed_.name_twice) parsed_.name_twice = name;
      return true;
    }
    if (level.places != nullptr) level.places->emplace(name, level.next);
    members.emplace_back(std::move(name), nullptr);
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    parsed_.fault = error.what();
    return false;
  }

 private:
  using Members = OrderedJson::object_t;
  using Places = std::unordered_map<std::string, std::size_t, SeededHash>;
  static constexpr std::size_t kFew = 16;  // are looked through as fast

  struct Level {
    OrderedJson* value;
    std::size_t next = 0;                      ///< the member whose value comes next
    std::unique_ptr<Places> places = nullptr;  ///< of all members, once they are many
  };

  /// The member of that name, or their number.
  static std::size_t find(Level& level, const std::string& name) {
    const auto& members = level.value->get_ref<const Members&>();
    if (members.size() < kFew) {
      const auto at = std::ranges::find(members, name, &Members::value_type::first);
      return static_cast<std::size_t>(at - members.begin());
    }
    if (level.places == nullptr) {
      level.places = std::make_unique<Places>();
      for (const auto& [known, value] : members) level.places->emplace(known, level.places->size());
    }
    const auto at = level.places->find(name);
    return at == level.places->end() ? members.size() : at->second;
  }

  /// The place of the value that comes next. What is open above it stays where it is.
  OrderedJson& place(OrderedJson value) {
    if (open_.empty()) return parsed_.value = std::move(value);
    Level& level = open_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return level.value->back();
    }
    const auto members = level.value->get_ref<Members&>().begin();
    return (members + static_cast<std::ptrdiff_t>(level.next))->second = std::move(value);
  }
  bool add(OrderedJson value) {
    place(std::move(value));
    return true;
  }
  bool open(OrderedJson empty) {
    open_.push_back({.value = &place(std::move(empty))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  ParsedJson& parsed_;
  std::vector<Level> open_;
};

}  // namespace

ParsedJson read_ordered_json(std::string_view text) {
  ParsedJson parsed;
  Builder builder(parsed);
  if (!OrderedJson::sax_parse(text, &builder) && parsed.fault.empty()) parsed.fault = "no JSON";
  return parsed;
}

OrderedJson parse_ordered_json(std::string_view text) {
  ParsedJson parsed = read_ordered_json(text);
  if (parsed.fault.empty()) return std::move(parsed.value);
  return OrderedJson(OrderedJson::value_t::discarded);
}

std::size_t json_levels(std::string_view text) {
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

}  // namespace llm
