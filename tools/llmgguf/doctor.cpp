#include "validate/gguf_lint/doctor.h"

#include <functional>

#include "tools/common/progress.h"
#include "tools/llmgguf/commands.h"

namespace llm {

Result<int> doctor_gguf(const GgufArguments& arguments, const ToolContext& context) {
  if (!arguments.fix.empty())
    LLM_RETURN_IF_ERROR(check_output("--fix", arguments.fix, std::span(&arguments.file, 1)));
  ProgressBar progress(!context.quiet(), "B");
  LLM_TRY(const Examination done,
          examine(arguments.file, {.threads = arguments.threads,
                                   .fix = arguments.fix,
                                   .progress = std::bind_front(std::ref(progress), "examine")}));
  progress.clear();
  LLM_RETURN_IF_ERROR(write_stdout(arguments.json ? doctor_json(arguments.file, done)
                                                  : doctor_text(arguments.file, done)));
  return done.healthy() ? 0 : kExitVerdictFailed;
}

}  // namespace llm
