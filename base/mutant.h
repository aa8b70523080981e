#ifndef LLM_BASE_MUTANT_H_
#define LLM_BASE_MUTANT_H_

/// A planted bug, for testing the tests (docs/testing.md): LLM_MUTANT("id") is the constant false,
/// unless the build option LLM_BUILD_MUTANTS is on; then it is whether the environment variable
/// LLM_MUTANT lists "id" (names separated by commas). tests/mutants/mutants.json says of each id
/// what must notice it.
#ifdef LLM_BUILD_MUTANTS
namespace llm {
/// Whether the environment variable LLM_MUTANT lists `id`.
bool is_mutant(const char* id);
}  // namespace llm
// A static at each place: asked once, cheap in loops.
#define LLM_MUTANT(id)                           \
  ([] {                                          \
    static const bool on = ::llm::is_mutant(id); \
    return on;                                   \
  }())
#else
#define LLM_MUTANT(id) false
#endif

#endif  // LLM_BASE_MUTANT_H_
