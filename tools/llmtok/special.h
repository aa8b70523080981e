#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/tokenizer.h"

namespace llm {

/// The tokens with a part of their own, one a line: part, id, spelling. Several may end a text.
std::string special_tokens_text(const Tokenizer& tokenizer);

/// {"bos": id or null, ..., "fim": {"prefix": id or null, ...}, "end_of_generation": [ids]}
nlohmann::json special_tokens_json(const Tokenizer& tokenizer);

}  // namespace llm
