#include "tools/llmrun/output.h"

#include <fmt/core.h>

#include <numeric>

#include "base/json.h"
#include "base/shown_text.h"
#include "base/utf8.h"
#include "quant/numerics/contract.h"
#include "tools/common/option_pages.h"
#include "tools/common/stats.h"
#include "tools/common/tool.h"

namespace llm {
namespace {

double rate(std::size_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double milliseconds(double seconds) { return seconds * 1e3; }

/// Bytes that are no UTF-8 (a prompt may hold them) become U+FFFD: JSON cannot carry them.
std::string dump(const OrderedJson& json, int indent) { return json_text(json, indent) + '\n'; }

OrderedJson token_json(const TokenLogprob& token) {
  return {{"id", token.id}, {"logprob", token.logprob}};
}

OrderedJson logprobs_json(const Logprobs& logprobs) {
  OrderedJson json = token_json(logprobs.chosen);
  json["top"] = OrderedJson::array();
  for (const TokenLogprob& token : logprobs.top) json["top"].push_back(token_json(token));
  return json;
}

OrderedJson all_logprobs_json(const GenerateResult& result) {
  OrderedJson json = OrderedJson::array();
  for (const Logprobs& logprobs : result.logprobs) json.push_back(logprobs_json(logprobs));
  return json;
}

OrderedJson stats_json(const RunArguments& arguments, const Sequence& session,
                       const RunStats& stats) {
  const Model& model = session.model();
  OrderedJson json = {
      {"load_ms", milliseconds(stats.load_seconds)},
      {"prefill_tokens", stats.result.prefill_tokens},
      {"prefill_ms", milliseconds(stats.result.prefill_seconds)},
      {"prefill_tokens_per_s", rate(stats.result.prefill_tokens, stats.result.prefill_seconds)},
      {"ttft_ms", milliseconds(stats.result.first_token_seconds)},
      {"decode_tokens", stats.decode_tokens},
      {"decode_tokens_per_s", rate(stats.decode_tokens, stats.decode_seconds)},
      {"tbt_ms",
       {{"p50", milliseconds(stats.token_p50_seconds)},
        {"p99", milliseconds(stats.token_p99_seconds)}}},
      {"gb_per_s", stats.weight_gb_per_s},
      {"peak_rss_mib", stats.peak_rss_mib},
      {"seed", arguments.sampler.seed},
      {"isa", isa_name(model.isa())},
      {"threads", model.threads()},
      {"kv", kv_name(session.kv())},
      {"cache", session.options().use_cache},
      {"compute", model.compute() == Compute::kInt8 ? "int8" : "f32"},
      {"context", session.context()}};
  const std::vector<float>& scales = session.options().adapters;
  for (std::size_t i = 0; i < scales.size(); ++i)
    json["adapters"].push_back(
        OrderedJson{{"file", model.adapters()[i]->path()}, {"scale", scales[i]}});
  if (!stats.proposer.empty()) {
    json["speculation"] = {{"proposer", stats.proposer},
                           {"proposed", stats.result.proposed},
                           {"accepted", stats.result.accepted},
                           {"passes", stats.result.decode_passes},
                           {"tokens_per_pass", stats.tokens_per_pass()}};
  }
  return json;
}

}  // namespace

std::string profile_text(const PassProfile& profile, const LoadTimes& load, const RunStats& stats) {
  const double rest = stats.load_seconds - load.open - load.tokenizer - load.weights;
  return fmt::format(
             "load: {:.3f} ms: open {:.3f}, tokenizer {:.3f}, weights {:.3f}, outside {:.3f}\n",
             milliseconds(stats.load_seconds), milliseconds(load.open),
             milliseconds(load.tokenizer), milliseconds(load.weights), milliseconds(rest)) +
         profile_table("prefill", profile.batch, stats.result.prefill_seconds) +
         profile_table("decode", profile.one_row, stats.decode_seconds);
}

double RunStats::tokens_per_pass() const {
  if (result.decode_passes == 0) return 0;
  return static_cast<double>(decode_tokens) / static_cast<double>(result.decode_passes);
}

RunStats make_stats(const Loaded& loaded, const GenerateResult& result) {
  RunStats stats{result};
  stats.load_seconds = loaded.seconds;
  stats.decode_tokens = result.token_seconds.size();
  stats.decode_seconds =
      std::accumulate(result.token_seconds.begin(), result.token_seconds.end(), 0.0);
  stats.token_p50_seconds = percentile(result.token_seconds, 0.5);
  stats.token_p99_seconds = percentile(result.token_seconds, 0.99);
  stats.weight_gb_per_s = rate(stats.result.decode_passes, stats.decode_seconds) *
                          static_cast<double>(loaded.model->weight_bytes()) * 1e-9;
  stats.peak_rss_mib = static_cast<double>(peak_rss_bytes()) / (1 << 20);
  if (loaded.speculation != nullptr) stats.proposer = loaded.speculation->proposer();
  return stats;
}

std::string stats_line(const RunStats& stats) {
  std::string line = fmt::format("load {:.1f} ms | prompt {} tokens, {:.1f} t/s | TTFT {:.1f} ms",
                                 milliseconds(stats.load_seconds), stats.result.prefill_tokens,
                                 rate(stats.result.prefill_tokens, stats.result.prefill_seconds),
                                 milliseconds(stats.result.first_token_seconds));
  if (stats.decode_tokens > 0) {
    line += fmt::format(
        " | decode {} tokens, {:.1f} t/s, TBT p50 {:.2f} ms, p99 {:.2f} ms | {:.2f} GB/s",
        stats.decode_tokens, rate(stats.decode_tokens, stats.decode_seconds),
        milliseconds(stats.token_p50_seconds), milliseconds(stats.token_p99_seconds),
        stats.weight_gb_per_s);
  }
  if (!stats.proposer.empty()) {
    line += fmt::format(" | {}: {} of {} proposed tokens accepted, {:.2f} tokens a pass",
                        stats.proposer, stats.result.accepted, stats.result.proposed,
                        stats.tokens_per_pass());
  }
  return line + fmt::format(" | peak RSS {:.1f} MiB", stats.peak_rss_mib);
}

Status write_wrapped(std::string_view text, WordWrap& wrap) {
  const std::size_t columns = stdout_columns();
  if (columns == 0) return write_generated(text);
  return write_stdout(wrap.add(terminal_text(text), columns));
}

std::string event_json(const GenerateEvent& event) {
  OrderedJson json;
  if (event.id) json["id"] = *event.id;
  json["text"] = event.text;
  if (event.logprobs != nullptr) json["logprobs"] = logprobs_json(*event.logprobs);
  return dump(json, -1);
}

std::string result_json(const RunArguments& arguments, const Sequence& session,
                        std::span<const TokenId> prompt_ids, const GenerateResult& result,
                        const RunStats& stats) {
  OrderedJson json = {{"schema_version", kRunSchemaVersion},
                      {"prompt", arguments.prompt},
                      {"prompt_ids", prompt_ids},
                      {"text", result.text},
                      {"ids", result.ids},
                      {"stop_reason", stop_reason_name(result.stop_reason)}};
  if (arguments.want_logprobs) json["logprobs"] = all_logprobs_json(result);
  json["stats"] = stats_json(arguments, session, stats);
  return dump(json, arguments.jsonl ? -1 : 2);
}

std::string reply_json(const RunArguments& arguments, const Sequence& session,
                       const GenerateResult& result, std::size_t dropped_turns,
                       std::size_t cropped_tokens, const RunStats& stats) {
  OrderedJson json = {{"schema_version", kRunSchemaVersion},
                      {"text", result.text},
                      {"ids", result.ids},
                      {"stop_reason", stop_reason_name(result.stop_reason)},
                      {"dropped_turns", dropped_turns},
                      {"cropped_tokens", cropped_tokens}};
  if (arguments.want_logprobs) json["logprobs"] = all_logprobs_json(result);
  json["stats"] = stats_json(arguments, session, stats);
  return dump(json, -1);
}

std::string error_json(const Error& error) {
  return dump({{"schema_version", kRunSchemaVersion},
               {"error", error.to_string()},
               {"exit_code", static_cast<int>(error.code)}},
              -1);
}

Receipt receipt_of(const RunArguments& arguments, const Sequence& session,
                   const Conversation* conversation, std::span<const TokenId> prompt_ids,
                   const GenerateResult& result, const LogitsHash& hash) {
  Receipt receipt;
  receipt.contract_version = contract::kContractVersion;
  receipt.engine_version = version();
  receipt.model_name = session.model().name();
  receipt.model_sha256 = session.model().file_sha256();
  // A receipt has no words for an empty system message: its ids alone stand for the prompt then.
  const bool has_empty_system = arguments.has_system && arguments.system.empty();
  if (is_valid_utf8(arguments.prompt) && !has_empty_system) receipt.prompt = arguments.prompt;
  receipt.parse_special = arguments.parse_special;
  receipt.system = arguments.system;
  if (conversation != nullptr) {
    receipt.chat_template = conversation->style().name();
    // Nor has it words for a date.
    if (conversation->style().has_date()) receipt.prompt.reset();
  }
  receipt.sampler = arguments.sampler;
  if (arguments.max_tokens >= 0) receipt.max_tokens = arguments.max_tokens;
  receipt.stop = arguments.stop;
  receipt.ignore_eos = arguments.ignore_eos;
  receipt.grammar = arguments.grammar_source;
  receipt.context = session.context();
  receipt.kv = session.kv();
  receipt.compute = session.model().compute();
  receipt.prompt_ids.assign(prompt_ids.begin(), prompt_ids.end());
  receipt.ids = result.ids;
  receipt.text = result.text;
  receipt.stop_reason = result.stop_reason;
  receipt.drawn_logits_sha256 = hash.drawn();
  return receipt;
}

}  // namespace llm
