#include "validate/provenance/run_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"

namespace llm {

static_assert(std::endian::native == std::endian::little);

std::size_t RowTable::column(int layer, std::string_view tap) const {
  const auto found = std::ranges::find_if(columns_, [&](const InLayer<Tap>& column) {
    return column.layer == layer && column.row->name == tap;
  });
  LLM_CHECK(found != columns_.end());
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string RowTable::name(std::size_t row) const {
  const auto& [tap, layer] = tap_of(row);
  const std::string at = layer == kOutsideLayers ? "" : fmt::format("layer {}, ", layer);
  return fmt::format("position {}, {}{}", position_of(row), at, tap->name);
}

std::optional<std::size_t> RowTable::input_column(std::size_t row, std::size_t i) const {
  const auto& [tap, layer] = tap_of(row);
  const auto input = input_of(*tap, layer, flow_, i);
  if (!input) return std::nullopt;
  std::size_t column = column_of(row);
  while (columns_[column].row != input->row || columns_[column].layer != input->layer) --column;
  return column;
}

std::size_t RowTable::first_read(std::size_t row) const {
  const auto& [tap, at] = tap_of(row);
  if (tap->op != TapOp::kAttention && !has_state(tap->op)) return position_of(row);
  const LayerSpec& layer = config_.layers[static_cast<std::size_t>(at)];
  const std::size_t window =
      tap->op == TapOp::kConvolution ? layer.conv_width() : layer.window();  // none: all
  const std::size_t n = position_of(row) + 1;
  return window == 0 || window > n ? 0 : n - window;
}

void RowTable::add_inputs(std::size_t row, std::size_t first, std::vector<std::size_t>& out) const {
  const TapOp op = tap_of(row).row->op;
  for (std::size_t i = 0; const auto column = input_column(row, i); ++i) {
    const bool of_earlier = has_state(op) || (op == TapOp::kAttention && i > 0);
    const std::size_t begin = of_earlier ? std::max(first, first_read(row)) : position_of(row);
    for (std::size_t p = begin; p <= position_of(row); ++p) out.push_back(this->row(*column, p));
  }
}

Result<RowValues> RowValues::allocate(const RowTable& table, std::vector<std::size_t> rows) {
  RowValues values;
  values.rows_ = std::move(rows);
  values.begins_ = {0};
  for (const std::size_t row : values.rows_)
    values.begins_.push_back(values.begins_.back() + table.width(row));
  LLM_TRY(values.values_, AlignedBuffer<float>::allocate(values.begins_.back(), "activations"));
  return values;
}

std::optional<std::size_t> RowValues::find(std::size_t row) const {
  const auto found = std::ranges::lower_bound(rows_, row);
  if (found == rows_.end() || *found != row) return std::nullopt;
  return static_cast<std::size_t>(found - rows_.begin());
}

Sha256Digest row_leaf(std::span<const float> values) {
  constexpr std::array kLeaf = {std::byte{0}};
  Sha256 hash;
  hash.update(kLeaf);
  hash.update(std::as_bytes(values));
  return hash.digest();
}

void RowRecorder::begin_step(std::span<const int>, std::size_t first_position) {
  first_position_ = first_position;
}

void RowRecorder::tap(int layer, std::string_view name, std::span<float> values,
                      std::size_t features, std::size_t first_token) {
  const std::size_t first = table_.row(table_.column(layer, name), first_position_ + first_token);
  for (std::size_t i = 0; i < values.size() / features; ++i) {
    const auto row = values.subspan(i * features, features);
    leaves[first + i] = row_leaf(row);
    if (const auto place = kept.find(first + i)) std::ranges::copy(row, kept[*place].begin());
  }
}

}  // namespace llm
