// Every truncation of a small model and every flipped bit of its metadata. What is looked for is
// mostly what the sanitizers report; build with the asan-ubsan preset. Each case runs on an
// allocation of exactly its size, so that one byte too far is seen.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/model_file.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_gguf.h"

namespace llm {
namespace {

using test::TinyGguf;

Result<ModelContents> open_exactly(std::span<const std::byte> bytes) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  auto result = open_model_bytes({copy.get(), bytes.size()});
  return result;  // its views dangle: callers look at errors and copies only
}

/// The end of the last tensor's data: from here on there is only padding.
std::size_t data_end(const TinyGguf& model) {
  const TinyGguf::Tensor& last = model.tensors.back();
  return model.header_bytes() + model.default_offset(last.name) + last.data.size();
}

TEST_CASE("every truncation is refused as malformed, naming a field", "[fuzz][gguf]") {
  const TinyGguf model = TinyGguf::llama();
  const std::vector<std::byte> bytes = model.bytes();
  REQUIRE(open_exactly(bytes).ok());
  const std::size_t end = data_end(model);
  for (std::size_t size = 0; size < end; ++size) {
    const auto result = open_exactly(std::span(bytes).first(size));
    if (!result.ok() && result.error().code == ErrorCode::kMalformed &&
        !result.error().field.empty() && result.error().offset.has_value()) {
      continue;
    }
    CAPTURE(size, end, result.ok());
    FAIL("a truncation was accepted or refused without field and offset");
  }
}

TEST_CASE("a file without its final padding loads", "[fuzz][gguf]") {
  TinyGguf model = TinyGguf::llama();
  // A last tensor that needs padding: one float fewer than a multiple of 32 bytes cannot be had
  // from the model's own, so a small unknown one ends the file.
  model.tensors.push_back({.name = "extra", .dims = {3}, .type = 0, .data = std::string(12, '\0')});
  const std::vector<std::byte> bytes = model.bytes();
  const std::size_t end = data_end(model);
  REQUIRE(bytes.size() == end + 20);
  for (std::size_t size = end; size <= bytes.size(); ++size) {
    CAPTURE(size);
    CHECK(open_exactly(std::span(bytes).first(size)).ok());
  }
  CHECK_FALSE(open_exactly(std::span(bytes).first(end - 1)).ok());
}

TEST_CASE("no flipped bit of the metadata does more than change the verdict", "[fuzz][gguf]") {
  const TinyGguf model = TinyGguf::llama();
  const std::vector<std::byte> original = model.bytes();
  const std::size_t header = model.header_bytes();
  std::size_t refused = 0;
  std::vector<std::byte> bytes = original;
  for (std::size_t i = 0; i < header; ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes[i] = original[i] ^ std::byte(1U << bit);
      const auto result = open_exactly(bytes);
      if (!result.ok()) {
        ++refused;
        REQUIRE_FALSE(result.error().message.empty());
      }
    }
    bytes[i] = original[i];
  }
  // Pieces, scores and names may hold nearly anything; lengths, types and sizes may not.
  CHECK(refused > header);
}

TEST_CASE("eight bytes of all ones anywhere in the metadata are survived", "[fuzz][gguf]") {
  const TinyGguf model = TinyGguf::llama();
  std::vector<std::byte> bytes = model.bytes();
  const std::size_t header = model.header_bytes();
  for (std::size_t i = 4; i + 8 <= header; ++i) {
    std::vector<std::byte> saved(bytes.begin() + i, bytes.begin() + i + 8);
    std::fill_n(bytes.begin() + i, 8, std::byte{0xFF});
    const auto result = open_exactly(bytes);
    std::copy(saved.begin(), saved.end(), bytes.begin() + i);
    if (!result.ok()) REQUIRE_FALSE(result.error().message.empty());
  }
}

}  // namespace
}  // namespace llm
