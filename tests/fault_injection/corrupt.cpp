#include "tests/fault_injection/corrupt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

namespace llm::faults {

bool is_of_input(const Fault& fault) {
  constexpr std::string_view kEffects[] = {"last_code",      "last_block",  "sub_block",
                                           "sub_block_sign", "block_scale", "min"};
  return std::ranges::any_of(kEffects, [&](std::string_view effect) { return fault.is(effect); });
}

namespace {
/// @param last  elements of the row's last block; none where this is another
/// @param tail  those of the last sub-block
template <typename T>
void spoil_elements(const Fault& fault, std::span<T> last, std::span<T> tail) {
  if (fault.is("last_code") && !last.empty()) last.back() = 0;
  if (fault.is("last_block")) std::ranges::fill(last, T{0});
  if (fault.is("sub_block")) std::ranges::fill(tail, T{0});
  if (fault.is("sub_block_sign")) {
    for (T& x : tail) x = static_cast<T>(-x);
  }
}
}  // namespace

void spoil(const Fault& fault, std::string_view type, bool is_last, Codes x) {
  // Weights that share a scale of their own.
  const std::size_t sub = type == "Q4_K" || type == "Q5_K" || type == "IQ4_XS" ? 32 : 16;
  spoil_elements(fault, x.codes.first(is_last ? x.codes.size() : 0),
                 x.codes.last(std::min(sub, x.codes.size())));
  if (fault.is("block_scale") && is_last) *x.d *= 1.0F + 0x1p-12F;
}

void spoil(const Fault& fault, std::size_t block, std::span<float> x) {
  const auto last = x.last(std::min(block, x.size()));
  spoil_elements(fault, last, x.last(std::min<std::size_t>(16, x.size())));
  if (fault.is("block_scale")) {
    for (float& value : last) value *= 1.0F + 0x1p-12F;
  }
}

void recount(KernelQ8K& x, bool without_last) {
  x.sum = 0;
  for (std::size_t s = 0; s < std::size(x.sums16); ++s) {
    const std::int8_t* codes = x.qs + 16 * s;
    const std::int32_t sum = std::accumulate(codes, codes + 16, 0);
    x.sums16[s] = static_cast<std::int16_t>(sum);
    x.minus32[s] = -32 * sum;
    x.sum += sum;
  }
  for (std::size_t s = 0; s < std::size(x.sums32); ++s)
    x.sums32[s] = static_cast<std::int16_t>(x.sums16[2 * s] + x.sums16[2 * s + 1]);
  if (without_last) x.sums16[15] = x.sums32[7] = 0;
}

void recount(KernelQ8x32& x, bool without_last) {
  x.sum = std::accumulate(x.qs, x.qs + (without_last ? 16 : 32), 0);
}

void recount(BlockQ8_K& x, bool without_last) {
  for (std::size_t s = 0; s < 16; ++s) {
    const bool lost = without_last && s == 15;
    x.bsums[s] =
        static_cast<std::int16_t>(lost ? 0 : std::accumulate(x.qs + 16 * s, x.qs + 16 * s + 16, 0));
  }
}

void recount(BlockQ8_32& x, bool without_last) {
  x.sum = static_cast<std::int16_t>(std::accumulate(x.qs, x.qs + (without_last ? 16 : 32), 0));
}

float largest_magnitude(Floats x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

void quantize_wrongly(const Fault& fault, Floats x, Codes out) {
  const float amax = largest_magnitude(x);
  if (!(amax > 1e-36F) || !(amax < 1e30F)) return;
  const auto each = [&](float scale, bool truncate) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float code = x[i] * scale;
      const float whole = truncate ? std::trunc(code) : std::nearbyint(code);
      out.codes[i] = static_cast<std::int8_t>(std::clamp(whole, -127.0F, 127.0F));
    }
  };
  if (fault.is("amax128")) {
    *out.d = amax / 128.0F;
    each(128.0F / amax, false);
  }
  if (fault.is("truncate")) each(127.0F / amax, true);
  if (fault.is("last_code")) {
    std::int8_t& code = out.codes[x.size() - 1];
    code = static_cast<std::int8_t>(code > 0 ? code - 1 : code + 1);
  }
  for (std::int8_t& code : out.codes) {
    if (fault.is("clip126") && code > 126) code = 126;
    if (fault.is("last_bit")) code = static_cast<std::int8_t>(code & ~1);
    if (fault.is("zero")) code = 0;
  }
  if (fault.is("scale_f16"))
    *out.d = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*out.d) & 0xFFFF'E000U);
  if (fault.is("scale_127")) *out.d *= 127.0F / 128.0F;
  if (fault.is("scale_ulp")) *out.d = ulp(*out.d);
}

namespace {

/// A function's right result y of x, made wrong.
float function_of(const Fault& fault, float x, float y) {
  return fault.is("zero") ? 0 : fault.is("ulp") ? ulp(y) : fault.is("stale") ? x : y;
}

float activated(const Fault& fault, Activation kind, float gate, float up, float y) {
  if (fault.is("identity")) return gate * up;
  if (fault.is("erf")) return 0.5F * gate * (1 + std::erf(gate * 0x1.6a09e6p-1F)) * up;
  if (fault.is("unclamped")) return gate / (1 + std::exp(-1.702F * gate)) * (up + 1);
  if (fault.is("no_one")) return contract::activate(kind, gate, up - 1);
  if (fault.is("exp_sign")) return -contract::activate(kind, -gate, up);
  return function_of(fault, gate, y);
}

/// The right f16 y of x, made wrong.
std::uint16_t half_of(const Fault& fault, float x, std::uint16_t y) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7FFF'FFFFU;
  const std::uint32_t sign = y & 0x8000U;
  const bool is_normal = bits >= 0x3880'0000U && bits < 0x477F'E000U;
  const auto made = [&](std::uint32_t half) { return static_cast<std::uint16_t>(sign | half); };
  if (fault.is("truncate") && is_normal) return made((bits - 0x3800'0000U) >> 13);
  if (fault.is("half_away") && is_normal) return made((bits - 0x3800'0000U + 0x1000U) >> 13);
  if (fault.is("flush") && bits < 0x3880'0000U) return made(0);
  if (fault.is("saturate") && bits > 0x4780'0000U && bits < 0x7F80'0000U) return made(0x7BFFU);
  return fault.is("ulp") ? y ^ 1U : y;
}

}  // namespace

void spoil_exp(const Fault& fault, float x, std::size_t i, std::size_t n, float& y) {
  if (fault.holds({{"x", x}, {"i", i}, {"after", n - 1 - i}})) put(y, function_of(fault, x, y));
}

void spoil_halves(const Fault& fault, Floats x, std::uint16_t* y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    if (!fault.holds({{"x", magnitude}, {"i", i}, {"after", x.size() - 1 - i}})) continue;
    const std::uint16_t was = std::exchange(y[i], half_of(fault, x[i], y[i]));
    if (y[i] != was) note_struck();
  }
}

void spoil_activation(const Fault& fault, Activation kind, Floats x, const float* up, float* y) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (fault.holds({{"x", x[i]}, {"i", i}, {"after", x.size() - 1 - i}}))
      put(y[i], activated(fault, kind, x[i], up[i], y[i]));
}

void spoil_rope(const Fault& fault, Floats before, std::size_t begin, std::size_t head_dim,
                Floats cos, Floats sin, float* x) {
  for (std::size_t i = 0; i + 1 < before.size(); i += 2) {
    const std::size_t pair = (begin + i) % head_dim / 2;
    if (pair >= cos.size() || !fault.holds({{"pair", pair},
                                            {"pairs_after", cos.size() - 1 - pair},
                                            {"head", (begin + i) / head_dim},
                                            {"begin", begin % head_dim}}))
      continue;
    const float x0 = before[i];
    const float x1 = before[i + 1];
    float* y = x + begin + i;
    if (fault.is("unrotated")) put(y[0], x0), put(y[1], x1);
    if (fault.is("sin_sign")) {
      put(y[0], std::fma(x0, cos[pair], x1 * sin[pair]));
      put(y[1], std::fma(x0, -sin[pair], x1 * cos[pair]));
    }
    if (fault.is("ulp")) put(y[1], ulp(y[1]));
  }
}

}  // namespace llm::faults
