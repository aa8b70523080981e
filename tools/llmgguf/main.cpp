// llmgguf: looks into GGUF files, and changes them.

#include <fmt/core.h>
#include <fmt/ranges.h>

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
  std::string_view first = {};   ///< its argument after FILE; empty: none
  std::string_view second = {};  ///< and the next one
  bool may_lack_them = false;    ///< the verb checks them itself
};
constexpr std::array kVerbs = {
    Verb{"show", show_gguf},
    Verb{"hash", hash_gguf},
    Verb{"verify", verify_gguf},
    Verb{"doctor", doctor_gguf},
    Verb{"diff", diff_gguf, "FILE2"},
    Verb{"split", split_gguf, "PREFIX"},
    Verb{"merge", merge_gguf, "OUT"},
    Verb{"merge-lora", merge_lora, "ADAPTER[:SCALE]", "OUT"},
    Verb{"set", set_key, "KEY", "VALUE", true},
    Verb{"add", add_key, "KEY", "VALUE"},
    Verb{"rm", remove_key, "KEY"},
    Verb{"export", export_tensor, "TENSOR", "NPY"},
    Verb{"import", import_tensor, "TENSOR", "NPY"},
    Verb{"block", show_block, "TENSOR", "NUMBER"},
    Verb{"size", show_size},
};

/// The verb and its arguments: "diff FILE FILE2".
std::string usage(const Verb& verb) {
  std::string text = fmt::format("{} FILE", verb.name);
  for (std::string_view argument : {verb.first, verb.second})
    if (!argument.empty()) text += fmt::format(" {}", argument);
  return text;
}

OptionTable make_table(GgufArguments& arguments) {
  OptionTable table("llmgguf", "Show, check, repair, compare and change GGUF files");
  std::vector<std::string> names, usages;
  for (const Verb& verb : kVerbs) {
    names.emplace_back(verb.name);
    usages.push_back(usage(verb));
  }
  table
      .positional("VERB", &arguments.verb, true,
                  fmt::format("what to do, one of: {}", fmt::join(usages, "; ")))
      .verb(names);
  table.positional("FILE", &arguments.file, true, "GGUF file, or any part of a split model").file();
  table.positional("ARGUMENT", &arguments.other_file, false, "first argument after FILE").file();
  table.positional("ARGUMENT2", &arguments.third, false, "second argument after FILE").file();
  table.flag("json", &arguments.json, "print JSON");
  table.flag("a,all", &arguments.all, "show: print complete arrays and strings");
  table.flag("strict", &arguments.strict,
             "verify: treat trailing bytes and unknown tensors as errors instead of warnings");
  table.flag("vocab-only", &arguments.vocab_only,
             "verify: check only the vocabulary, for files without tensors");
  table.file("o,output", "OUT", &arguments.output,
             "hash: also write a manifest of the file to OUT, for verify --manifest and llmrun "
             "--verify-model; set, add, rm, import: write the changed file to OUT instead of FILE");
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
  table.text("type", "TYPE", &arguments.type,
             "add: the type of the value: u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bool or "
             "str");
  table.file("chat-template", "FILE", &arguments.chat_template,
             "set: set the chat template to the text in FILE; KEY and VALUE are then not given");
  table
      .integer("c,ctx-size", "N", &arguments.context, 0, INT32_MAX,
               "size: context size in tokens; 0: from the model file")
      .shown_default("from the model file");
  table.integer("b,batch-size", "N", &arguments.batch, 1, 65536,
                "size: maximum number of tokens in one forward pass");
  table.choice("kv", "TYPE", &arguments.kv,
               {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8", KvType::kQ8}},
               "size: type of the KV cache");
  table.flag("dequantize", &arguments.dequantize,
             "merge-lora: if the adapter changes a quantized tensor, write this tensor in F32");
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
  table.example("llmgguf set model.gguf general.name \"My model\"",
                "change a value, in place if it has the same size");
  table.example("llmgguf set model.gguf --chat-template chat.jinja -o new.gguf",
                "write a copy with another chat template");
  table.example("llmgguf add model.gguf general.quantized_by me", "add a key");
  table.example("llmgguf export model.gguf blk.0.attn_q.weight q.npy",
                "write a tensor to a file for NumPy, in f32");
  table.example("llmgguf block model.gguf blk.0.attn_q.weight 7",
                "print the scales, codes and weights of a block");
  table.example("llmgguf size model.gguf -c 32768 --kv q8",
                "print the memory that a run takes; exit code 1 if it does not fit");
  return table;
}

/// As many words as the verb takes.
Status check_words(const GgufArguments& arguments, const Verb& verb) {
  for (const auto& [wanted, found] :
       {std::pair(verb.first, arguments.other_file), std::pair(verb.second, arguments.third)}) {
    if (!wanted.empty() && found.empty() && !verb.may_lack_them)
      return usage_error(std::string(wanted), fmt::format("found nothing; usage: {}", usage(verb)));
    if (wanted.empty() && !found.empty())
      return usage_error("command line",
                         fmt::format("found \"{}\", which {} does not take; usage: {}", found,
                                     verb.name, usage(verb)));
  }
  return Ok{};
}

/// Options that one verb has.
Status check_options(const GgufArguments& arguments, const ToolContext& context) {
  for (const auto& [option, verbs] :
       {std::pair("output", "hash, set, add, rm, import"), std::pair("manifest", "verify"),
        std::pair("fix", "doctor"), std::pair("dequantize", "merge-lora"), std::pair("type", "add"),
        std::pair("chat-template", "set"), std::pair("ctx-size", "size"),
        std::pair("batch-size", "size"), std::pair("kv", "size")}) {
    if (context.options.given(option) &&
        fmt::format(" {},", verbs).find(fmt::format(" {},", arguments.verb)) == std::string::npos)
      return usage_error(OptionTable::dashed(option),
                         fmt::format("found with {}, need {}", arguments.verb, verbs));
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
