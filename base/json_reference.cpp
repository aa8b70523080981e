#include "base/json_reference.h"

#include <charconv>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"

namespace llm {
namespace {

constexpr int kMostLevels = 64;
constexpr std::size_t kFew = 16;  // are looked through as fast

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

struct JsonReferences::Index {
  template <typename Value>
  using ByName = std::unordered_map<std::string, Value, SeededHash>;

  ByName<std::string> anchors;
  bool has_anchors = false;  ///< they were looked for
  std::unordered_map<const OrderedJson*, ByName<const OrderedJson*>> members;

  /// Of an object; null: it has none of that name.
  const OrderedJson* member(const OrderedJson& object, const std::string& name) {
    if (object.size() <= kFew) {
      const auto found = object.find(name);
      return found == object.end() ? nullptr : &*found;
    }
    const auto [known, is_new] = members.try_emplace(&object);
    if (is_new)
      for (const auto& [its, value] : object.items()) known->second.emplace(its, &value);
    const auto found = known->second.find(name);
    return found == known->second.end() ? nullptr : found->second;
  }

  /// Keeps where schemas with an "$anchor" stand, the first of each.
  void add_anchors(const OrderedJson& schema, const std::string& path, int level) {
    if (!schema.is_structured() || level == kMostLevels) return;
    if (schema.is_object()) {
      const auto own = schema.find("$anchor");
      if (own != schema.end() && own->is_string()) anchors.emplace(*own, path);
    }
    for (const auto& [name, member] : schema.items())
      if (member.is_structured()) add_anchors(member, path + "/" + escaped(name), level + 1);
  }
};

JsonReferences::JsonReferences(const OrderedJson& root)
    : root_(root), index_(std::make_unique<Index>()) {}

JsonReferences::~JsonReferences() = default;

std::string JsonReferences::pointer_of(const OrderedJson& reference) {
  if (!reference.is_string()) return "?";
  std::string_view uri = reference.get_ref<const std::string&>();
  if (root_.is_object() && root_.contains("$id") && root_["$id"].is_string()) {
    std::string_view id = root_["$id"].get_ref<const std::string&>();
    if (id.ends_with('#')) id.remove_suffix(1);
    if (!id.empty() && uri.starts_with(id)) uri.remove_prefix(id.size());
    if (uri.empty()) return "";
  }
  if (!uri.starts_with('#')) return "?";
  std::string pointer = unescaped(uri.substr(1));
  if (pointer.empty() || pointer.front() == '/') return pointer;
  if (!std::exchange(index_->has_anchors, true)) index_->add_anchors(root_, "", 0);
  const auto anchor = index_->anchors.find(pointer);
  return anchor == index_->anchors.end() ? "?" : anchor->second;
}

const OrderedJson* JsonReferences::at(const std::string& pointer) {
  const OrderedJson* place = &root_;
  try {
    std::vector<std::string> parts;
    for (OrderedJson::json_pointer rest(pointer); !rest.empty(); rest.pop_back())
      parts.push_back(rest.back());
    for (auto part = parts.rbegin(); part != parts.rend() && place != nullptr; ++part) {
      if (place->is_object()) {
        place = index_->member(*place, *part);
      } else {
        const OrderedJson::json_pointer one("/" + escaped(*part));
        place = place->contains(one) ? &place->at(one) : nullptr;
      }
    }
  } catch (const OrderedJson::exception&) {
    return nullptr;
  }
  return place;
}

}  // namespace llm
