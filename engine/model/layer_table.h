#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace llm {

/// The layer of what is outside the layers.
inline constexpr int kOutsideLayers = -1;

/// A row of a table (TensorRole, Tap) in one layer.
template <typename Row>
struct InLayer {
  const Row* row;
  int layer;  ///< 0-based, or kOutsideLayers
};

/// The rows of `table` for a model of n_layers, in the order of the data flow: the rows of a layer
/// are repeated for each one.
/// @pre rows that are per_layer stand together, between those before and those after the layers
template <typename Row>
std::vector<InLayer<Row>> in_every_layer(std::span<const Row> table, std::size_t n_layers) {
  std::vector<InLayer<Row>> out;
  for (std::size_t begin = 0; begin < table.size();) {
    std::size_t end = begin + 1;
    while (end < table.size() && table[end].per_layer && table[begin].per_layer) ++end;
    const std::size_t repeats = table[begin].per_layer ? n_layers : 1;
    for (std::size_t layer = 0; layer < repeats; ++layer) {
      for (const Row& row : table.subspan(begin, end - begin))
        out.push_back({&row, row.per_layer ? static_cast<int>(layer) : kOutsideLayers});
    }
    begin = end;
  }
  return out;
}

}  // namespace llm
