// The switch of generated mutants: what strikes where, and that it is noted.

#include "tests/mutants/planted_fault.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/scratch_directory.h"

namespace llm {
namespace {

PlantedSite site_with(const char* mutant, const char* name = "matmul") {
  REQUIRE(setenv("LLM_MUTANT", mutant, 1) == 0);
  return PlantedSite(name);
}

TEST_CASE("a site is on for the items of its name alone", "[mutants]") {
  CHECK_FALSE(site_with("").on());
  CHECK_FALSE(site_with("matmul").on());
  CHECK_FALSE(site_with("rope:pair=1").on());
  CHECK_FALSE(site_with("matmul_of_others:row=1").on());
  CHECK(site_with("rope_theta,matmul:row=1").on());
}

TEST_CASE("a fault strikes where all its conditions hold", "[mutants]") {
  const PlantedSite site = site_with("matmul:type=Q5_K:row%16=15:token>319:x<-30:effect=ulp");
  CHECK(site.strikes({{"type", "Q5_K"}, {"row", 31}, {"token", 320}, {"x", -30.5}}));
  CHECK_FALSE(site.strikes({{"type", "Q4_K"}, {"row", 31}, {"token", 320}, {"x", -30.5}}));
  CHECK_FALSE(site.strikes({{"type", "Q5_K"}, {"row", 32}, {"token", 320}, {"x", -30.5}}));
  CHECK_FALSE(site.strikes({{"type", "Q5_K"}, {"row", 31}, {"token", 319}, {"x", -30.5}}));
  CHECK_FALSE(site.strikes({{"type", "Q5_K"}, {"row", 31}, {"token", 320}, {"x", -30.0}}));
  CHECK_FALSE(site.strikes({{"type", "Q5_K"}, {"row", 31}, {"token", 320}}));  // x is not known
}

TEST_CASE("conditions are bound in steps, and the effect is left", "[mutants]") {
  const PlantedSite site = site_with("matmul:isa=avx2:row=3:effect=stale");
  PlantedFault fault;
  CHECK_FALSE(site.bind({{"isa", "scalar"}}, fault));
  REQUIRE(site.bind({{"isa", "avx2"}}, fault));
  CHECK(fault.is("stale"));
  CHECK_FALSE(fault.is("ulp"));
  CHECK(fault.holds({{"row", 3}}));
  CHECK_FALSE(fault.holds({{"row", 4}}));
  CHECK_FALSE(fault.holds({}));
  CHECK(site.strikes({{"isa", "avx2"}, {"row", 3}, {"effect", "stale"}}));
  CHECK_FALSE(site.strikes({{"isa", "avx2"}, {"row", 3}, {"effect", "ulp"}}));
}

TEST_CASE("several items of one site strike each by itself", "[mutants]") {
  const PlantedSite site = site_with("tensor:role=a:takes=b,tensor:role=b:takes=a", "tensor");
  CHECK(site.strikes({{"role", "a"}, {"takes", "b"}}));
  CHECK(site.strikes({{"role", "b"}, {"takes", "a"}}));
  CHECK_FALSE(site.strikes({{"role", "a"}, {"takes", "a"}}));
}

TEST_CASE("what has struck is noted once", "[mutants]") {
  const test::ScratchDirectory scratch;
  const std::string path = scratch.path("trace");
  REQUIRE(setenv("LLM_MUTANT_TRACE", path.c_str(), 1) == 0);
  const PlantedSite site = site_with("matmul:row=1");
  CHECK_FALSE(site.strikes({{"row", 2}}));
  CHECK(test::read_file(path).empty());
  CHECK(site.strikes({{"row", 1}}));
  CHECK(site.strikes({{"row", 1}}));
  CHECK(test::read_file(path) == "matmul\n");
  unsetenv("LLM_MUTANT_TRACE");
}

}  // namespace
}  // namespace llm
