// llmrun replay: a recorded output made again from any of its tokens, or another one from there.

#include "tools/llmrun/replay.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "engine/engine.h"
#include "engine/generation/generate.h"
#include "tools/common/compute_options.h"
#include "tools/common/option_pages.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/common/word_wrap.h"
#include "tools/llmrun/output.h"
#include "validate/provenance/continue_receipt.h"
#include "validate/provenance/receipt_log.h"
#include "validate/reference/dump/engine_dump.h"

namespace llm {
namespace {

constexpr std::size_t kMostLogBytes = std::size_t{1} << 34;
constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;

struct ReplayArguments {
  std::string receipt;
  std::string model;
  std::size_t at = 0;
  std::vector<std::string> set;
  std::vector<std::string> edit;
  std::string out;
  std::optional<Isa> isa;
  int threads = 0;
  std::string packed_cache;
  std::string cache_dir;
  std::size_t cache_size = 32;  ///< GiB

  bool branches() const { return !set.empty() || !edit.empty(); }
};

OptionTable make_replay_table(ReplayArguments& a) {
  OptionTable table("llmrun replay",
                    "Generate a recorded output again from any of its tokens, or change something "
                    "and continue from there");
  table
      .positional("RECEIPT", &a.receipt, true,
                  "receipt of llmrun --receipt, or a line of a log of llmserve --receipts "
                  "(receipts.jsonl:7)")
      .file();
  table.file("m,model", "FILE", &a.model, "model of the receipt")
      .shown_default(
          "a file with the hash in the receipt, in the folder of the receipt, in the working "
          "directory or in ./models");
  table.integer("at", "N", &a.at, 0, INT32_MAX,
                "keep the first N tokens of the output and generate the rest. Without --set and "
                "--edit, the tokens and the hash of the logits must equal those of the receipt");
  table.texts(
      "set", "KEY=VALUE", &a.set,
      "generate the rest with a different setting: a sampling option of llmrun "
      "(temperature, top-k, ...), seed, or n (the maximum length of the output, including the "
      "tokens that are kept); may be repeated");
  table.texts(
      "edit", "K=TEXT", &a.edit,
      "replace the text of message K of the prompt; the first message is 1, also if it is a system "
      "message; "
      "K=@FILE reads it from a file; may be repeated");
  table.file("receipt", "FILE", &a.out, "write a receipt of the new run");
  add_isa_option(table, &a.isa);
  table
      .integer("t,threads", "N", &a.threads, 0, 256,
               "number of threads; 0: all CPUs that this process may use")
      .shown_default("the number of CPUs this process may use");
  table.file("packed-cache", "DIR", &a.packed_cache, "as llmrun --packed-cache");
  table.file("cache-dir", "DIR", &a.cache_dir,
             "as llmrun --cache-dir: reuse the prompt's KV cache");
  table.integer("cache-size", "GIB", &a.cache_size, 1, 1 << 20, "size limit of --cache-dir");
  table.example("llmrun replay r.json --at 40", "generate the output again from token 40 on");
  table.example("llmrun replay r.json --at 40 --set temperature=0 --receipt b.json",
                "continue greedily from token 40; llmcheck --compare r.json b.json shows where the "
                "outputs diverge");
  table.example("llmrun replay r.json --edit 2=\"And in winter?\"", "ask another question");
  return table;
}

/// KEY and VALUE. Errors: kUsage.
Result<std::pair<std::string, std::string>> split_at_equals(const char* option,
                                                            const std::string& text,
                                                            const char* need) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    return usage_error(option, fmt::format("found \"{}\", need {}", text, need));
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

/// --set, by the table of the sampling options of llmrun.
Status change_settings(const std::vector<std::string>& changes, Receipt& receipt) {
  auto seed = static_cast<std::int64_t>(receipt.sampler.seed);
  std::int64_t n = receipt.max_tokens ? static_cast<std::int64_t>(*receipt.max_tokens) : -1;
  OptionTable table("llmrun replay", "");
  table.integer("seed", "N", &seed, 0, INT64_MAX, "");
  table.integer("n", "N", &n, -1, INT32_MAX, "");
  add_sampler_options(table, receipt.sampler);
  for (const std::string& change : changes) {
    LLM_TRY(const auto pair, split_at_equals("--set", change, "KEY=VALUE"));
    std::string key = pair.first;
    std::ranges::replace(key, '_', '-');
    const Option* option = table.find(key);
    if (option == nullptr) {
      std::string known;
      for (const Option& one : table.options())
        known += (known.empty() ? "" : ", ") + one.names.back();
      return usage_error("--set", fmt::format("found \"{}\", need one of {}", pair.first, known));
    }
    if (!option->set(pair.second))
      return usage_error(
          "--set", fmt::format("found {} for {}, need {}", pair.second, pair.first, option->rule));
  }
  receipt.sampler.seed = static_cast<std::uint64_t>(seed);
  receipt.max_tokens = n < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(n));
  return Ok{};
}

/// --edit; files are read.
Result<std::vector<MessageEdit>> read_edits(const std::vector<std::string>& edits) {
  std::vector<MessageEdit> out;
  for (const std::string& edit : edits) {
    LLM_TRY(auto pair, split_at_equals("--edit", edit, "K=TEXT or K=@FILE"));
    const auto number = parse_integer(pair.first);
    if (!number || *number < 1)
      return usage_error(
          "--edit", fmt::format("found \"{}\", need the number of a message, from 1", pair.first));
    if (pair.second.starts_with('@')) {
      LLM_TRY(pair.second, read_text_file(pair.second.substr(1), kMostTextBytes));
    }
    out.push_back({static_cast<std::size_t>(*number), std::move(pair.second)});
  }
  return out;
}

Result<Receipt> read_receipt(const std::string& path) {
  const ReceiptPlace place = receipt_place(path);
  LLM_TRY(const std::string text, read_text_file(place.file, kMostLogBytes));
  return in_file(receipt_at(place, text), path);
}

Result<std::shared_ptr<const Model>> load(const ReplayArguments& a, const Receipt& receipt,
                                          ProgressBar& progress) {
  std::string path = a.model;
  if (path.empty()) {
    LLM_TRY(path, find_model_by_hash(receipt.model_sha256, a.receipt));
  }
  auto model = Model::load(path, {.compute = receipt.compute,
                                  .isa = a.isa,
                                  .threads = a.threads,
                                  .expected_sha256 = receipt.model_sha256,
                                  .defer_packing = true,
                                  .packed_cache = a.packed_cache,
                                  .progress = std::ref(progress)});
  progress.clear();
  return in_file(std::move(model), path);
}

/// The line on stderr for a run that is the recorded one, or is not.
int tell_verdict(const ReplayArguments& a, const Receipt& recorded, const Receipt& made,
                 const Tokenizer& tokenizer, bool quiet) {
  const std::string difference = output_difference(recorded, made, tokenizer);
  if (!difference.empty()) {
    write_message(fmt::format("llmrun: FAIL: {}: {}\n", a.receipt, difference));
    return kExitVerdictFailed;
  }
  if (!quiet)
    write_message(
        fmt::format("llmrun: {} tokens from token {} on equal the receipt, and the SHA-256 "
                    "of all its logits\n",
                    made.ids.size() - a.at, a.at));
  return 0;
}

Result<int> replay(ReplayArguments& a, const ToolContext& context) {
  LLM_TRY(const Receipt recorded, read_receipt(a.receipt));
  if (a.at > recorded.ids.size())
    return usage_error("--at", fmt::format("found {}, need at most {}, the tokens of the output",
                                           a.at, recorded.ids.size()));
  Receipt begun = recorded;
  LLM_RETURN_IF_ERROR(change_settings(a.set, begun));
  LLM_TRY(const auto edits, read_edits(a.edit));
  const std::vector<std::string> read = {receipt_place(a.receipt).file, a.model};
  if (!a.out.empty()) LLM_RETURN_IF_ERROR(check_output("--receipt", a.out, read));
  ProgressBar progress(!context.quiet());
  LLM_TRY(const auto model, load(a, recorded, progress));
  ContinueOptions how{.n_given = a.at, .interrupted = GracefulInterrupt::requested};
  if (a.branches()) {
    LLM_TRY(begun, in_file(branch_of(*model, std::move(begun), a.at, edits), a.receipt));
    begun.engine_version = version();
    how.n_given = 0;
  }
  if (!a.cache_dir.empty()) {
    LLM_TRY(how.store, StateStore::open({.directory = a.cache_dir,
                                         .most_bytes = std::uint64_t{a.cache_size} << 30,
                                         .notice = [](const std::string& what) {
                                           spdlog::warn("--cache-dir: {}", what);
                                         }}));
  }
  WordWrap wrap;
  std::size_t n_told = 0;
  how.sink = [&](const GenerateEvent& event) -> Status {
    n_told += event.id ? 1 : 0;
    return n_told > how.n_given ? write_wrapped(event.text, wrap) : Status(Ok{});
  };
  const GracefulInterrupt graceful;
  LLM_TRY(const Receipt made, in_file(continue_receipt(model, begun, how), a.receipt));
  FirstError error;
  if (!made.text.ends_with('\n') && !context.quiet()) write_message("\n");
  int code = GracefulInterrupt::exit_code();
  if (code == 0 && !a.branches())
    code = tell_verdict(a, recorded, made, model->tokenizer(), context.quiet());
  if (!a.out.empty()) {
    const std::string json = receipt_json(made);
    error.add(write_file_atomically(a.out, std::as_bytes(std::span(json))));
  }
  LLM_RETURN_IF_ERROR(error.status());
  return code;
}

}  // namespace

int run_replay(int argc, char** argv) noexcept {
  argv[1] = argv[0];  // whom messages name
  return run_tool(argc - 1, argv + 1, make_replay_table, replay);
}

}  // namespace llm
