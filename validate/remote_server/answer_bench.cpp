#include "validate/remote_server/answer_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/shown_text.h"

namespace llm {
namespace {

constexpr std::size_t kSample = 2;  ///< questions of a kind by which ways are compared

}  // namespace

AnswerBench::AnswerBench(const std::shared_ptr<const Model>& model,
                         std::span<const JudgeQuestion> questions,
                         std::span<const JudgeAnswer> answers, const Progress& progress)
    : f32_(model), questions_(questions), answers_(answers), progress_(progress) {
  const AnswerReader reader(model->tokenizer());
  for (const JudgeAnswer& answer : answers) {
    positions_.push_back(reader.read(answer));
    reported_.push_back(reported_rows(positions_.back()));
  }
  context_ = model->config().context;
}

Result<Fit> AnswerBench::rows_of(const ServingHypothesis& way,
                                 const std::shared_ptr<const Model>& plain, KvType kv, bool sample,
                                 const Fit* base) {
  const auto model = way.model(plain);
  LLM_TRY(const auto session, open_sequence(model, {.context = context_, .kv = kv}));
  session->executor().set_kv_filter(way.kv_filter);
  Fit fit{.rows = std::vector<OwnRows>(questions_.size()), .ratios = {}, .kinds = {}};
  std::array<std::size_t, kQuestionKinds> taken = {};
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    const auto kind = static_cast<std::size_t>(questions_[i].kind);
    if (positions_[i].empty() || (sample && taken[kind]++ >= kSample)) continue;
    if (base != nullptr && !way.concerns(questions_[i].kind)) {
      fit.rows[i] = base->rows[i];
      continue;
    }
    LLM_TRY(fit.rows[i], own_rows(*session, way, questions_[i], answers_[i], positions_[i]));
    if (!sample && progress_) progress_("evaluate", i + 1, questions_.size());
  }
  return fit;
}

std::string AnswerBench::texts(const Fit& plain) const {
  std::size_t equal = 0;
  std::size_t n = 0;
  double widest = 0;
  for (const OwnRows& rows : plain.rows) {
    if (rows.empty()) continue;
    ++n;
    const auto parts = std::ranges::find_if(rows.lead, [](double lead) { return lead > 0; });
    equal += parts == rows.lead.end() ? 1 : 0;
    if (parts != rows.lead.end()) widest = std::max(widest, *parts);
  }
  return fmt::format("; {} of {} greedy texts equal{}", equal, n,
                     equal == n ? ""
                                : fmt::format(", the others part where two tokens are at most "
                                              "{:.4f} apart",
                                              widest));
}

double AnswerBench::better_positions(const Fit& fit, const Fit& plain) const {
  double lead = 0;
  double n = 0;
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    const auto one = differences(fit.rows[i], reported_[i]);
    const auto other = differences(plain.rows[i], reported_[i]);
    for (std::size_t t = 0; t < std::min(one.size(), other.size()); ++t) {
      lead += (one[t] < other[t] ? 1 : 0) - (one[t] > other[t] ? 1 : 0);
      n += one[t] != other[t] ? 1 : 0;
    }
  }
  return n > 0 ? lead / std::sqrt(n) : 0;
}

std::size_t AnswerBench::other_size(const Fit* other, std::size_t i) {
  return other == nullptr ? 0 : other->rows[i].logprobs.size();
}

void AnswerBench::rate(Fit& fit, std::span<const double> noise,
                       std::span<const OwnRows> rows) const {
  fit.ratios.clear();
  std::array<std::vector<double>, kQuestionKinds> kinds;
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    fit.ratios.push_back(median_of(differences(fit.rows[i], rows[i])) / noise[i]);
    kinds[static_cast<std::size_t>(questions_[i].kind)].push_back(fit.ratios.back());
  }
  for (std::size_t kind = 0; kind < kQuestionKinds; ++kind)
    fit.kinds[kind] = median_of(kinds[kind]);
}

std::string AnswerBench::figures(const Fit& plain) const {
  std::vector<double> all;
  for (std::size_t i = 0; i < questions_.size(); ++i)
    std::ranges::copy(differences(plain.rows[i], reported_[i]), std::back_inserter(all));
  return fmt::format(
      "median difference {:.4f} at {} positions, {:.2f} times what rounding changes here in the "
      "worst kind of prompt (limit {})",
      median_of(all), all.size(), plain.misfit(), kNoiseFactor);
}

std::string AnswerBench::evidence(const Fit& plain, const Fit* other) const {
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    if (!(plain.ratios[i] > kNoiseFactor)) continue;
    const auto beyond = differences(plain.rows[i], reported_[i]);
    const auto at =
        std::ranges::find_if(beyond, [&](double d) { return d > kNoiseFactor * noise_[i]; });
    if (at == beyond.end()) continue;
    const auto t = static_cast<std::size_t>(at - beyond.begin());
    const std::size_t chosen = positions_[i][t].chosen;
    const std::string text = t < other_size(other, i)
                                 ? fmt::format(", {:.4f} so", other->rows[i].logprobs[t][chosen])
                                 : "";
    return fmt::format(
        "first in {} prompt {} ({}), token {} ({}): log-probability {:.4f}, the "
        "file's {:.4f}{}",
        question_kind_name(questions_[i].kind), i + 1, llm::quoted(questions_[i].text), t + 1,
        llm::quoted(answers_[i].tokens[t].chosen.bytes), answers_[i].tokens[t].chosen.logprob,
        plain.rows[i].logprobs[t][chosen], text);
  }
  return "everywhere a little";
}

}  // namespace llm
