#include "base/json.h"

namespace llm {

Json parse_json(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

OrderedJson parse_ordered_json(std::string_view text) {
  return OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const Json& json, int indent, bool ascii) {
  return json.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}

std::string json_text(const OrderedJson& json, int indent, bool ascii) {
  return json.dump(indent, ' ', ascii, OrderedJson::error_handler_t::replace);
}

}  // namespace llm
