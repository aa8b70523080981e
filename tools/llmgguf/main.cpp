// llmgguf: looks into GGUF files, and changes them.

#include <fmt/core.h>

#include <array>

#include "tools/common/options.h"
#include "tools/common/tool.h"
#include "tools/llmgguf/commands.h"

namespace llm {

Result<OpenGguf> open_gguf(const std::string& path) { return open_gguf_file(path); }

namespace {

struct Verb {
  std::string_view name;
  Result<int> (*run)(const GgufArguments&, const ToolContext&);
  std::string_view other = {};  ///< what the word after FILE is; empty: there is none
  std::string_view third = {};  ///< and the next one
};
constexpr std::array kVerbs = {
    Verb{"show", show_gguf},
    Verb{"hash", hash_gguf},
    Verb{"verify", verify_gguf},
    Verb{"doctor", doctor_gguf},
    Verb{"diff", diff_gguf, "the second file"},
    Verb{"split", split_gguf, "the NAME of the parts"},
    Verb{"merge", merge_gguf, "the file to write"},
    Verb{"merge-lora", merge_lora, "the adapter", "the file to write"},
};

OptionTable make_table(GgufArguments& arguments) {
  OptionTable table("llmgguf", "Show, check, repair, compare and change GGUF files");
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  table.positional("VERB", &arguments.verb, true, "what to do (see the examples)").verb(names);
  table.positional("FILE", &arguments.file, true, "GGUF file, or any part of a split model").file();
  table
      .positional("OTHER", &arguments.other_file, false,
                  "diff: the second file; merge: the file to write; split: the NAME in the names "
                  "of the parts (NAME-00001-of-00003.gguf); merge-lora: the adapter, or "
                  "ADAPTER:SCALE")
      .file();
  table.positional("OUT", &arguments.third, false, "merge-lora: the file to write").file();
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
  table.flag("dequantize", &arguments.dequantize,
             "merge-lora: write quantized tensors that the adapter updates in F32");
  table.flag("force", &arguments.force, "replace files that exist");
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
  table.example("llmgguf merge-lora model-f16.gguf adapter.gguf:0.5 merged-f16.gguf",
                "merge a LoRA adapter into a model, at half its strength");
  return table;
}

/// As many words as the verb takes.
Status check_words(const GgufArguments& arguments, const Verb& verb) {
  for (const auto& [name, wanted, found] : {std::tuple("OTHER", verb.other, arguments.other_file),
                                            std::tuple("OUT", verb.third, arguments.third)}) {
    if (!wanted.empty() && found.empty())
      return usage_error(name, fmt::format("found nothing, need {} of {}", wanted, verb.name));
    if (wanted.empty() && !found.empty())
      return usage_error(name, fmt::format("found \"{}\", need none with {}", found, verb.name));
  }
  return Ok{};
}

/// Options that one verb has.
Status check_options(const GgufArguments& arguments, const ToolContext& context) {
  for (const auto& [option, verb] :
       {std::pair("output", "hash"), std::pair("manifest", "verify"), std::pair("fix", "doctor"),
        std::pair("dequantize", "merge-lora")}) {
    if (context.options.given(option) && arguments.verb != verb)
      return usage_error(OptionTable::dashed(option),
                         fmt::format("found with {}, need {}", arguments.verb, verb));
  }
  return Ok{};
}

Result<int> run(const GgufArguments& arguments, const ToolContext& context) {
  const Verb& verb = *std::ranges::find(kVerbs, arguments.verb, &Verb::name);
  LLM_RETURN_IF_ERROR(check_words(arguments, verb));
  LLM_RETURN_IF_ERROR(check_options(arguments, context));
  return verb.run(arguments, context);
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) { return llm::run_tool(argc, argv, llm::make_table, llm::run); }
