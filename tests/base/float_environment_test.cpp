#include "base/float_environment.h"

#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/thread_team.h"
#include "tests/support/catch.h"
#include "tests/support/host_float_mode.h"

namespace llm {
namespace {

using test::HostFloatMode;

/// Results that depend on the rounding, on flushing results and on flushing operands.
std::array<float, 3> sensitive() {
  volatile float one = 1;
  volatile float three = 3;
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  return {one / three, smallest / three, denormal * three};
}

bool same_bits(const std::array<float, 3>& a, const std::array<float, 3>& b) {
  return std::memcmp(a.data(), b.data(), sizeof(a)) == 0;
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
    std::vector<std::array<float, 3>> found(static_cast<std::size_t>(n_threads));
    run_parallel(n_threads,
                 [&](Worker worker) { found[static_cast<std::size_t>(worker.id)] = sensitive(); });
    CHECK(HostFloatMode::stands());
    for (const auto& values : found) CHECK(same_bits(values, expected));
  }
}

}  // namespace llm
