#include "base/float_environment.h"

#include "base/thread_team.h"
#include "tests/support/host_float_mode.h"
#include "tests/support/test.h"

namespace llm {
namespace {

using test::HostFloatMode;
using test::same_bits;

/// 1e6 as f16 by the CPU's own conversion: infinity, except on ARM in its other format.
float largest_half() {
#if defined(__aarch64__)
  volatile float large = 1e6F;
  volatile __fp16 half = static_cast<__fp16>(large);
  return half;
#else
  return std::numeric_limits<float>::infinity();
#endif
}

/// Results that depend on the rounding, on flushing results, on flushing operands and on the format
/// of f16.
std::array<float, 4> sensitive() {
  volatile float one = 1;
  volatile float three = 3;
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  return {-one / three, smallest / three, denormal * three, largest_half()};
}

}  // namespace

TEST_CASE("the host's float mode is set aside and comes back", "[base][float_environment]") {
  const auto expected = sensitive();
  const HostFloatMode host;
  REQUIRE(HostFloatMode::stands());
  REQUIRE(!same_bits(sensitive(), expected));
  {
    const FloatEnvironment contract;
    REQUIRE(same_bits(sensitive(), expected));
  }
  REQUIRE(HostFloatMode::stands());
}

TEST_CASE("workers compute the same in any host's float mode", "[base][float_environment]") {
  const auto expected = sensitive();
  for (const int n_threads : {1, 2, 5}) {
    CAPTURE(n_threads);
    const HostFloatMode host;
    std::vector<std::array<float, 4>> found(static_cast<std::size_t>(n_threads));
    run_parallel(n_threads,
                 [&](Worker worker) { found[static_cast<std::size_t>(worker.id)] = sensitive(); });
    CHECK(HostFloatMode::stands());
    for (const auto& values : found) CHECK(same_bits(values, expected));
  }
}

}  // namespace llm
