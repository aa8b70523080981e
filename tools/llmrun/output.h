#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/conversation.h"
#include "engine/generation/generate.h"
#include "engine/generation/logits_hash.h"
#include "tools/common/word_wrap.h"
#include "tools/llmrun/arguments.h"
#include "tools/llmrun/loaded.h"
#include "validate/provenance/receipt.h"

namespace llm {

/// Version of the shapes that --json and --jsonl print.
inline constexpr int kRunSchemaVersion = 1;

/// What a run is judged by; printed as one line and as JSON.
struct RunStats {
  const GenerateResult& result;
  double load_seconds = 0;
  std::size_t decode_tokens = 0;  ///< after the first
  double decode_seconds = 0;
  double token_p50_seconds = 0;
  double token_p99_seconds = 0;
  double weight_gb_per_s = 0;  ///< weight bytes times passes per second while decoding
  double peak_rss_mib = 0;
  std::string proposer = {};  ///< of GenerateOptions::speculation; empty: none

  double tokens_per_pass() const;  ///< 0 where there was no pass
};

/// --profile: where the times of load, prefill and decode went.
std::string profile_text(const PassProfile& profile, const LoadTimes& load, const RunStats& stats);

/// @param result  outlives it
RunStats make_stats(const Loaded& loaded, const GenerateResult& result);
/// "load 12 ms | prompt 5 tokens, 40.1 t/s | ...".
std::string stats_line(const RunStats& stats);

/// Generated text: to a terminal what cannot steer it, with lines broken between words; else as it
/// is.
Status write_wrapped(std::string_view text, WordWrap& wrap);

/// One line of --jsonl for a token.
std::string event_json(const GenerateEvent& event);

/// The object of --json.
std::string result_json(const RunArguments& arguments, const Sequence& session,
                        std::span<const TokenId> prompt_ids, const GenerateResult& result,
                        const RunStats& stats);

/// The line of -i --json for a reply.
std::string reply_json(const RunArguments& arguments, const Sequence& session,
                       const GenerateResult& result, std::size_t dropped_turns,
                       std::size_t cropped_tokens, const RunStats& stats);
/// The line of -i --json in place of a reply.
std::string error_json(const Error& error);

/// --receipt: everything needed to run this again and to see that it ran the same.
/// @param conversation  that asked, of a chat; else null
Receipt receipt_of(const RunArguments& arguments, const Sequence& session,
                   const Conversation* conversation, std::span<const TokenId> prompt_ids,
                   const GenerateResult& result, const LogitsHash& hash);

}  // namespace llm
