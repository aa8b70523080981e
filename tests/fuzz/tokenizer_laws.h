#pragma once

#include <string_view>

#include "tokenizer/tokenizer.h"

namespace llm::fuzz {

/// What docs/tokenizer.md promises of any vocabulary and any bytes: ids are ids; a text comes back
/// unless its vocabulary says that it cannot; ids become the same text one by one as at once.
/// @param ids  bytes from which more ids are made, in any order
void check_tokenizer(const Tokenizer& tokenizer, std::string_view text, std::string_view ids);

}  // namespace llm::fuzz
