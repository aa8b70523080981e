#include "validate/gguf_lint/doctor.h"

#include <functional>
#include <string>

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
  std::string text =
      arguments.json ? doctor_json(arguments.file, done) : doctor_text(arguments.file, done);
  if (!arguments.json && done.count(Severity::kError) == 0) {
    text +=
        "next: weights and numbers that are plausible but wrong show only beside the original: "
        "llmgguf diff ORIGINAL.gguf FILE, or python3 -m llmrun.reference ORIGINAL.gguf "
        "--ids-random "
        "64 -o ref.npz and llmcheck FILE --layer-diff ref.npz (docs/doctor.md)\n";
  }
  LLM_RETURN_IF_ERROR(write_stdout(text));
  return done.healthy() ? 0 : kExitVerdictFailed;
}

}  // namespace llm
