#include "engine/gguf/importance_matrix.h"

#include "tests/support/require_ok.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

ImportanceMatrix example() {
  return {.entries = {{"blk.0.attn_q.weight", {1, 2, 3, 4}, {2}},
                      {"blk.0.ffn_up_exps.weight", {1, 2, 3, 4, 5, 6}, {1, 2, 3}}},
          .n_chunks = 7,
          .chunk_tokens = 512,
          .texts = {"text.txt"}};
}

/// The older form, by llama.cpp's load_legacy (common/imatrix-loader.cpp).
std::string binary(std::int32_t n_entries, std::int32_t calls, std::vector<float> values) {
  const std::string name = "blk.0.attn_q.weight";
  std::string out = encoded(n_entries) + encoded(static_cast<std::int32_t>(name.size())) + name +
                    encoded(calls) + encoded(static_cast<std::int32_t>(values.size()));
  for (const float value : values) out += encoded(value);
  return out;
}

template <typename Bytes>
void must_refuse(const Bytes& bytes, const std::string& words) {
  const auto read = ImportanceMatrix::parse(std::as_bytes(std::span(bytes)));
  REQUIRE(!read.ok());
  CHECK(read.error().code == ErrorCode::kMalformed);
  CHECK_THAT(read.error().to_string(), Catch::Matchers::Contains(words));
}

TEST_CASE("an importance matrix is read as it was written", "[engine][gguf]") {
  const auto bytes = require_ok(example().gguf_bytes());
  const ImportanceMatrix read = require_ok(ImportanceMatrix::parse(bytes));
  CHECK(require_ok(read.gguf_bytes()) == bytes);
  CHECK(read.n_chunks == 7);
  CHECK(read.chunk_tokens == 512);
  CHECK(read.texts == std::vector<std::string>{"text.txt"});
  CHECK(read.find("blk.0.attn_k.weight") == nullptr);
  CHECK(require_ok(read.find("blk.0.attn_q.weight")->means(4, 1)) ==
        std::vector<float>{0.5F, 1, 1.5F, 2});
  CHECK(require_ok(read.find("blk.0.ffn_up_exps.weight")->means(2, 3)) ==
        std::vector<float>{1, 2, 1.5F, 2, 5.0F / 3, 2});
  CHECK(!read.find("blk.0.ffn_up_exps.weight")->means(2, 2).ok());
  CHECK(!read.find("blk.0.ffn_up_exps.weight")->means(3, 2).ok());
}

TEST_CASE("an importance matrix in the older form has means", "[engine][gguf]") {
  std::string bytes = binary(1, 4, {2, 4});
  const ImportanceMatrix bare = require_ok(ImportanceMatrix::parse(bytes_of(bytes)));
  CHECK(require_ok(bare.entries.at(0).means(2, 1)) == std::vector<float>{0.5F, 1});
  // A count for all matrices of the tensor.
  CHECK(require_ok(bare.entries.at(0).means(1, 2)) == std::vector<float>{0.5F, 1});
  const std::string text = "a.txt";
  bytes += encoded(std::int32_t{9}) + encoded(static_cast<std::int32_t>(text.size())) + text;
  const ImportanceMatrix read = require_ok(ImportanceMatrix::parse(bytes_of(bytes)));
  CHECK(read.n_chunks == 9);
  CHECK(read.texts == std::vector{text});
  const std::string without_calls = binary(1, 0, {2, 4});
  const auto means = require_ok(ImportanceMatrix::parse(bytes_of(without_calls)));
  CHECK(require_ok(means.entries.at(0).means(2, 1)) == std::vector<float>{2, 4});
}

TEST_CASE("what is no importance matrix is refused", "[engine][gguf]") {
  const std::string good = binary(1, 4, {2, 4});
  must_refuse(std::string(), "number of entries");
  must_refuse(binary(0, 4, {2}), "number of entries (byte 0): found 0, need 1 to");
  must_refuse(binary(-1, 4, {2}), "found -1");
  must_refuse(binary(2, 4, {2, 4, 5, 6}), "name");  // the second entry is not there
  must_refuse(std::string_view(good).substr(0, good.size() - 1), "number of values");
  must_refuse(good + binary(1, 4, {2}).substr(4), "name of the text");
  std::string twice = binary(2, 4, {2, 4});
  must_refuse(twice + good.substr(4), "found it twice");
  const auto gguf = [](const std::string& sums, const std::string& counts, std::uint64_t n_sums,
                       std::uint64_t n_counts, WeightType type = WeightType::kF32) {
    TinyGguf file;
    const auto add = [&](const std::string& name, std::uint64_t n) {
      file.tensors.push_back({.name = name,
                              .dims = {n},
                              .type = static_cast<std::uint32_t>(type),
                              .data = std::string(n * (type == WeightType::kF32 ? 4 : 2), '\0')});
    };
    if (!sums.empty()) add(sums, n_sums);
    if (!counts.empty()) add(counts, n_counts);
    return file.bytes();
  };
  must_refuse(gguf("a.in_sum2", "b.counts", 4, 1), "a: found no a.counts");
  must_refuse(gguf("", "b.counts", 4, 1), "b: found no b.in_sum2");
  must_refuse(gguf("a.weight", "", 4, 1), "*.in_sum2");
  must_refuse(gguf("a.in_sum2", "a.counts", 4, 3), "found 3 counts for 4 sums");
  must_refuse(gguf("a.in_sum2", "a.counts", 4, 1, WeightType::kF16), "found F16, need F32");
}

}  // namespace
}  // namespace llm::test
