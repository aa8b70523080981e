#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tools/llmserve/api/request_fields.h"

namespace llm {

/// What a method does at a path.
struct Operation {
  std::string_view method;
  std::string_view path;  ///< "{name}" stands for what follows, to its end
  bool needs_key;
  const char* id;       ///< names its answers in response_schemas.json
  const char* summary;  ///< without a full stop
  /// What is sent: a name for it, and describe_fields() of its table.
  struct Body {
    const char* name = nullptr;  ///< null: nothing is
    void (*describe)(const std::function<void(const JsonFields&)>& use) = nullptr;
  } body = {};
  bool asks_model = false;  ///< the query may have `model`
};

/// The API as OpenAPI 3.1: paths from `operations`, bodies from the
/// tables that read them, answers from response_schemas.json.
std::string openapi_text(std::span<const Operation> operations);

}  // namespace llm
