#pragma once

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/layer_table.h"

namespace llm {

/// How a GGUF calls the tensor of a role: "blk.3.attn_q.weight", "output.weight".
/// @param layer  0-based, or kOutsideLayers
inline std::string tensor_name(std::string_view role, int layer) {
  return layer == kOutsideLayers ? std::string(role) : fmt::format("blk.{}.{}", layer, role);
}

/// Whether a tensor is of a model of images or sounds, which no answer to a text depends on.
inline bool is_of_other_input(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.");
}

/// The number N of "blk.N.", when the name begins so.
inline std::optional<std::uint64_t> layer_of_tensor(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  std::uint64_t layer = 0;
  const auto [rest, error] = std::from_chars(begin, end, layer);
  if (error != std::errc() || rest == end || *rest != '.') return std::nullopt;
  return layer;
}

}  // namespace llm
