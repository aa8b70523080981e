#include "validate/selftest/text_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace llm {
namespace {

/// Runs of a path that differed, after the first, to see whether its bits change.
constexpr int kRepeats = 2;
constexpr const char* kChanging =
    "; run again, the same path gives different bits: a race, or memory read before it is written";

/// The text with another token at each place from `begin` on.
std::vector<TokenId> other_tokens(std::span<const TokenId> tokens, std::size_t begin, std::size_t n,
                                  std::size_t n_vocab) {
  std::vector<TokenId> out;
  for (std::size_t i = begin; i < begin + n; ++i) {
    const auto id = static_cast<std::size_t>(tokens[i % tokens.size()]);
    out.push_back(static_cast<TokenId>((id + 1 + i % 3) % n_vocab));
  }
  return out;
}

/// Feeds `tokens`, at most `per_call` at a time; `table` takes each call's rows.
Status feed_in_calls(Sequence& sequence, std::span<const TokenId> tokens, std::size_t per_call,
                     LogitRows rows, LogitTable* table) {
  const std::size_t step = per_call == 0 ? tokens.size() : per_call;
  for (std::size_t at = 0; at < tokens.size(); at += step) {
    const std::size_t n = std::min(step, tokens.size() - at);
    LLM_TRY(const auto logits, sequence.evaluate(tokens.subspan(at, n), rows));
    if (table == nullptr) continue;
    table->append(sequence.position() - logits.size() / sequence.n_vocab(), logits);
  }
  return Ok{};
}

}  // namespace

std::size_t first_unequal(std::span<const float> a, std::span<const float> b) {
  const auto same = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  return static_cast<std::size_t>(std::ranges::mismatch(a, b, same).in1 - a.begin());
}

void LogitTable::append(std::size_t first_position, std::span<const float> rows) {
  for (std::size_t i = 0; i < rows.size() / n_vocab; ++i) positions.push_back(first_position + i);
  values.insert(values.end(), rows.begin(), rows.end());
}

void LogitTable::complete_with(const LogitTable& other) {
  n_vocab = other.n_vocab;
  for (std::size_t i = 0; i < other.positions.size(); ++i) {
    if (find(other.positions[i]).empty()) append(other.positions[i], other.row(i));
  }
}

std::span<const float> LogitTable::find(std::size_t position) const {
  const auto found = std::ranges::find(positions, position);
  if (found == positions.end()) return {};
  return row(static_cast<std::size_t>(found - positions.begin()));
}

Result<LogitTable> evaluate(const ModelPointer& model, const Path& path,
                            std::span<const TokenId> tokens) {
  ExecutorOptions options = path.executor;
  options.context = 0;
  for (const Feed& feed : path.feeds)
    options.context = std::max({options.context, feed.end, feed.begin + feed.forgotten});
  LLM_TRY(const auto sequence, open_sequence(model, options, path.sequence));
  LogitTable table{.n_vocab = model->config().n_vocab};
  for (const Feed& feed : path.feeds) {
    sequence->truncate(feed.begin);
    if (feed.forgotten > 0) {
      const auto others = other_tokens(tokens, feed.begin, feed.forgotten, table.n_vocab);
      LLM_RETURN_IF_ERROR(
          feed_in_calls(*sequence, others, feed.per_call, LogitRows::kNone, nullptr));
      sequence->truncate(feed.begin);
    }
    LLM_RETURN_IF_ERROR(feed_in_calls(*sequence, tokens.subspan(feed.begin, feed.end - feed.begin),
                                      feed.per_call, feed.rows, &table));
  }
  return table;
}

TableDifference compare_tables(const LogitTable& actual, const LogitTable& expected) {
  TableDifference out;
  for (std::size_t i = 0; i < actual.positions.size(); ++i) {
    const auto need = expected.find(actual.positions[i]);
    if (need.empty()) continue;
    const auto row = actual.row(i);
    out.compared += row.size();
    for (std::size_t token = first_unequal(row, need); token < row.size();
         token += 1 + first_unequal(row.subspan(token + 1), need.subspan(token + 1))) {
      if (out.different++ > 0) continue;
      out.position = actual.positions[i];
      out.words = fmt::format("first at position {}, token {}: {} and {}", out.position, token,
                              row[token], need[token]);
    }
  }
  if (out.different > 0)
    out.words = fmt::format("{} of {} logits differ, {}", out.different, out.compared, out.words);
  return out;
}

bool same_bits(const LogitTable& a, const LogitTable& b) {
  return a.positions == b.positions &&
         std::ranges::equal(std::as_bytes(std::span(a.values)), std::as_bytes(std::span(b.values)));
}

std::optional<CheckResult> nonfinite_check(const std::string& name, const Error& error) {
  if (error.code != ErrorCode::kNonFinite) return std::nullopt;
  return CheckResult{name, false, fmt::format("at {}: {}", error.field, error.message)};
}

bool PrefillFault::explains(const Judged& other) {
  if (!is_there_ || other.result.passed) return false;
  const bool nonfinite = other.table.positions.empty();
  if (nonfinite != table_.positions.empty()) return false;
  if (!nonfinite && compare_tables(other.table, table_).different > 0) return false;
  ++n_explained_;
  return true;
}

std::string PrefillFault::count() const {
  if (n_explained_ == 0) return {};
  return fmt::format("; {} more path{} the same fault", n_explained_,
                     n_explained_ == 1 ? " has" : "s have");
}

Result<Judged> judge(std::string name, const LogitTable& expected,
                     const std::function<Result<LogitTable>()>& run) {
  auto first = run();
  if (!first.ok()) {
    auto failed = nonfinite_check(name, first.error());
    if (!failed) return std::move(first).error();
    const auto again = run();
    if (again.ok() || again.error().field != first.error().field ||
        again.error().message != first.error().message)
      failed->detail += kChanging;
    return Judged{*std::move(failed), {}};
  }
  const TableDifference difference = compare_tables(*first, expected);
  Judged out{{std::move(name), difference.different == 0 && difference.compared > 0, {}},
             std::move(first).value()};
  out.result.detail = fmt::format("{} logits", difference.compared);
  if (difference.different == 0) return out;
  out.result.detail = difference.words;
  for (int i = 0; i < kRepeats; ++i) {
    const auto again = run();
    if (again.ok() && same_bits(*again, out.table)) continue;
    out.result.detail += kChanging;
    break;
  }
  return out;
}

}  // namespace llm
