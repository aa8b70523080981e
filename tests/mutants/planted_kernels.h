#ifndef LLM_TESTS_MUTANTS_PLANTED_KERNELS_H_
#define LLM_TESTS_MUTANTS_PLANTED_KERNELS_H_

// The entries of KernelTable with faults: each calls the right kernel, and, where a fault strikes,
// makes of its result what a wrong one would have given. The planted unit.h puts these into the
// table. Part of an ISA unit.

#include "quant/kernels/matmul_float_kernel.h"
#include "tests/mutants/planted_codes.h"

namespace {
namespace planted {

using llm::PlantedFault;
using llm::PlantedSite;

template <class A>
const char* isa() {
  return llm::isa_name(A::kIsa).data();
}

/// Memory of a call; C's, as nothing else may be emitted here.
template <class T>
class Memory {
 public:
  explicit Memory(std::size_t n)
      : data_(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 64) / 64 * 64))) {
    if (data_ == nullptr) std::abort();
  }
  Memory(const T* from, std::size_t n) : Memory(n) { std::memcpy(data_, from, n * sizeof(T)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(data_); }
  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_;
};

/// y = wrong, noted where that changes a bit.
inline void put(const PlantedSite& site, float& y, float wrong) {
  if (llm::planted_differ(y, wrong)) site.trace();
  y = wrong;
}

// ---- products

LLM_INLINE void recount(llm::KernelQ8K& x) {
  std::int32_t all = 0;
  for (std::size_t s = 0; s < 16; ++s) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < 16; ++i) sum += x.qs[16 * s + i];
    x.sums16[s] = static_cast<std::int16_t>(sum);
    x.minus32[s] = -32 * sum;
    all += sum;
  }
  for (std::size_t s = 0; s < 8; ++s)
    x.sums32[s] = static_cast<std::int16_t>(x.sums16[2 * s] + x.sums16[2 * s + 1]);
  x.sum = all;
}
LLM_INLINE void recount(llm::KernelQ8x32& x) {
  x.sum = 0;
  for (const std::int8_t code : x.qs) x.sum += code;
}
LLM_INLINE void drop_last_min(llm::KernelQ8K& x) { x.sums16[15] = x.sums32[7] = 0; }
LLM_INLINE void drop_last_min(llm::KernelQ8x32& x) {
  for (std::size_t i = 16; i < 32; ++i) x.sum -= x.qs[i];
}

template <class Block>
void spoil_blocks(const PlantedFault& fault, const char* type, const llm::MatmulArgs& args,
                  Block* x) {
  const std::size_t n_blocks = args.n_cols / Block::kSize;
  for (std::size_t i = 0; i < n_blocks * args.n_tokens; ++i) {
    const bool is_last = i / args.n_tokens + 1 == n_blocks;
    llm::planted_spoil(fault, llm::planted_sub_block(type), is_last,
                       {x[i].qs, &x[i].d, Block::kSize});
    recount(x[i]);
    if (fault.is("min")) drop_last_min(x[i]);
  }
}

template <class A>
void matmul_of_spoiled(const PlantedFault& fault, const char* type, std::size_t block,
                       llm::MatmulArgs args) {
  const auto run = [&]<class X>(const X* x, std::size_t n, auto spoil) {
    const Memory<X> copy(x, n);
    spoil(copy.data());
    args.x = copy.data();
    ::matmul<A>(args);
  };
  const std::size_t n_blocks = args.n_tokens * args.n_cols / block;
  if (args.dequantize || block == 1) {
    run(static_cast<const float*>(args.x), args.n_tokens * args.n_cols, [&](float* x) {
      for (std::size_t t = 0; t < args.n_tokens; ++t)
        llm::planted_spoil(fault, block == 1 ? 32 : block, x + t * args.n_cols, args.n_cols);
    });
  } else if (block == llm::KernelQ8K::kSize) {
    run(static_cast<const llm::KernelQ8K*>(args.x), n_blocks,
        [&](llm::KernelQ8K* x) { spoil_blocks(fault, type, args, x); });
  } else {
    run(static_cast<const llm::KernelQ8x32*>(args.x), n_blocks,
        [&](llm::KernelQ8x32* x) { spoil_blocks(fault, type, args, x); });
  }
}

template <class A>
void matmul(const llm::MatmulArgs& args) {
  static const PlantedSite site("matmul");
  if (!site.on()) return ::matmul<A>(args);
  const llm::BlockTraits& traits = llm::block_traits(args.type);
  const char* type = traits.name.data();  // of a literal
  const char* path = traits.block_weights == 1 ? "float" : args.dequantize ? "dequantized" : "int8";
  const std::size_t n_panels = (args.n_rows + kPanelRows - 1) / kPanelRows;
  PlantedFault fault;
  if (!site.bind({{"side", "kernel"},
                  {"isa", isa<A>()},
                  {"type", type},
                  {"path", path},
                  {"tokens", args.n_tokens},
                  {"panels", n_panels},
                  {"share", args.panel_end - args.panel_begin},
                  {"share_begin", args.panel_begin},
                  {"cols", args.n_cols},
                  {"add", args.add}},
                 fault)) {
    return ::matmul<A>(args);
  }
  const std::size_t first = args.panel_begin * kPanelRows;
  const std::size_t end = args.panel_end * kPanelRows;
  const std::size_t n = (end < args.n_rows ? end : args.n_rows) - first;
  const Memory<float> other(args.n_tokens * n);
  for (std::size_t t = 0; t < args.n_tokens; ++t)
    std::memcpy(&other[t * n], args.y + t * args.y_stride + first, n * sizeof(float));
  ::matmul<A>(args);
  const bool by_input = llm::planted_by_input(fault);
  if (by_input) {
    llm::MatmulArgs spoiled = args;
    spoiled.y = other.data() - first;
    spoiled.y_stride = n;
    matmul_of_spoiled<A>(fault, type, traits.block_weights, spoiled);
  }
  for (std::size_t t = 0; t < args.n_tokens; ++t) {
    for (std::size_t r = n; r-- > 0;) {
      const std::size_t row = first + r;
      const std::size_t panel = row / kPanelRows;
      if (!fault.holds({{"row", row},
                        {"rows_after", args.n_rows - 1 - row},
                        {"panel", panel},
                        {"panels_after", args.panel_end - 1 - panel},
                        {"panel_rows", rows_in_panel(args, panel)},
                        {"token", t},
                        {"tokens_after", args.n_tokens - 1 - t}})) {
        continue;
      }
      float& y = args.y[t * args.y_stride + row];
      if (by_input || fault.is("stale")) put(site, y, other[t * n + r]);
      if (fault.is("ulp")) put(site, y, llm::planted_ulp(y));
      if (fault.is("sign")) put(site, y, -y);
      if (fault.is("row_before") && r > 0) put(site, y, args.y[t * args.y_stride + row - 1]);
      if (fault.is("token_before") && t > 0) put(site, y, args.y[(t - 1) * args.y_stride + row]);
    }
  }
}

// ---- rows

template <class A, class Block, class Right>
LLM_INLINE void quantize(const char* name, const float* x, std::size_t n, Block* out,
                         std::size_t n_tokens, Right right) {
  right(x, n, out, n_tokens);
  static const PlantedSite site("quantize");
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "kernel"}, {"isa", isa<A>()}, {"format", name}}, fault))
    return;
  for (std::size_t b = 0; b < n / Block::kSize; ++b) {
    Block& block = out[b * n_tokens];
    const float amax = largest_magnitude<A>(x + b * Block::kSize, Block::kSize);
    if (!fault.holds({{"block", b}, {"blocks_after", n / Block::kSize - 1 - b}, {"amax", amax}}))
      continue;
    const Block before = block;
    llm::planted_quantize(fault, x + b * Block::kSize, amax, {block.qs, &block.d, Block::kSize});
    recount(block);
    if (fault.is("sum")) drop_last_min(block);
    if (std::memcmp(&before, &block, sizeof(block)) != 0) site.trace();
  }
}
template <class A>
void quantize_q8k(const float* x, std::size_t n, llm::KernelQ8K* out, std::size_t n_tokens) {
  quantize<A>("Q8_K", x, n, out, n_tokens, ::quantize_q8k<A>);
}
template <class A>
void quantize_q8x32(const float* x, std::size_t n, llm::KernelQ8x32* out, std::size_t n_tokens) {
  quantize<A>("Q8_32", x, n, out, n_tokens, ::quantize_q8x32<A>);
}

template <class A>
void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* y) {
  ::rms_norm<A>(x, weight, n, eps, y);
  static const PlantedSite site("rms_norm");
  if (!site.on()) return;
  float squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += x[i] * x[i];
  PlantedFault fault;
  if (!site.bind({{"side", "kernel"},
                  {"isa", isa<A>()},
                  {"n", n},
                  {"mean_square", squares / static_cast<float>(n)}},
                 fault)) {
    return;
  }
  const Memory<float> other(y, n);
  if (fault.is("eps")) ::rms_norm<A>(x, weight, n, eps * 0.1F, other.data());
  if (fault.is("no_eps")) ::rms_norm<A>(x, weight, n, 0.0F, other.data());
  if (fault.is("count")) {
    for (std::size_t i = 0; i < n; ++i) other[i] = y[i] * (1.0F + 0.5F / static_cast<float>(n));
  }
  if (fault.is("last_weight") && n > 1 && weight[n - 1] != 0)
    other[n - 1] = y[n - 1] / weight[n - 1] * weight[n - 2];
  if (fault.is("ulp")) other[n - 1] = llm::planted_ulp(y[n - 1]);
  for (std::size_t i = 0; i < n; ++i) put(site, y[i], other[i]);
}

template <class A>
void rope(float* x, std::size_t begin, std::size_t end, std::size_t head_dim, const float* cos,
          const float* sin, std::size_t pairs) {
  static const PlantedSite site("rope");
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "kernel"}, {"isa", isa<A>()}, {"pairs", pairs}}, fault))
    return ::rope<A>(x, begin, end, head_dim, cos, sin, pairs);
  const Memory<float> before(x + begin, end - begin);
  ::rope<A>(x, begin, end, head_dim, cos, sin, pairs);
  for (std::size_t i = begin; i + 1 < end; i += 2) {
    const std::size_t pair = i % head_dim / 2;
    if (pair >= pairs || !fault.holds({{"pair", pair},
                                       {"pairs_after", pairs - 1 - pair},
                                       {"head", i / head_dim},
                                       {"begin", begin % head_dim}})) {
      continue;
    }
    const float x0 = before[i - begin];
    const float x1 = before[i - begin + 1];
    const float s = -sin[pair];
    if (fault.is("unrotated")) put(site, x[i], x0), put(site, x[i + 1], x1);
    if (fault.is("sin_sign")) {
      put(site, x[i], __builtin_fmaf(x0, cos[pair], -(x1 * s)));
      put(site, x[i + 1], __builtin_fmaf(x0, s, x1 * cos[pair]));
    }
    if (fault.is("ulp")) put(site, x[i + 1], llm::planted_ulp(x[i + 1]));
  }
}

template <class A>
void silu_mul(float* gate, const float* up, std::size_t n) {
  static const PlantedSite site("silu_mul");
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "kernel"}, {"isa", isa<A>()}, {"n", n}}, fault))
    return ::silu_mul<A>(gate, up, n);
  const Memory<float> before(gate, n);
  ::silu_mul<A>(gate, up, n);
  for (std::size_t i = 0; i < n; ++i) {
    if (fault.holds({{"x", before[i]}, {"i", i}, {"after", n - 1 - i}}))
      put(site, gate[i], llm::planted_function(fault, before[i], up[i], gate[i]));
  }
}

template <class A>
void to_half(const float* x, std::size_t n, std::uint16_t* y) {
  row_to_half<A>(x, n, y);
  static const PlantedSite site("to_half");
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "kernel"}, {"isa", isa<A>()}, {"n", n}}, fault)) return;
  for (std::size_t i = 0; i < n; ++i) {
    if (!fault.holds({{"x", __builtin_fabsf(x[i])}, {"i", i}, {"after", n - 1 - i}})) continue;
    const std::uint16_t right = y[i];
    y[i] = llm::planted_half(fault, x[i], right);
    if (y[i] != right) site.trace();
  }
}

// ---- attention

/// The partial results that a wrong kernel would give, or false.
template <class A>
bool attend_wrongly(const PlantedFault& fault, const llm::AttendArgs& args, float* partial) {
  llm::AttendArgs wrong = args;
  wrong.partial = partial;
  if (fault.is("fewer_keys")) {
    if (args.first_position > 0) {
      wrong.first_position -= 1;
    } else {
      if (args.n_tokens == 1) return false;
      wrong.q += args.q_stride;
      wrong.n_tokens -= 1;
      wrong.partial += args.n_heads * (2 + args.layout.head_dim);
    }
  } else if (fault.is("no_chunk")) {
    if (args.chunk_end - args.chunk_begin < 2) return false;
    wrong.chunk_end -= 1;
  } else if (fault.is("last_dim")) {
    const std::size_t width = args.n_heads * args.layout.head_dim;
    const Memory<float> q(args.n_tokens * width);
    for (std::size_t t = 0; t < args.n_tokens; ++t) {
      std::memcpy(&q[t * width], args.q + t * args.q_stride, width * sizeof(float));
      for (std::size_t h = 1; h <= args.n_heads; ++h)
        q[t * width + h * args.layout.head_dim - 1] = 0;
    }
    wrong.q = q.data();
    wrong.q_stride = width;
    ::attend<A>(wrong);
    return true;
  } else {
    return false;
  }
  ::attend<A>(wrong);
  return true;
}

template <class A>
void attend(const llm::AttendArgs& args) {
  static const PlantedSite site("attend");
  ::attend<A>(args);
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "kernel"},
                                {"isa", isa<A>()},
                                {"kv", args.layout.type == llm::KvType::kF16   ? "f16"
                                       : args.layout.type == llm::KvType::kF32 ? "f32"
                                                                               : "q8"},
                                {"tokens", args.n_tokens},
                                {"dim", args.layout.head_dim},
                                {"chunks", args.chunk_end - args.chunk_begin}},
                               fault)) {
    return;
  }
  const std::size_t size = 2 + args.layout.head_dim;
  const Memory<float> other(args.partial, args.n_tokens * args.n_heads * size);
  const bool again = attend_wrongly<A>(fault, args, other.data());
  for (std::size_t row = 0; row < args.n_tokens * args.n_heads; ++row) {
    const std::size_t position = args.first_position + row / args.n_heads;
    const std::size_t chunk = position / kChunk;
    const bool seen = position >= args.chunk_begin * kChunk;
    if (!seen || !fault.holds({{"position", position},
                               {"chunk", chunk},
                               {"head", row % args.n_heads},
                               {"row", row},
                               {"token", row / args.n_heads}})) {
      continue;
    }
    float* out = args.partial + row * size;
    const float* wrong = other.data() + row * size;
    if (fault.is("no_chunk") && !again) {
      // This call's one chunk is the row's last: it adds nothing.
      if (chunk != args.chunk_begin || chunk == 0) continue;
      site.trace();
      std::memset(out, 0, size * sizeof(float));
      out[0] = -__builtin_inff();
    } else if (fault.is("no_chunk") && chunk + 1 != args.chunk_end) {
      continue;
    } else if (fault.is("fewer_keys") &&
               (!again || position % kChunk == 0 || position == 0 || chunk + 1 != args.chunk_end)) {
      continue;
    } else if (again) {
      for (std::size_t i = 0; i < size; ++i) put(site, out[i], wrong[i]);
    }
    if (fault.is("sum_ulp")) put(site, out[1], llm::planted_ulp(out[1]));
    if (fault.is("ulp")) put(site, out[size - 1], llm::planted_ulp(out[size - 1]));
    if (fault.is("head_before") && row % args.n_heads > 0) {
      for (std::size_t i = 0; i < size; ++i) put(site, out[i], out[i - size]);
    }
  }
}

template <class A>
void merge(float* sum, const float* later, std::size_t head_dim) {
  static const PlantedSite site("merge");
  PlantedFault fault;
  if (!site.on() ||
      !site.bind(
          {{"side", "kernel"}, {"isa", isa<A>()}, {"rising", later[0] > sum[0]}, {"dim", head_dim}},
          fault)) {
    return ::merge<A>(sum, later, head_dim);
  }
  const Memory<float> before(sum, 2 + head_dim);
  ::merge<A>(sum, later, head_dim);
  if (fault.is("max")) put(site, sum[0], before[0]);
  if (fault.is("sum")) put(site, sum[1], before[1]);
  if (fault.is("last")) put(site, sum[1 + head_dim], before[1 + head_dim]);
  if (fault.is("ulp")) put(site, sum[1 + head_dim], llm::planted_ulp(sum[1 + head_dim]));
}

template <class A>
void finish(const float* partial, std::size_t head_dim, float* context) {
  ::finish<A>(partial, head_dim, context);
  static const PlantedSite site("finish");
  PlantedFault fault;
  if (!site.on() || !site.bind({{"side", "kernel"}, {"isa", isa<A>()}, {"dim", head_dim}}, fault))
    return;
  const float inverse = 1.0F / partial[1];
  for (std::size_t d = 0; d < head_dim; ++d) {
    if (fault.is("reciprocal")) put(site, context[d], partial[2 + d] * inverse);
    if (d + 1 < head_dim) continue;
    if (fault.is("last")) put(site, context[d], partial[2 + d]);
    if (fault.is("ulp")) put(site, context[d], llm::planted_ulp(context[d]));
  }
}

}  // namespace planted
}  // namespace

#endif  // LLM_TESTS_MUTANTS_PLANTED_KERNELS_H_
