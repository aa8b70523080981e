#pragma once

#include <string>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace llm {

/// The tokens with a part of their own, one a line: part, id, spelling. Several may end a text.
std::string special_tokens_text(const Tokenizer& tokenizer);

/// {"bos": id or null, ..., "fim": {"prefix": id or null, ...}, "end_of_generation": [ids]}
Json special_tokens_json(const Tokenizer& tokenizer);

}  // namespace llm
