#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "bench/kernel_bench.h"
#include "engine/model/precision.h"
#include "engine/state/kv_row.h"
#include "quant/kernels/kernel_table.h"

namespace llm {
namespace {

// TinyLlama's shape.
constexpr std::size_t kModel = 2048;
constexpr std::size_t kFeedForward = 5632;
constexpr std::size_t kHeadDim = 64;
constexpr std::size_t kVocabulary = 32000;
constexpr std::size_t kHeadsPerKv = 8;
constexpr std::size_t kChunk = 256;  // keys of a page

using Body = std::function<void(benchmark::State&, const KernelTable&)>;

/// Registers NAME/ISA for each instruction set.
void add(const std::string& name, const Body& body) {
  for (const Isa isa : isas_here()) {
    benchmark::RegisterBenchmark(
        fmt::format("{}/{}", name, isa_name(isa)).c_str(),
        [body, isa](benchmark::State& state) { body(state, *kernel_table(isa)); });
  }
}

AlignedBuffer<float> noise(std::size_t n, std::uint64_t seed) {
  auto values = allocate_or_exit<float>(n);
  fill_noise(values.span(), seed);
  return values;
}

/// Runs `step` in the benchmark's loop; each works on `n` values (0: not worth telling).
template <typename Step>
void loop(benchmark::State& state, std::size_t n, const Step& step) {
  for (auto _ : state) {
    step();
    benchmark::ClobberMemory();
  }
  if (n > 0) state.SetItemsProcessed(static_cast<std::int64_t>(n) * state.iterations());
}

void norm(benchmark::State& state, const KernelTable& kernels) {
  const auto x = noise(kModel, 1);
  const auto weight = noise(kModel, 2);
  auto y = noise(kModel, 3);
  loop(state, kModel, [&] { kernels.rms_norm(x.data(), weight.data(), kModel, 1e-5F, y.data()); });
}

void activate(benchmark::State& state, const KernelTable& kernels, Activation kind) {
  const auto fresh = noise(kFeedForward, 1);
  const auto up = noise(kFeedForward, 2);
  auto gate = noise(kFeedForward, 3);
  loop(state, kFeedForward, [&] {
    // In place, and shrinking to denormals if it went on from its own result.
    std::copy(fresh.span().begin(), fresh.span().end(), gate.data());
    kernels.activate(kind, gate.data(), up.data(), kFeedForward);
  });
}

void soft_cap(benchmark::State& state, const KernelTable& kernels) {
  auto x = noise(kModel, 1);
  loop(state, kModel, [&] { kernels.soft_cap(x.data(), kModel, 30.0F); });
}

void axpy(benchmark::State& state, const KernelTable& kernels) {
  const auto x = noise(kModel, 1);
  auto y = noise(kModel, 2);
  loop(state, kModel, [&] { kernels.axpy(1e-3F, x.data(), kModel, y.data()); });
}

void rope(benchmark::State& state, const KernelTable& kernels) {
  auto x = noise(kModel, 1);
  auto cos = allocate_or_exit<float>(kHeadDim / 2);
  auto sin = allocate_or_exit<float>(kHeadDim / 2);
  std::ranges::fill(cos.span(), 0.8F);  // 0.8^2 + 0.6^2 = 1: lengths stay
  std::ranges::fill(sin.span(), 0.6F);
  loop(state, kModel,
       [&] { kernels.rope(x.data(), 0, kModel, kHeadDim, cos.data(), sin.data(), kHeadDim / 2); });
}

void to_half(benchmark::State& state, const KernelTable& kernels) {
  const auto x = noise(kHeadDim, 1);
  std::vector<std::uint16_t> y(kHeadDim);
  loop(state, kHeadDim, [&] { kernels.to_half(x.data(), kHeadDim, y.data()); });
}

void exp_distances(benchmark::State& state, const KernelTable& kernels) {
  const auto x = noise(kVocabulary, 1);
  auto y = allocate_or_exit<float>(kVocabulary);
  loop(state, kVocabulary,
       [&] { kernels.exp_distances(x.data(), kVocabulary, 1.0F, 1.0F, y.data()); });
}

void quantize_q8k(benchmark::State& state, const KernelTable& kernels) {
  const auto x = noise(kModel, 1);
  std::vector<KernelQ8K> out(kModel / KernelQ8K::kSize);
  loop(state, kModel, [&] { kernels.quantize_q8k(x.data(), kModel, out.data(), 1); });
}

void quantize_q8x32(benchmark::State& state, const KernelTable& kernels) {
  const auto x = noise(kModel, 1);
  std::vector<KernelQ8x32> out(kModel / KernelQ8x32::kSize);
  loop(state, kModel, [&] { kernels.quantize_q8x32(x.data(), kModel, out.data(), 1); });
}

/// What attention is measured with.
struct AttendShape {
  std::size_t n_tokens;
  std::size_t n_keys;  ///< whole pages
  KvType type;

  KvLayout layout() const { return {type, kHeadDim}; }
  std::size_t page_bytes() const { return layout().keys_bytes() + layout().values_bytes(); }
};

/// Pages of one KV head in the cache's type: 256 keys, then their values.
AlignedBuffer<std::byte> noise_pages(const AttendShape& shape) {
  const auto x = noise(shape.n_keys * kHeadDim, 2);
  auto pages = allocate_or_exit<std::byte>(shape.n_keys / kChunk * shape.page_bytes());
  const KvLayout layout = shape.layout();
  for (std::size_t i = 0; i < shape.n_keys; ++i) {
    std::byte* page = pages.data() + i / kChunk * shape.page_bytes();
    const std::span row = x.span().subspan(i * kHeadDim, kHeadDim);
    KvRow(layout, page, page + layout.keys_bytes(), i % kChunk)
        .store(0, row, row, KvRounding::kDefinition);
  }
  return pages;
}

/// n_tokens new tokens that see n_keys keys in all; one group of query heads. Judged by the keys
/// and values that one token reads, by the products of several.
void attend(benchmark::State& state, const KernelTable& kernels, const AttendShape& shape) {
  const auto& [n_tokens, n_keys, type] = shape;
  const auto q = noise(n_tokens * kHeadsPerKv * kHeadDim, 1);
  const auto cache = noise_pages(shape);
  std::vector<const std::byte*> pages;
  for (std::size_t at = 0; at < cache.size(); at += shape.page_bytes()) {
    pages.push_back(cache.data() + at);
  }
  auto partial = allocate_or_exit<float>(n_tokens * kHeadsPerKv * (2 + kHeadDim));
  auto workspace =
      allocate_or_exit<std::byte>(attend_workspace_bytes(shape.layout(), n_tokens * kHeadsPerKv));
  const AttendArgs args{.q = q.data(),
                        .q_stride = kHeadsPerKv * kHeadDim,
                        .pages = pages.data(),
                        .keys_offset = 0,
                        .values_offset = shape.layout().keys_bytes(),
                        .layout = shape.layout(),
                        .n_heads = kHeadsPerKv,
                        .n_tokens = n_tokens,
                        .first_position = n_keys - n_tokens,
                        .window = 0,
                        .chunk_begin = 0,
                        .chunk_end = n_keys / kChunk,
                        .scale = 0.125F,
                        .cap = 0,
                        .partial = partial.data(),
                        .workspace = workspace.data()};
  loop(state, 0, [&] { kernels.attend(args); });
  using benchmark::Counter;
  // Query times key and weight times value, for every head and (about) every visible key.
  const double macs = 2.0 * static_cast<double>(kHeadsPerKv * kHeadDim * n_tokens) *
                      (static_cast<double>(n_keys) - static_cast<double>(n_tokens) / 2);
  state.counters["GMAC_per_s"] = Counter(macs * 1e-9, Counter::kIsIterationInvariantRate);
  if (n_tokens == 1) {
    state.counters["GB_per_s"] =
        Counter(static_cast<double>(cache.size()) * 1e-9, Counter::kIsIterationInvariantRate);
  }
}

/// Two partial results {m, l, o[head_dim]} whose maxima are equal, so that sums stay finite.
void merge(benchmark::State& state, const KernelTable& kernels) {
  const auto fresh = noise(2 + kHeadDim, 1);
  auto later = noise(2 + kHeadDim, 2);
  auto sum = noise(2 + kHeadDim, 3);
  later[0] = fresh[0];
  loop(state, kHeadDim, [&] {
    std::copy(fresh.span().begin(), fresh.span().end(), sum.data());
    kernels.merge(sum.data(), later.data(), kHeadDim);
  });
}

void finish(benchmark::State& state, const KernelTable& kernels) {
  const auto partial = noise(2 + kHeadDim, 1);
  auto context = noise(kHeadDim, 2);
  loop(state, kHeadDim, [&] { kernels.finish(partial.data(), kHeadDim, context.data()); });
}

}  // namespace

void register_float_ops() {
  add(fmt::format("RmsNorm/{}", kModel), norm);
  for (const auto& [kind, name] : kActivations) {
    add(fmt::format("{}/{}", name, kFeedForward),
        [kind = kind](benchmark::State& state, const KernelTable& kernels) {
          activate(state, kernels, kind);
        });
  }
  add(fmt::format("SoftCap/{}", kModel), soft_cap);
  add(fmt::format("Axpy/{}", kModel), axpy);
  add(fmt::format("Rope/{}", kModel), rope);
  add(fmt::format("ToHalf/{}", kHeadDim), to_half);
  add(fmt::format("ExpDistances/{}", kVocabulary), exp_distances);
  add(fmt::format("QuantizeQ8K/{}", kModel), quantize_q8k);
  add(fmt::format("QuantizeQ8x32/{}", kModel), quantize_q8x32);
  add(fmt::format("Merge/{}", kHeadDim), merge);
  add(fmt::format("Finish/{}", kHeadDim), finish);
  for (const KvType type : kKvTypes) {
    for (const std::size_t n_tokens : {1, 32}) {
      for (const std::size_t n_keys : {512, 2048}) {
        const AttendShape shape{n_tokens, n_keys, type};
        add(fmt::format("Attend/{}/T:{}/keys:{}", kv_name(type), n_tokens, n_keys),
            [shape](benchmark::State& state, const KernelTable& kernels) {
              attend(state, kernels, shape);
            });
      }
    }
  }
}

}  // namespace llm
