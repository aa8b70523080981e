// Work on a stack of a known size.

#include "base/bounded_stack.h"

#include <pthread.h>

#include "tests/support/test.h"

namespace llm {

TEST_CASE("work has the stack that it asks for", "[base]") {
  for (const std::size_t bytes : {std::size_t{256} << 10, std::size_t{16} << 20}) {
    std::size_t found = 0;
    test::require_ok(run_on_stack(bytes, [&] {
      pthread_attr_t attributes;
      REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
      pthread_attr_getstacksize(&attributes, &found);
      pthread_attr_destroy(&attributes);
    }));
    CHECK(found >= bytes);
    CHECK(found < 2 * bytes);
  }
}

TEST_CASE("what work throws is thrown where it was given", "[base]") {
  CHECK_THROWS_AS(run_on_stack(std::size_t{256} << 10, [] { throw std::out_of_range("x"); }).ok(),
                  std::out_of_range);
}

TEST_CASE("bad input 96: a thread that the system refuses is an error", "[base]") {
  bool was_begun = false;
  const Status refused = run_on_stack(std::size_t{1} << 50, [&] { was_begun = true; });
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResource);
  CHECK_THAT(refused.error().to_string(),
             Contains("threads: found one with a stack of ") && Contains("refused"));
  CHECK(!was_begun);
}

}  // namespace llm
