#include "base/seeded_hash.h"

#include <unordered_set>

#include "tests/base/colliding_strings.h"
#include "tests/support/test.h"

namespace llm {
namespace {

template <typename Hash>
std::size_t largest_bucket(const std::vector<std::string>& strings) {
  const std::unordered_set<std::string_view, Hash> set(strings.begin(), strings.end());
  REQUIRE(set.size() == strings.size());
  std::size_t largest = 0;
  for (std::size_t b = 0; b < set.bucket_count(); ++b)
    largest = std::max(largest, set.bucket_size(b));
  return largest;
}

}  // namespace

TEST_CASE("SipHash-2-4 gives the values of its paper", "[base][hash]") {
  // Key 00 01 ... 0f, messages 00 01 ... (appendix A, and the authors' vectors.h).
  const std::array<std::uint64_t, 2> key = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
  std::string message;
  CHECK(sip_hash<2, 4>(key, message) == 0x726fdb47dd0e0e31U);
  for (char c = 0; c < 15; ++c) message += c;
  CHECK(sip_hash<2, 4>(key, message) == 0xa129ca6149be45e5U);
}

TEST_CASE("strings that collide under std::hash are spread over the table", "[base][hash]") {
  CHECK(largest_bucket<std::hash<std::string_view>>(test::colliding_strings(300)) == 300);
  CHECK(largest_bucket<SeededHash>(test::colliding_strings(60'000)) < 16);
}

}  // namespace llm
