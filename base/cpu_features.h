#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm {

/// The instruction sets kernels exist for. Each is a set of features that a CPU must have; none
/// needs to contain another.
enum class Isa {
  kScalar,      ///< the baseline of the architecture, no explicit vectors
  kAvx2,        ///< AVX2, FMA, F16C
  kAvx512,      ///< AVX-512 F, BW, VL, DQ
  kAvxVnni,     ///< AVX2, FMA, F16C, AVX-VNNI: 256-bit registers with dot products
  kAvx512Vnni,  ///< AVX-512 with VNNI
  kAmx,         ///< AVX-512 with VNNI, and AMX's tiles of int8
  kNeon,        ///< AArch64: NEON with dot products
};

/// All of them, of every architecture, in order of preference: the best one last.
std::span<const Isa> all_isas();
/// "scalar", "avx2", "avx512", "avxvnni", "avx512vnni", "amx", "neon": the words of --isa.
std::string_view isa_name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);
/// What the CPU must offer, in words for an error message ("AVX2, FMA and F16C").
std::string_view isa_requirement(Isa isa);

/// Whether this build has kernels for it, this CPU the instructions, and the operating system saves
/// their registers.
bool isa_supported(Isa isa);
/// Why it is not, for an error message. @pre !isa_supported(isa)
std::string isa_missing(Isa isa);
/// The supported one that is preferred to all others.
Isa best_isa();

/// The CPU's own name ("AMD EPYC ..."), or "unknown".
std::string_view cpu_name();

}  // namespace llm
