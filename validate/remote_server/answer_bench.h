#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "validate/remote_server/answer_fit.h"
#include "validate/remote_server/serving_hypothesis.h"

namespace llm {

/// Another engine's rounding may cost that many times what int8 activations cost here.
inline constexpr double kNoiseFactor = 2;

/// How well one way of serving explains the answers: for each question the median difference, in
/// units of the noise; NaN: not asked.
struct Fit {
  std::vector<OwnRows> rows;
  std::vector<double> ratios;
  std::array<double, kQuestionKinds> kinds;

  /// Of the kind that it explains worst.
  double misfit() const {
    double worst = std::numeric_limits<double>::quiet_NaN();
    for (const double kind : kinds) worst = std::fmax(worst, kind);
    return worst;
  }
  /// Of all kinds: the mean logarithm.
  double score() const {
    double sum = 0;
    double count = 0;
    for (const double kind : kinds) {
      if (std::isnan(kind)) continue;
      sum += std::log(std::max(kind, 1e-3));
      ++count;
    }
    return sum / count;
  }
};

/// Answers, and what this engine computes at their positions.
class AnswerBench {
 public:
  AnswerBench(const std::shared_ptr<const Model>& model, std::span<const JudgeQuestion> questions,
              std::span<const JudgeAnswer> answers, const Progress& progress);

 protected:
  /// @param sample  the first questions of each kind that has an answer, and those alone
  /// @param base    has the rows of questions that `way` does not concern; null: they are computed
  Result<Fit> rows_of(const ServingHypothesis& way, const std::shared_ptr<const Model>& plain,
                      KvType kv, bool sample, const Fit* base = nullptr);
  /// What rounding changes here, for each question. One with little noise by chance is held to half
  /// of what is usual.
  /// @param int8  int8 activations, f16 keys and values
  /// @param bf16  keys and values as bf16; null: not computed
  std::vector<double> noise_of(const Fit& plain, const Fit& int8, const Fit* bf16) const {
    std::vector<double> all;
    for (std::size_t i = 0; i < questions_.size(); ++i) {
      all.push_back(median_of(differences(int8.rows[i], plain.rows[i])));
      if (bf16 != nullptr)
        all.back() = std::fmax(all.back(), median_of(differences(bf16->rows[i], plain.rows[i])));
    }
    const double least = median_of(all) / 2;
    for (double& noise : all) noise = std::fmax(noise, least);
    return all;
  }

  /// Fills in ratios and kinds, against what the server reported.
  /// @param noise  the unit, of each question
  void rate(Fit& fit, std::span<const double> noise) const { rate(fit, noise, reported_); }
  void rate(Fit& fit) const { rate(fit, noise_); }
  /// The same against other rows.
  void rate(Fit& fit, std::span<const double> noise, std::span<const OwnRows> rows) const;

  /// The differences from the file as it is, in a clause.
  std::string figures(const Fit& plain) const;

  /// How many greedy texts are this engine's, and how near the tokens are where one parts.
  std::string texts(const Fit& plain) const;
  /// How many more positions `fit` explains better than worse, in standard deviations.
  double better_positions(const Fit& fit, const Fit& plain) const;
  /// The first position beyond the limit.
  std::string evidence(const Fit& plain, const Fit* other) const;
  static std::size_t other_size(const Fit* other, std::size_t i);

  std::shared_ptr<const Model> f32_;
  std::shared_ptr<const Model> int8_;
  std::span<const JudgeQuestion> questions_;
  std::span<const JudgeAnswer> answers_;
  const Progress& progress_;
  std::size_t context_ = 0;
  std::vector<AnsweredPositions> positions_;
  std::vector<OwnRows> reported_;
  std::vector<double> noise_;
};

}  // namespace llm
