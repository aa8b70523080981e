#pragma once

namespace llm::test {

/// Whether the build has sanitizers, which make scalar code 10 to 50 times slower. Long tests then
/// take fewer tokens, threads and splits, but still every weight type, instruction set and shape:
/// sanitizers look for wrong accesses, which do not depend on how often a path is taken
/// (docs/testing.md).
#ifdef LLM_SANITIZE
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// `full`, or `reduced` with sanitizers.
template <typename T>
constexpr T effort(T full, T reduced) {
  return kSanitized ? reduced : full;
}

}  // namespace llm::test
