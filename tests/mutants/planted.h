#ifndef LLM_TESTS_MUTANTS_PLANTED_H_
#define LLM_TESTS_MUTANTS_PLANTED_H_

/// The switch of the planted bugs (plant.py): PLANTED("id") is whether the environment variable
/// LLM_MUTANT lists "id" (names separated by commas). Asked once at each place, so cheap in loops.
///
/// Everything is local to its unit, and only C is called: a unit compiled for AVX must lend no code
/// to the others.

#include <cstdlib>
#include <cstring>

#include "tests/mutants/planted_codes.h"

namespace llm {
namespace {

[[maybe_unused]] bool is_planted(const char* id) {
  const std::size_t length = std::strlen(id);
  for (const char* name = std::getenv("LLM_MUTANT"); name != nullptr;) {
    const char* comma = std::strchr(name, ',');
    const std::size_t size =
        comma == nullptr ? std::strlen(name) : static_cast<std::size_t>(comma - name);
    if (size == length && std::memcmp(name, id, length) == 0) return true;
    name = comma == nullptr ? nullptr : comma + 1;
  }
  return false;
}

}  // namespace
}  // namespace llm

#define PLANTED(id)                               \
  ([] {                                           \
    static const bool on = ::llm::is_planted(id); \
    return on;                                    \
  }())

#endif  // LLM_TESTS_MUTANTS_PLANTED_H_
