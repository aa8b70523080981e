#include "base/hex.h"

#include "tests/support/test.h"

namespace llm {

TEST_CASE("two hex digits are a byte", "[base][hex]") {
  CHECK(hex_byte("00") == 0x00);
  CHECK(hex_byte("0A") == 0x0A);
  CHECK(hex_byte("fF") == 0xFF);
}

TEST_CASE("any other text is no byte", "[base][hex]") {
  const std::string_view text = GENERATE(
      values<std::string_view>({"", "0", "0A0", "0G", "G0", "-1", "+1", " 1", "1 ", "0x"}));
  CAPTURE(text);
  CHECK_FALSE(hex_byte(text).has_value());
}

}  // namespace llm
