#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// The tokens with a part of their own, one a line: part, id, spelling. Several may end a text.
std::string special_tokens_text(const Tokenizer& tokenizer);

/// {"bos": id or null, ..., "fim": {"prefix": id or null, ...}, "end_of_generation": [ids]}
Json special_tokens_json(const Tokenizer& tokenizer);

/// A reference line whose ids (or decoded text) are not ours.
struct LineMismatch {
  std::size_t line = 0;  ///< from 1
  std::string text;
  std::vector<TokenId> expected;
  std::vector<TokenId> found;
  std::size_t first = 0;  ///< index of the first id that differs; == found.size() if none does
};

struct TokenCheck {
  std::size_t matched = 0;
  std::size_t total = 0;
  std::vector<LineMismatch> mismatches;  ///< the first few
  bool passed() const { return matched == total; }
};

/// Compares encode() with reference lines {"text": STRING, "ids": [INTEGER...]} and, where a line
/// has "decoded", decode() of its ids with that. BOS (EOS) is expected where the reference's ids
/// begin (end) with it and the text does not spell it out.
/// Errors (kMalformed): a line that is no such object; no lines, or no ids in any.
Result<TokenCheck> check_tokens(const Tokenizer& tokenizer, std::string_view reference,
                                bool parse_special);

}  // namespace llm
