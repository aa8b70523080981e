#pragma once

#include <string_view>

#include "base/result.h"
#include "validate/receipt/receipt.h"

namespace llm {

/// Reads and checks a receipt. Errors: kMalformed naming the field, kUnsupported for another
/// version of the format.
Result<Receipt> parse_receipt(std::string_view json);

}  // namespace llm
