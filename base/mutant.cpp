#include "base/mutant.h"

#ifdef LLM_BUILD_MUTANTS
#include <cstdlib>
#include <string_view>

namespace llm {

bool is_mutant(const char* id) {
  const char* value = std::getenv("LLM_MUTANT");
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (rest.substr(0, comma) == id) return true;
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace llm
#endif
