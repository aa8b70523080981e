#include <fmt/core.h>

#include "base/shown_text.h"
#include "validate/doctor/checks.h"

namespace llm {

void check_file(Patient& patient) {
  if (const std::uint64_t trailing = patient.gguf().trailing_bytes(); trailing > 0) {
    patient.copy(
        {.severity = Severity::kWarning,
         .where = "file",
         .what = fmt::format("found {} bytes after the last tensor, need none", trailing),
         .why = "two files lie in one, a download was resumed wrongly, or a header lost tensors",
         .remedy = "compare size and hash with the publisher's; the copy of --fix ends where the "
                   "last tensor does"},
        "what follows the last tensor is left out");
  }
  if (patient.is_model()) return;
  patient.report(
      {.severity = Severity::kNote,
       .where = "general.type",
       .what = fmt::format("found {}, no model by itself", quoted(patient.text("general.type"))),
       .why = "only its tensors are examined",
       .remedy = "none is needed"});
}

}  // namespace llm
