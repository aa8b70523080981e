// The entry matmul of KernelTable, on packed matrices of random blocks.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "quant/formats/reference/matmul.h"
#include "quant/kernels/packed_matrix.h"
#include "validate/selftest/kernel_case.h"

namespace llm {
namespace {

using Bytes = Guarded<std::byte>;

/// Tokens of the largest batch that is cut in every way, past every multiple of a tile; smaller
/// ones are its first tokens.
constexpr std::size_t kMostTokens = 33;
/// Larger batches, in which other tiles take the rest.
constexpr std::size_t kLargeBatches[] = {49, 50, 51, 52, 53, 54, 507, 508, 509, 510, 511, 512};

/// In f32, dequantized weights are multiplied by the code that stored ones of F32 check in batches
/// every size: tiles of 8, 4, 2 and 1 tokens.
constexpr std::size_t kDequantizedTokens[] = {1, 7, 18};

constexpr Codes kAllCodes[] = {Codes::kRandom, Codes::kAllOnes, Codes::kMinimal};

/// A row of x for each token. Extreme codes get activations that make the largest integer sums.
std::vector<float> draw_activations(std::size_t n_tokens, std::size_t n_cols, Codes codes) {
  if (codes != Codes::kRandom) {
    std::vector<float> x(n_tokens * n_cols, 1.0F);
    for (std::size_t i = n_cols; i < 2 * n_cols && i < x.size(); ++i) x[i] = -1.0F;
    return x;
  }
  constexpr Values kValues[] = {Values::kPlain, Values::kOutliers, Values::kPlain, Values::kTies,
                                Values::kTiny,  Values::kSpecial,  Values::kWide};
  std::vector<float> x;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    const auto row = draw(kValues[t % std::size(kValues)], n_cols, static_cast<std::uint32_t>(t));
    x.insert(x.end(), row.begin(), row.end());
  }
  return x;
}

/// x, (n_tokens, n_cols), quantized by the definition and in the kernels' order: block-major.
template <typename Block>
std::vector<std::byte> quantized(std::span<const float> x, std::size_t n_cols) {
  using Kernel = decltype(kernel_block(Block{}));
  const std::size_t n_tokens = x.size() / n_cols;
  std::vector<std::byte> out(x.size() / Block::kWeights * sizeof(Kernel));
  for (std::size_t i = 0; i < x.size() / Block::kWeights; ++i) {
    Block block;
    quantize_block(x.subspan(i * Block::kWeights).template first<Block::kWeights>(), block);
    const Kernel kernel = kernel_block(block);
    const std::size_t t = i * Block::kWeights / n_cols;
    const std::size_t b = i - t * (n_cols / Block::kWeights);
    std::memcpy(out.data() + (b * n_tokens + t) * sizeof(Kernel), &kernel, sizeof(Kernel));
  }
  return out;
}

std::vector<std::byte> kernel_activations(ActivationFormat format, std::span<const float> x,
                                          std::size_t n_cols) {
  switch (format) {
    case ActivationFormat::kQ8_K:
      return quantized<BlockQ8_K>(x, n_cols);
    case ActivationFormat::kQ8_32:
      return quantized<BlockQ8_32>(x, n_cols);
    case ActivationFormat::kF32:
      break;
  }
  const auto bytes = std::as_bytes(x);
  return {bytes.begin(), bytes.end()};
}

/// One matrix in one mode, with what the definition gives for the most tokens.
struct Product {
  const PackedMatrix& w;
  Codes codes;
  ActivationFormat format;
  std::span<const float> x;         ///< (tokens, n_cols)
  std::span<const float> expected;  ///< (tokens, n_rows)
};

/// What of a product a call computes, and where to.
struct Part {
  std::size_t n_tokens;
  std::size_t panel_begin;
  std::size_t panel_end;
  std::size_t gap;  ///< y_stride - n_rows
  bool add;
};

void check_part(EntryCheck& check, const Product& p, const Part& part, const Bytes& x) {
  const std::size_t n_rows = p.w.n_rows();
  const std::size_t stride = n_rows + part.gap;
  const std::size_t shift = (part.n_tokens + part.gap) % 16 * sizeof(float);
  const auto before = draw(Values::kPlain, part.n_tokens * stride, 5);
  std::vector<float> expected = before;
  const std::size_t row_end = std::min(part.panel_end * PackedMatrix::kPanelRows, n_rows);
  for (std::size_t t = 0; t < part.n_tokens; ++t) {
    for (std::size_t r = part.panel_begin * PackedMatrix::kPanelRows; r < row_end; ++r) {
      float& y = expected[t * stride + r];
      const float product = p.expected[t * n_rows + r];
      y = part.add ? y + product : product;
    }
  }
  check.compare(
      fmt::format("{}, {} x {}, panels {} .. {}, {} tokens, y_stride {}, {}{}",
                  p.format == ActivationFormat::kF32 ? "f32" : "int8", n_rows, p.w.n_cols(),
                  part.panel_begin, part.panel_end, part.n_tokens, stride,
                  part.add ? "add" : "store", p.codes == Codes::kRandom ? "" : ", extreme weights"),
      expected, before, shift, [&](auto& table, float* y) {
        Bytes workspace(matmul_workspace_bytes(part.n_tokens), 0, Bytes::kRead);
        table.matmul({.type = p.w.type(),
                      .dequantize = p.format != activation_format(p.w.type()),
                      .panels = p.w.panels(0, p.w.n_panels()).first,
                      .n_rows = n_rows,
                      .n_cols = p.w.n_cols(),
                      .panel_begin = part.panel_begin,
                      .panel_end = part.panel_end,
                      .x = x.data(),
                      .n_tokens = part.n_tokens,
                      .y = y,
                      .y_stride = stride,
                      .add = part.add,
                      .workspace = workspace.data(),
                      .next = nullptr,
                      .next_end = 0,
                      .near = 0});
        return workspace.guards_intact() ? "" : "writes past its workspace";
      });
}

void check_product(EntryCheck& check, const Product& p, std::span<const std::size_t> tokens) {
  const std::size_t panels = p.w.n_panels();
  const std::size_t last = panels - 1;
  const std::size_t begins[] = {0, 0, std::min<std::size_t>(1, last), last};
  const std::size_t ends[] = {panels, std::max<std::size_t>(1, last), panels, panels};
  for (const std::size_t n_tokens : tokens) {
    const std::size_t n_cols = p.w.n_cols();
    const Bytes x(kernel_activations(p.format, p.x.first(n_tokens * n_cols), n_cols), 0,
                  Bytes::kRead);
    for (std::size_t i = 0; i < (n_tokens > kMostTokens ? 1 : std::size(begins)); ++i) {
      const std::size_t gap = (n_tokens + i) % 4;
      check_part(check, p, {n_tokens, begins[i], ends[i], gap, i % 2 == 1}, x);
      if (i == 0) check_part(check, p, {n_tokens, 0, panels, gap, true}, x);
    }
  }
}

struct Shape {
  std::size_t n_rows;
  std::size_t n_cols;
};

Status check_matrix(EntryCheck& check, WeightType type, Shape shape, Codes codes,
                    std::span<const std::size_t> tokens) {
  const auto bytes = draw_matrix(type, shape.n_rows, shape.n_cols, codes);
  LLM_TRY(const PackedMatrix w,
          PackedMatrix::pack(type, shape.n_rows, shape.n_cols, bytes, "kernel check"));
  const reference::MatrixBytes matrix{type, shape.n_rows, shape.n_cols, bytes};
  const std::size_t n_tokens =
      std::max(std::ranges::max(tokens), std::ranges::max(kDequantizedTokens));
  const auto used = draw_activations(n_tokens, shape.n_cols, codes);
  const ActivationFormat native = activation_format(type);
  std::vector<float> expected(n_tokens * shape.n_rows);
  reference::matmul(matrix, used, expected);
  check_product(check, {w, codes, native, used, expected}, tokens);
  if (native == ActivationFormat::kF32) return Ok{};
  reference::matmul_f32(matrix, used, expected);
  check_product(check, {w, codes, ActivationFormat::kF32, used, expected}, kDequantizedTokens);
  return Ok{};
}

/// Columns of few blocks, and of more than are unpacked at a time.
std::vector<std::size_t> few_columns(std::size_t block) {
  if (block == 1) return {1, 7, 255, 256, 257, 513};
  if (block <= 64) return {block, 2 * block, 7 * block, kUnpackedColumns + block};
  return {block, 2 * block, 3 * block};
}

}  // namespace

Result<CheckResult> check_matmul(KernelTables tables, const KernelSizes& sizes, WeightType type) {
  std::size_t all_tokens[kMostTokens];
  std::iota(std::begin(all_tokens), std::end(all_tokens), std::size_t{1});
  constexpr std::size_t kSomeTokens[] = {1, 2, 3, 4, 7, 18};
  // Three panels and part of a fourth: pairs of panels and single ones.
  constexpr std::size_t kManyRows = 53;
  constexpr std::size_t kFewRows = 35;
  const BlockTraits& traits = block_traits(type);
  EntryCheck check(fmt::format("matmul, {}", traits.name), tables);
  std::vector<std::size_t> columns = few_columns(traits.block_weights);
  const std::size_t some_blocks = columns[2];
  const std::size_t most_blocks = columns.back();
  for (const std::size_t n : {sizes.d_model, sizes.n_heads * sizes.head_dim, sizes.d_ff}) {
    const bool whole = n % traits.block_weights == 0;
    if (whole && std::ranges::find(columns, n) == columns.end()) columns.push_back(n);
  }
  for (const std::size_t n_cols : columns) {
    for (const Codes codes : kAllCodes) {
      LLM_RETURN_IF_ERROR(check_matrix(check, type, {kManyRows, n_cols}, codes, kSomeTokens));
    }
  }
  LLM_RETURN_IF_ERROR(
      check_matrix(check, type, {kManyRows, some_blocks}, Codes::kRandom, all_tokens));
  if (sizes.large_batches) {
    LLM_RETURN_IF_ERROR(
        check_matrix(check, type, {kFewRows, columns.front()}, Codes::kRandom, kLargeBatches));
  }
  for (const std::size_t n_rows : {1U, 16U, 17U}) {
    LLM_RETURN_IF_ERROR(
        check_matrix(check, type, {n_rows, most_blocks}, Codes::kRandom, kSomeTokens));
  }
  return check.result(fmt::format("1 .. {}{} tokens, {} columns", kMostTokens,
                                  sizes.large_batches ? ", 49 .. 54 and 507 .. 512" : "",
                                  fmt::join(columns, ", ")));
}

}  // namespace llm
