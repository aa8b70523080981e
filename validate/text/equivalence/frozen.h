#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/contract/contract.h"
#include "validate/text/equivalence/cases.h"
#include "validate/text/quality/baseline.h"

namespace llm {

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
