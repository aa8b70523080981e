#include <algorithm>

#include "engine/model/hyper_parameters.h"
#include "engine/model/model_tensors.h"
#include "engine/model/vocab_from_gguf.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

Status load(const LintContext& patient) {
  std::vector<std::string> warnings;
  if (patient.has_weights()) {
    LLM_TRY(const HyperParameters config, read_hyper_parameters(patient.gguf()));
    LLM_RETURN_IF_ERROR(bind_tensors(patient.gguf(), config, false, warnings));
  }
  LLM_RETURN_IF_ERROR(vocab_from_gguf(patient.gguf(), warnings));
  LLM_RETURN_IF_ERROR(chat_template_from_gguf(patient.gguf()));
  return Ok{};
}

}  // namespace

void check_loads(LintContext& patient) {
  const Status loaded = load(patient);
  if (loaded.ok()) return;
  const Error& error = loaded.error();
  const bool is_known =
      std::ranges::any_of(patient.findings(), [&error](const FileFinding& finding) {
        return finding.severity != Severity::kNote && finding.where == error.field;
      });
  if (is_known) return;
  const bool is_ours = error.code == ErrorCode::kUnsupported;
  patient.report({.severity = is_ours ? Severity::kNote : Severity::kError,
                  .where = error.field,
                  .what = error.message,
                  .why = is_ours ? "this engine does not run it; others may"
                                 : "the file contradicts itself: no program can run it",
                  .remedy = !error.hint.empty() ? error.hint
                            : is_ours           ? "none is needed for engines that know it"
                                                : "convert the model again"});
}

}  // namespace llm
