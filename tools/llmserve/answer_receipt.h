#pragma once

#include <cstddef>

#include "engine/serve/text_service.h"
#include "tools/llmserve/answer_request.h"
#include "tools/llmserve/served_model.h"
#include "validate/receipt/receipt.h"

namespace llm {

/// What `llmcheck --replay` needs to check a choice. @pre the text has its hashes
Receipt receipt_of(const ServedModel& served, const AnswerRequest& request, std::size_t index,
                   const ServedText& text);

}  // namespace llm
