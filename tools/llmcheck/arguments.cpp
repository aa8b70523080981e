#include "tools/llmcheck/arguments.h"

#include <fmt/core.h>

#include <utility>

#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"
#include "validate/report/report.h"

namespace llm {

OptionTable make_check_table(CheckArguments& a) {
  OptionTable table("llmcheck", "Check that a model computes the right result on this CPU");
  table
      .positional(
          "MODEL", &a.model, false,
          "GGUF file. May be omitted with --layer-diff, --stages, --verify, --replay, --compare "
          "and "
          "--audit: "
          "the files for these options contain the hash of the model. llmcheck looks for a model "
          "with this hash in the folder of the file, in the working directory and in its subfolder "
          "models")
      .file();
  table.group("Model");
  add_hub_option(table, &a.hub_model);
  table.group("Checks");
  table.file("layer-diff", "REF.npz", &a.layer_diff,
             "compare every activation of every layer with a reference dump");
  table.file(
      "stages", "REF.npz", &a.stages,
      "compare with a reference dump in stages (embedding, layer 0, all layers, second token with "
      "the KV cache, logits, output); if a stage fails, print a hint where to look");
  table.flag("self", &a.self,
             "compare the SIMD code with the scalar reference code on this file and CPU, bit for "
             "bit; this is the default");
  table.file("equivalence", "FILE", &a.equivalence,
             "run with different thread counts, instruction sets and batch sizes, and without a KV "
             "cache; each time, tokens and logits must equal those stored in FILE bit for bit");
  table.text("update-equivalence", "REASON", &a.update_equivalence,
             "do not check, but write the results and this reason to the file of --equivalence");
  table.file("verify", "REF.json", &a.verify,
             "compare greedy tokens and the top-5 tokens of each step with a stored reference");
  table
      .texts("replay", "RECEIPT", &a.replay,
             "recompute the output of a receipt (of llmrun --receipt or llmserve --receipts) with "
             "one prefill, and report what does not match; RECEIPT is a file, a folder or a .jsonl "
             "log; may be repeated")
      .file();
  table
      .texts(
          "compare", "A.json B.json", &a.compare,
          "compare the outputs of two receipts: print the first token that differs, the five most "
          "likely tokens of both runs at this position, and the settings that differ")
      .file();
  table.file("receipt-log", "LOG", &a.receipt_log,
             "check that no line of a receipt log (of llmserve --receipts) was changed, moved or "
             "removed; LOG is the log or its folder; needs no model");
  table.file(
      "audit", "RECEIPT.json", &a.audit,
      "spot-check a receipt made by somebody else, by recomputing some of its activations; the "
      "receipt must contain a hash of them. 1. Send the maker a random TEXT. 2. The maker runs "
      "--audit with --challenge TEXT --make-opening FILE, and sends you FILE, which has the values "
      "that you need. 3. Run --audit with --challenge TEXT --opening FILE (docs/receipts.md)");
  table.text("judge", "URL", &a.judge,
             "request greedy output from another engine's server (OpenAI API) that runs this model "
             "file; report whether the output is correct, or which bug explains it");
  table.file("tokenizer", "REF.jsonl", &a.tokenizer,
             "encode the texts in this JSON Lines file and compare with its ids; each line has the "
             "keys \"text\" and \"ids\"");
  table.file("dump", "OUT.npz", &a.dump,
             "write a dump of this engine's activations, for --prompt or (with --layer-diff) for "
             "the tokens of the reference");
  table.file(
      "imatrix", "OUT.gguf", &a.imatrix,
      "make an importance matrix for llmquant --imatrix from the text in --text. It has, for "
      "each input column of each weight matrix, the sum of the squared activations");
  table.file("text", "FILE", &a.text,
             "text for --imatrix; it should resemble the texts that the model is used for");
  table.file("ppl", "FILE", &a.ppl,
             "print the perplexity of the text in FILE; every token is scored once");
  table.file(
      "kld", "REF", &a.kld,
      "print the KL divergence of MODEL from REF. REF is a GGUF file, and --ppl FILE gives the "
      "text; or REF is a dump (.npz), which contains the tokens");
  table.file("quality", "FILE", &a.quality,
             "generate text from each document in FILE in seven configurations (docs/quality.md): "
             "check that equivalent configurations give equal outputs, and that no quality metric "
             "is worse than in --baseline");
  table.file("baseline", "DIR", &a.baseline, "folder with the stored results of --quality");
  table.text("update-baseline", "REASON", &a.update_baseline,
             "do not check, but write the results of --quality and this reason to --baseline");
  table.group("Options for --self");
  table.flag("fail-fast", &a.fail_fast, "stop after the first part that fails");
  table.group("Options for --replay and --audit");
  table.file("commit", "OUT.json", &a.commit,
             "if --replay passes, write a copy of the receipt that also contains a hash of the "
             "activations, for --audit");
  table.text("challenge", "TEXT", &a.challenge,
             "random text that selects what --audit recomputes; choose it after you have received "
             "the receipt");
  table.file("opening", "FILE", &a.opening,
             "file with the values from which --audit recomputes activations; the maker of the "
             "receipt writes it with --make-opening");
  table.file("make-opening", "FILE", &a.make_opening,
             "for the maker of the receipt: do not check, but write the file for --opening; takes "
             "one prefill");
  table.integer("audit-rows", "N", &a.audit_rows, 1, 1 << 30,
                "number of rows that --audit recomputes; a row is the values of one activation at "
                "one position");
  table.integer("audit-draws", "N", &a.audit_draws, 0, 1 << 30,
                "number of output tokens whose sampling --audit repeats");
  table.group("Options for --judge");
  table.text("judge-model", "NAME", &a.judge_model, "the server's name for the model")
      .shown_default("the first one that the server lists");
  table
      .text("judge-key", "KEY", &a.judge_key,
            "API key of the server, sent as `Authorization: Bearer KEY`")
      .from_env("LLM_API_KEY");
  table.group("Options for --receipt-log");
  table.file("public-key", "PUB.pem", &a.public_key,
             "check the signature of each line with this public key (openssl pkey -in KEY.pem "
             "-pubout prints it)");
  table.text("log-head", "SHA256", &a.log_head,
             "require that the log contains the line with this hash, which llmcheck or llmserve "
             "printed earlier. Without it, lines that were removed at the end are not noticed");
  table.group("Options for --verify");
  table.flag("verify-quick", &a.verify_quick, "use two prompts of the reference instead of all");
  table.flag("verify-quantized", &a.verify_quantized,
             "also accept a reference that was made from a different quantization of the model; "
             "results are then compared with a tolerance");
  table.group("Options for --ppl, --kld and --imatrix");
  table.file("against", "REF.gguf", &a.against,
             "with --ppl: compare MODEL and each --also model with REF.gguf; print the difference "
             "of the perplexities, its standard error (from the differences at each token) and "
             "the KL divergence");
  table.texts("also", "MODEL", &a.also, "with --ppl: also evaluate this model; may be repeated")
      .file();
  table
      .integer("ppl-window", "N", &a.ppl_window, 0, 1 << 20,
               "window size in tokens; each window starts with BOS if the model requires it")
      .shown_default("the context size of the model; 32 with --ppl-sample; 512 with --imatrix");
  table
      .integer("ppl-sample", "N", &a.ppl_sample, 0, 1 << 20,
               "score N random windows instead of the whole text")
      .shown_default("0: the whole text");
  table.flag(
      "ppl-documents", &a.ppl_documents,
      "score each document separately, with EOS after it; two empty lines separate documents");
  table.integer("s,seed", "N", &a.seed, 0, std::int64_t{1} << 53, "seed for --ppl-sample");
  table.group("Common options");
  table.choice(
      "compute", "MODE", &a.compute,
      {{"both", CheckCompute::kBoth}, {"int8", CheckCompute::kInt8}, {"f32", CheckCompute::kF32}},
      "type of the activations. both: with --layer-diff and --stages, one run with int8 and one "
      "with f32; with other checks, the same as int8");
  table.choice(
      "kv", "TYPE", &a.kv,
      {{"auto", std::nullopt}, {"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8", KvType::kQ8}},
      "type of the KV cache for --ppl, --kld, --imatrix, --dump, --layer-diff and --stages; auto: "
      "f16 if the "
      "activations are int8, f32 if they are f32. With --layer-diff and --stages, the run with f32 "
      "activations always has an f32 KV cache");
  table.file(
      "tol", "FILE", &a.limits,
      "--layer-diff compares each layer alone, with the reference's inputs, and a run of the whole "
      "model, in which errors add up. FILE (JSON) has the error limits for the run; without it, "
      "they are derived from this model's sensitivity to rounding (docs/tolerances.md)");
  table.text("p,prompt", "TEXT", &a.prompt, "prompt for --dump and --self");
  add_isa_option(table, &a.isa);
  table.integer("t,threads", "N", &a.threads, 0, 1024,
                "number of threads; 0: all CPUs that this process may use");
  table.file("packed-cache", "DIR", &a.packed_cache,
             "check the weights that llmrun --packed-cache keeps in DIR; if they are missing, "
             "write them first");
  table.group("Output");
  table
      .texts("report", "FILE", &a.reports,
             "also write the report to FILE; its extension sets the format: .json, .html or "
             ".junit.xml")
      .file();
  table.example("llmcheck model.gguf", "check the SIMD code on this CPU and file");
  table.example("llmcheck model.gguf --layer-diff ref.npz --report diff.html",
                "compare every activation with a reference");
  table.example("llmcheck model-f16.gguf --imatrix m.imatrix.gguf --text text.txt",
                "find out which columns of the weights matter, for llmquant --imatrix");
  table.example("llmcheck model.gguf --judge http://localhost:8080",
                "check the server of another engine that runs the same file");
  table.example("llmcheck --replay receipt.json",
                "check that the model produces the output in a receipt");
  table.example("llmcheck --compare a.json b.json", "find out where two outputs diverge");
  table.example("llmcheck --receipt-log DIR --public-key pub.pem --replay DIR",
                "check that a log is complete and that the model produces the outputs in it");
  table.example("llmcheck a.gguf --ppl text.txt --also b.gguf --against ref.gguf",
                "compare perplexity and KL divergence of two quantizations");
  return table;
}

namespace {

Status check_audit_arguments(const CheckArguments& a) {
  if (!a.commit.empty() && a.replay.empty())
    return usage_error("--commit", "found without --replay, need a receipt");
  if (a.audit.empty() && !(a.challenge + a.opening + a.make_opening).empty())
    return usage_error("--audit",
                       "found none, need a receipt for --challenge, --opening, --make-opening");
  if (!a.audit.empty() && !a.replay.empty())
    return usage_error("--audit", "found with --replay, need one of the two");
  if (!a.audit.empty() && a.challenge.empty())
    return usage_error("--challenge", "found none, need a text for --audit");
  if (!a.audit.empty() && a.opening.empty() == a.make_opening.empty())
    return usage_error("--opening", "found with --audit, need it or --make-opening");
  return Ok{};
}

}  // namespace

Status complete_arguments(CheckArguments& a) {
  // llmcheck --compare A.json B.json
  if (a.compare.size() == 1) a.compare.push_back(std::exchange(a.model, ""));
  if (!a.compare.empty() && (a.compare.size() != 2 || a.compare.back().empty()))
    return usage_error("--compare", fmt::format("found {}, need two receipts",
                                                a.compare.back().empty() ? 1 : a.compare.size()));
  return Ok{};
}

Status check_arguments(const CheckArguments& a) {
  const bool scores = !a.ppl.empty() || !a.kld.empty() || !a.quality.empty();
  const bool finds_model = !a.layer_diff.empty() || !a.stages.empty() || !a.verify.empty() ||
                           !a.replay.empty() || !a.audit.empty() || !a.compare.empty();
  const bool needs_model = a.self || !a.equivalence.empty() || !a.judge.empty() ||
                           !a.tokenizer.empty() || !a.imatrix.empty() || scores;
  if (a.verify.empty() && (a.verify_quick || a.verify_quantized))
    return usage_error("--verify",
                       "found none, need a reference for --verify-quick, --verify-quantized");
  LLM_RETURN_IF_ERROR(check_audit_arguments(a));
  if (!a.compare.empty() && !(a.replay.empty() && a.audit.empty()))
    return usage_error("--compare", "found with --replay or --audit, need one of them");
  if (a.judge.empty() && !a.judge_model.empty())
    return usage_error("--judge-model", "found without --judge, need a server's URL");
  if (!a.judge.empty() && !a.judge.starts_with("http://") && !a.judge.starts_with("https://"))
    return usage_error("--judge", fmt::format("found {}, need a URL that begins with http:// or "
                                              "https://",
                                              a.judge));
  if (!a.log_head.empty() &&
      (a.log_head.size() != 64 ||
       a.log_head.find_first_not_of("0123456789abcdef") != std::string::npos))
    return usage_error(
        "--log-head",
        fmt::format("found {}, need the 64 digits (0-9, a-f) of a SHA-256", a.log_head));
  if (a.receipt_log.empty() && (!a.public_key.empty() || !a.log_head.empty()))
    return usage_error("--receipt-log", "found none, need a log for --public-key, --log-head");
  if (!a.baseline.empty() && a.quality.empty())
    return usage_error("--baseline", "found without --quality");
  if (!a.update_baseline.empty() && a.baseline.empty())
    return usage_error("--update-baseline", "found without --baseline, need a directory");
  if (!a.update_equivalence.empty() && a.equivalence.empty())
    return usage_error("--update-equivalence", "found without --equivalence, need a file");
  if (a.ppl.empty() && (!a.against.empty() || !a.also.empty()))
    return usage_error("--ppl", "found none, need a text for --against and --also");
  if (a.imatrix.empty() != a.text.empty())
    return usage_error("--imatrix", "need it together with --text");
  if (a.ppl_documents && a.ppl_sample > 0)
    return usage_error("--ppl-documents", "found with --ppl-sample, need one of the two");
  if (a.ppl.empty() && !a.kld.empty() && !a.kld.ends_with(".npz"))
    return usage_error("--ppl", "found none, need a text for --kld with a model");
  const bool has_log_alone = !a.receipt_log.empty() && a.dump.empty();
  if (a.model.empty() && (needs_model || (!finds_model && !has_log_alone)))
    return usage_error("MODEL", "found no model, need a GGUF file");
  if (a.kv && a.ppl.empty() && a.kld.empty() && a.imatrix.empty() && a.dump.empty() &&
      a.layer_diff.empty() && a.stages.empty())
    return usage_error(
        "--kv", "found none of --ppl, --kld, --imatrix, --dump, --layer-diff, --stages, need one");
  for (const auto& path : a.reports) LLM_RETURN_IF_ERROR(check_report_path(path));
  return Ok{};
}

}  // namespace llm
