#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "base/shown_text.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

/// llama.cpp reads tensors that follow each other in the order of their descriptions.
void check_order(LintContext& patient) {
  const GgufFile& gguf = patient.gguf();
  if (patient.file().parts().size() > 1) return;
  std::uint64_t next = 0;
  std::size_t n_elsewhere = 0;
  FileFinding first;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (tensor.offset % gguf.alignment() != 0) return;  // told already
    if (tensor.offset != next && n_elsewhere++ == 0) {
      first = {.severity = Severity::kWarning,
               .where = fmt::format("tensor \"{}\"", tensor.name),
               .what = fmt::format("found offset {}, need {}: the end of the tensor before",
                                   tensor.offset, next),
               .why = "programs that read tensors one after the other reject the file",
               .remedy = "the copy of --fix has them in a row"};
    }
    next = (tensor.offset + tensor.n_bytes + gguf.alignment() - 1) / gguf.alignment() *
           gguf.alignment();
  }
  if (n_elsewhere == 0) return;
  if (n_elsewhere > 1) first.what += fmt::format("; the same for {} tensors", n_elsewhere);
  patient.copy(std::move(first), "tensors are written one after the other");
}

}  // namespace

void check_file(LintContext& patient) {
  check_order(patient);
  if (const std::uint64_t trailing = patient.gguf().trailing_bytes(); trailing > 0) {
    patient.copy(
        {.severity = Severity::kWarning,
         .where = "file",
         .what = fmt::format("found {} bytes after the last tensor, need none", trailing),
         .why = "two files lie in one, a download was resumed wrongly, or a header lost tensors",
         .remedy = "compare size and hash with the publisher's; the copy of --fix ends where the "
                   "last tensor does"},
        "the bytes after the last tensor are left out");
  }
  if (patient.is_model()) return;
  patient.report({.severity = Severity::kNote,
                  .where = "general.type",
                  .what = fmt::format("found {}, which is not a complete model",
                                      quoted(patient.text("general.type"))),
                  .why = "only its tensors are examined",
                  .remedy = "none is needed"});
}

}  // namespace llm
