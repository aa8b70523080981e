#include "engine/state/kv_groups.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "engine/state/delta_state.h"

namespace llm {
namespace {

constexpr std::size_t kAlignment = 64;  // of a layer in its page

/// Layers that may lie in one page.
struct Kind {
  bool is_state;
  std::size_t window;
  std::size_t bytes;
  auto operator<=>(const Kind&) const = default;
};
using Kinds = std::map<Kind, std::vector<std::size_t>>;  // their layers

/// The size of pages that leaves the least room unused, of several the largest. A page that is
/// worth a thought holds a whole number of the layers of some kind.
std::size_t best_page(const Kinds& kinds) {
  std::size_t widest = 0;
  for (const auto& [kind, layers] : kinds) widest = std::max(widest, kind.bytes);
  std::size_t best = widest;
  std::size_t least = SIZE_MAX;
  for (const auto& [kind, layers] : kinds) {
    for (std::size_t n = 1; n <= layers.size(); ++n) {
      const std::size_t page = n * kind.bytes;
      if (page < widest) continue;
      std::size_t total = 0;
      for (const auto& [other, others] : kinds) {
        const std::size_t in_page = page / other.bytes;
        total += (others.size() + in_page - 1) / in_page * page;
      }
      if (std::pair(total, best) > std::pair(least, page)) continue;
      best = page;
      least = total;
    }
  }
  return best;
}

}  // namespace

std::size_t LayerMemory::bytes() const {
  if (is_state()) return (state_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return n_heads * (layout.keys_bytes() + layout.values_bytes());
}

std::vector<LayerMemory> memory_of(const HyperParameters& config, KvType type) {
  std::vector<LayerMemory> out;
  if (config.has_trunk()) return out;  // all of it is the trunk's
  for (const LayerSpec& layer : std::span(config.layers).first(config.n_layers)) {
    if (const DeltaNetSpec* spec = layer.delta_net()) {
      out.push_back({.state_bytes = DeltaState::bytes(*spec)});
      continue;
    }
    if (const ShortConvSpec* spec = layer.short_conv()) {
      out.push_back({.state_bytes = ConvTail::bytes(spec->convolution())});
      continue;
    }
    const AttentionSpec& spec = *layer.attention();
    out.push_back({.layout = {type, spec.head_dim},
                   .n_heads = spec.n_kv_heads,
                   .window = spec.window,
                   .of_layer = spec.kv_of_layer});
  }
  return out;
}

KvGroups::KvGroups(std::vector<LayerMemory> layers)
    : layers_(std::move(layers)), places_(layers_.size()) {
  Kinds kinds;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerMemory& layer = layers_[i];
    if (!layer.of_layer) kinds[{layer.is_state(), layer.window, layer.bytes()}].push_back(i);
  }
  page_bytes_ = best_page(kinds);
  for (const auto& [kind, of_kind] : kinds) {
    const std::size_t in_page = page_bytes_ / kind.bytes;
    for (std::size_t i = 0; i < of_kind.size(); ++i) {
      if (i % in_page == 0) groups_.push_back({kind.window, kind.is_state});
      groups_.back().layers.push_back(of_kind[i]);
      places_[of_kind[i]] = {groups_.size() - 1, i % in_page * kind.bytes};
    }
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto from = layers_[i].of_layer;
    if (!from) continue;
    LLM_CHECK(*from < i);
    places_[i] = places_[*from];
    layers_[i] = layers_[*from];
  }
}

bool KvGroups::has_states() const { return std::ranges::any_of(groups_, &Group::is_state); }

std::size_t KvGroups::most_pages(std::size_t positions, std::size_t pass) const {
  std::size_t pages = 0;
  for (const auto& [window, is_state, layers] : groups_) {
    std::size_t most = is_state ? std::min<std::size_t>(positions, 1) : pages_for(positions);
    // Kept for a pass: its own positions and kSlack + window - 1 before them. n positions in a row
    // lie in at most (n + 254) / 256 + 1 pages.
    if (window > 0 && window < positions && pass < positions)
      most = std::min(most, (window + kSlack + pass + kPagePositions - 3) / kPagePositions + 1);
    pages += most;
  }
  return pages;
}

}  // namespace llm
