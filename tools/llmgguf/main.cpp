// llmgguf: looks into GGUF files.

#include <fmt/core.h>

#include "tools/common/options.h"
#include "tools/common/tool.h"
#include "tools/llmgguf/commands.h"

namespace llm {

Result<OpenGguf> open_gguf(const std::string& path) { return open_gguf_file(path); }

namespace {

OptionTable make_table(GgufArguments& arguments) {
  OptionTable table("llmgguf", "Show, hash, verify and compare GGUF files");
  table
      .positional("VERB", &arguments.verb, true,
                  "show (metadata and tensors), hash (SHA-256 of the file and of its parts; with "
                  "-o a manifest), verify (everything that can be checked without running the "
                  "model; with --manifest every byte), doctor (what is wrong with a published "
                  "file, and how to repair it; exit code 1 if anything is), diff (of two files; "
                  "exit code 1 if they differ), split (into parts) or merge (parts into one file)")
      .one_of({"show", "hash", "verify", "doctor", "diff", "split", "merge"});
  table.positional("FILE", &arguments.file, true, "the GGUF; any part of a split model").file();
  table
      .positional("OTHER", &arguments.other_file, false,
                  "diff: the second GGUF; merge: the file to write; split: the NAME of "
                  "NAME-00001-of-00003.gguf")
      .file();
  table.flag("json", &arguments.json, "print JSON");
  table.flag("a,all", &arguments.all, "show: print whole arrays and strings");
  table.flag("strict", &arguments.strict,
             "verify: trailing bytes and unknown tensors are errors instead of warnings");
  table.flag("vocab-only", &arguments.vocab_only,
             "verify: check the vocabulary only, for files without tensors");
  table.file("o,output", "MANIFEST", &arguments.output,
             "hash: write a manifest of the file, for verify --manifest and llmrun --verify-model");
  table.file("manifest", "FILE", &arguments.manifest,
             "verify: compare the file with FILE, which hash -o wrote, and name what differs (exit "
             "code 8)");
  table.file("fix", "OUT", &arguments.fix,
             "doctor: write a copy of FILE to OUT, with everything repaired that metadata alone "
             "can repair");
  table
      .integer("t,threads", "N", &arguments.threads, 0, 256,
               "hash, verify --manifest, doctor: threads")
      .shown_default("CPUs this process may use");
  table.integer("parts", "N", &arguments.parts, 0, GgufLimits::kMaxParts,
                "split: into N parts of about the same size");
  table.text("max-size", "SIZE", &arguments.max_size,
             "split: into parts with at most SIZE bytes of tensors (300M, 2G), except for a larger "
             "tensor");
  table.example("llmgguf show model.gguf", "print metadata and tensors");
  table.example("llmgguf verify model.gguf", "check the file without running it");
  table.example("llmgguf hash model.gguf -o model.gguf.manifest", "write a manifest");
  table.example("llmgguf verify model.gguf --manifest model.gguf.manifest",
                "name every tensor and range of bytes that was changed");
  table.example("llmgguf doctor model.gguf", "say what is wrong with it");
  table.example("llmgguf diff a.gguf b.gguf", "say what differs");
  return table;
}

Result<int> run(const GgufArguments& arguments, const ToolContext& context) {
  const bool needs_other =
      arguments.verb == "diff" || arguments.verb == "split" || arguments.verb == "merge";
  if (needs_other && arguments.other_file.empty()) {
    return usage_error("OTHER",
                       fmt::format("found nothing, need the second file of {}", arguments.verb));
  }
  if (!needs_other && !arguments.other_file.empty()) {
    return usage_error("OTHER", fmt::format("found \"{}\", need one file", arguments.other_file));
  }
  for (const auto& [option, verb] :
       {std::pair("output", "hash"), std::pair("manifest", "verify"), std::pair("fix", "doctor")}) {
    if (context.options.given(option) && arguments.verb != verb)
      return usage_error(OptionTable::dashed(option),
                         fmt::format("found with {}, need {}", arguments.verb, verb));
  }
  if (arguments.verb == "show") return show_gguf(arguments);
  if (arguments.verb == "hash") return hash_gguf(arguments, context);
  if (arguments.verb == "verify" && context.options.given("manifest"))
    return verify_manifest(arguments, context);
  if (arguments.verb == "verify") return verify_gguf(arguments, context);
  if (arguments.verb == "doctor") return doctor_gguf(arguments, context);
  if (arguments.verb == "diff") return diff_gguf(arguments, context);
  if (arguments.verb == "split") return split_gguf(arguments, context);
  if (arguments.verb == "merge") return merge_gguf(arguments, context);
  return usage_error(
      "VERB", fmt::format("found \"{}\", need show, hash, verify, doctor, diff, split or merge",
                          arguments.verb));
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) { return llm::run_tool(argc, argv, llm::make_table, llm::run); }
