#include "validate/remote_server/answer_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log_sum_exp.h"
#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
/// Less likely tokens are alike: servers report -inf, or the lowest f32.
constexpr double kLeastLogprob = -16;

double shown_logprob(double logprob) { return std::max(logprob, kLeastLogprob); }

}  // namespace

std::size_t AnsweredPosition::likeliest() const {
  return static_cast<std::size_t>(std::ranges::max_element(reported, {}, &Reported::logprob) -
                                  reported.begin());
}

double AnsweredPosition::passed_over() const {
  return reported[likeliest()].logprob - reported[chosen].logprob;
}

AnswerReader::AnswerReader(const Tokenizer& tokenizer) {
  for (const bool words : {true, false}) {
    for (TokenId id = 0; tokenizer.contains(id); ++id) {
      if ((tokenizer.kind(id) == TokenKind::kNormal) == words)
        ids_[tokenizer.piece_text(id, true)].push_back(id);
    }
  }
}

AnsweredPositions AnswerReader::read(const JudgeAnswer& answer) const {
  AnsweredPositions positions;
  for (const AnsweredToken& token : answer.tokens) {
    AnsweredPosition position;
    std::vector<const std::string*> seen;
    const auto add = [&](const ReportedToken& one) {
      const auto at = std::ranges::find_if(seen, [&](auto* bytes) { return *bytes == one.bytes; });
      if (at != seen.end()) return static_cast<std::size_t>(at - seen.begin());
      seen.push_back(&one.bytes);
      const auto found = ids_.find(one.bytes);
      position.reported.push_back(
          {one.bytes.empty() || found == ids_.end() ? std::vector<TokenId>{} : found->second,
           one.logprob});
      return seen.size() - 1;
    };
    for (const ReportedToken& one : token.top) add(one);
    position.chosen = add(token.chosen);
    positions.push_back(std::move(position));
  }
  return positions;
}

Result<OwnRows> own_rows(Sequence& session, const ServingHypothesis& way,
                         const JudgeQuestion& question, const JudgeAnswer& answer,
                         std::span<const AnsweredPosition> positions) {
  LLM_TRY(std::vector<TokenId> ids, way.prompt(session.model(), question, answer));
  OwnRows own;
  if (ids.empty() || ids.size() >= session.context()) return own;
  session.truncate(0);
  const std::size_t before = ids.size() - 1;
  std::size_t n = 0;
  while (n < positions.size() && ids.size() < session.context()) {
    const AnsweredPosition& position = positions[n++];
    const auto& chosen = position.reported[position.chosen].ids;
    if (chosen.empty()) break;
    ids.push_back(chosen.front());
  }
  if (n == 0) return own;
  if (before > 0)
    LLM_RETURN_IF_ERROR(session.evaluate(std::span(ids).first(before), LogitRows::kNone));
  LLM_TRY(const auto rows, session.evaluate(std::span(ids).subspan(before, n), LogitRows::kAll));
  for (std::size_t t = 0; t < n; ++t) {
    const auto row = rows.subspan(t * session.n_vocab(), session.n_vocab());
    const double norm = log_sum_exp(row);
    std::vector<double>& logprobs = own.logprobs.emplace_back();
    for (const auto& reported : positions[t].reported) {
      double likeliest = kNan;
      for (const TokenId id : reported.ids)
        likeliest =
            std::fmax(likeliest, static_cast<double>(row[static_cast<std::size_t>(id)]) - norm);
      logprobs.push_back(likeliest);
    }
    own.first.push_back(static_cast<TokenId>(top_token(row)));
    own.lead.push_back(static_cast<double>(row[top_token(row)]) - norm -
                       logprobs[positions[t].chosen]);
  }
  return own;
}

OwnRows reported_rows(std::span<const AnsweredPosition> positions) {
  OwnRows rows;
  for (const AnsweredPosition& position : positions) {
    std::vector<double>& logprobs = rows.logprobs.emplace_back();
    for (const auto& one : position.reported)
      logprobs.push_back(one.ids.empty() ? kNan : one.logprob);
  }
  return rows;
}

std::vector<double> differences(const OwnRows& a, const OwnRows& b) {
  std::vector<double> out;
  for (std::size_t t = 0; t < std::min(a.logprobs.size(), b.logprobs.size()); ++t) {
    double sum = 0;
    double count = 0;
    for (std::size_t j = 0; j < a.logprobs[t].size(); ++j) {
      const double d = shown_logprob(a.logprobs[t][j]) - shown_logprob(b.logprobs[t][j]);
      if (std::isnan(a.logprobs[t][j]) || std::isnan(b.logprobs[t][j])) continue;
      sum += d * d;
      ++count;
    }
    out.push_back(count > 0 ? std::sqrt(sum / count) : kNan);
  }
  return out;
}

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return kNan;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

bool equal_rows(const OwnRows& own, const OwnRows& reported) {
  return !own.empty() && own.logprobs == reported.logprobs &&
         std::ranges::all_of(own.lead, [](double lead) { return lead == 0; });
}

}  // namespace llm
