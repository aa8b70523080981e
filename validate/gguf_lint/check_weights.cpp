// Tensors: the types they have, and the values in them.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "base/thread_team.h"
#include "engine/model/tensor_name.h"
#include "quant/formats/finite.h"
#include "validate/gguf_lint/checks.h"

namespace llm {
namespace {

double bits_of(const GgufTensor& tensor) {
  return 8.0 * static_cast<double>(tensor.n_bytes) / static_cast<double>(tensor.n_elements);
}

/// "attn_v.weight" of "blk.3.attn_v.weight".
std::string_view role_of(std::string_view name) {
  if (!layer_of_tensor(name)) return name;
  return name.substr(name.find('.', 4) + 1);
}

/// Bits per weight of the half of the blocks' matrices that has the most.
double bulk_bits(const GgufFile& gguf) {
  std::vector<std::pair<double, std::uint64_t>> matrices;  // bits, weights
  std::uint64_t all = 0;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (tensor.n_dims < 2 || !layer_of_tensor(tensor.name)) continue;
    matrices.emplace_back(bits_of(tensor), tensor.n_elements);
    all += tensor.n_elements;
  }
  std::ranges::sort(matrices);
  std::uint64_t below = 0;
  for (const auto& [bits, weights] : matrices)
    if ((below += weights) * 2 >= all) return bits;
  return 0;
}

/// Bits per weight of a role's tensors in the middle one of all layers.
double usual_bits(const GgufFile& gguf, std::string_view role) {
  std::vector<double> bits;
  for (const GgufTensor& tensor : gguf.tensors())
    if (role_of(tensor.name) == role) bits.push_back(bits_of(tensor));
  const auto middle = bits.begin() + static_cast<std::ptrdiff_t>(bits.size() / 2);
  std::nth_element(bits.begin(), middle, bits.end());
  return *middle;
}

/// A tensor whose errors cost more than its share of the bits. Recipes of every program give it as
/// many as the rest, or more.
struct Sensitive {
  std::string_view role;
  double poor;  ///< below so much of the bulk's bits
  std::string_view why;
};
constexpr std::array kSensitive = {
    Sensitive{"output.weight", 0.95, "its error affects every logit"},
    Sensitive{"token_embd.weight", 0.8, "its error affects every token"},
    Sensitive{"attn_v.weight", 0.8, "its error is added to the residual stream in full"},
    Sensitive{"ffn_down.weight", 0.8, "outliers of the activations multiply its error"},
    Sensitive{"ffn_down_exps.weight", 0.8, "outliers of the activations multiply its error"},
};
/// Types of so many bits lose nothing that matters, whatever the bulk has.
constexpr double kEnoughBits = 6;
/// Recipes mix 4.5 and 6.6 bits among the layers of a role (Q4_K_M).
constexpr double kPoorInRole = 0.65;

/// What a scan saw of one tensor.
struct Scan {
  std::optional<std::size_t> nonfinite;
  std::size_t n_blocks = 0;
  float largest = 0;
  std::size_t largest_at = 0;
  /// Blocks by the binary exponent of their magnitude, from 2^-127 on; [0]: zeros and below.
  std::array<std::size_t, 256> exponents = {};
};

int exponent_index(float magnitude) {
  if (magnitude <= 0) return 0;
  return std::clamp(std::ilogb(magnitude) + 128, 1, 255);
}

Scan scan_tensor(const GgufTensor& tensor, std::span<const std::byte> data) {
  constexpr std::size_t kStep = 1U << 14;  // blocks
  const std::size_t block_bytes = block_traits(tensor.type).block_bytes;
  Scan scan{.nonfinite = first_nonfinite_block(tensor.type, data),
            .n_blocks = data.size() / block_bytes};
  if (scan.nonfinite) return scan;
  std::vector<float> magnitudes(std::min(kStep, scan.n_blocks));
  for (std::size_t begin = 0; begin < scan.n_blocks; begin += kStep) {
    const std::size_t n = std::min(kStep, scan.n_blocks - begin);
    const std::span<float> some(magnitudes.data(), n);
    block_magnitudes(tensor.type, data.subspan(begin * block_bytes, n * block_bytes), some);
    for (std::size_t i = 0; i < n; ++i) {
      ++scan.exponents[static_cast<std::size_t>(exponent_index(some[i]))];
      if (some[i] <= scan.largest) continue;
      scan.largest = some[i];
      scan.largest_at = begin + i;
    }
  }
  return scan;
}

/// The exponent that all but a thousandth of the blocks do not exceed.
int usual_exponent(const Scan& scan) {
  std::size_t above = 0;
  for (int e = 255; e > 0; --e) {
    above += scan.exponents[static_cast<std::size_t>(e)];
    if (above * 1000 > scan.n_blocks) return e;
  }
  return 0;
}

void judge(LintContext& patient, const GgufTensor& tensor, const Scan& scan) {
  const auto where = std::string(tensor.name);
  const std::string_view type = block_traits(tensor.type).name;
  constexpr std::string_view kAgain =
      "download or quantize the file again; metadata cannot repair it";
  if (scan.nonfinite) {
    return patient.report({.where = where,
                           .what = fmt::format("found NaN or Inf in {} block {} of {}", type,
                                               *scan.nonfinite, scan.n_blocks),
                           .why = "every answer becomes NaN: one token repeated, or nothing",
                           .remedy = std::string(kAgain)});
  }
  const bool is_matrix = tensor.n_dims > 1;
  // Rows of tokens that were never trained may be zeros.
  const bool has_tokens = where == "token_embd.weight" || where == "output.weight";
  const std::size_t zeros = scan.exponents[0];
  if (is_matrix && zeros * 20 > scan.n_blocks * (has_tokens ? 19 : 1)) {
    return patient.report(
        {.where = where,
         .what = fmt::format("found zeros only in {} of {} blocks", zeros, scan.n_blocks),
         .why = "they were never written: a hole of a download, or a conversion "
                "that lost them",
         .remedy = std::string(kAgain)});
  }
  // A scale 2^kJump above all but a thousandth of the others is no outlier of a model: the models
  // at hand have 2^3 at most.
  constexpr int kJump = 7;
  constexpr float kMostScale = 1e4F;
  const int usual = usual_exponent(scan);
  const bool jumps = is_matrix && scan.n_blocks >= 1000 && usual > 0 &&
                     exponent_index(scan.largest) - usual >= kJump;
  // Pairs that do not turn have divisors beyond any scale.
  const bool may_be_large = where == "rope_freqs.weight";
  if (!jumps && (may_be_large || scan.largest <= kMostScale)) return;
  patient.report({.where = where,
                  .what = fmt::format("found a scale of {:.3g} in {} block {} of {}, where others "
                                      "have {:.1g}",
                                      scan.largest, type, scan.largest_at, scan.n_blocks,
                                      std::ldexp(1.0, usual - 128)),
                  .why = "one block dominates all others: the output is nonsense",
                  .remedy = std::string(kAgain)});
}

}  // namespace

void check_types(LintContext& patient) {
  const double bulk = bulk_bits(patient.gguf());
  for (const GgufTensor& tensor : patient.gguf().tensors()) {
    const std::string_view role = role_of(tensor.name);
    const double bits = bits_of(tensor);
    const std::string_view type = block_traits(tensor.type).name;
    const bool is_vector = role.ends_with("norm.weight") || role.ends_with(".bias") ||
                           role.starts_with("ffn_gate_inp");
    if (is_vector && bits < 8) {
      patient.report(
          {.severity = Severity::kWarning,
           .where = std::string(tensor.name),
           .what = fmt::format("found {} of {:.2f} bits, need F32, F16 or BF16", type, bits),
           .why = "norms, biases and routers are small, but everything else depends on them",
           .remedy = "quantize again with a recipe that does not quantize it (llmquant)"});
    }
    // Without an output of its own a model uses the embedding.
    const bool is_tied =
        role == "token_embd.weight" && !patient.gguf().find_tensor("output.weight");
    const auto sensitive =
        std::ranges::find(kSensitive, is_tied ? "output.weight" : role, &Sensitive::role);
    if (sensitive == kSensitive.end() || bits >= kEnoughBits) continue;
    const bool is_poor =
        bits < sensitive->poor * bulk ||
        (bits < 0.95 * bulk && bits < kPoorInRole * usual_bits(patient.gguf(), role));
    if (!is_poor) continue;
    patient.report(
        {.severity = Severity::kWarning,
         .where = std::string(tensor.name),
         .what = fmt::format("found {} of {:.2f} bits among matrices of {:.2f}", type, bits, bulk),
         .why = std::string(sensitive->why),
         .remedy = "quantize again with a recipe that gives it as many bits as the rest "
                   "(llmquant)"});
  }
}

void check_blocks(LintContext& patient, int threads, const WeightProgress& progress) {
  const std::vector<GgufTensor>& tensors = patient.gguf().tensors();
  if (tensors.empty()) return;
  std::vector<Scan> scans(tensors.size());
  std::size_t total = 0;
  for (const GgufTensor& tensor : tensors) total += tensor.n_bytes;
  std::mutex mutex;
  std::size_t done = 0;
  run_parallel(threads, [&](Worker worker) {
    worker.take_tasks(tensors.size(), [&](std::size_t i) {
      const auto data = patient.gguf().tensor_data(tensors[i]);
      scans[i] = scan_tensor(tensors[i], data);
      patient.file().drop_pages(data);
      const std::lock_guard lock(mutex);
      done += data.size();
      if (progress) progress(done, total);
    });
  });
  for (std::size_t i = 0; i < tensors.size(); ++i) judge(patient, tensors[i], scans[i]);
}

}  // namespace llm
