#include "validate/provenance/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/hex.h"
#include "base/merkle_tree.h"
#include "base/thread_team.h"
#include "engine/generation/generation_state.h"
#include "validate/provenance/receipt_checks.h"
#include "validate/provenance/row_recompute.h"

namespace llm {
namespace {

constexpr std::size_t kRowsOfTask = 64;  // to be hashed

/// The places in values.rows() whose values are not those of the leaves.
/// @param leaf_of  a row's leaf
template <typename LeafOf>
std::vector<std::size_t> differing(const RowValues& values, int n_threads, LeafOf leaf_of) {
  std::vector<char> differs(values.rows().size());
  run_parallel(n_threads, [&](Worker worker) {
    worker.take_tasks(differs.size() / kRowsOfTask + 1, [&](std::size_t task) {
      const std::size_t begin = task * kRowsOfTask;
      for (std::size_t i = begin; i < std::min(begin + kRowsOfTask, differs.size()); ++i)
        differs[i] = row_leaf(values[i]) != leaf_of(values.rows()[i]) ? 1 : 0;
    });
  });
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < differs.size(); ++i)
    if (differs[i] != 0) out.push_back(i);
  return out;
}

class Audit {
 public:
  Audit(std::shared_ptr<const Model> model, const Receipt& receipt, const ReceiptTerms& terms,
        const RowTable& table, const AuditPlan& plan, const AuditProof& opening)
      : model_(std::move(model)),
        receipt_(receipt),
        terms_(terms),
        table_(table),
        plan_(plan),
        opening_(opening),
        tokens_(receipt.evaluated()),
        first_drawn_(receipt.prompt_ids.size() - 1) {}

  Result<std::vector<CheckResult>> checks() {
    std::vector<CheckResult> out;
    if (auto prompt = check_prompt(receipt_, tokenizer(), terms_.style.get()))
      out.push_back(*std::move(prompt));
    out.push_back(check_opened());
    if (!out.back().passed) return out;
    LLM_TRY(const RowValues made, make(*model_, receipt_.kv));
    LLM_TRY(auto computed, check_computed(made));
    out.push_back(std::move(computed));
    GenerateSink nobody;
    GenerationState text(tokenizer(), terms_.options, nobody);
    out.push_back(check_tokens(made, text));
    out.push_back(check_text(receipt_, tokenizer(), terms_.options, text));
    return out;
  }

 private:
  const Tokenizer& tokenizer() const { return model_->tokenizer(); }

  const Sha256Digest& leaf_of(std::size_t row) const {
    const auto found = std::ranges::lower_bound(plan_.shown, row);
    return opening_.leaves[static_cast<std::size_t>(found - plan_.shown.begin())];
  }
  std::vector<std::size_t> differing_rows(const RowValues& values) const {
    return differing(values, model_->threads(),
                     [&](std::size_t row) -> const Sha256Digest& { return leaf_of(row); });
  }

  CheckResult check_opened() const {
    const char* name = "rows opened";
    const std::string root =
        hex_text(merkle_root_by_proof(table_.size(), plan_.shown, opening_.leaves, opening_.nodes));
    if (root != *receipt_.rows_sha256)
      return {name, false,
              fmt::format("hashes: found a root of {}, need rows_sha256, {}", root,
                          *receipt_.rows_sha256)};
    const auto differs = differing_rows(opening_.values);
    if (!differs.empty())
      return {name, false,
              fmt::format("{}: the values are not those of its hash",
                          table_.name(opening_.values.rows()[differs.front()]))};
    return {name, true, fmt::format("{} of {} shown", plan_.shown.size(), table_.size())};
  }

  Result<RowValues> make(const Model& model, KvType kv) const {
    auto made = RowRecompute(model, kv, tokens_, table_).make(plan_.asked, opening_.values);
    LLM_RETURN_IF_ERROR(model.check_weights());
    return made;
  }

  Result<CheckResult> check_computed(const RowValues& made) const {
    const auto differs = differing_rows(made);
    const char* name = "rows computed";
    if (differs.empty())
      return CheckResult{name, true, fmt::format("{} of {}", made.rows().size(), table_.size())};
    const std::size_t first = made.rows()[differs.front()];
    std::string words = fmt::format("{} of {} are not what their inputs give, the first: {}",
                                    differs.size(), made.rows().size(), table_.name(first));
    if (table_.column_of(first) == 0) words += "; " + describe_token(table_.position_of(first));
    LLM_TRY(const auto other, other_arithmetic());
    if (!other.empty()) words += fmt::format("; {} would give them", other);
    return CheckResult{name, false, std::move(words)};
  }

  std::string describe_token(std::size_t position) const {
    const std::size_t n_prompt = receipt_.prompt_ids.size();
    const std::string place = position < n_prompt ? fmt::format("prompt_ids[{}]", position)
                                                  : fmt::format("ids[{}]", position - n_prompt);
    return fmt::format("it is not of {}, {}", place, shown_token(tokenizer(), tokens_[position]));
  }

  /// Another `kv` or compute under which all rows would be right.
  Result<std::string> other_arithmetic() const {
    for (const Compute compute : {Compute::kInt8, Compute::kF32}) {
      LLM_TRY(const auto model, model_->with_compute(compute));
      for (const KvType kv : kKvTypes) {
        LLM_TRY(const RowValues made, make(*model, kv));
        if (differing_rows(made).empty())
          return fmt::format("kv {} and compute {}", kv_name(kv), compute_name(compute));
      }
    }
    return std::string();
  }

  bool is_drawn(std::size_t i) const { return std::ranges::binary_search(plan_.draws, i); }
  /// What ids[i] was drawn from, as it was computed here. @pre is_drawn(i)
  std::span<const float> logits_of(const RowValues& made, std::size_t i) const {
    return made.of(table_.row(table_.n_columns() - 1, first_drawn_ + i));
  }

  /// Draws again what was asked for; `text` takes all tokens, and what comes next if it is drawn.
  CheckResult check_tokens(const RowValues& made, GenerationState& text) const {
    std::string wrong;
    const auto note = [&](std::size_t i, const std::string& words) {
      if (wrong.empty()) wrong = fmt::format("token {}: {}", i, words);
    };
    std::vector<TokenId> past = receipt_.prompt_ids;
    std::vector<TokenId> taken;
    const auto draw = [&](std::size_t i) {
      if (!is_drawn(i)) return;
      const Status done = text.draw(logits_of(made, i), past, past.size());
      if (!done.ok()) note(i, done.error().to_string());
    };
    for (std::size_t i = 0; i < receipt_.ids.size(); ++i) {
      const TokenId own = receipt_.ids[i];
      draw(i);
      const TokenId drawn = text.drawn().value_or(own);
      if (drawn != own)
        note(i, fmt::format("the receipt has {}, sampled is {}", shown_token(tokenizer(), own),
                            shown_token(tokenizer(), drawn)));
      text.take(own);
      if (const Status done = text.advance(taken, 0); !done.ok()) note(i, done.error().to_string());
      past.push_back(own);
    }
    draw(receipt_.ids.size());
    const char* name = "tokens";
    if (!wrong.empty()) return {name, false, wrong + describe_settings(made)};
    return {name, true,
            fmt::format("{} of {} drawn again", plan_.draws.size(),
                        table_.n_positions() - first_drawn_)};
  }

  /// Other settings that draw the tokens; of a grammar none is tried.
  std::string describe_settings(const RowValues& made) const {
    DrawnRows rows{.n_vocab = model_->config().n_vocab};
    for (const std::size_t i : plan_.draws) {
      if (i >= receipt_.ids.size() || rows.size() == receipt_batch(rows.n_vocab)) break;
      const auto row = logits_of(made, i);
      rows.logits.insert(rows.logits.end(), row.begin(), row.end());
      rows.numbers.push_back(i);
    }
    if (terms_.options.grammar != nullptr) return {};
    const auto others = settings_that_draw(receipt_, rows, tokenizer(), terms_.style.get());
    if (others.empty()) return "; a token was changed, or more than one setting";
    return fmt::format("; {} would give the tokens that were sampled again",
                       fmt::join(others, " or "));
  }

  std::shared_ptr<const Model> model_;
  const Receipt& receipt_;
  const ReceiptTerms& terms_;
  const RowTable& table_;
  const AuditPlan& plan_;
  const AuditProof& opening_;
  std::vector<TokenId> tokens_;
  std::size_t first_drawn_;  ///< position whose logits the first token is drawn from
};

}  // namespace

Result<AuditOutcome> audit_receipt(const std::shared_ptr<const Model>& model,
                                   const Receipt& receipt, const Challenge& challenge,
                                   std::span<const std::byte> bytes) {
  const auto start = std::chrono::steady_clock::now();
  ReceiptModel shared(*model);
  LLM_TRY(const ReceiptTerms terms, ReceiptTerms::of(shared, receipt));
  const RowTable table(model->config(), receipt.evaluated().size());
  // Of each position one hash is shown at least: no plan for more than the bytes can be of.
  if (table.n_positions() > bytes.size() / sizeof(Sha256Digest))
    return Error{
        ErrorCode::kMalformed, "size",
        fmt::format("found {} bytes, need {} for the hashes of {} positions at least", bytes.size(),
                    table.n_positions() * sizeof(Sha256Digest), table.n_positions())};
  const AuditPlan plan = AuditPlan::of(table, receipt, challenge);
  LLM_TRY(const AuditProof opening, AuditProof::parse(bytes, table, plan, receipt, challenge));
  Audit audit(model, receipt, terms, table, plan, opening);
  AuditOutcome outcome{
      .n_rows = table.size(), .n_asked = plan.asked.size(), .n_draws = plan.draws.size()};
  LLM_TRY(outcome.checks, audit.checks());
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

}  // namespace llm
