#include "tools/llmcheck_arguments.h"

#include <fmt/format.h>

#include "base/cpu_features.h"
#include "validate/report/report.h"

namespace llm {

OptionTable make_check_table(CheckArguments& a) {
  OptionTable table("llmcheck", "Prove that a model computes what it should, on this CPU");
  table.positional("MODEL", &a.model, false,
                   "the GGUF; --layer-diff alone finds it by the reference's hash");
  table.group("Checks");
  table
      .text("layer-diff", "REF.npz", &a.layer_diff,
            "compare every activation of every layer with a reference dump")
      .file();
  table.flag("self", &a.self,
             "compare every fast path with the definition on this file and CPU, bit for bit");
  table
      .text("tokenizer", "REF.jsonl", &a.tokenizer,
            "compare token ids with reference lines {\"text\", \"ids\"}")
      .file();
  table.text("dump", "OUT.npz", &a.dump, "write this engine's activations").file();
  table.group("How");
  table.choice(
      "compute", "MODE", &a.compute,
      {{"both", CheckCompute::kBoth}, {"int8", CheckCompute::kInt8}, {"f32", CheckCompute::kF32}},
      "--layer-diff: activations in int8 with f16 KV, in f32 with f32 KV, or both runs");
  table.text("tol", "FILE", &a.limits, "limits as JSON instead of the built-in ones").file();
  table.text("p,prompt", "TEXT", &a.prompt, "text for --dump and --self");
  table.text("isa", "ISA", &a.isa, "instruction set: scalar, avx2, avx512 or avx512vnni")
      .shown_default("the best of this CPU");
  table.integer("t,threads", "N", &a.threads, 0, 1024, "threads; 0: as many as CPUs allowed");
  table.group("Output");
  table
      .texts("report", "FILE", &a.reports,
             "also write the report, as the ending says: .json, .md, .html or .junit.xml")
      .file();
  return table;
}

Status check_arguments(const CheckArguments& a) {
  const auto usage = [](std::string field, std::string message) {
    return Error{
        .code = ErrorCode::kUsage, .field = std::move(field), .message = std::move(message)};
  };
  if (a.layer_diff.empty() && a.dump.empty() && a.tokenizer.empty() && !a.self)
    return usage("checks", "found none, need --layer-diff, --self, --tokenizer or --dump");
  if (a.model.empty() && (a.layer_diff.empty() || a.self || !a.tokenizer.empty()))
    return usage("MODEL", "found no model, need a GGUF file");
  if (!a.isa.empty() && !isa_from_name(a.isa))
    return usage("--isa",
                 fmt::format("found \"{}\", need scalar, avx2, avx512 or avx512vnni", a.isa));
  for (const auto& path : a.reports) LLM_RETURN_IF_ERROR(check_report_path(path));
  return Ok{};
}

}  // namespace llm
