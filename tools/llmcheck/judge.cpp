// --judge: another engine's server, by its own answers.

#include "validate/judge/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tools/llmcheck/judged_server.h"
#include "tools/llmcheck/run.h"

namespace llm {

Status run_judge(CheckRun& run) {
  LLM_TRY(const ModelPointer model, run.load(Compute::kInt8));
  JudgedServer server(run.a.judge, run.a.judge_model, run.a.judge_key);
  LLM_RETURN_IF_ERROR(server.find_model());
  const std::vector<JudgeQuestion> questions = judge_questions(*model);
  std::vector<JudgeAnswer> answers;
  for (const JudgeQuestion& question : questions) {
    LLM_TRY(JudgeAnswer answer, run.ended(server.ask(question), run.a.judge));
    answers.push_back(std::move(answer));
    run.bar("ask", answers.size(), questions.size());
  }
  if (std::ranges::none_of(answers, [](const auto& one) { return one.refusal.empty(); })) {
    return in_file(Error{ErrorCode::kIo, "answers",
                         fmt::format("found every prompt refused, need one answered; {}",
                                     answers.front().refusal)},
                   run.a.judge);
  }
  LLM_TRY(JudgeOutcome outcome,
          run.ended(judge_answers(model, questions, answers, std::ref(run.bar)), run.path));
  run.fact("judged", fmt::format("{}{}, {} prompts of {} tokens each", run.a.judge,
                                 server.model().empty() ? "" : " (" + server.model() + ")",
                                 questions.size(), kAnswerTokens));
  run.add(std::move(outcome.checks));
  for (FigureTable& table : outcome.figures) run.report.figures.push_back(std::move(table));
  run.report.summary = std::move(outcome.summary);
  return Ok{};
}

}  // namespace llm
