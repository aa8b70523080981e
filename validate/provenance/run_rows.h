#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/sha256.h"
#include "engine/forward/activation_points.h"
#include "engine/forward/probe.h"
#include "engine/model/hyper_parameters.h"

namespace llm {

/// All rows of a run, in the order of a receipt's tree (docs/receipts.md): tap by tap in the order
/// of the data flow, each by position. A column is the rows of one tap in one layer.
class RowTable {
 public:
  /// @param config  borrowed
  RowTable(const HyperParameters& config, std::size_t n_positions)
      : config_(config), flow_(config), columns_(taps_of_model(flow_)), n_positions_(n_positions) {}

  std::size_t n_positions() const { return n_positions_; }
  std::size_t n_columns() const { return columns_.size(); }
  std::size_t size() const { return columns_.size() * n_positions_; }

  /// @pre the model has that tap
  std::size_t column(int layer, std::string_view tap) const;
  std::size_t row(std::size_t column, std::size_t position) const {
    return column * n_positions_ + position;
  }
  std::size_t column_of(std::size_t row) const { return row / n_positions_; }
  std::size_t position_of(std::size_t row) const { return row % n_positions_; }
  const InLayer<Tap>& tap_of(std::size_t row) const { return columns_[column_of(row)]; }
  std::size_t width(std::size_t row) const {
    return tap_of(row).row->width.of(config_, tap_of(row).layer);
  }
  /// "position 5, layer 3, gate".
  std::string name(std::size_t row) const;

  /// The column of the i-th input of a row's op, or nothing.
  std::optional<std::size_t> input_column(std::size_t row, std::size_t i) const;
  /// The first position that a row reads anything of: keys and values, or what its state has met.
  std::size_t first_read(std::size_t row) const;
  /// Appends the rows that a row's op reads.
  /// @param first  of earlier positions, those before it are left out
  void add_inputs(std::size_t row, std::size_t first, std::vector<std::size_t>& out) const;

 private:
  const HyperParameters& config_;
  TapFlow flow_;
  std::vector<InLayer<Tap>> columns_;
  std::size_t n_positions_;
};

/// The values of some rows, one after the other: neighbours are one matrix.
class RowValues {
 public:
  /// Zeros. @param rows  ascending, each once. Errors: kResource
  static Result<RowValues> allocate(const RowTable& table, std::vector<std::size_t> rows);

  std::span<const std::size_t> rows() const { return rows_; }
  std::span<float> all() { return values_.span(); }
  /// Of the i-th of rows().
  std::span<float> operator[](std::size_t i) {
    return values_.span().subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }
  std::span<const float> operator[](std::size_t i) const {
    return values_.span().subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }
  /// The place of a row in rows(), or nothing.
  std::optional<std::size_t> find(std::size_t row) const;
  /// @pre it is there
  std::span<const float> of(std::size_t row) const { return (*this)[*find(row)]; }

 private:
  RowValues() = default;

  std::vector<std::size_t> rows_;
  std::vector<std::size_t> begins_;  ///< of each row, and the end
  AlignedBuffer<float> values_;
};

/// A row's leaf in the tree.
Sha256Digest row_leaf(std::span<const float> values);

/// Makes the leaves of all rows of a run that it sees, and keeps the values of some.
class RowRecorder final : public ProbeSink {
 public:
  /// @param kept_rows  with room for those that are kept
  RowRecorder(const RowTable& table, RowValues kept_rows)
      : leaves(table.size()), kept(std::move(kept_rows)), table_(table) {}

  void begin_step(std::span<const int> tokens, std::size_t first_position) override;
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override;

  std::vector<Sha256Digest> leaves;
  RowValues kept;

 private:
  const RowTable& table_;
  std::size_t first_position_ = 0;
};

}  // namespace llm
