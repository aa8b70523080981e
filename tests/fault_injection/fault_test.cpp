// The words in which faults are named: what strikes where, and that it is noted.

#include "tests/fault_injection/fault.h"

#include "tests/support/test.h"

namespace llm::faults {
namespace {

TEST_CASE("a site has the faults of its name alone", "[faults]") {
  plant("");
  CHECK(planted("matmul") == nullptr);
  plant("matmul_of_others:row=1,rope:pair=1");
  CHECK(planted("matmul") == nullptr);
  CHECK(planted("rope") != nullptr);
  plant("exchange:role=a,exchange:role=b");
  CHECK(planted("exchange", 0)->name("role") == "a");
  CHECK(planted("exchange", 1)->name("role") == "b");
  CHECK(planted("exchange", 2) == nullptr);
}

TEST_CASE("a fault strikes where all its conditions hold, and that is noted", "[faults]") {
  plant("matmul:type=Q5_K:row%16=15:token>319:x<-30:effect=ulp");
  CHECK_FALSE(strikes("matmul", {{"type", "Q4_K"}, {"row", 31}, {"token", 320}, {"x", -30.5}}));
  CHECK_FALSE(strikes("matmul", {{"type", "Q5_K"}, {"row", 32}, {"token", 320}, {"x", -30.5}}));
  CHECK_FALSE(strikes("matmul", {{"type", "Q5_K"}, {"row", 31}, {"token", 319}, {"x", -30.5}}));
  CHECK_FALSE(strikes("matmul", {{"type", "Q5_K"}, {"row", 31}, {"token", 320}, {"x", -30.0}}));
  CHECK_FALSE(strikes("matmul", {{"type", "Q5_K"}, {"row", 31}, {"token", 320}}));  // x: not known
  CHECK_FALSE(has_struck());
  CHECK(strikes("matmul", {{"type", "Q5_K"}, {"row", 31}, {"token", 320}, {"x", -30.5}}));
  CHECK(has_struck());
}

TEST_CASE("conditions are bound in steps, and the effect is left", "[faults]") {
  plant("matmul:isa=avx2:row=3:effect=stale");
  CHECK_FALSE(planted("matmul", {{"isa", "scalar"}}));
  const auto fault = planted("matmul", {{"isa", "avx2"}});
  REQUIRE(fault);
  CHECK(fault->is("stale"));
  CHECK_FALSE(fault->is("ulp"));
  CHECK(fault->holds({{"row", 3}}));
  CHECK_FALSE(fault->holds({{"row", 4}}));
  CHECK_FALSE(fault->holds({}));
  CHECK(fault->number("row") == 3.0);
}

}  // namespace
}  // namespace llm::faults
