// Every instruction set against the scalar definition, bit for bit.

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quant/formats/reference/matmul.h"
#include "quant/kernels/matmul.h"
#include "tests/quant/quant_testing.h"
#include "tests/support/catch.h"

namespace llm {
namespace {

std::vector<const KernelTable*> tables_supported_here() {
  std::vector<const KernelTable*> tables;
  for (const Isa isa : all_isas()) {
    const KernelTable* table = kernel_table(isa);
    if (table != nullptr && isa_supported(isa)) {
      tables.push_back(table);
    } else {
      WARN("skipped: " << isa_name(isa) << " needs " << isa_requirement(isa));
    }
  }
  return tables;
}

enum class Codes { kRandom, kAllOnes, kMinimal };

/// Blocks with any codes and finite scales: random ones, all bits set, or every byte 0x80 (-128 as
/// a signed code) under the largest, smallest and denormal scales.
std::vector<std::byte> weight_blocks(WeightType type, std::size_t rows, std::size_t cols,
                                     Codes codes) {
  auto bytes = testing::random_blocks(type, rows * cols, 20240607);
  const BlockTraits& traits = block_traits(type);
  if (codes == Codes::kRandom || traits.block_weights == 1) return bytes;
  constexpr std::uint16_t kScales[] = {0x7BFF, 0xFBFF, 0x0001, 0x83FF, 0x3C00};
  constexpr int kExponents[] = {0, 1, 2, 128, 240};  // of MXFP4
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    std::memset(bytes.data() + at + (type == WeightType::kQ8_K ? 4 : 0),
                codes == Codes::kAllOnes ? 0xFF : 0x80,
                traits.block_bytes - (type == WeightType::kQ8_K ? 4 : 0));
    for (const std::size_t offset : testing::f16_offsets(type)) {
      testing::store_f16(bytes, at + offset, kScales[next++ % std::size(kScales)]);
    }
    if (type == WeightType::kMXFP4)
      bytes[at] = static_cast<std::byte>(kExponents[next++ % std::size(kExponents)]);
    if (type == WeightType::kIQ1_M)
      testing::store_iq1_m_scale(bytes, at, kScales[next++ % std::size(kScales)]);
    constexpr int kUnsigned[] = {0, 1, 7, 8, 0x7E};  // of NVFP4
    for (std::size_t s = 0; s < 4 && type == WeightType::kNVFP4; ++s)
      bytes[at + s] = static_cast<std::byte>(kUnsigned[next++ % std::size(kUnsigned)]);
  }
  return bytes;
}

std::vector<float> activations(std::size_t n, bool extreme, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = extreme ? 1.0F : normal(random);
  return x;
}

std::vector<float> fast_matmul(const KernelTable& kernels, const PackedMatrix& w, bool dequantize,
                               std::span<const float> x, int n_threads) {
  const std::size_t tokens = x.size() / w.n_cols();
  const auto format = dequantize ? ActivationFormat::kF32 : activation_format(w.type());
  auto memory = AlignedBuffer<std::byte>::allocate(
      ActivationMatrix::bytes(format, tokens, w.n_cols()), "test");
  ActivationMatrix matrix(memory->span(), format, tokens, w.n_cols());
  for (std::size_t t = 0; t < tokens; ++t) {
    matrix.store(kernels, t, x.subspan(t * w.n_cols(), w.n_cols()));
  }
  std::vector<float> y(tokens * w.n_rows(), NAN);
  const RowTasks tasks(w, tokens, n_threads);
  run_parallel(n_threads, [&](Worker worker) {
    auto workspace = Workspace::allocate(matmul_workspace_bytes(tokens), "test");
    worker.take_tasks(tasks.size(), [&](std::size_t i) {
      matmul(kernels, w, tasks[i], matrix, y.data(), w.n_rows(), Epilogue::kStore, *workspace);
    });
  });
  return y;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Shape {
  std::size_t rows;
  std::size_t blocks;
  std::size_t tokens;
};

constexpr Shape kShapes[] = {{16, 1, 1},  {48, 3, 1},  {33, 2, 2}, {17, 9, 3},
                             {32, 1, 5},  {40, 8, 6},  {5, 2, 7},  {64, 10, 8},
                             {31, 3, 13}, {80, 2, 33}, {1, 1, 1},  {48, 11, 12}};

}  // namespace

TEST_CASE("a product on every instruction set equals the scalar definition", "[kernels]") {
  for (const BlockTraits& traits : all_block_traits()) {
    for (const Shape& shape : kShapes) {
      std::mt19937 random(20240607);
      const std::size_t cols = shape.blocks * traits.block_weights;
      for (const Codes codes : {Codes::kRandom, Codes::kAllOnes, Codes::kMinimal}) {
        const auto bytes = weight_blocks(traits.type, shape.rows, cols, codes);
        const auto x = activations(shape.tokens * cols, codes != Codes::kRandom, random);
        const auto w = PackedMatrix::pack(traits.type, shape.rows, cols, bytes, "test");
        for (const bool dequantize : {false, true}) {
          std::vector<float> expected(shape.tokens * shape.rows);
          const reference::MatrixBytes matrix{traits.type, shape.rows, cols, bytes};
          dequantize ? reference::matmul_f32(matrix, x, expected)
                     : reference::matmul(matrix, x, expected);
          for (const KernelTable* table : tables_supported_here()) {
            CAPTURE(isa_name(table->isa), traits.name, shape.rows, cols, shape.tokens,
                    static_cast<int>(codes), dequantize);
            REQUIRE(same_bits(fast_matmul(*table, *w, dequantize, x, 1), expected));
            REQUIRE(same_bits(fast_matmul(*table, *w, dequantize, x, 3), expected));
          }
        }
      }
    }
  }
}

TEST_CASE("packing moves every byte and loses none", "[kernels]") {
  for (const BlockTraits& traits : all_block_traits()) {
    const std::size_t rows = 37;
    const std::size_t cols = 3 * traits.block_weights;
    const auto bytes = weight_blocks(traits.type, rows, cols, Codes::kRandom);
    const auto w = PackedMatrix::pack(traits.type, rows, cols, bytes, "test");
    std::vector<std::byte> row(row_bytes(traits.type, cols));
    for (std::size_t r = 0; r < rows; ++r) {
      w->extract_row(r, row);
      CAPTURE(traits.name, r);
      REQUIRE(std::memcmp(row.data(), bytes.data() + r * row.size(), row.size()) == 0);
    }
  }
}

TEST_CASE("activations quantize to equal bytes on every instruction set", "[kernels]") {
  std::mt19937 random(5);
  std::vector<float> x = activations(512, false, random);
  const auto poke = GENERATE(0, 1, 2, 3, 4);
  if (poke == 1) std::fill(x.begin(), x.end(), 0.0F);
  if (poke == 2) x[3] = INFINITY;
  if (poke == 3) x[300] = NAN;
  if (poke == 4) {
    for (float& v : x) v *= 1e-39F;
  }
  std::vector<BlockQ8_K> expected_k(2);
  std::vector<BlockQ8_32> expected_32(16);
  quantize_activations(ActivationFormat::kQ8_K, x, std::as_writable_bytes(std::span(expected_k)));
  quantize_activations(ActivationFormat::kQ8_32, x, std::as_writable_bytes(std::span(expected_32)));
  for (const KernelTable* table : tables_supported_here()) {
    CAPTURE(isa_name(table->isa), poke);
    std::vector<KernelQ8K> k(2);
    std::vector<KernelQ8x32> k32(16);
    table->quantize_q8k(x.data(), x.size(), k.data(), 1);
    table->quantize_q8x32(x.data(), x.size(), k32.data(), 1);
    for (std::size_t b = 0; b < 2; ++b) {
      REQUIRE(std::memcmp(k[b].qs, expected_k[b].qs, 256) == 0);
      REQUIRE(std::memcmp(k[b].sums16, expected_k[b].bsums, 32) == 0);
      // A NaN is a NaN whatever its sign; every other scale has one pattern.
      REQUIRE((std::memcmp(&k[b].d, &expected_k[b].d, 4) == 0 ||
               (std::isnan(k[b].d) && std::isnan(expected_k[b].d))));
    }
    for (std::size_t b = 0; b < 16; ++b) {
      REQUIRE(std::memcmp(k32[b].qs, expected_32[b].qs, 32) == 0);
      REQUIRE(k32[b].sum == expected_32[b].sum);
    }
  }
}

TEST_CASE("f32 rows become the nearest f16 on every instruction set", "[kernels]") {
  std::vector<float> x;
  // Every f16, the middle to the next one, the neighbours of both; then patterns all over f32.
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const auto low = std::bit_cast<std::uint32_t>(f16_to_f32(static_cast<std::uint16_t>(h)));
    for (const std::uint32_t step : {0U, 1U, 0x0FFFU, 0x1000U, 0x1001U, 0x1FFFU}) {
      x.push_back(std::bit_cast<float>(low + step));
    }
  }
  for (std::uint64_t bits = 0; bits <= UINT32_MAX; bits += 8191) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const KernelTable* table : tables_supported_here()) {
    std::vector<std::uint16_t> y(x.size());
    table->to_half(x.data(), x.size(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (y[i] == f32_to_f16(x[i])) continue;
      CAPTURE(isa_name(table->isa), std::bit_cast<std::uint32_t>(x[i]), y[i]);
      REQUIRE(y[i] == f32_to_f16(x[i]));
    }
    // Odd sizes write their own elements only.
    for (std::size_t n = 0; n <= 40; ++n) {
      std::vector<std::uint16_t> row(n + 16, 0xABCD);
      const float* from = x.data() + x.size() / 2 - n;
      table->to_half(from, n, row.data());
      CAPTURE(isa_name(table->isa), n);
      for (std::size_t i = 0; i < row.size(); ++i) {
        REQUIRE(row[i] == (i < n ? f32_to_f16(from[i]) : 0xABCD));
      }
    }
  }
}

}  // namespace llm
