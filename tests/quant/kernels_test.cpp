// Products of packed matrices on every instruction set against the scalar definition, bit for bit.
// What kernels make of extreme codes and values, and all their other entries, are checked by
// kernel_check_test.

#include "quant/formats/reference/matmul.h"
#include "quant/kernels/matmul.h"
#include "tests/quant/quant_testing.h"
#include "tests/support/isas.h"

namespace llm {
namespace {

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

struct Shape {
  std::size_t rows;
  std::size_t blocks;
  std::size_t tokens;
};

void require_products(std::initializer_list<Shape> shapes) {
  for (const BlockTraits& traits : all_block_traits()) {
    for (const Shape& shape : shapes) {
      const std::size_t cols = shape.blocks * traits.block_weights;
      const auto bytes = testing::random_blocks(traits.type, shape.rows * cols, 20240607);
      const auto x = testing::random_normals(shape.tokens * cols, 1, 20240607);
      const auto w = PackedMatrix::pack(traits.type, shape.rows, cols, bytes, "test");
      const reference::MatrixBytes matrix{traits.type, shape.rows, cols, bytes};
      for (const bool dequantize : {false, true}) {
        std::vector<float> expected(shape.tokens * shape.rows);
        dequantize ? reference::matmul_f32(matrix, x, expected)
                   : reference::matmul(matrix, x, expected);
        for (const Isa isa : test::supported_isas()) {
          const KernelTable* table = kernel_table(isa);
          if (table == nullptr) continue;  // not built
          CAPTURE(isa_name(isa), traits.name, shape.rows, cols, shape.tokens, dequantize);
          REQUIRE(test::same_bits(fast_matmul(*table, *w, dequantize, x, 1), expected));
          REQUIRE(test::same_bits(fast_matmul(*table, *w, dequantize, x, 3), expected));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("a product on every instruction set equals the scalar definition", "[kernels]") {
  require_products({{16, 1, 1},
                    {48, 3, 1},
                    {33, 2, 2},
                    {17, 9, 3},
                    {32, 1, 5},
                    {5, 2, 7},
                    {1, 1, 1},
                    {17, 1, 9}});
}

// Most of the work, which an emulated CPU does without (scripts/check_old_cpu.sh).
TEST_CASE("a larger product on every instruction set, too", "[kernels][large]") {
  require_products({{40, 8, 6}, {64, 10, 8}, {31, 3, 13}, {80, 2, 33}, {48, 11, 12}});
}

TEST_CASE("packing moves every byte and loses none", "[kernels]") {
  for (const BlockTraits& traits : all_block_traits()) {
    const std::size_t rows = 37;
    const std::size_t cols = 3 * traits.block_weights;
    const auto bytes = testing::random_blocks(traits.type, rows * cols, 20240607);
    const auto w = PackedMatrix::pack(traits.type, rows, cols, bytes, "test");
    std::vector<std::byte> row(row_bytes(traits.type, cols));
    for (std::size_t r = 0; r < rows; ++r) {
      w->extract_row(r, row);
      CAPTURE(traits.name, r);
      REQUIRE(std::memcmp(row.data(), bytes.data() + r * row.size(), row.size()) == 0);
    }
  }
}

}  // namespace llm
