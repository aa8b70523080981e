#include "validate/remote_server/sampler_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/shown_text.h"

namespace llm {

std::optional<SamplerFault> find_sampler_fault(const Tokenizer& tokenizer,
                                               std::span<const JudgeQuestion> questions,
                                               std::span<const AnsweredPositions> answers) {
  std::size_t n = 0;
  std::size_t passed_over = 0;
  std::size_t known = 0;    ///< of those, in texts that are known here: a chat's has its template
  std::size_t repeats = 0;  ///< of those, tokens that the text had already
  std::set<std::vector<TokenId>> avoided;
  std::set<std::vector<TokenId>> taken;
  std::string first;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto prompt = tokenizer.encode(questions[i].text);
    std::set<TokenId> past(prompt.begin(), prompt.end());
    for (std::size_t t = 0; t < answers[i].size(); ++t) {
      const AnsweredPosition& at = answers[i][t];
      const auto& wanted = at.reported[at.likeliest()].ids;
      const auto& chosen = at.reported[at.chosen].ids;
      ++n;
      if (at.passed_over() > 0 && !wanted.empty() && !chosen.empty()) {
        ++passed_over;
        const bool is_known = questions[i].kind != QuestionKind::kChat;
        known += is_known ? 1 : 0;
        repeats += is_known && past.contains(wanted.front()) ? 1 : 0;
        avoided.insert(wanted);
        taken.insert(chosen);
        if (first.empty()) {
          first = fmt::format("first in prompt {}, token {}: {} instead of {}, {:.4f} likelier",
                              i + 1, t + 1, quoted(tokenizer.piece_text(chosen.front(), true)),
                              quoted(tokenizer.piece_text(wanted.front(), true)), at.passed_over());
        }
      }
      if (!chosen.empty()) past.insert(chosen.front());
    }
  }
  if (passed_over == 0) return std::nullopt;
  const bool is_bias = passed_over > 2 && (avoided.size() == 1 || taken.size() == 1);
  const std::string name = is_bias ? "sampler: a logit bias is at work"
                           : known > 0 && 20 * repeats >= 19 * known
                               ? "sampler: a penalty on repeated tokens is at work"
                               : "sampler: temperature 0 is ignored, tokens are sampled";
  return SamplerFault{
      name,
      fmt::format("{} of {} tokens are not the most likely ones by the server's own "
                  "log-probabilities, {} of {} passed over outside of chats stood in the text; {}",
                  passed_over, n, repeats, known, first)};
}

}  // namespace llm
