#include "base/result.h"

#include "base/checked_size.h"
#include "tests/support/test.h"

namespace llm {
namespace {

Error some_error() {
  return Error{.code = ErrorCode::kIo, .field = "key", .message = "found 1, need 2"};
}

}  // namespace

TEST_CASE("an error's text leaves absent parts out", "[base][result]") {
  Error error{.code = ErrorCode::kMalformed, .field = "", .message = "found 1, need 2"};
  CHECK(error.to_string() == "found 1, need 2");
  error.field = "n_kv";
  CHECK(error.to_string() == "n_kv: found 1, need 2");
  error.offset = 16;
  CHECK(error.to_string() == "n_kv (byte 16): found 1, need 2");
  error.file = "a.gguf";
  error.hint = "download it again";
  CHECK(error.to_string() == "a.gguf: n_kv (byte 16): found 1, need 2; download it again");
  error.field = "";
  CHECK(error.to_string() == "a.gguf: (byte 16): found 1, need 2; download it again");
}

TEST_CASE("the file that a deeper layer named stays", "[base][result]") {
  CHECK(in_file(some_error(), "outer").file == "outer");
  CHECK(in_file(in_file(some_error(), "inner"), "outer").file == "inner");
}

TEST_CASE("checked sizes tell overflow from any result", "[base][checked_size]") {
  constexpr std::uint64_t kMax = UINT64_MAX;
  CHECK(*(CheckedSize(6) * 7 + 8).value() == 50);
  CHECK(*(CheckedSize(kMax) * 1 + 0).value() == kMax);
  CHECK(*(CheckedSize(kMax) * 0).value() == 0);
  CHECK_FALSE((CheckedSize(kMax) + 1).value().has_value());
  CHECK_FALSE((CheckedSize(std::uint64_t{1} << 32) * (std::uint64_t{1} << 32)).value().has_value());
  // 34-byte blocks whose byte size would wrap to 4.
  CHECK_FALSE((CheckedSize(4340410370284600384 / 32) * 34 * 4).value().has_value());
  CHECK_FALSE(((CheckedSize(kMax) + 1) * 0).value().has_value());  // once lost, always lost
  CHECK_FALSE(((CheckedSize(kMax) * 2) + 0).value().has_value());
  static_assert((CheckedSize(2) * 3).value() == 6);
}

TEST_CASE("aligning up never wraps unseen", "[base][checked_size]") {
  CHECK(*CheckedSize(0).align_up(32).value() == 0);
  CHECK(*CheckedSize(1).align_up(32).value() == 32);
  CHECK(*CheckedSize(32).align_up(32).value() == 32);
  CHECK(*CheckedSize(33).align_up(1).value() == 33);
  CHECK(*CheckedSize(UINT64_MAX - 31).align_up(32).value() == UINT64_MAX - 31);
  CHECK_FALSE(CheckedSize(UINT64_MAX - 30).align_up(32).value().has_value());
  CHECK_FALSE(CheckedSize(UINT64_MAX).align_up(4096).value().has_value());
}

}  // namespace llm
