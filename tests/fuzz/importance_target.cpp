// Importance matrices in both forms: what is read is written as a GGUF that is read as the same.

#include "engine/gguf/importance_matrix.h"
#include "tests/fuzz/fuzz.h"

LLM_FUZZ(input) {
  using namespace llm;
  const auto bytes = fuzz::bytes_of(input.rest());
  const auto matrix = ImportanceMatrix::parse(bytes);
  if (!matrix.ok()) return;
  for (const Importance& entry : matrix->entries) {
    const float one = 1;
    const std::size_t n = entry.counts.size();
    const auto means = entry.means(entry.sums.size() / n, n, &one);
    fuzz::require(!means.ok() || means->size() == entry.sums.size(), "a mean for each sum");
    fuzz::require(!entry.means(entry.sums.size() + 1, 1).ok(), "another number of columns");
  }
  const auto written = matrix->gguf_bytes();
  if (!written.ok()) return;  // names that a GGUF cannot have
  const auto again = ImportanceMatrix::parse(*written);
  fuzz::require(again.ok() && again->entries.size() == matrix->entries.size(),
                "what is written is read");
}
