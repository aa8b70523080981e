#include "validate/text/equivalence/cases.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "engine/generate/conversation.h"
#include "engine/generate/generate.h"
#include "validate/reference/diff/likelihood.h"

namespace llm {
namespace {

constexpr std::size_t kHashDigits = 16;

constexpr SamplerOptions usual(std::uint64_t seed) {
  SamplerOptions options = kUsualSampling;
  options.seed = seed;
  return options;
}

constexpr SamplerOptions penalized(SamplerOptions options) {
  options.repeat_penalty = 1.1F;
  return options;
}

/// Repeats are wanted, so every token counts that is in the past, or is not: the newest most.
constexpr SamplerOptions repeating(SamplerOptions options) {
  options.repeat_penalty = 0.5F;
  options.repeat_last_n = 5;
  return options;
}

constexpr SamplerOptions hot(std::uint64_t seed) {
  SamplerOptions options = usual(seed);
  options.temperature = 1.5F;
  options.order = SamplerOrder::kLlamaCpp;
  return options;
}

constexpr std::string_view kOnce = "Once upon a time";
constexpr std::string_view kFox = "One day, a little fox named Pip found a red ball near the mill.";

constexpr EquivalenceCase kCases[] = {
    {.name = "greedy, int8, f16 cache", .text = kOnce},
    {.name = "greedy, int8, f32 cache", .kv = KvType::kF32, .text = kOnce},
    {.name = "greedy, int8, q8 cache", .kv = KvType::kQ8, .text = kOnce},
    {.name = "greedy, f32, f16 cache", .compute = Compute::kF32, .text = kOnce},
    {.name = "greedy, f32, f32 cache", .compute = Compute::kF32, .kv = KvType::kF32, .text = kOnce},
    {.name = "sampled as llmrun does", .text = kFox, .sampler = usual(4), .n_tokens = 64},
    {.name = "sampled, llama.cpp's order, temperature 1.5",
     .text = kFox,
     .sampler = hot(5),
     .n_tokens = 64},
    {.name = "sampled, repeat penalty",
     .text = kFox,
     .sampler = penalized(usual(6)),
     .n_tokens = 64},
    {.name = "sampled, repeat penalty 0.5 over 5 tokens",
     .text = kFox,
     .sampler = repeating(usual(9)),
     .n_tokens = 64},
    {.name = "chat of two turns, chatml",
     .text = "Tell me a story about a dog.",
     .next = "What did the dog do then?",
     .chat = ChatFormat::kChatMl,
     .sampler = usual(7),
     .n_tokens = 24,
     .context = 256},
    {.name = "context shift",
     .text = kFox,
     .sampler = penalized(usual(8)),
     .n_tokens = 64,
     .context = 48},
};

/// Takes every row of logits once, in order.
class Rows {
 public:
  Rows(std::size_t n_vocab, CaseText& out) : n_vocab_(n_vocab), out_(out) {}

  void add(std::span<const float> rows) {
    all_.update(std::as_bytes(rows));
    for (std::size_t i = 0; i < rows.size(); i += n_vocab_) {
      const auto row = rows.subspan(i, n_vocab_);
      const std::size_t top = top_token(row);
      out_.rows.push_back({static_cast<TokenId>(top), row[top],
                           sha256_hex(std::as_bytes(row)).substr(0, kHashDigits)});
    }
  }
  void finish() { out_.logits_sha256 = all_.hex(); }

 private:
  std::size_t n_vocab_;
  CaseText& out_;
  Sha256 all_;
};

Status converse(Session& session, const EquivalenceCase& which, const GenerateOptions& options,
                CaseText& out) {
  Conversation conversation(session, *which.chat);
  for (const std::string_view message : {which.text, which.next}) {
    LLM_RETURN_IF_ERROR(conversation.ask(std::string(message)));
    if (out.prompt.empty()) {
      LLM_TRY(out.prompt, conversation.text());
    }
    LLM_TRY(const GenerateResult reply, conversation.reply(options));
    out.tokens.insert(out.tokens.end(), reply.ids.begin(), reply.ids.end());
  }
  return Ok{};
}

/// "token 3: 17 and 9", of the first that differs; a list that ends has "none" there.
std::string first_id(std::string_view what, std::span<const TokenId> actual,
                     std::span<const TokenId> frozen,
                     const std::function<std::string(TokenId)>& spelling) {
  const auto at =
      static_cast<std::size_t>(std::ranges::mismatch(actual, frozen).in1 - actual.begin());
  if (at == actual.size() && at == frozen.size()) return {};
  const auto shown = [&](std::span<const TokenId> ids) {
    return at < ids.size() ? spelling(ids[at]) : std::string("none");
  };
  return fmt::format("{} {} is {}, frozen {}", what, at, shown(actual), shown(frozen));
}

std::string first_row(const CaseText& actual, const CaseText& frozen) {
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(actual.rows, frozen.rows).in1 -
                                           actual.rows.begin());
  if (at == actual.rows.size() || at == frozen.rows.size())
    return fmt::format("{} rows of logits, frozen {}", actual.rows.size(), frozen.rows.size());
  const FrozenRow& a = actual.rows[at];
  const FrozenRow& b = frozen.rows[at];
  if (a.top == b.top && a.logit == b.logit)
    return fmt::format("logits of row {}: SHA-256 {}..., frozen {}..., the largest is equal ({})",
                       at, a.hash, b.hash, a.logit);
  return fmt::format("logits of row {}: the largest is {} of token {}, frozen {} of token {}", at,
                     a.logit, a.top, b.logit, b.top);
}

}  // namespace

std::span<const EquivalenceCase> equivalence_cases() { return kCases; }

Result<CaseText> run_case(const std::shared_ptr<const Model>& model, const EquivalenceCase& which,
                          Speculation* speculation) {
  CaseText out;
  out.name = which.name;
  ExecutorOptions executor;
  executor.kv = which.kv;
  executor.context = which.context;
  LLM_TRY(const auto session, open_sequence(model, executor));
  Rows rows(model->config().n_vocab, out);
  GenerateOptions options;
  options.sampler = which.sampler;
  options.max_tokens = which.n_tokens;
  options.ignore_eos = true;
  options.context_shift = true;
  options.speculation = speculation;
  options.on_logits = [&](std::span<const float> some) { rows.add(some); };
  if (which.chat) {
    LLM_RETURN_IF_ERROR(converse(*session, which, options, out));
  } else {
    out.prompt = model->tokenizer().encode(which.text);
    LLM_TRY(const GenerateResult result, generate(*session, out.prompt, options));
    out.tokens = result.ids;
  }
  rows.finish();
  return out;
}

std::string text_difference(const CaseText& actual, const CaseText& frozen,
                            const std::function<std::string(TokenId)>& spelling) {
  if (actual == frozen) return {};
  std::string words = first_id("id of the prompt", actual.prompt, frozen.prompt, spelling);
  if (!words.empty()) return words;
  words = first_id("token", actual.tokens, frozen.tokens, spelling);
  if (words.empty()) words = fmt::format("{} tokens are equal", actual.tokens.size());
  return words + "; " + first_row(actual, frozen);
}

}  // namespace llm
