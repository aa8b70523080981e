// llmgguf: looks into GGUF files.

#include <fmt/core.h>

#include "tools/common/options.h"
#include "tools/common/tool.h"
#include "tools/llmgguf/commands.h"

namespace llm {

Result<OpenGguf> open_gguf(const std::string& path) { return open_gguf_file(path); }

namespace {

OptionTable make_table(GgufArguments& arguments) {
  OptionTable table("llmgguf", "Show, check, repair, compare and split GGUF files");
  table
      .positional("VERB", &arguments.verb, true,
                  "show, hash, verify, doctor, diff, split or merge (see the examples)")
      .one_of({"show", "hash", "verify", "doctor", "diff", "split", "merge"});
  table.positional("FILE", &arguments.file, true, "GGUF file, or any part of a split model").file();
  table
      .positional("OTHER", &arguments.other_file, false,
                  "diff: the second file; merge: the file to write; split: the NAME in the names "
                  "of the parts (NAME-00001-of-00003.gguf)")
      .file();
  table.flag("json", &arguments.json, "print JSON");
  table.flag("a,all", &arguments.all, "show: print complete arrays and strings");
  table.flag("strict", &arguments.strict,
             "verify: treat trailing bytes and unknown tensors as errors instead of warnings");
  table.flag("vocab-only", &arguments.vocab_only,
             "verify: check only the vocabulary, for files without tensors");
  table.file(
      "o,output", "MANIFEST", &arguments.output,
      "hash: also write a manifest of the file, for verify --manifest and llmrun --verify-model");
  table.file("manifest", "FILE", &arguments.manifest,
             "verify: compare every byte with this manifest, which hash -o writes, and name what "
             "differs (exit code 8)");
  table.file("fix", "OUT", &arguments.fix,
             "doctor: write a repaired copy of FILE to OUT; repairs everything that a change of "
             "the metadata can repair");
  table
      .integer("t,threads", "N", &arguments.threads, 0, 256,
               "hash, verify --manifest, doctor: number of threads; 0: all CPUs that this process "
               "may use")
      .shown_default("the number of CPUs this process may use");
  table.integer("parts", "N", &arguments.parts, 0, GgufLimits::kMaxParts,
                "split: make N parts of about the same size; 0: use --max-size");
  table.text("max-size", "SIZE", &arguments.max_size,
             "split: make parts with at most SIZE bytes of tensors (such as 300M or 2G); a larger "
             "tensor gets a separate part");
  table.example("llmgguf show model.gguf", "print metadata and tensors");
  table.example("llmgguf verify model.gguf",
                "check everything that can be checked without running the model");
  table.example("llmgguf hash model.gguf -o model.gguf.manifest",
                "print the SHA-256 of the file and of its parts, and write a manifest");
  table.example(
      "llmgguf verify model.gguf --manifest model.gguf.manifest",
      "compare every byte with a manifest, and name the tensors and byte ranges that differ");
  table.example(
      "llmgguf doctor model.gguf",
      "find errors in a published file and say how to repair them; exit code 1 if there are any");
  table.example("llmgguf diff a.gguf b.gguf",
                "list the differences of two files; exit code 1 if there are any");
  table.example("llmgguf split model.gguf model --max-size 2G",
                "write the parts model-00001-of-00003.gguf and so on");
  table.example("llmgguf merge model-00001-of-00003.gguf whole.gguf",
                "merge the parts into one file");
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
