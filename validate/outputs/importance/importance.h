#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/gguf/importance_matrix.h"

namespace llm {

/// Adds up what goes into every matrix product of a model, as sums of squares of each column, from
/// the taps of kTaps. Squares of f32 are exact in f64, and the sum of a column is f64 in the order
/// of tokens, so equal tokens give equal bits for any threads, instruction set and split into
/// passes. A product with experts counts the rows of those that the router chose.
///
///   ImportanceCollector collector(*model);
///   session->set_probe(&collector);
///   ... evaluate with LogitRows::kAll, so that the output matrix has its rows ...
///   session->set_probe(nullptr);
///   std::vector<Importance> entries = collector.finish();
///
/// Memory: a layer's inputs of one pass, and 8 bytes for each column of each matrix.
class ImportanceCollector : public ProbeSink {
 public:
  /// @param model  outlives this
  explicit ImportanceCollector(const Model& model);

  void begin_step(std::span<const int> tokens, std::size_t first_position) override;
  void tap(int layer, std::string_view name, std::span<float> values, std::size_t features,
           std::size_t first_token) override;

  /// In ascending order of names: sums rounded to f32. Of matrices that share a tensor there is one
  /// entry.
  std::vector<Importance> finish() const;

 private:
  using Place = std::pair<int, std::string_view>;  ///< layer and name of a tap
  /// A tap that products read: its rows in the present pass.
  struct Input {
    std::vector<float> rows;
    std::size_t n_readers = 0;
    std::size_t n_read = 0;  ///< readers that are done with these rows
  };
  struct Product {
    std::string tensor;
    std::size_t n_cols;
    Place input;
    Place router;  ///< with an empty name: no experts
    std::vector<double> sums;
    std::vector<double> counts;
  };

  void add(Product& product, int layer);
  void finish_reading(const Place& place);

  const Model& model_;
  std::map<Place, Input> inputs_;
  std::map<Place, Product> products_;
};

/// The importance matrix of a text: of its tokens in windows of `window`, each evaluated from
/// position 0 (text_windows.h). A last window that is shorter is left out unless it is the only
/// one, so that the windows are those of llama-imatrix.
/// @param text_name  what the matrix calls the text
/// Errors: of text_windows(), open_sequence() and evaluate().
Result<ImportanceMatrix> importance_of_text(const std::shared_ptr<const Model>& model,
                                            std::string_view text, const std::string& text_name,
                                            std::size_t window, const ExecutorOptions& options,
                                            const Progress& progress = {});

}  // namespace llm
