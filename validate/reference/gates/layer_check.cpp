#include "validate/reference/gates/layer_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/float_environment.h"
#include "base/thread_team.h"
#include "validate/reference/diff/limits.h"
#include "validate/reference/dump/engine_dump.h"
#include "validate/reference/fault_localization/locate.h"
#include "validate/reference/fault_localization/op_check.h"
#include "validate/reference/gates/drift.h"

namespace llm {
namespace {

/// Drifts of several runs are random; the largest of four is seldom ten times less than another.
constexpr int kDriftRuns = 4;
constexpr int kPriceRuns = 2;
constexpr double kDriftUnits = 100;

using TapInLayer = InLayer<Tap>;

/// Answers about one tap.
struct TapAnswers {
  LayerDiffRow bits;
  LayerDiffRow ops;
  double op_error = 0;  ///< NMSE of the definition's op on the reference's inputs, against it
  std::optional<Error> error;
};

/// Tokens for the definition: all that the budget allows, the first and last, both sides of chunk
/// ends, the first that was fed alone, and others at random.
std::vector<std::size_t> choose_rows(const Dump& reference, std::size_t n_rows) {
  const std::size_t n = reference.tokens().size();
  if (n_rows >= n) return {};
  std::set<std::size_t> rows = {0, n - 1};
  const auto add = [&](std::size_t row) {
    if (row < n && rows.size() < n_rows) rows.insert(row);
  };
  const auto steps = reference.step_ptr();
  for (std::size_t s = 0; s + 1 < steps.size() && rows.size() < n_rows; ++s) {
    if (steps[s + 1] - steps[s] != 1) continue;
    add(static_cast<std::size_t>(steps[s]));
    break;
  }
  for (const std::size_t row : {256, 255, 512, 511, 768, 1024, 2048}) add(row);
  std::mt19937_64 random(n);
  while (rows.size() < n_rows) rows.insert(random() % n);
  return {rows.begin(), rows.end()};
}

class LayerCheck {
 public:
  LayerCheck(const std::shared_ptr<const Model>& model, ComputeMode mode, const Dump& reference,
             const LayerCheckOptions& options)
      : model_(model),
        mode_(mode),
        reference_(reference),
        options_(options),
        replay_(model, mode.kv),
        name_(mode_name(mode)),
        taps_(taps_of_model(model->config())),
        tokens_(reference.tokens().begin(), reference.tokens().end()) {}

  Result<std::vector<DiffSection>> run() {
    const FloatEnvironment contract;
    LLM_RETURN_IF_ERROR(check_reference(reference_, model_->config()));
    LLM_TRY(const Dump fast, record(model_, mode_.kv));
    LLM_TRY(LayerDiff free, diff_layers(fast, reference_));
    if (free.problems.empty() && reference_.n_layers() != model_->config().n_layers) {
      free.problems.push_back(fmt::format("{} layers here, {} in the reference",
                                          model_->config().n_layers, reference_.n_layers()));
    }
    if (!free.problems.empty()) {
      sections_.push_back({.title = name_ + ": the run can be compared with the reference",
                           .name = name_ + "-run",
                           .diff = std::move(free)});
      return std::move(sections_);
    }
    choose_rows_by_budget();
    LLM_RETURN_IF_ERROR(ask_about_taps(fast));
    add_op_sections(std::exchange(free.remarks, {}));
    LLM_RETURN_IF_ERROR(mode_.compute == Compute::kF32 || options_.limits != nullptr
                            ? add_run(fast, std::move(free))
                            : add_price(fast, std::move(free)));
    LLM_RETURN_IF_ERROR(add_location(fast));
    return std::move(sections_);
  }

 private:
  Result<Dump> record(const std::shared_ptr<const Model>& model, KvType kv) const {
    const ExecutorOptions executor{.context = tokens_.size(), .kv = kv};
    return record_activations(model, executor, false, tokens_, "llmcheck", options_.model_sha256,
                              reference_.step_ptr());
  }

  void choose_rows_by_budget() {
    std::uint64_t weights = 1;
    for (const auto& [tap, layer] : taps_) {
      const PackedMatrix* w =
          tap->op == TapOp::kProduct ? replay_.matrix(layer, tap->name) : nullptr;
      if (w != nullptr) weights += std::uint64_t{w->n_rows()} * w->n_cols();
    }
    const std::size_t n_rows =
        std::max<std::uint64_t>(LayerCheckOptions::kFewestRows, options_.budget / weights);
    rows_ = choose_rows(reference_, n_rows);
    if (!rows_.empty()) {
      bounded_ =
          fmt::format("the definition computed {} of {} tokens", rows_.size(), tokens_.size());
    }
  }

  Status ask_about_taps(const Dump& fast) {
    answers_.resize(taps_.size());
    std::atomic<std::size_t> next = 0;
    run_parallel(model_->threads(), [&](Worker worker) {
      for (std::size_t i = next++; i < taps_.size(); i = next++) {
        // The last ones are the largest; start with those.
        const std::size_t at = taps_.size() - 1 - i;
        const Status status = ask(fast, taps_[at], answers_[at]);
        if (!status.ok()) answers_[at].error = status.error();
        if (worker.id == 0 && options_.progress) {
          options_.progress(
              fmt::format("{} ops: {}", name_, tap_label(taps_[at].layer, taps_[at].row->name)),
              i + 1, taps_.size());
        }
      }
    });
    for (const TapAnswers& answer : answers_)
      if (answer.error) return *answer.error;
    return Ok{};
  }

  Status ask(const Dump& fast, const TapInLayer& at, TapAnswers& out) const {
    const auto& [tap, layer] = at;
    out.bits = {.layer = layer, .tap = std::string(tap->name)};
    out.ops = out.bits;
    const auto absent = reference_.meta().taps_absent.find(std::string(tap->name));
    if (!fast.has(layer, tap->name)) {
      out.bits.verdict = TapVerdict::kMissing;
      out.bits.note = "not in this run";
    } else {
      LLM_TRY(const auto output, op_of_run(replay_, fast, layer, *tap, rows_));
      if (output) {
        out.bits = judge(layer, *tap, *output);
      } else {
        out.bits.verdict = TapVerdict::kMissing;
        out.bits.note = "its input is not in this run";
      }
    }
    LLM_TRY(const auto output, op_on_reference(replay_, reference_, layer, *tap, rows_));
    if (!output) {
      const bool declared =
          reference_.has(layer, tap->name) || absent != reference_.meta().taps_absent.end();
      out.ops.verdict = declared ? TapVerdict::kAbsent : TapVerdict::kMissing;
      out.ops.note = !declared ? "missing in the reference, which does not say why"
                     : reference_.has(layer, tap->name) ? "its input is not in the reference"
                                                        : absent->second;
      return Ok{};
    }
    out.ops = judge(layer, *tap, *output);
    LLM_TRY(const auto expected, engine_order_tap(reference_, layer, tap->name, replay_.config()));
    if (expected) out.op_error = nmse(output->actual.values, select_rows(*expected, rows_).values);
    return Ok{};
  }

  void add_op_sections(std::vector<std::string> remarks) {
    const std::string mode = fmt::format("{} activations, {} cache", name_, kv_name(mode_.kv));
    DiffSection bits{.title = fmt::format("{}: each op of the run equals the definition's", mode),
                     .name = name_ + "-bits",
                     .diff = {}};
    const bool alike = rounds_alike(reference_.meta(), mode_.compute, mode_.kv);
    DiffSection ops{.title = fmt::format("{}: each op gives {}", mode,
                                         alike ? "the reference's output on its inputs"
                                               : "f64's output on inputs rounded by the contract"),
                    .name = name_ + "-ops",
                    .diff = {}};
    ops.diff.remarks = std::move(remarks);
    for (TapAnswers& answer : answers_) {
      add_row(bits.diff, answer.bits);
      add_row(ops.diff, answer.ops);
    }
    if (!bounded_.empty()) bits.notes = ops.notes = {bounded_};
    // An answer about nothing is no PASS.
    ops.judged = !std::ranges::all_of(
        ops.diff.rows, [](const LayerDiffRow& row) { return row.verdict == TapVerdict::kAbsent; });
    if (!ops.judged)
      ops.notes = {"nothing to check: the reference does not have input and output of any op"};
    sections_.push_back(std::move(bits));
    sections_.push_back(std::move(ops));
  }

  static void add_row(LayerDiff& diff, const LayerDiffRow& row) {
    if (row.fails() && !diff.first_failing) diff.first_failing = diff.rows.size();
    diff.rows.push_back(row);
  }

  /// Errors of the definition's ops on the reference's inputs. Of ops that cannot be replayed, and
  /// of those that fail (they are reported, and must not widen the limits of the run), what f32
  /// arithmetic is expected to cost.
  OpNoise op_errors() const {
    OpNoise out = arithmetic_noise(replay_);
    for (std::size_t i = 0; i < taps_.size(); ++i) {
      if (answers_[i].ops.verdict == TapVerdict::kPass)
        out[{taps_[i].layer, std::string(taps_[i].row->name)}] = answers_[i].op_error;
    }
    return out;
  }

  Result<OpNoise> drift(const std::shared_ptr<const Model>& f32, const Dump& clean, OpNoise noise,
                        int runs) const {
    if (options_.progress) options_.progress(name_ + " drift", 0, 1);
    return measure_drift({f32, tokens_, reference_.step_ptr(), clean, std::move(noise)}, runs);
  }

  Status add_run(const Dump& fast, LayerDiff free) {
    Limits limits;
    if (options_.limits != nullptr) {
      limits = *options_.limits;
    } else {
      LLM_TRY(const OpNoise drifts, drift(model_, fast, op_errors(), kDriftRuns));
      std::vector<Limit> rules;
      for (const auto& [key, value] : drifts) {
        rules.push_back({tap_label(key.first, key.second), Metric::kNmse, kDriftUnits * value,
                         "100 x the drift of this model's own rounding, measured"});
      }
      limits = Limits(std::move(rules));
    }
    apply_limits(free, limits);
    sections_.push_back(
        {.title = fmt::format(
             "{}: errors add up to no more than {}", name_,
             options_.limits != nullptr ? "the limits given" : "100 x what rounding does"),
         .name = name_ + "-run",
         .diff = std::move(free)});
    return Ok{};
  }

  Status add_price(const Dump& fast, LayerDiff free) {
    const bool alike = rounds_alike(reference_.meta(), mode_.compute, mode_.kv);
    DiffSection price{.title = fmt::format("{}: {}", name_,
                                           alike ? "how far codes that change near ties are carried"
                                                 : "the error of rounded activations and cache"),
                      .name = name_ + "-price",
                      .diff = std::move(free)};
    // NaN and missing taps are no price.
    price.judged = price.diff.first_failing.has_value();
    LLM_TRY(const OpNoise noise, rounding_noise(replay_, reference_));
    LLM_TRY(const auto f32, model_->with_compute(Compute::kF32));
    LLM_TRY(const Dump exact, record(f32, KvType::kF32));
    LLM_TRY(const OpNoise expected, drift(f32, exact, noise, kPriceRuns));
    for (LayerDiffRow& row : price.diff.rows) {
      const auto found = expected.find({row.layer, row.tap});
      if (found != expected.end())
        row.limits = {{"*", Metric::kNmse, found->second, "expected of noise of that size"}};
    }
    LLM_TRY(price.notes, logits_notes(fast, reference_, price.diff.rows.back()));
    const std::string z = alike ? "" : noise_note(replay_, op_errors(), noise);
    if (!z.empty()) price.notes.push_back(z);
    sections_.push_back(std::move(price));
    return Ok{};
  }

  /// Preflight, and what is at fault when something failed.
  Status add_location(const Dump& fast) {
    Location location;
    const auto failing = std::ranges::find_if_not(sections_, &DiffSection::passed);
    if (failing != sections_.end()) {
      LocateInput input{.run = fast, .reference = reference_, .rows = rows_};
      for (std::size_t i = 0; i < taps_.size(); ++i) {
        if (answers_[i].bits.verdict == TapVerdict::kFail ||
            answers_[i].ops.verdict == TapVerdict::kFail)
          input.ops.push_back(taps_[i]);
      }
      location.replayed = true;
      if (!input.ops.empty()) {
        LLM_TRY(location, locate(replay_, input));
      }
    }
    location.preflight = check_hyper_parameters(reference_.meta(), replay_.config());
    LLM_TRY(const auto faults, check_quantizer(replay_, reference_));
    location.preflight.insert(location.preflight.end(), faults.begin(), faults.end());
    // An error of an op is told there; what is wrong before any op, with the ops as well.
    DiffSection& section = failing != sections_.end() ? *failing : sections_[1];
    section.judged = section.judged || !location.preflight.empty();
    section.location = std::move(location);
    return Ok{};
  }

  std::shared_ptr<const Model> model_;
  ComputeMode mode_;
  const Dump& reference_;
  const LayerCheckOptions& options_;
  Replay replay_;
  std::string name_;
  std::vector<TapInLayer> taps_;
  std::vector<TokenId> tokens_;
  std::vector<std::size_t> rows_;
  std::string bounded_;
  std::vector<TapAnswers> answers_;
  std::vector<DiffSection> sections_;
};

}  // namespace

bool judges_reference(std::span<const DiffSection> sections) {
  return std::ranges::any_of(
      sections, [](const DiffSection& s) { return s.judged && !s.name.ends_with("-bits"); });
}

std::string mode_name(ComputeMode mode) { return mode.compute == Compute::kF32 ? "f32" : "int8"; }

std::vector<ComputeMode> modes_for(const DumpMeta& reference, KvType int8_kv) {
  const KvType kv = cache_of(reference);
  if (reference.compute == "int8") return {{Compute::kInt8, kv}};
  if (kv != KvType::kF32) return {{Compute::kF32, kv}};
  return {{Compute::kF32, KvType::kF32}, {Compute::kInt8, int8_kv}};
}

Result<std::vector<DiffSection>> check_layers(const std::shared_ptr<const Model>& model,
                                              ComputeMode mode, const Dump& reference,
                                              const LayerCheckOptions& options) {
  return LayerCheck(model, mode, reference, options).run();
}

}  // namespace llm
