// The entries of KernelTable with faults: each calls the right kernel and, where a fault strikes,
// makes of its result what a wrong one would have given.

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "quant/kernels/kernel_table.h"
#include "quant/numerics/contract.h"
#include "tests/fault_injection/corrupt.h"
#include "tests/fault_injection/fault.h"
#include "tests/fault_injection/pass.h"

namespace llm::faults {

LLM_WRAP(kernel_table, "_ZN3llm12kernel_tableENS_3IsaE", const KernelTable*, Isa isa);

namespace {

constexpr std::size_t kIsas = 8;
constexpr std::size_t kPanelRows = contract::kPanelRows;
constexpr std::size_t kChunk = contract::kAttentionChunk;

/// The tables without faults.
std::array<const KernelTable*, kIsas> right{};

/// One instruction set's entries.
template <std::size_t I>
struct Entries {
  static const KernelTable& table() { return *right[I]; }
  /// What the fault of an entry still asks of its elements.
  static std::optional<Fault> fault_of(std::string_view site, Knowledge known) {
    const auto fault = planted(site, {{"side", "kernel"}, {"isa", isa_name(table().isa)}});
    return fault ? fault->bind(known) : std::nullopt;
  }

  // ---- products

  static void matmul_of_spoiled(const Fault& fault, MatmulArgs args) {
    const std::size_t block = block_traits(args.type).block_weights;
    const std::size_t n = args.n_tokens * args.n_cols;
    const bool is_float = args.dequantize || block == 1;
    const std::size_t bytes = is_float       ? n * sizeof(float)
                              : block == 256 ? n / KernelQ8K::kSize * sizeof(KernelQ8K)
                                             : n / KernelQ8x32::kSize * sizeof(KernelQ8x32);
    auto copy = AlignedBuffer<std::byte>::allocate(bytes, "a fault").value();
    std::memcpy(copy.data(), args.x, bytes);
    spoil_activations<KernelQ8K, KernelQ8x32>(fault, args.type, is_float, true, args.n_tokens,
                                              copy.span());
    args.x = copy.data();
    table().matmul(args);
  }

  static void matmul(const MatmulArgs& args) {
    if (planted("matmul") == nullptr) return table().matmul(args);
    const std::size_t n_panels = (args.n_rows + kPanelRows - 1) / kPanelRows;
    const BlockTraits& traits = block_traits(args.type);
    const auto fault = fault_of("matmul", {{"type", traits.name},
                                           {"path", traits.block_weights == 1 ? "float"
                                                    : args.dequantize         ? "dequantized"
                                                                              : "int8"},
                                           {"tokens", args.n_tokens},
                                           {"panels", n_panels},
                                           {"share_begin", args.panel_begin},
                                           {"cols", args.n_cols},
                                           {"add", args.add}});
    if (!fault) return table().matmul(args);
    const std::size_t first = args.panel_begin * kPanelRows;
    const std::size_t n = std::min(args.panel_end * kPanelRows, args.n_rows) - first;
    std::vector<float> other(args.n_tokens * n);
    for (std::size_t t = 0; t < args.n_tokens; ++t)
      std::memcpy(&other[t * n], args.y + t * args.y_stride + first, n * sizeof(float));
    table().matmul(args);
    const bool by_input = is_of_input(*fault);
    if (by_input) {
      MatmulArgs spoiled = args;
      spoiled.y = other.data() - first;
      spoiled.y_stride = n;
      matmul_of_spoiled(*fault, spoiled);
    }
    for (std::size_t t = 0; t < args.n_tokens; ++t) {
      for (std::size_t r = n; r-- > 0;) {
        const std::size_t row = first + r;
        const std::size_t panel = row / kPanelRows;
        if (!fault->holds({{"row", row},
                           {"rows_after", args.n_rows - 1 - row},
                           {"panel", panel},
                           {"panels_after", args.panel_end - 1 - panel},
                           {"panel_rows", std::min(kPanelRows, args.n_rows - panel * kPanelRows)},
                           {"token", t},
                           {"tokens_after", args.n_tokens - 1 - t}}))
          continue;
        float& y = args.y[t * args.y_stride + row];
        if (by_input || fault->is("stale")) put(y, other[t * n + r]);
        if (fault->is("ulp")) put(y, ulp(y));
        if (fault->is("sign")) put(y, -y);
        if (fault->is("row_before") && r > 0) put(y, args.y[t * args.y_stride + row - 1]);
        if (fault->is("token_before") && t > 0) put(y, args.y[(t - 1) * args.y_stride + row]);
      }
    }
  }

  // ---- rows

  template <auto kEntry, typename Block>
  static void quantize(std::string_view format, const float* x, std::size_t n, Block* out,
                       std::size_t n_tokens) {
    if (is_late("quantize")) return do_later([=] { (table().*kEntry)(x, n, out, n_tokens); });
    (table().*kEntry)(x, n, out, n_tokens);
    const auto fault = fault_of("quantize", {{"format", format}});
    const std::size_t n_blocks = n / Block::kSize;
    for (std::size_t b = 0; fault && b < n_blocks; ++b) {
      const Floats of_block(x + b * Block::kSize, Block::kSize);
      if (fault->holds({{"block", b},
                        {"blocks_after", n_blocks - 1 - b},
                        {"amax", largest_magnitude(of_block)}}))
        quantize_wrongly(*fault, of_block, out[b * n_tokens]);
    }
  }
  static void quantize_q8k(const float* x, std::size_t n, KernelQ8K* out, std::size_t n_tokens) {
    quantize<&KernelTable::quantize_q8k>("Q8_K", x, n, out, n_tokens);
  }
  static void quantize_q8x32(const float* x, std::size_t n, KernelQ8x32* out,
                             std::size_t n_tokens) {
    quantize<&KernelTable::quantize_q8x32>("Q8_32", x, n, out, n_tokens);
  }

  static void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* y) {
    const Op op = pass_rows() > 0 ? op_of(weight) : kNoOp;
    if (is_late(op.name)) return do_later([=] { table().rms_norm(x, weight, n, eps, y); });
    const std::vector<float> before(x, x + n);
    table().rms_norm(x, weight, n, eps, y);
    if (!op.name.empty()) spoil_rows(op, table().isa, {y, n, 1, 0, n, n});
    if (planted("rms_norm") == nullptr) return;
    float squares = 0;
    for (const float v : before) squares += v * v;
    const auto fault = fault_of("rms_norm", {{"n", n},
                                             {"op", op.name.empty() ? "none" : op.name},
                                             {"threads", team_size()},
                                             {"mean_square", squares / static_cast<float>(n)}});
    if (!fault) return;
    std::vector<float> other(y, y + n);
    if (fault->is("eps")) table().rms_norm(before.data(), weight, n, eps * 0.1F, other.data());
    if (fault->is("no_eps")) table().rms_norm(before.data(), weight, n, 0.0F, other.data());
    if (fault->is("dropped")) other = before;
    if (fault->is("twice")) table().rms_norm(y, weight, n, eps, other.data());
    if (fault->is("count")) {
      for (float& v : other) v *= 1.0F + 0.5F / static_cast<float>(n);
    }
    if (fault->is("last_weight") && n > 1 && weight[n - 1] != 0)
      other[n - 1] = y[n - 1] / weight[n - 1] * weight[n - 2];
    if (fault->is("ulp")) other[n - 1] = ulp(y[n - 1]);
    for (std::size_t i = 0; i < n; ++i) put(y[i], other[i]);
  }

  static void rope(float* x, std::size_t begin, std::size_t end, std::size_t head_dim,
                   const float* cos, const float* sin, std::size_t pairs) {
    const auto fault = fault_of("rope", {{"pairs", pairs}});
    const std::vector<float> before(x + begin, x + end);
    table().rope(x, begin, end, head_dim, cos, sin, pairs);
    if (fault) spoil_rope(*fault, before, begin, head_dim, {cos, pairs}, {sin, pairs}, x);
    spoil_in_place("q_rope", table().isa, x, begin, end, "q");
    spoil_in_place("k_rope", table().isa, x, begin, end, "k");
  }

  static void activate(Activation kind, float* gate, const float* up, std::size_t n) {
    if (is_late("ffn_act")) return do_later([=] { table().activate(kind, gate, up, n); });
    const auto fault = fault_of("activate", {{"n", n}, {"kind", activation_name(kind)}});
    const std::vector<float> before(gate, gate + n);
    table().activate(kind, gate, up, n);
    if (fault) spoil_activation(*fault, kind, before, up, gate);
    spoil_in_place("ffn_act", table().isa, gate, 0, n, "gate");
  }

  static void soft_cap(float* x, std::size_t n, float cap) {
    const auto fault = fault_of("soft_cap", {{"n", n}});
    const float last = x[n - 1];
    table().soft_cap(x, n, cap);
    if (!fault) return;
    if (fault->is("last")) put(x[n - 1], last);
    if (fault->is("ulp")) put(x[n - 1], ulp(x[n - 1]));
  }

  static void axpy(float a, const float* x, std::size_t n, float* y) {
    const auto fault = fault_of("axpy", {{"n", n}});
    const std::vector<float> before(y, y + n);
    table().axpy(a, x, n, y);
    if (!fault) return;
    if (fault->is("last")) put(y[n - 1], before[n - 1]);
    if (fault->is("ulp")) put(y[n - 1], ulp(y[n - 1]));
    for (std::size_t i = 0; fault->is("rounded_twice") && i < n; ++i)
      put(y[i], a * x[i] + before[i]);
  }

  static void to_half(const float* x, std::size_t n, std::uint16_t* y) {
    const auto fault = fault_of("to_half", {{"n", n}});
    const std::vector<float> before(x, x + n);
    table().to_half(x, n, y);
    if (fault) spoil_halves(*fault, before, y);
  }

  static void exp_distances(const float* x, std::size_t n, float largest, float divisor, float* y) {
    const auto fault = fault_of("exp", {{"n", n}});
    const std::vector<float> before(x, x + n);
    table().exp_distances(x, n, largest, divisor, y);
    for (std::size_t i = 0; fault && i < n; ++i)
      spoil_exp(*fault, (before[i] - largest) / divisor, i, n, y[i]);
  }

  // ---- Gated DeltaNet, Mamba-2

  static void convolve(const ConvolveArgs& args) {
    const auto fault =
        fault_of("convolve", {{"width", args.width}, {"n", args.n}, {"rows", pass_rows()}});
    table().convolve(args);
    if (!fault) return;
    std::vector<float> other(args.y, args.y + args.n);
    if (fault->is("ulp")) {
      other.back() = ulp(other.back());
    } else {
      std::vector<const float*> rows(args.rows, args.rows + args.width);
      if (fault->is("oldest")) rows[0] = rows[1];
      ConvolveArgs wrong = args;
      wrong.rows = rows.data();
      wrong.y = other.data();
      if (fault->is("no_bias")) wrong.bias = nullptr;
      table().convolve(wrong);
    }
    for (std::size_t i = 0; i < args.n; ++i) put(args.y[i], other[i]);
  }

  static void unit_length(float* x, std::size_t n, float factor) {
    const auto fault = fault_of("unit_length", {{"n", n}, {"rows", pass_rows()}});
    std::vector<float> other(x, x + n);
    table().unit_length(x, n, factor);
    if (!fault) return;
    if (fault->is("factor")) table().unit_length(other.data(), n, 1.0F);
    if (fault->is("ulp")) other.assign(x, x + n), other.back() = ulp(other.back());
    for (std::size_t i = 0; i < n; ++i) put(x[i], other[i]);
  }

  static void delta_rule(const DeltaRuleArgs& args) {
    const auto fault = fault_of("delta_rule", {{"k_dim", args.k_dim},
                                               {"columns", args.n_columns},
                                               {"tokens", args.n_tokens},
                                               {"mamba", !args.finds},
                                               {"rows", pass_rows()}});
    if (!fault) return table().delta_rule(args);
    const std::size_t size = args.k_dim * contract::kLanes;
    auto state = AlignedBuffer<float>::allocate(size, "a fault").value();
    std::copy_n(args.state, size, state.data());
    table().delta_rule(args);
    if (fault->is("ulp"))
      return put(args.state[size - contract::kLanes], ulp(args.state[size - contract::kLanes]));
    std::vector<float> out(args.n_tokens * args.n_columns);
    DeltaRuleArgs wrong = args;
    wrong.state = state.data();
    wrong.out = out.data();
    wrong.out_stride = args.n_columns;
    if (fault->is("gates_swapped")) std::swap(wrong.decay, wrong.beta);
    if (fault->is("key_of_query")) wrong.k = wrong.q;
    if (fault->is("no_past")) wrong.past = 0;
    if (fault->is("no_last_token") && wrong.n_tokens > 0) --wrong.n_tokens;
    table().delta_rule(wrong);
    for (std::size_t i = 0; i < size; ++i) put(args.state[i], state.data()[i]);
    for (std::size_t i = 0; i < wrong.n_tokens * args.n_columns; ++i)
      put(args.out[i / args.n_columns * args.out_stride + i % args.n_columns], out[i]);
  }

  // ---- attention

  /// The partial results that a wrong kernel would give. @return false: it gives none
  static bool attend_wrongly(const Fault& fault, const AttendArgs& args, float* partial) {
    AttendArgs wrong = args;
    wrong.partial = partial;
    const std::size_t width = args.n_heads * args.layout.head_dim;
    std::vector<float> q;
    if (fault.is("fewer_keys")) {
      if (args.first_position > 0) {
        wrong.first_position -= 1;
      } else {
        if (args.n_tokens == 1) return false;
        wrong.q += args.q_stride;
        wrong.n_tokens -= 1;
        wrong.partial += args.n_heads * (2 + args.layout.head_dim);
      }
    } else if (fault.is("more_keys")) {
      const std::size_t end = args.first_position + args.n_tokens;
      if (end % kChunk == 0 || end / kChunk >= args.chunk_end) return false;
      wrong.first_position += 1;
    } else if (fault.is("window_short") || fault.is("window_long")) {
      if (args.window < 2) return false;
      wrong.window = fault.is("window_short") ? args.window - 1 : args.window + 1;
    } else if (fault.is("no_chunk")) {
      if (args.chunk_end - args.chunk_begin < 2) return false;
      wrong.chunk_end -= 1;
    } else if (fault.is("last_dim") || fault.is("no_scale")) {
      q.resize(args.n_tokens * width);
      for (std::size_t t = 0; t < args.n_tokens; ++t)
        std::memcpy(&q[t * width], args.q + t * args.q_stride, width * sizeof(float));
      for (std::size_t i = 0; i < q.size(); ++i) {
        if (fault.is("last_dim") && (i + 1) % args.layout.head_dim == 0) q[i] = 0;
        if (fault.is("no_scale")) q[i] *= 2;
      }
      wrong.q = q.data();
      wrong.q_stride = width;
    } else if (fault.is("other_pages")) {
      const auto caches = pass_caches();
      if (caches.size() < 2) return false;
      const auto pages = caches[0]->pages(0);
      if (args.pages == pages.data() || pages.size() < args.chunk_end) return false;
      wrong.pages = pages.data();
    } else if (fault.is("next_head")) {
      const std::size_t head_bytes = args.values_offset - args.keys_offset;
      if (args.keys_offset == 0) return false;
      wrong.keys_offset -= 2 * head_bytes;
      wrong.values_offset -= 2 * head_bytes;
    } else {
      return false;
    }
    table().attend(wrong);
    return true;
  }

  static void attend(const AttendArgs& args) {
    if (is_late("attend")) return do_later([args] { table().attend(args); });
    table().attend(args);
    if (planted("attend") == nullptr) return;
    const auto fault = fault_of("attend", {{"kv", kv_name(args.layout.type)},
                                           {"tokens", args.n_tokens},
                                           {"heads", args.n_heads},
                                           {"n_rows", args.n_tokens * args.n_heads},
                                           {"dim", args.layout.head_dim},
                                           {"chunks", args.chunk_end - args.chunk_begin}});
    if (!fault) return;
    const std::size_t size = 2 + args.layout.head_dim;
    const std::size_t n_rows = args.n_tokens * args.n_heads;
    std::vector<float> other(args.partial, args.partial + n_rows * size);
    const bool again = attend_wrongly(*fault, args, other.data());
    for (std::size_t row = 0; row < n_rows; ++row) {
      const std::size_t position = args.first_position + row / args.n_heads;
      const std::size_t chunk = position / kChunk;
      const bool seen = position >= args.chunk_begin * kChunk;
      if (seen && fault->holds({{"position", position},
                                {"chunk", chunk},
                                {"head", row % args.n_heads},
                                {"row", row},
                                {"rows_after", n_rows - 1 - row},
                                {"token", row / args.n_heads}}))
        spoil_partial(*fault, args, row, again ? &other[row * size] : nullptr);
    }
  }

  static void spoil_partial(const Fault& fault, const AttendArgs& args, std::size_t row,
                            const float* wrong) {
    const std::size_t position = args.first_position + row / args.n_heads;
    const std::size_t chunk = position / kChunk;
    const std::size_t size = 2 + args.layout.head_dim;
    float* out = args.partial + row * size;
    const bool is_last_chunk = chunk + 1 == args.chunk_end;
    if (fault.is("no_chunk") && wrong == nullptr) {
      // This call's one chunk is the row's last: it adds nothing.
      if (chunk != args.chunk_begin || chunk == 0) return;
      note_struck();
      std::memset(out, 0, size * sizeof(float));
      out[0] = -std::numeric_limits<float>::infinity();
      return;
    }
    if (fault.is("no_chunk") && !is_last_chunk) return;
    if (fault.is("fewer_keys") && (wrong == nullptr || position % kChunk == 0 || !is_last_chunk))
      return;
    for (std::size_t i = 0; i < size; ++i) {
      if (wrong != nullptr) put(out[i], wrong[i]);
      if (fault.is("head_before") && row % args.n_heads > 0) put(out[i], (out - size)[i]);
    }
    if (fault.is("sum_ulp")) put(out[1], ulp(out[1]));
    if (fault.is("ulp")) put(out[size - 1], ulp(out[size - 1]));
  }

  static void merge(float* sum, const float* later, std::size_t head_dim) {
    const auto fault = fault_of("merge", {{"rising", later[0] > sum[0]}, {"dim", head_dim}});
    const std::vector<float> before(sum, sum + 2 + head_dim);
    table().merge(sum, later, head_dim);
    if (!fault) return;
    if (fault->is("max")) put(sum[0], before[0]);
    if (fault->is("sum")) put(sum[1], before[1]);
    if (fault->is("last")) put(sum[1 + head_dim], before[1 + head_dim]);
    if (fault->is("ulp")) put(sum[1 + head_dim], ulp(sum[1 + head_dim]));
  }

  static void finish(const float* partial, std::size_t head_dim, float* context) {
    // Of a batch, the task that attends; of one row, everybody for himself after the barrier.
    if (pass_rows() > 1 && is_late("attend"))
      return do_later([=] { table().finish(partial, head_dim, context); });
    table().finish(partial, head_dim, context);
    const auto fault = fault_of("finish", {{"dim", head_dim}});
    if (!fault) return;
    const float inverse = 1.0F / partial[1];
    for (std::size_t d = 0; d < head_dim; ++d) {
      if (fault->is("reciprocal")) put(context[d], partial[2 + d] * inverse);
      if (d + 1 < head_dim) continue;
      if (fault->is("last")) put(context[d], partial[2 + d]);
      if (fault->is("ulp")) put(context[d], ulp(context[d]));
    }
  }

  static KernelTable wrapped() {
    KernelTable made = table();
    made.matmul = matmul, made.quantize_q8k = quantize_q8k, made.quantize_q8x32 = quantize_q8x32;
    made.rms_norm = rms_norm, made.rope = rope, made.activate = activate, made.axpy = axpy;
    made.soft_cap = soft_cap, made.to_half = to_half, made.exp_distances = exp_distances;
    made.convolve = convolve, made.unit_length = unit_length, made.delta_rule = delta_rule;
    made.attend = attend, made.merge = merge, made.finish = finish;
    return made;
  }
};

using Tables = std::array<KernelTable, kIsas>;

template <std::size_t... I>
Tables wrap_all(std::index_sequence<I...>) {
  ((right[I] = real_kernel_table(static_cast<Isa>(I))), ...);
  return {(right[I] == nullptr ? KernelTable{} : Entries<I>::wrapped())...};
}

}  // namespace

const KernelTable* wrap_kernel_table(Isa isa) {
  static const Tables tables = wrap_all(std::make_index_sequence<kIsas>());
  const auto i = static_cast<std::size_t>(isa);
  return right[i] == nullptr ? nullptr : &tables[i];
}

}  // namespace llm::faults
