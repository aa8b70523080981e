#include "engine/model/rope.h"

#include "tests/support/test.h"

namespace llm {
namespace {

TEST_CASE("RoPE's cosines and sines are the nearest f32", "[model][golden]") {
  struct Record {  // of tests/golden/make_f64_functions.py
    float theta;
    std::uint32_t dims;
    std::uint32_t pair;
    std::uint32_t position;
    float cos;
    float sin;
  };
  const std::string bytes = test::read_file(LLM_SOURCE_DIR "/tests/golden/f64_functions/rope.bin");
  REQUIRE(bytes.size() > 2000 * sizeof(Record));
  std::vector<Record> records(bytes.size() / sizeof(Record));
  std::memcpy(records.data(), bytes.data(), records.size() * sizeof(Record));
  for (const Record& r : records) {
    CAPTURE(r.theta, r.dims, r.pair, r.position);
    RopeSpec spec;
    spec.theta = r.theta;
    spec.dims = r.dims;
    const Rope rope(spec, {});
    std::vector<float> cos(rope.pairs());
    std::vector<float> sin(rope.pairs());
    rope.angles(r.position, cos, sin);
    REQUIRE(cos[r.pair] == r.cos);
    REQUIRE(sin[r.pair] == r.sin);
  }
}

}  // namespace
}  // namespace llm
