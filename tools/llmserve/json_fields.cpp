#include "tools/llmserve/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace llm {
namespace {

constexpr std::size_t kShownBytes = 60;

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

/// Told of each part of a JSON text, keeps the first name that an object has twice.
class NamesTwice {
 public:
  void note(Json::parse_event_t event, const Json& part) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event != Event::key) return;
    const auto& name = part.get_ref<const std::string&>();
    if (!open_.back().insert(name).second && !found_) found_ = name;
  }
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::set<std::string>> open_;  ///< names of each object that is not yet closed
  std::optional<std::string> found_;
};

Error body_error(std::string message) {
  return {.code = ErrorCode::kUsage, .field = "body", .message = std::move(message)};
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::size_t most_levels) {
  if (const std::size_t levels = levels_of(text); levels > most_levels)
    return body_error(fmt::format("found {} levels of JSON, need at most {}", levels, most_levels));
  // The parser would take it for the end.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return body_error(fmt::format("found no JSON: a NUL at byte {}", at));
  NamesTwice names;
  try {
    Json json = Json::parse(text, [&names](int, Json::parse_event_t event, const Json& part) {
      names.note(event, part);
      return true;
    });
    if (!names.found()) return json;
    return body_error(fmt::format("found the field {} twice in an object, need it once",
                                  shown_json(*names.found())));
  } catch (const Json::exception& fault) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = fault.what();
    return body_error(fmt::format("found no JSON: {}", what.substr(what.find("] ") + 2)));
  }
}

std::string shown_json(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() <= kShownBytes) return text;
  text.resize(kShownBytes);
  return text + "...";
}

JsonFields::JsonFields(const Json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object.is_object()) {
    fail({.code = ErrorCode::kUsage,
          .field = path_.empty() ? "body" : path_.substr(0, path_.size() - 1),
          .message = fmt::format("found {}, need an object", shown_json(object))});
  }
}

const Json* JsonFields::find(std::string_view name) {
  known_.emplace(name);
  if (!object_.is_object()) return nullptr;
  const auto at = object_.find(std::string(name));
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void JsonFields::flag(std::string_view name, bool& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (!found->is_boolean()) return fail(name, shown_json(*found), "true or false");
  value = found->get<bool>();
}

void JsonFields::text(std::string_view name, std::string& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (!found->is_string()) return fail(name, shown_json(*found), "a string");
  value = found->get<std::string>();
}

void JsonFields::real(std::string_view name, float& value, double lowest, double highest) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (found->is_number()) {
    const auto number = found->get<double>();
    if (number >= lowest && number <= highest) {
      value = static_cast<float>(number);
      return;
    }
  }
  fail(name, shown_json(*found), fmt::format("a number in {}..{}", lowest, highest));
}

std::optional<std::int64_t> JsonFields::integer_of(std::string_view name, std::int64_t lowest,
                                                   std::int64_t highest) {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  const bool wraps =
      found->is_number_unsigned() &&
      found->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (found->is_number_integer() && !wraps) {
    const auto number = found->get<std::int64_t>();
    if (number >= lowest && number <= highest) return number;
  }
  fail(name, shown_json(*found), fmt::format("an integer in {}..{}", lowest, highest));
  return std::nullopt;
}

void JsonFields::only(std::string_view name, const Json& values) {
  const Json* found = find(name);
  if (found == nullptr) return;
  std::string need;
  for (const Json& value : values) {
    if (*found == value) return;
    need += shown_json(value) + " or ";
  }
  fail(name, shown_json(*found), need + "nothing: it is not supported");
}

void JsonFields::fail(std::string_view name, std::string found, std::string_view need) {
  fail({.code = ErrorCode::kUsage,
        .field = path_ + std::string(name),
        .message = fmt::format("found {}, need {}", found, need)});
}

void JsonFields::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

Status JsonFields::finish() {
  if (error_) return *error_;
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || known_.contains(name)) continue;
    return Error{.code = ErrorCode::kUsage,
                 .field = path_ + name.substr(0, kShownBytes),
                 .message = "found a field that is not supported, need none of that name"};
  }
  return Ok{};
}

}  // namespace llm
