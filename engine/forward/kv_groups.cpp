#include "engine/forward/kv_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace llm {

KvGroups::KvGroups(const HyperParameters& config) : places_(config.n_layers) {
  std::map<std::size_t, std::vector<std::size_t>> by_window;  // its layers
  for (std::size_t layer = 0; layer < config.n_layers; ++layer)
    by_window[layer < config.layers.size() ? config.layers[layer].window : 0].push_back(layer);
  layers_per_page_ = 0;
  for (const auto& [window, layers] : by_window)
    layers_per_page_ = std::gcd(layers_per_page_, layers.size());
  for (const auto& [window, layers] : by_window) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (i % layers_per_page_ == 0) windows_.push_back(window);
      places_[layers[i]] = {windows_.size() - 1, i % layers_per_page_};
    }
  }
}

std::size_t KvGroups::most_pages(std::size_t positions, std::size_t pass) const {
  std::size_t pages = 0;
  for (const std::size_t window : windows_) {
    std::size_t most = pages_for(positions);
    // Kept for a pass: its own positions and kSlack + window - 1 before them. n positions in a row
    // lie in at most (n + 254) / 256 + 1 pages.
    if (window > 0 && window < positions && pass < positions)
      most = std::min(most, (window + kSlack + pass + kPagePositions - 3) / kPagePositions + 1);
    pages += most;
  }
  return pages;
}

}  // namespace llm
