#pragma once

#include <memory>
#include <string_view>

#include "tools/llmserve/http/http_server.h"

namespace llm {

/// Where errors are Ollama's: {"error": "words"}.
bool is_ollamas(std::string_view path);
/// The answer, if it is an error in OpenAI's shape, in that one.
HttpAnswer in_ollamas_shape(HttpAnswer answer);
/// The exchange with errors in that shape.
std::shared_ptr<HttpExchange> with_ollamas_errors(std::shared_ptr<HttpExchange> exchange);

}  // namespace llm
