#include "validate/outputs/equivalence/cases.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/json_members.h"
#include "base/sha256.h"
#include "engine/generation/conversation.h"
#include "engine/generation/generate.h"
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
     .chat = "chatml",
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
  LLM_TRY(auto style, ChatStyle::create(std::string(which.chat),
                                        std::string(ChatStyle::built_in_text(which.chat)),
                                        session.tokenizer()));
  Conversation conversation(session, std::move(style));
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

constexpr std::string_view kFrozenFormat = "llmcheck-equivalence/1";
constexpr std::size_t kRowEntries = 3;

std::string line(const OrderedJson& json) { return json_text(json); }

/// One line for each member, or the ten thousand numbers would have one each.
std::string case_json(const CaseText& text) {
  OrderedJson rows = OrderedJson::array();
  for (const FrozenRow& row : text.rows) rows.push_back({row.top, row.logit, row.hash});
  return fmt::format(
      "    {{\"name\": {},\n     \"logits_sha256\": {},\n     \"prompt\": {},\n     \"tokens\": "
      "{},\n     \"rows\": {}}}",
      line(text.name), line(text.logits_sha256), line(text.prompt), line(text.tokens), line(rows));
}

Result<FrozenRow> read_row(const Json& json, const std::string& path) {
  LLM_RETURN_IF_ERROR(JsonMembers::check_array(json, path, kRowEntries));
  constexpr double kLargest = static_cast<double>(std::numeric_limits<float>::max());
  if (!json[0].is_number_unsigned() || !json[1].is_number() ||
      !(std::abs(json[1].get<double>()) <= kLargest) || !json[2].is_string())
    return malformed_json(path, "other entries", "a token id, its logit and a hash");
  return FrozenRow{json[0].get<TokenId>(), json[1].get<float>(), json[2].get<std::string>()};
}

Result<CaseText> read_case(const Json& json, const std::string& path) {
  if (!json.is_object()) return malformed_json(path, shown_json(json), "an object");
  const JsonMembers members(json, path);
  CaseText text;
  LLM_TRY(text.name, members.text("name"));
  LLM_TRY(text.logits_sha256, members.sha256("logits_sha256"));
  LLM_TRY(text.prompt, members.ids("prompt", std::nullopt));
  LLM_TRY(text.tokens, members.ids("tokens", std::nullopt));
  LLM_TRY(const Json* rows, members.array("rows", std::nullopt));
  for (const Json& row : *rows) {
    LLM_TRY(FrozenRow read,
            read_row(row, fmt::format("{}[{}]", members.field("rows"), text.rows.size())));
    text.rows.push_back(std::move(read));
  }
  return text;
}

}  // namespace

std::span<const EquivalenceCase> equivalence_cases() { return kCases; }

Result<CaseText> run_case(const std::shared_ptr<const Model>& model, const EquivalenceCase& which,
                          Speculation* speculation) {
  CaseText out;
  out.name = which.name;
  LLM_TRY(const auto session, open_sequence(model, {.context = which.context, .kv = which.kv}));
  Rows rows(model->config().n_vocab, out);
  GenerateOptions options;
  options.sampler = which.sampler;
  options.max_tokens = which.n_tokens;
  options.ignore_eos = true;
  options.context_shift = true;
  options.speculation = speculation;
  options.on_logits = [&](std::span<const float> some) { rows.add(some); };
  if (!which.chat.empty()) {
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

std::string frozen_json(const FrozenTexts& frozen) {
  std::string cases;
  for (const CaseText& text : frozen.cases) cases += (cases.empty() ? "" : ",\n") + case_json(text);
  const BaselineOrigin& o = frozen.origin;
  return fmt::format(
      "{{\"format\": \"{}\",\n  \"contract_version\": {},\n  \"model_sha256\": {},\n  "
      "\"engine_version\": {},\n  \"timestamp\": {},\n  \"reason\": {},\n  \"cases\": [\n{}\n  "
      "]}}\n",
      kFrozenFormat, frozen.contract_version, line(o.model_sha256), line(o.engine_version),
      line(o.timestamp), line(o.reason), cases);
}

Result<FrozenTexts> parse_frozen(std::string_view text) {
  LLM_TRY(const Json json, parse_json_object(text));
  const JsonMembers members(json, "");
  LLM_RETURN_IF_ERROR(members.format(kFrozenFormat));
  FrozenTexts out;
  LLM_TRY(const std::size_t version,
          members.count("contract_version", 1, std::numeric_limits<int>::max()));
  out.contract_version = static_cast<unsigned>(version);
  LLM_TRY(out.origin.model_sha256, members.sha256("model_sha256"));
  LLM_TRY(out.origin.engine_version, members.text("engine_version"));
  LLM_TRY(out.origin.timestamp, members.text("timestamp"));
  LLM_TRY(out.origin.reason, members.text("reason"));
  LLM_TRY(const Json* cases, members.array("cases", std::nullopt));
  std::set<std::string> names;
  for (const Json& entry : *cases) {
    const std::string path = fmt::format("cases[{}]", out.cases.size());
    LLM_TRY(CaseText read, read_case(entry, path));
    if (!names.insert(read.name).second)
      return malformed_json(path + ".name", shown_json(read.name) + " again", "names of their own");
    out.cases.push_back(std::move(read));
  }
  return out;
}

Status check_replaces(const FrozenTexts& made, const FrozenTexts& old) {
  if (made.origin.model_sha256 != old.origin.model_sha256 ||
      made.contract_version != old.contract_version)
    return Ok{};
  for (const CaseText& text : made.cases) {
    const auto found = std::ranges::find(old.cases, text.name, &CaseText::name);
    if (found == old.cases.end() || *found == text) continue;
    return Error{
        .code = ErrorCode::kIntegrity,
        .field = "contract_version",
        .message = fmt::format(
            "found {}, under which \"{}\" is stored with different results ({}), need a higher one",
            made.contract_version, text.name,
            text_difference(text, *found, [](TokenId id) { return std::to_string(id); })),
        .hint = "if results change, increase contract::kContractVersion first (docs/numerics.md)"};
  }
  return Ok{};
}

}  // namespace llm
