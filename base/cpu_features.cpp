#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <fstream>
#include <string>

namespace llm {
namespace {

constexpr std::array kIsas = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};

std::string read_cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

#if defined(__x86_64__)
/// clang 14's __builtin_cpu_supports does not know "f16c".
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

}  // namespace

std::span<const Isa> all_isas() { return kIsas; }

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
  }
  return "unknown";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (const Isa isa : kIsas) {
    if (isa_name(isa) == name) return isa;
  }
  return std::nullopt;
}

std::string_view isa_requirement(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "nothing beyond the baseline";
    case Isa::kAvx2:
      return "AVX2, FMA and F16C";
    case Isa::kAvx512:
      return "AVX-512 F, BW, VL and DQ";
    case Isa::kAvx512Vnni:
      return "AVX-512 F, BW, VL, DQ and VNNI";
  }
  return "unknown";
}

bool isa_supported(Isa isa) {
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks XGETBV whether the system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx512Vnni:
      return avx512 && __builtin_cpu_supports("avx512vnni");
  }
#endif
  return isa == Isa::kScalar;
}

Isa best_isa() {
  Isa best = Isa::kScalar;
  for (const Isa isa : kIsas) {
    if (isa_supported(isa)) best = isa;
  }
  return best;
}

std::string_view cpu_name() {
  static const std::string name = read_cpu_name();
  return name;
}

}  // namespace llm
