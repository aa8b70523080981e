#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generation/chat_style.h"
#include "engine/generation/speculation.h"
#include "engine/sampler/sampler.h"
#include "quant/numerics/contract.h"
#include "validate/outputs/quality/baseline.h"

namespace llm {

/// A way to make a text, the same in every run. New ones are appended; a changed one gets another
/// name.
struct EquivalenceCase {
  std::string_view name;
  Compute compute = Compute::kInt8;
  KvType kv = KvType::kF16;
  std::string_view text;       ///< the prompt; of a chat the first message
  std::string_view next = {};  ///< of a chat the second message
  std::string_view chat = {};  ///< the built-in template of a chat
  SamplerOptions sampler = {.temperature = 0};
  std::size_t n_tokens = 32;  ///< of each reply
  std::size_t context = 128;  ///< less than the text needs: it is shifted
};
std::span<const EquivalenceCase> equivalence_cases();

/// A row of logits, as little of it as tells it from others and says how they differ.
struct FrozenRow {
  TokenId top = 0;   ///< the most likely token
  float logit = 0;   ///< its logit
  std::string hash;  ///< of the row, the first 16 digits of its SHA-256

  friend bool operator==(const FrozenRow&, const FrozenRow&) = default;
};

/// What a case gave, or gives.
struct CaseText {
  std::string name;
  std::vector<TokenId> prompt;  ///< ids of the text; of a chat those before its first reply
  std::vector<TokenId> tokens;  ///< generated, of all replies
  std::vector<FrozenRow> rows;  ///< of every position evaluated, in order
  std::string logits_sha256;    ///< over all rows, as llmrun --logits-hash

  friend bool operator==(const CaseText&, const CaseText&) = default;
};

/// Runs one case. An end of text is never drawn, so every text has its length.
/// @param model  with the case's compute. @param speculation  proposes tokens; may be null
/// Errors: those of generate().
Result<CaseText> run_case(const std::shared_ptr<const Model>& model, const EquivalenceCase& which,
                          Speculation* speculation = nullptr);

/// Where two texts of a case part, in words: the first id of the prompt, else the first token and
/// the first row of logits, each with both values. Empty when they are equal.
/// @param spelling  how an id is shown
std::string text_difference(const CaseText& actual, const CaseText& frozen,
                            const std::function<std::string(TokenId)>& spelling);

/// What a model gave when somebody said that it is right: "llmcheck-equivalence/1".
struct FrozenTexts {
  BaselineOrigin origin = {};  ///< text_sha256 is empty: the texts are the cases' own
  unsigned contract_version = contract::kContractVersion;
  std::vector<CaseText> cases = {};
};

std::string frozen_json(const FrozenTexts& frozen);
/// Errors: kMalformed naming the path of the value, what was found and what is needed.
Result<FrozenTexts> parse_frozen(std::string_view json);

/// Whether `made` may replace `old`: results of the same model under the same version of the
/// numeric contract do not change. Cases may come and go.
/// Errors: kIntegrity naming the first case that changed, and how.
Status check_replaces(const FrozenTexts& made, const FrozenTexts& old);

}  // namespace llm
