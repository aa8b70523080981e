// Sessions that keep what they should forget are planted by tests/faults.

#include "tests/support/embedded_model.h"
#include "tests/validate/check_results.h"
#include "validate/self/text_checks.h"

namespace llm::test {

TEST_CASE("a context shift leaves nothing of what was forgotten", "[self][shift]") {
  const auto loaded = embedded(1, "fable-3m-f16.gguf");
  ShiftCheckOptions options;
  options.contexts = {9, 24, 300};
  const auto results = require_ok(check_context_shift(loaded, KvType::kF16, options));
  CHECK(results.size() == 4);
  check_passed(results);
}

}  // namespace llm::test
