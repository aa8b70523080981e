#include "base/json_reference.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace llm {
namespace {

constexpr int kMostLevels = 64;

/// A name as a part of a JSON pointer.
std::string escaped(std::string_view name) {
  std::string part;
  for (const char c : name) {
    if (c == '~')
      part += "~0";
    else if (c == '/')
      part += "~1";
    else
      part += c;
  }
  return part;
}

/// Where the schema of that "$anchor" stands.
std::optional<std::string> find_anchor(const OrderedJson& schema, std::string_view anchor,
                                       const std::string& path, int level) {
  if (!schema.is_structured() || level == kMostLevels) return std::nullopt;
  if (schema.is_object()) {
    const auto own = schema.find("$anchor");
    if (own != schema.end() && *own == anchor) return path;
  }
  for (const auto& [name, member] : schema.items()) {
    auto found = find_anchor(member, anchor, path + "/" + escaped(name), level + 1);
    if (found) return found;
  }
  return std::nullopt;
}

/// Without the escapes of a URI.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
            text.data() + i + 3;
    plain += is_escape ? static_cast<char>(byte) : text[i];
    if (is_escape) i += 2;
  }
  return plain;
}

}  // namespace

std::string pointer_of_reference(const OrderedJson& root, const OrderedJson& reference) {
  if (!reference.is_string()) return "?";
  std::string_view uri = reference.get_ref<const std::string&>();
  if (root.is_object() && root.contains("$id") && root["$id"].is_string()) {
    std::string_view id = root["$id"].get_ref<const std::string&>();
    if (id.ends_with('#')) id.remove_suffix(1);
    if (!id.empty() && uri.starts_with(id)) uri.remove_prefix(id.size());
    if (uri.empty()) return "";
  }
  if (!uri.starts_with('#')) return "?";
  std::string pointer = unescaped(uri.substr(1));
  if (pointer.empty() || pointer.front() == '/') return pointer;
  return find_anchor(root, pointer, "", 0).value_or("?");
}

const OrderedJson* schema_at(const OrderedJson& root, const std::string& pointer) {
  try {
    const OrderedJson::json_pointer place(pointer);
    return root.contains(place) ? &root.at(place) : nullptr;
  } catch (const OrderedJson::exception&) {
    return nullptr;
  }
}

}  // namespace llm
