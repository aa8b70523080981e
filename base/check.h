#pragma once

namespace llm {

/// Reports a broken contract on stderr and aborts. Reached only through LLM_CHECK.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace llm

/// States a contract between pieces of this code, in every build. Never used on data: what a file
/// or a user may get wrong is a Result.
#define LLM_CHECK(condition)                           \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::llm::check_failed(#condition, __FILE__, __LINE__))
