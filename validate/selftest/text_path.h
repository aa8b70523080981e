#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/report/report.h"

namespace llm {

using ModelPointer = std::shared_ptr<const Model>;

/// Appends drawn tokens until there are `n`. @param random  a generator of the standard library,
/// whose words are taken as they are: distributions differ between libraries
template <typename Random>
void draw_tokens(std::vector<TokenId>& tokens, std::size_t n, std::size_t n_vocab, Random& random) {
  while (tokens.size() < n) tokens.push_back(static_cast<TokenId>(random() % n_vocab));
}

/// Index of the first float whose bits differ, or of where the shorter one ends. Both sizes: none.
std::size_t first_unequal(std::span<const float> a, std::span<const float> b);

/// Rows of logits and the positions they belong to.
struct LogitTable {
  std::size_t n_vocab = 0;
  std::vector<std::size_t> positions = {};
  std::vector<float> values = {};  ///< (positions.size(), n_vocab)

  std::span<const float> row(std::size_t i) const {
    return std::span(values).subspan(i * n_vocab, n_vocab);
  }
  /// Appends rows of neighbouring positions.
  void append(std::size_t first_position, std::span<const float> rows);
  /// Appends the rows of `other` whose positions are missing here.
  void complete_with(const LogitTable& other);
  /// The row of `position`, empty when there is none.
  std::span<const float> find(std::size_t position) const;
};

/// One step of feeding a text to a sequence.
struct Feed {
  std::size_t begin = 0;     ///< what is stored from here on is forgotten first; at most what is
  std::size_t end = 0;       ///< then the tokens up to here are fed
  std::size_t per_call = 0;  ///< so many in a call; 0: all
  LogitRows rows = LogitRows::kAll;
  /// Before that, so many tokens other than the text's are fed, and forgotten. (What is forgotten
  /// must differ from what follows, or a row left over would go unnoticed.)
  std::size_t forgotten = 0;
};

/// A way to evaluate a text; every one must give the same logits.
struct Path {
  std::string name;
  ExecutorOptions executor = {};
  SequenceOptions sequence = {};
  std::vector<Feed> feeds;
};

/// Errors: those of Executor and Sequence; kNonFinite names layer, tap and position.
Result<LogitTable> evaluate(const ModelPointer& model, const Path& path,
                            std::span<const TokenId> tokens);

/// Positions where `actual` has another row than `expected`, bit for bit, and what is wrong at the
/// first, in words. Rows that `expected` lacks are not judged.
struct TableDifference {
  std::size_t compared = 0;   ///< logits
  std::size_t different = 0;  ///< logits
  std::size_t position = 0;   ///< of the first
  std::string words = {};     ///< empty when nothing differs
};
TableDifference compare_tables(const LogitTable& actual, const LogitTable& expected);

/// Whether two evaluations gave the same rows, bit for bit.
bool same_bits(const LogitTable& a, const LogitTable& b);

/// What a path gave, and its verdict.
struct Judged {
  CheckResult result;
  LogitTable table;  ///< empty when the logits were not finite
};

/// Calls `run` and compares what it gives with `expected`. Where they differ, it is called again:
/// bits that changed are called a race. Logits that are NaN or infinite fail the check, and the
/// detail says where they first were. A table without a row to compare fails too.
/// Errors: those of `run` but kNonFinite.
Result<Judged> judge(std::string name, const LogitTable& expected,
                     const std::function<Result<LogitTable>()>& run);

/// What is wrong with prefill, so that paths with the same fault are not blamed by themselves.
class PrefillFault {
 public:
  PrefillFault() = default;
  explicit PrefillFault(Judged prefill)
      : is_there_(!prefill.result.passed), table_(std::move(prefill.table)) {}

  bool is_there() const { return is_there_; }
  /// Whether `other` gave prefill's wrong bits, or like it none that are finite. Counts those.
  bool explains(const Judged& other);
  /// "; 12 more paths have the same fault", or nothing.
  std::string count() const;

 private:
  bool is_there_ = false;
  LogitTable table_;  ///< empty when prefill's logits were not finite
  std::size_t n_explained_ = 0;
};

/// A failed check in place of kNonFinite: "NaN or Inf at blk.1.ffn_act, ..."; nothing for others.
std::optional<CheckResult> nonfinite_check(const std::string& name, const Error& error);

}  // namespace llm
