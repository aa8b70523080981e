#include "validate/remote_server/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/shown_text.h"
#include "validate/remote_server/answer_bench.h"
#include "validate/remote_server/kv_filters.h"
#include "validate/remote_server/sampler_fault.h"
#include "validate/remote_server/serving_hypothesis.h"

namespace llm {
namespace {

/// Another way must fit that many times better than the right one to be named.
constexpr double kClearlyBetter = 2;
/// Of a cache: better at so many more positions than worse, in standard deviations of a toss of
/// coins.
constexpr double kSignificant = 4;
constexpr std::size_t kFinalists = 2;  ///< ways that are computed on all questions
/// A fault's number is sought between 1/kNearby and kNearby times the one that was tried, with
/// that many golden sections, which leave half a percent.
constexpr double kNearby = 3.5;
constexpr int kSections = 12;

class Judging : AnswerBench {
 public:
  using AnswerBench::AnswerBench;

  Result<JudgeOutcome> run() {
    check_answered();
    LLM_TRY(int8_, f32_->with_compute(Compute::kInt8));
    LLM_TRY(f32_, f32_->with_compute(Compute::kF32));
    if (!check_vocabulary()) return std::move(outcome_);
    const ServingHypothesis right{.name = "as the file says"};
    LLM_TRY(Fit int8, rows_of(right, int8_, KvType::kF16, false));
    LLM_TRY(Fit plain, rows_of(right, f32_, KvType::kF32, false));
    if (is_equal(int8, "int8 activations, f16 keys and values")) return std::move(outcome_);
    if (is_equal(plain, "f32")) return std::move(outcome_);
    noise_ = noise_of(plain, int8, nullptr);
    rate(plain);
    if (!(plain.misfit() <= kNoiseFactor)) {
      LLM_TRY(const Fit bf16, rows_in_bf16(right));
      noise_ = noise_of(plain, int8, &bf16);
      rate(plain);
    }
    if (!(plain.misfit() <= kNoiseFactor)) {
      LLM_RETURN_IF_ERROR(name_fault(right, plain, int8));
    } else {
      add("log-probabilities differ only by rounding", true, figures(plain) + texts(plain));
    }
    show({{right.name, plain.kinds}}, "Differences from the exact reference");
    check_sampler(plain.misfit() <= kNoiseFactor);
    return std::move(outcome_);
  }

 private:
  using Shown = std::vector<std::pair<std::string, std::array<double, kQuestionKinds>>>;
  struct Way {
    ServingHypothesis way;
    Fit fit;
  };

  void add(std::string name, bool passed, std::string detail) {
    if (!passed || outcome_.summary.empty()) {
      outcome_.summary = passed ? "right: differs only by rounding" : "wrong: " + name;
    }
    outcome_.checks.push_back({std::move(name), passed, std::move(detail)});
  }

  /// Of weights that are not quantized int8 activations change nothing, but other engines round the
  /// activations to f16 or bf16. That is measured by keys and values in bf16.
  Result<Fit> rows_in_bf16(ServingHypothesis way) {
    way.kv_filter = round_to_bf16;
    return rows_of(way, f32_, KvType::kF32, false);
  }

  void check_answered() {
    std::size_t n = 0;
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      if (answers_[i].refusal.empty()) continue;
      ++n;
      if (!first || questions_[i].kind == QuestionKind::kLong) first = i;
    }
    if (n == 0) return;
    const bool is_long = questions_[*first].kind == QuestionKind::kLong;
    add(is_long ? "context too small: long prompts are rejected" : "prompts are rejected", false,
        fmt::format("{} of {}; {} prompt {}: {}", n, answers_.size(),
                    question_kind_name(questions_[*first].kind), *first + 1,
                    shown(answers_[*first].refusal)));
  }

  bool check_vocabulary() {
    std::size_t n = 0;
    std::size_t unknown = 0;
    for (const AnsweredPositions& answer : positions_) {
      for (const AnsweredPosition& position : answer) {
        n += position.reported.size();
        unknown += static_cast<std::size_t>(
            std::ranges::count_if(position.reported, [](auto& one) { return one.ids.empty(); }));
      }
    }
    if (2 * unknown < n) return true;
    add(n == 0 ? "no answer has a token"
               : "a different model: its tokens are not in this vocabulary",
        false, fmt::format("{} of {} reported tokens are unknown", unknown, n));
    return false;
  }

  bool is_equal(const Fit& fit, std::string_view how) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < questions_.size(); ++i) {
      if (positions_[i].empty()) continue;
      if (!equal_rows(fit.rows[i], reported_[i])) return false;
      n += positions_[i].size();
    }
    if (!outcome_.checks.empty()) return false;
    add("equal to the bit", true,
        fmt::format("{} tokens of {} prompts, and every log-probability to the last digit ({})", n,
                    questions_.size(), how));
    outcome_.summary = "equal to the bit";
    return true;
  }

  /// Tries every way on a sample, and the best ones on all.
  Status name_fault(const ServingHypothesis& right, const Fit& plain, const Fit& int8) {
    LLM_TRY(Fit of_sample, rows_of(right, int8_, KvType::kF32, true));
    rate(of_sample);
    std::vector<std::pair<double, const ServingHypothesis*>> tried;
    const std::vector<ServingHypothesis> ways = served_otherwise(*f32_);
    for (const ServingHypothesis& way : ways) {
      LLM_TRY(Fit fit, rows_of(way, int8_, KvType::kF32, true, &of_sample));
      rate(fit);
      if (way.kv_filter != nullptr) note_size(way, fit, of_sample);
      // A way that cannot be is none: a kind without rows has no number.
      bool can_be = true;
      for (std::size_t k = 0; k < kQuestionKinds; ++k)
        can_be = can_be && std::isnan(fit.kinds[k]) == std::isnan(of_sample.kinds[k]);
      if (can_be) tried.emplace_back(fit.score(), &way);
      if (progress_) progress_("alternatives", tried.size(), ways.size());
    }
    std::ranges::stable_sort(tried, {}, [](const auto& one) { return one.first; });
    Way best;
    Shown shown;
    const auto consider = [&](const ServingHypothesis& way) -> Status {
      LLM_TRY(Fit fit, rows_of(way, f32_, KvType::kF32, false, &plain));
      rate(fit);
      shown.emplace_back(way.name, fit.kinds);
      if (shown.size() == 1 || fit.score() < best.fit.score()) best = {way, std::move(fit)};
      return Ok{};
    };
    for (std::size_t i = 0; i < std::min(tried.size(), kFinalists); ++i)
      LLM_RETURN_IF_ERROR(consider(*tried[i].second));
    if (shown.empty()) return unexplained(plain, 0, nullptr);
    const bool has_number = with_number(best.way, *f32_, 1).has_value();
    if (has_number && best.fit.misfit() > kNoiseFactor) {
      LLM_TRY(const ServingHypothesis nearby, with_best_number(best.way, of_sample));
      LLM_RETURN_IF_ERROR(consider(nearby));
    }
    show(shown, "Ways of serving that fit best");
    return conclude(std::move(best), plain, int8, ways.size());
  }

  /// Remembers caches that change as much as the server differs. Their codes flip with other noise,
  /// so that the server's cannot always be computed again; a size alone names nothing.
  void note_size(const ServingHypothesis& way, const Fit& fit, const Fit& of_sample) {
    constexpr double kAsLarge = 1.25;
    Fit change = fit;
    rate(change, noise_, of_sample.rows);
    // The server's differences have its noise and int8's in them.
    const double expected = std::sqrt(std::exp(2 * change.score()) + 2);
    if (std::fabs(std::log(expected) - of_sample.score()) <= std::log(kAsLarge))
      as_large_ += "; as large as the change by " + way.name;
  }

  /// The same fault with the number that fits the sample best.
  Result<ServingHypothesis> with_best_number(const ServingHypothesis& way, const Fit& of_sample) {
    const auto score = [&](double log_factor) -> Result<double> {
      LLM_TRY(Fit fit, rows_of(*with_number(way, *f32_, std::exp(log_factor)), int8_, KvType::kF32,
                               true, &of_sample));
      rate(fit);
      return fit.score();
    };
    const double golden = (std::sqrt(5.0) - 1) / 2;
    double low = -std::log(kNearby);
    double high = std::log(kNearby);
    double left = high - golden * (high - low);
    double right = low + golden * (high - low);
    LLM_TRY(double of_left, score(left));
    LLM_TRY(double of_right, score(right));
    for (int i = 0; i < kSections; ++i) {
      if (of_left < of_right) {
        high = std::exchange(right, left);
        of_right = of_left;
        left = high - golden * (high - low);
        LLM_TRY(of_left, score(left));
      } else {
        low = std::exchange(left, right);
        of_left = of_right;
        right = low + golden * (high - low);
        LLM_TRY(of_right, score(right));
      }
    }
    return *with_number(way, *f32_, std::exp((low + high) / 2));
  }

  bool is_clearly_better(const Way& best, const Fit& plain) const {
    // A coarse cache's codes flip with noise: recomputed, it explains the answers in part.
    return best.way.kv_filter != nullptr ? better_positions(best.fit, plain) >= kSignificant
                                         : best.fit.misfit() * kClearlyBetter <= plain.misfit();
  }

  /// A way explains the answers if it is clearly closer to them than the file as it is, and what
  /// remains is noise: no more than rounding changes where the file is served that way.
  Status conclude(Way best, const Fit& plain, const Fit& int8, std::size_t n_tried) {
    LLM_TRY(const Fit rounded, rows_of(best.way, int8_, KvType::kF16, false, &int8));
    std::optional<Fit> bf16;
    if (best.way.kv_filter == nullptr) {
      LLM_TRY(bf16, rows_in_bf16(best.way));
    }
    Fit rest = best.fit;
    rate(rest, noise_of(best.fit, rounded, bf16 ? &*bf16 : nullptr));
    if (!is_clearly_better(best, plain) || !(rest.misfit() <= kNoiseFactor))
      return unexplained(plain, n_tried, &best);
    add(best.way.name, false,
        fmt::format(
            "what it leaves is {:.2f} times the noise, what the file as it is leaves {:.2f} "
            "times (limit {}), and it is closer at most positions ({:.1f} sigma); {}",
            rest.misfit(), plain.misfit(), kNoiseFactor, better_positions(best.fit, plain),
            evidence(plain, &best.fit)));
    return Ok{};
  }

  /// A fault that no way explains, by where it shows.
  /// @param closest  of `n_tried` ways; null: none can be
  Status unexplained(const Fit& plain, std::size_t n_tried, const Way* closest) {
    std::array<bool, kQuestionKinds> wrong = {};
    for (std::size_t k = 0; k < kQuestionKinds; ++k) wrong[k] = plain.kinds[k] > kNoiseFactor;
    const auto is_only = [&](QuestionKind kind) {
      std::array<bool, kQuestionKinds> only = {};
      only[static_cast<std::size_t>(kind)] = true;
      return wrong == only;
    };
    std::size_t n = 0;
    std::size_t same = 0;
    for (const OwnRows& rows : plain.rows) {
      n += rows.lead.size();
      same += static_cast<std::size_t>(
          std::ranges::count_if(rows.lead, [](double lead) { return lead <= 0; }));
    }
    // What other prompts show to be right cannot be the cause.
    const std::string where =
        is_only(QuestionKind::kChat)      ? "only chats: the chat template or a system message"
        : is_only(QuestionKind::kLong)    ? "only long prompts: where they are cut, or positions"
        : is_only(QuestionKind::kSpecial) ? "only prompts with special characters: the tokenizer"
                                          : "";
    outcome_.is_unexplained = where.empty();
    add(fmt::format("{}no cause that was tried explains {}", where.empty() ? "" : where + "; ",
                    where.empty() ? "the differences" : "them"),
        false,
        fmt::format("{} of {} first tokens are the same; {}{}; {}{}", same, n, figures(plain),
                    as_large_,
                    closest == nullptr
                        ? ""
                        : fmt::format("the closest of {} causes, \"{}\", leaves {:.2f} times the "
                                      "noise; ",
                                      n_tried, closest->way.name, closest->fit.misfit()),
                    evidence(plain, nullptr)));
    return Ok{};
  }

  void check_sampler(bool is_right) {
    const auto fault = find_sampler_fault(f32_->tokenizer(), questions_, positions_);
    if (!fault) {
      add("every token is the most likely one", true, "by the server's own log-probabilities");
      return;
    }
    // Of a server that computes otherwise as well, that is said first.
    if (is_right) outcome_.summary.clear();
    const std::string summary = outcome_.summary;
    add(fault->name, false, fault->detail);
    if (!is_right) outcome_.summary = summary;
  }

  void show(const Shown& ways, std::string title) {
    FigureTable table{.title = std::move(title) + ", in units of the noise of rounding",
                      .name = "judge",
                      .columns = {"served"},
                      .rows = {}};
    for (std::size_t k = 0; k < kQuestionKinds; ++k)
      table.columns.emplace_back(question_kind_name(static_cast<QuestionKind>(k)));
    for (const auto& [name, kinds] : ways) {
      std::vector<Figure>& row = table.rows.emplace_back();
      row.push_back({name});
      for (const double kind : kinds)
        row.push_back(std::isfinite(kind) ? Figure::fixed(kind, 2) : Figure{"-"});
    }
    outcome_.figures.push_back(std::move(table));
  }

  std::string as_large_;  ///< caches, as a clause
  JudgeOutcome outcome_;
};

}  // namespace

Result<JudgeOutcome> judge_answers(const std::shared_ptr<const Model>& model,
                                   std::span<const JudgeQuestion> questions,
                                   std::span<const JudgeAnswer> answers, const Progress& progress) {
  return Judging(model, questions, answers, progress).run();
}

}  // namespace llm
