#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/generation/chat_style.h"
#include "engine/generation/generate.h"
#include "engine/model/precision.h"
#include "engine/sampler/sampler.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab_spec.h"

namespace llm {

/// How a receipt names its format, and how it spells a way of computing.
inline constexpr std::string_view kReceiptFormat = "llm-receipt/2";
constexpr std::string_view compute_name(Compute compute) {
  return compute == Compute::kInt8 ? "int8" : "f32";
}

struct ReceiptMessage {
  std::string role;
  std::string content;
};

/// What a text was made with, and what came out: enough to make it again and to see that it is the
/// same (docs/receipts.md). What changes no bit is not in it: threads, batches, instruction set,
/// proposals.
struct Receipt {
  unsigned contract_version = 0;
  std::string engine_version;
  std::string model_name;
  std::string model_sha256;  ///< lower-case hex

  std::optional<std::string> prompt;  ///< absent: given as ids, or no UTF-8
  bool parse_special = false;
  bool show_special = false;  ///< the text has the spellings of control tokens
  std::string system;
  /// Of a chat that `prompt` and `system` do not tell, where texts alone do; else empty.
  std::vector<ReceiptMessage> messages;
  std::string chat_template;  ///< ChatStyle::name(): the prompt is a message; empty: it is none

  SamplerOptions sampler;
  std::uint64_t sequence = 0;             ///< GenerateOptions::sequence
  std::optional<std::size_t> max_tokens;  ///< absent: until the text ended by itself
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::vector<LogitBias> logit_bias;
  std::optional<GrammarSource> grammar;  ///< generation() does not compile it
  std::size_t context = 0;               ///< most tokens of the text
  KvType kv = KvType::kF16;
  Compute compute = Compute::kInt8;

  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> ids;
  std::string text;
  StopReason stop_reason = StopReason::kLength;
  std::string drawn_logits_sha256;         ///< LogitsHash::drawn()
  std::optional<std::string> rows_sha256;  ///< of every activation (run_rows.h); absent: not made

  /// The prompt's tokens and the output's.
  std::vector<TokenId> tokens() const;
  /// Those that have a position.
  std::vector<TokenId> evaluated() const;
  bool is_chat() const { return !chat_template.empty(); }
  /// What its draws depend on, the ends of a reply included. @param style  null where it is no chat
  GenerateOptions generation(const ChatStyle* style) const;
};

/// `llm-receipt/2`, indented, ending with a line break.
std::string receipt_json(const Receipt& receipt);

/// Reads and checks a receipt. Errors: kMalformed naming the field, kUnsupported for another
/// version of the format.
Result<Receipt> parse_receipt(std::string_view json);

/// Rows that a receipt's tokens were drawn from.
struct DrawnRows {
  std::size_t n_vocab = 0;
  std::vector<float> logits = {};         ///< [rows, n_vocab]
  std::vector<std::uint32_t> masks = {};  ///< of a grammar (GrammarState::mask), one each; or none
  std::vector<std::size_t> numbers = {};  ///< places in ids of what each was; empty: 0, 1, 2, ...

  std::size_t size() const { return logits.size() / n_vocab; }
  std::size_t number(std::size_t i) const { return numbers.empty() ? i : numbers[i]; }
  std::span<const float> row(std::size_t i) const {
    return std::span(logits).subspan(i * n_vocab, n_vocab);
  }
  std::span<const std::uint32_t> mask(std::size_t i) const {
    const std::size_t n = masks.size() / size();
    return std::span(masks).subspan(i * n, n);
  }
};

/// Settings that draw the receipt's tokens from these rows when put in place of the receipt's,
/// each alone: "temperature 0.8". Usual values are tried, and seeds below 10,000; of each setting
/// the first that fits is named. Empty: none, or no row.
/// Cost: mostly one draw a value, 13,000 values.
std::vector<std::string> settings_that_draw(const Receipt& receipt, const DrawnRows& rows,
                                            const Tokenizer& tokenizer, const ChatStyle* style);

}  // namespace llm
