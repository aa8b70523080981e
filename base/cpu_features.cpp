#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <array>
#include <fstream>
#include <string>

namespace llm {
namespace {

/// What a CPU may have; a set of them is their sum.
enum Feature : unsigned {
  kAvx2 = 1U << 0,
  kFma = 1U << 1,
  kF16c = 1U << 2,
  kAvxVnni = 1U << 3,
  kAvx512F = 1U << 4,
  kAvx512Bw = 1U << 5,
  kAvx512Vl = 1U << 6,
  kAvx512Dq = 1U << 7,
  kAvx512Vnni = 1U << 8,
  kAmxInt8 = 1U << 9,
  kNeonDot = 1U << 10,
};
using Features = unsigned;

constexpr Features kAvx2Set = kAvx2 | kFma | kF16c;
constexpr Features kAvx512Set = kAvx2Set | kAvx512F | kAvx512Bw | kAvx512Vl | kAvx512Dq;

struct IsaRow {
  Isa isa;
  std::string_view name;
  Features needs;
  std::string_view requirement;
};

/// In order of preference. No CPU has AVX-512 without its VNNI and yet AVX-VNNI, so the place of
/// avxvnni among them decides nothing.
constexpr std::array kRows = {
    IsaRow{Isa::kScalar, "scalar", 0, "nothing beyond the baseline"},
    IsaRow{Isa::kAvx2, "avx2", kAvx2Set, "AVX2, FMA and F16C"},
    IsaRow{Isa::kAvx512, "avx512", kAvx512Set, "AVX-512 F, BW, VL and DQ"},
    IsaRow{Isa::kAvxVnni, "avxvnni", kAvx2Set | kAvxVnni, "AVX2, FMA, F16C and AVX-VNNI"},
    IsaRow{Isa::kAvx512Vnni, "avx512vnni", kAvx512Set | kAvx512Vnni,
           "AVX-512 F, BW, VL, DQ and VNNI"},
    IsaRow{Isa::kAmx, "amx", kAvx512Set | kAvx512Vnni | kAmxInt8,
           "AVX-512 F, BW, VL, DQ and VNNI, and AMX with int8"},
    IsaRow{Isa::kNeon, "neon", kNeonDot, "AArch64 with NEON's dot products"},
};

constexpr auto kIsas = [] {
  std::array<Isa, kRows.size()> isas{};
  for (std::size_t i = 0; i < isas.size(); ++i) isas[i] = kRows[i].isa;
  return isas;
}();

constexpr const IsaRow& row_of(Isa isa) { return kRows[static_cast<std::size_t>(isa)]; }
static_assert([] {
  for (const IsaRow& row : kRows) {
    if (&row_of(row.isa) != &row) return false;
  }
  return true;
}());

#if defined(__x86_64__)
/// Linux saves the tile registers, 8 KiB a thread, for processes that asked for it.
bool tiles_are_granted() {
  constexpr unsigned long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM, which old headers lack
  constexpr unsigned long kTileData = 18;     // the number of that state
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#endif

/// What this CPU has, and the system saves the registers of.
Features detect() {
  Features found = 0;
  [[maybe_unused]] const auto add = [&](Feature feature, bool has) {
    if (has) found |= feature;
  };
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks XGETBV whether the system saves the registers.
  add(kAvx2, __builtin_cpu_supports("avx2"));
  add(kFma, __builtin_cpu_supports("fma"));
  add(kAvx512F, __builtin_cpu_supports("avx512f"));
  add(kAvx512Bw, __builtin_cpu_supports("avx512bw"));
  add(kAvx512Vl, __builtin_cpu_supports("avx512vl"));
  add(kAvx512Dq, __builtin_cpu_supports("avx512dq"));
  add(kAvx512Vnni, __builtin_cpu_supports("avx512vnni"));
  // clang 14's does not know these.
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  add(kF16c, __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0);
  const bool has_leaf = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && a >= 1;
  constexpr unsigned kAmxBits = 3U << 24;  // tiles and their int8 products: EDX of leaf 7
  add(kAmxInt8, has_leaf && (d & kAmxBits) == kAmxBits && tiles_are_granted());
  constexpr unsigned kAvxVnniBit = 1U << 4;  // EAX of leaf 7, subleaf 1
  add(kAvxVnni, has_leaf && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnniBit) != 0);
#elif defined(__aarch64__)
  add(kNeonDot, (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0);
#endif
  return found;
}

std::string read_cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

std::span<const Isa> all_isas() { return kIsas; }

std::string_view isa_name(Isa isa) { return row_of(isa).name; }

std::optional<Isa> isa_from_name(std::string_view name) {
  for (const IsaRow& row : kRows) {
    if (row.name == name) return row.isa;
  }
  return std::nullopt;
}

std::string_view isa_requirement(Isa isa) { return row_of(isa).requirement; }

namespace {

/// Units of kernels and peaks exist for it. Without the list of CMake: all, for those who only ask
/// the CPU.
bool is_built([[maybe_unused]] Isa isa) {
#ifdef LLM_HAS_BUILT_ISAS
  return isa == Isa::kScalar
#define LLM_ISA(name) || isa == Isa::k##name
#include "base/built_isas.inc"
#undef LLM_ISA
      ;
#else
  return true;
#endif
}

}  // namespace

bool isa_supported(Isa isa) {
  static const Features here = detect();
  return is_built(isa) && (row_of(isa).needs & ~here) == 0;
}

std::string isa_missing(Isa isa) {
  const std::string name(isa_name(isa));
  if (!is_built(isa)) return "this build has no kernels for " + name;
  return (name + " needs ").append(isa_requirement(isa)) + ", which this CPU (" +
         std::string(cpu_name()) + ") lacks";
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
