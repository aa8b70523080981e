#include "tools/llmcheck/arguments.h"

#include <fmt/core.h>

#include "tools/common/compute_options.h"
#include "tools/hub/hub_model.h"
#include "validate/report/report.h"

namespace llm {

OptionTable make_check_table(CheckArguments& a) {
  OptionTable table("llmcheck", "Check that a model computes the right result on this CPU");
  table
      .positional("MODEL", &a.model, false,
                  "the GGUF; with only --layer-diff, --stages, --verify, --replay or --audit it is "
                  "found by the hash in their file")
      .file();
  add_hub_option(table, &a.hub_model);
  table.group("Checks");
  table.file("layer-diff", "REF.npz", &a.layer_diff,
             "compare every activation of every layer with a reference dump");
  table.file("stages", "REF.npz", &a.stages,
             "compare embedding, layer 0, all layers, the second token, logits and output with a "
             "reference dump, and say where to look when one fails");
  table.flag(
      "self", &a.self,
      "compare every fast path with the definition on this file and CPU, bit for bit; the default");
  table.file("equivalence", "FILE", &a.equivalence,
             "compare with this model's frozen tokens and logits, bit for bit, with every number "
             "of threads, instruction set and split, and without a cache");
  table.text("update-equivalence", "REASON", &a.update_equivalence,
             "write the model's results to the file of --equivalence instead of checking them");
  table.file(
      "verify", "REF.json", &a.verify,
      "compare greedy tokens and the most likely ones of every step with a frozen reference");
  table
      .texts("replay", "RECEIPT", &a.replay,
             "compute the output of a receipt (llmrun --receipt, llmserve) again by one prefill, "
             "and name what was changed; the receipts of a folder or a log (.jsonl) are evaluated "
             "together; may be repeated")
      .file();
  table.file("receipt-log", "LOG", &a.receipt_log,
             "check that no line of a log of receipts (llmserve --receipts; the file or its "
             "folder) was changed, moved or removed; needs no model");
  table.file(
      "audit", "RECEIPT.json", &a.audit,
      "check a receipt with a hash of its rows by the rows in --opening, or make an opening");
  table.text("judge", "URL", &a.judge,
             "request greedy answers from another engine's server (OpenAI's API), and say whether "
             "they are right for this file, or which fault explains them");
  table.file("tokenizer", "REF.jsonl", &a.tokenizer,
             "compare token ids with reference lines {\"text\", \"ids\"}");
  table.file("dump", "OUT.npz", &a.dump, "write this engine's activations");
  table.file("ppl", "FILE", &a.ppl, "perplexity of a text; every token is scored once");
  table.file("kld", "REF", &a.kld,
             "divergence of the logits from those of a reference model (a GGUF, on the text of "
             "--ppl) or a dump (NPZ)");
  table.file("quality", "FILE", &a.quality,
             "generate in seven ways from the documents of a text; check that tokens that must be "
             "equal are, and that the output is no worse than the baseline's");
  table.file("baseline", "DIR", &a.baseline, "frozen figures for --quality");
  table.text("update-baseline", "REASON", &a.update_baseline,
             "write the figures of --quality to --baseline instead of checking them");
  table.group("How, for --self");
  table.flag("fail-fast", &a.fail_fast, "stop after the first part that fails");
  table.group("How, for --replay and --audit");
  table.file("commit", "OUT.json", &a.commit,
             "write the receipt of --replay, if it passed, with a hash of its rows");
  table.text("challenge", "TEXT", &a.challenge,
             "selects the rows of --audit; choose it at random after you have the receipt");
  table.file("opening", "FILE", &a.opening, "the answer of the receipt's maker");
  table.file("make-opening", "FILE", &a.make_opening,
             "answer the challenge, by one prefill, instead of checking");
  table.integer("audit-rows", "N", &a.audit_rows, 1, 1 << 30, "rows to compute");
  table.integer("audit-draws", "N", &a.audit_draws, 0, 1 << 30, "tokens to sample again");
  table.group("How, for --judge");
  table.text("judge-model", "NAME", &a.judge_model, "the server's name for the model")
      .shown_default("the first one that it lists");
  table.text("judge-key", "KEY", &a.judge_key, "sent as `Authorization: Bearer KEY`")
      .from_env("LLM_API_KEY");
  table.group("How, for --receipt-log");
  table.file("public-key", "PUB.pem", &a.public_key,
             "each line must be signed by this key (openssl pkey -in KEY.pem -pubout)");
  table.text("log-head", "SHA256", &a.log_head,
             "the log must have the line with this hash, which a report or llmserve showed "
             "earlier: nothing before it was removed");
  table.group("How, for --verify");
  table.flag("verify-quick", &a.verify_quick, "two prompts of the reference instead of all");
  table.flag("verify-quantized", &a.verify_quantized,
             "accept a reference made from another quantization of the model; then the gate is a "
             "tolerance");
  table.group("How, for --ppl and --kld");
  table.file("against", "REF.gguf", &a.against,
             "compare each model with this one, token by token, on the text of --ppl");
  table.texts("also", "MODEL", &a.also, "another model for the table of --ppl; may be repeated")
      .file();
  table
      .integer("ppl-window", "N", &a.ppl_window, 0, 1 << 20,
               "positions of a window; each starts with BOS if the vocabulary needs it")
      .shown_default("the model's context; 32 with --ppl-sample");
  table
      .integer("ppl-sample", "N", &a.ppl_sample, 0, 1 << 20,
               "score N windows chosen at random instead of the whole text")
      .shown_default("0: the whole text");
  table.flag("ppl-documents", &a.ppl_documents,
             "score each document separately, with its end; two empty lines separate documents");
  table.integer("s,seed", "N", &a.seed, 0, std::int64_t{1} << 53,
                "seed of the random choice of windows");
  table.group("How");
  table.choice(
      "compute", "MODE", &a.compute,
      {{"both", CheckCompute::kBoth}, {"int8", CheckCompute::kInt8}, {"f32", CheckCompute::kF32}},
      "--layer-diff, --stages: activations in int8 with f16 KV, in f32 with f32 KV, or both");
  table.choice(
      "kv", "TYPE", &a.kv,
      {{"usual", std::nullopt}, {"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8", KvType::kQ8}},
      "keys and values of MODEL in --ppl, --kld and --dump, and of the int8 run of "
      "--layer-diff and --stages; usual: f16 with int8, f32 with f32");
  table.file("tol", "FILE", &a.limits,
             "--layer-diff: limits on the free run as JSON instead of the measured ones");
  table.text("p,prompt", "TEXT", &a.prompt, "text for --dump and --self");
  add_isa_option(table, &a.isa);
  table.integer("t,threads", "N", &a.threads, 0, 1024, "threads; 0: the CPUs this process may use");
  table.file(
      "packed-cache", "DIR", &a.packed_cache,
      "check the weights that llmrun --packed-cache maps; they are written first if missing");
  table.group("Output");
  table
      .texts("report", "FILE", &a.reports,
             "also write the report; the ending sets the format: .json, .html or .junit.xml")
      .file();
  table.example("llmcheck model.gguf", "are the fast paths right on this CPU and file?");
  table.example("llmcheck model.gguf --layer-diff ref.npz --report diff.html",
                "compare every activation with a reference");
  table.example("llmcheck model.gguf --judge http://localhost:8080",
                "are another engine's answers right for this file?");
  table.example("llmcheck --replay receipt.json", "does the model give this output?");
  table.example("llmcheck --receipt-log DIR --public-key pub.pem --replay DIR",
                "is the log complete, and does the model give its outputs?");
  table.example("llmcheck a.gguf --ppl text.txt --also b.gguf --against ref.gguf",
                "perplexity and divergence of two quantizations");
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

Status check_arguments(const CheckArguments& a) {
  const bool scores = !a.ppl.empty() || !a.kld.empty() || !a.quality.empty();
  const bool finds_model = !a.layer_diff.empty() || !a.stages.empty() || !a.verify.empty() ||
                           !a.replay.empty() || !a.audit.empty();
  const bool needs_model =
      a.self || !a.equivalence.empty() || !a.judge.empty() || !a.tokenizer.empty() || scores;
  if (a.verify.empty() && (a.verify_quick || a.verify_quantized))
    return usage_error("--verify",
                       "found none, need a reference for --verify-quick, --verify-quantized");
  LLM_RETURN_IF_ERROR(check_audit_arguments(a));
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
  if (a.ppl_documents && a.ppl_sample > 0)
    return usage_error("--ppl-documents", "found with --ppl-sample, need one of the two");
  if (a.ppl.empty() && !a.kld.empty() && !a.kld.ends_with(".npz"))
    return usage_error("--ppl", "found none, need a text for --kld with a model");
  const bool has_log_alone = !a.receipt_log.empty() && a.dump.empty();
  if (a.model.empty() && (needs_model || (!finds_model && !has_log_alone)))
    return usage_error("MODEL", "found no model, need a GGUF file");
  if (a.kv && a.ppl.empty() && a.kld.empty() && a.dump.empty() && a.layer_diff.empty() &&
      a.stages.empty())
    return usage_error("--kv",
                       "found none of --ppl, --kld, --dump, --layer-diff, --stages, need one");
  for (const auto& path : a.reports) LLM_RETURN_IF_ERROR(check_report_path(path));
  return Ok{};
}

}  // namespace llm
