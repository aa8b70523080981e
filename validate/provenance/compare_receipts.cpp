#include "validate/provenance/compare_receipts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "validate/provenance/receipt_checks.h"

namespace llm {
namespace {

/// Leading tokens that both have.
std::size_t n_equal(const std::vector<TokenId>& x, const std::vector<TokenId>& y) {
  return static_cast<std::size_t>(std::ranges::mismatch(x, y).in1 - x.begin());
}

}  // namespace

std::optional<Parting> parting_of(const Receipt& a, const Receipt& b) {
  const std::vector<TokenId> of_a = a.tokens();
  const std::vector<TokenId> of_b = b.tokens();
  const std::size_t shortest = std::min(a.prompt_ids.size(), b.prompt_ids.size());
  const std::size_t at = n_equal(of_a, of_b);
  if (at < shortest) {
    if (a.ids == b.ids) return std::nullopt;
    const std::size_t n = n_equal(a.ids, b.ids);
    return Parting{n, {a.prompt_ids.size() + n, b.prompt_ids.size() + n}};
  }
  if (at == of_a.size() && at == of_b.size()) return std::nullopt;
  return Parting{at - shortest, {at, at}};
}

Result<std::optional<DrawnFrom>> drawn_from(const std::shared_ptr<const Model>& model,
                                            const Receipt& receipt, std::size_t at,
                                            std::size_t n_top) {
  const std::vector<TokenId> tokens = receipt.tokens();
  LLM_CHECK(at >= 1 && at <= tokens.size());
  ReceiptModel of_model(*model);
  LLM_RETURN_IF_ERROR(ReceiptTerms::of(of_model, receipt));
  if (at > receipt.context) return std::optional<DrawnFrom>();
  LLM_TRY(const auto sequence,
          open_sequence(model, {.context = receipt.context, .kv = receipt.kv}));
  LLM_TRY(const auto row, sequence->evaluate(std::span(tokens).first(at), LogitRows::kLast));
  DrawnFrom from;
  from.row.assign(row.begin(), row.end());
  const bool has_token = at < tokens.size();
  Logprobs logprobs = logprobs_of(row, has_token ? tokens[at] : 0, n_top);
  from.top = std::move(logprobs.top);
  if (has_token) from.chosen = logprobs.chosen;
  return std::optional(std::move(from));
}

std::vector<std::string> different_settings(const Receipt& a, const Receipt& b) {
  std::vector<std::string> out;
  const OrderedJson of_a = parse_ordered_json(receipt_json(a));
  const OrderedJson of_b = parse_ordered_json(receipt_json(b));
  const auto value = [](const OrderedJson& json, const std::string& name) {
    return json.contains(name) ? json_text(json[name]) : std::string("the default");
  };
  const auto compare = [&](const OrderedJson& one, const OrderedJson& other, bool has_shared) {
    for (const auto& [name, ignored] : one.items()) {
      if (other.contains(name) != has_shared) continue;
      if (has_shared && one[name] == other[name]) continue;
      out.push_back(fmt::format("{}: {} and {}", name, value(of_a["options"], name),
                                value(of_b["options"], name)));
    }
  };
  if (a.model_sha256 != b.model_sha256)
    out.push_back(fmt::format("model: {} and {}", a.model_sha256.substr(0, 12),
                              b.model_sha256.substr(0, 12)));
  compare(of_a["options"], of_b["options"], true);
  compare(of_a["options"], of_b["options"], false);
  compare(of_b["options"], of_a["options"], false);
  if (a.prompt_ids != b.prompt_ids) {
    const auto [shorter, longer] =
        a.prompt_ids.size() < b.prompt_ids.size() ? std::pair(&a, &b) : std::pair(&b, &a);
    const std::size_t at = n_equal(longer->prompt_ids, shorter->tokens());
    out.push_back(
        at == longer->prompt_ids.size()
            ? fmt::format("prompt: the longer one is the shorter one with {} tokens of its output",
                          at - shorter->prompt_ids.size())
            : fmt::format("prompt: {} and {} tokens, different from token {} on",
                          a.prompt_ids.size(), b.prompt_ids.size(),
                          n_equal(a.prompt_ids, b.prompt_ids)));
  }
  return out;
}

}  // namespace llm
