#pragma once

#include <span>
#include <string>

#include "tools/llmserve/api/openapi.h"

namespace llm {

/// docs/fields.md: what each field of each body does, from the tables that read them.
std::string fields_page(std::span<const Operation> operations);

}  // namespace llm
