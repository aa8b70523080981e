#include "base/aligned_buffer.h"
#include "base/cpu_features.h"
#include "tests/support/test.h"

namespace llm::test {

TEST_CASE("buffers are aligned, zero and writable to the end", "[base][aligned_buffer]") {
  constexpr std::uint64_t kMapped = std::uint64_t{4} << 20;  // from here on: huge pages
  const std::uint64_t count =
      GENERATE_COPY(1U, 15U, 16U, 17U, 1000U, kMapped / 4 - 1, kMapped / 4, kMapped / 4 + 1);
  CAPTURE(count);
  auto buffer = require_ok(AlignedBuffer<float>::allocate(count, "test"));
  REQUIRE(buffer.size() == count);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  CHECK(address % 64 == 0);
  if (count * 4 >= kMapped) CHECK(address % (std::uintptr_t{2} << 20) == 0);
  const auto all = buffer.span();
  CHECK(std::all_of(all.begin(), all.end(), [](float x) { return x == 0; }));
  std::fill(all.begin(), all.end(), 1.0F);
  CHECK(buffer[count - 1] == 1.0F);
}

TEST_CASE("a freed and reused buffer is zero again", "[base][aligned_buffer]") {
  for (int round = 0; round < 3; ++round) {
    auto buffer = require_ok(AlignedBuffer<std::uint64_t>::allocate(100, "test"));
    const auto all = buffer.span();
    REQUIRE(std::all_of(all.begin(), all.end(), [](std::uint64_t x) { return x == 0; }));
    std::fill(all.begin(), all.end(), ~std::uint64_t{0});
  }
}

TEST_CASE("an empty buffer needs no memory", "[base][aligned_buffer]") {
  const auto buffer = require_ok(AlignedBuffer<double>::allocate(0, "test"));
  CHECK(buffer.size() == 0);
  CHECK(buffer.span().empty());
}

TEST_CASE("what cannot be had is refused with the MiB needed", "[base][aligned_buffer]") {
  // 2^62 elements of 8 bytes wrap; the others do not exist.
  for (const std::uint64_t count :
       {std::uint64_t{1} << 62, UINT64_MAX, UINT64_MAX / 8, std::uint64_t{1} << 50}) {
    CAPTURE(count);
    const Error buffer =
        must_fail(AlignedBuffer<std::uint64_t>::allocate(count, "KV cache"), ErrorCode::kResource);
    CHECK_THAT(buffer.to_string(),
               Catch::Matchers::StartsWith("KV cache: need ") && Catch::Matchers::Contains(" MiB"));
  }
}

TEST_CASE("moving a buffer moves its memory", "[base][aligned_buffer]") {
  auto made = require_ok(AlignedBuffer<int>::allocate(10, "test"));
  made[3] = 7;
  const int* const data = made.data();
  AlignedBuffer<int> moved(std::move(made));
  CHECK(moved.data() == data);
  CHECK(moved[3] == 7);
  AlignedBuffer<int> assigned;
  assigned = std::move(moved);
  CHECK(assigned.data() == data);
  CHECK(assigned.size() == 10);
}

TEST_CASE("instruction sets have one name each, and it leads back", "[base][cpu_features]") {
  REQUIRE_FALSE(all_isas().empty());
  for (const Isa isa : all_isas()) {
    CHECK(isa_from_name(isa_name(isa)) == isa);
    CHECK_FALSE(isa_requirement(isa).empty());
  }
  CHECK(isa_name(Isa::kAvxVnni) == "avxvnni");
  CHECK(isa_name(Isa::kAvx512Vnni) == "avx512vnni");
  CHECK(isa_name(Isa::kAmx) == "amx");
  CHECK(isa_name(Isa::kNeon) == "neon");
  CHECK_FALSE(isa_from_name("avx").has_value());
  CHECK_FALSE(isa_from_name("AVX2").has_value());
  CHECK_FALSE(isa_from_name("").has_value());
}

TEST_CASE("of the supported instruction sets the last one is the best", "[base][cpu_features]") {
  CHECK(isa_supported(Isa::kScalar));
  CHECK((!isa_supported(Isa::kAmx) || isa_supported(Isa::kAvx512Vnni)));
  CHECK_FALSE((isa_supported(Isa::kNeon) && isa_supported(Isa::kAvx2)));
  std::optional<Isa> last;
  for (const Isa isa : all_isas()) {
    if (isa_supported(isa)) last = isa;
  }
  CHECK(last == best_isa());
  CHECK_FALSE(cpu_name().empty());
}

}  // namespace llm::test
