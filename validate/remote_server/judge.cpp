#include "validate/remote_server/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/shown_text.h"
#include "validate/remote_server/answer_bench.h"
#include "validate/remote_server/sampler_fault.h"
#include "validate/remote_server/serving_hypothesis.h"

namespace llm {
namespace {

/// Another way must fit that many times better than the right one to be named.
constexpr double kClearlyBetter = 2;
/// Of a cache: better at so many more positions than worse, in standard deviations of a toss of
/// coins.
constexpr double kSignificant = 4;
/// Differences as large as those of another cache are within that factor of them.
constexpr double kAsLarge = 1.25;
constexpr std::size_t kFinalists = 2;  ///< ways that are computed on all questions

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
    find_noise(int8, plain);
    rate(plain);
    if (!(plain.misfit() <= kNoiseFactor)) {
      LLM_RETURN_IF_ERROR(name_fault(right, plain));
    } else {
      add("log-probabilities differ only by rounding", true, figures(plain) + texts(plain));
    }
    show({{right.name, plain.kinds}}, "Differences from the exact reference");
    check_sampler(plain.misfit() <= kNoiseFactor);
    return std::move(outcome_);
  }

 private:
  using Shown = std::vector<std::pair<std::string, std::array<double, kQuestionKinds>>>;

  void add(std::string name, bool passed, std::string detail) {
    if (!passed || outcome_.summary.empty()) {
      outcome_.summary = passed ? "right: differs only by rounding" : "wrong: " + name;
    }
    outcome_.checks.push_back({std::move(name), passed, std::move(detail)});
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
  Status name_fault(const ServingHypothesis& right, const Fit& plain) {
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
    tried.resize(std::min(tried.size(), kFinalists));
    const ServingHypothesis* best = nullptr;
    Fit best_fit;
    Shown shown;
    for (const auto& [score, way] : tried) {
      LLM_TRY(Fit fit, rows_of(*way, f32_, KvType::kF32, false, &plain));
      rate(fit);
      shown.emplace_back(way->name, fit.kinds);
      if (best != nullptr && fit.score() >= best_fit.score()) continue;
      best = way;
      best_fit = std::move(fit);
    }
    conclude(best, best_fit, plain);
    show(shown, "Ways of serving that fit best");
    return Ok{};
  }

  /// Remembers caches whose rounding makes differences as large as the server's. Codes that flip
  /// with other noise make them others than the server's, so that none need fit.
  void note_size(const ServingHypothesis& way, const Fit& fit, const Fit& of_sample) {
    Fit change{.rows = fit.rows, .ratios = {}, .kinds = {}};
    rate_against(change, of_sample.rows);
    // The server's differences have its noise and int8's in them.
    const double expected = std::sqrt(std::exp(2 * change.score()) + 2);
    const double off = std::fabs(std::log(expected) - of_sample.score());
    if (off <= std::log(kAsLarge)) as_large_ += way.name + "; ";
  }

  /// A base or a scale between those that are tried is named by the nearest one; what is either so
  /// or not must explain the answers; a coarse cache's codes flip with noise, so that it explains
  /// them in part.
  void conclude(const ServingHypothesis* best, const Fit& fit, const Fit& plain) {
    if (best == nullptr) return unexplained(plain);
    const double lead = better_positions(fit, plain);
    const bool is_graded = best->rope_base || best->rope_factor != 1;
    const bool is_named = best->kv_filter != nullptr
                              ? lead >= kSignificant
                              : fit.misfit() * kClearlyBetter <= plain.misfit() &&
                                    (is_graded || fit.misfit() <= kNoiseFactor);
    if (!is_named) return unexplained(plain);
    add(best->name, false,
        fmt::format(
            "differs by {:.2f} times the noise, the file as it is by {:.2f} (limit {}), and is "
            "closer at most positions ({:.1f} sigma){}; {}",
            fit.misfit(), plain.misfit(), kNoiseFactor, lead,
            fit.misfit() <= kNoiseFactor
                ? ""
                : "; the closest of the ways that were tried, but it does not explain everything",
            evidence(plain, &fit)));
  }

  /// A fault that no way explains, by where it shows.
  void unexplained(const Fit& plain) {
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
    const std::string name =
        is_only(QuestionKind::kChat)   ? "only chats: a different chat template or system message"
        : is_only(QuestionKind::kLong) ? "only long prompts: truncated, or with different positions"
        : is_only(QuestionKind::kSpecial)
            ? "only prompts with special characters: a different tokenizer"
        : 2 * same < n       ? "different weights: a different model, or an adapter"
        : !as_large_.empty() ? as_large_ + "or weights that are as much coarser"
                             : "a different quantization of the model (coarser weights)";
    add(name, false,
        fmt::format("{} of {} first tokens are the same; {}; no other way of serving fits clearly "
                    "better; {}",
                    same, n, figures(plain), evidence(plain, nullptr)));
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
    FigureTable table{.title = std::move(title) + ", in units of int8's noise",
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

  std::string as_large_;  ///< names of caches
  JudgeOutcome outcome_;
};

}  // namespace

Result<JudgeOutcome> judge_answers(const std::shared_ptr<const Model>& model,
                                   std::span<const JudgeQuestion> questions,
                                   std::span<const JudgeAnswer> answers, const Progress& progress) {
  return Judging(model, questions, answers, progress).run();
}

}  // namespace llm
