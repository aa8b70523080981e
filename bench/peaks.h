#pragma once

#include "base/cpu_features.h"
#include "base/result.h"

namespace llm {

/// What this machine can do at most, as measured. Rates of a batch of threads are of all together.
struct Peaks {
  double read_gb_per_s = 0;  ///< streaming reads from memory, 10^9 bytes/s
  double read_gb_per_s_one_thread = 0;
  double dot_gmac_per_s = 0;  ///< 8-bit multiply-adds in registers, 10^9/s
  double dot_gmac_per_s_one_thread = 0;
};

/// Measures the limits that decode (read bandwidth) and prefill (dot products) run against. Each
/// measure() is one round; the best of all rounds counts, so spread the rounds over a run.
class PeakMeter {
 public:
  /// @param isa  of the dot products; memory is always read with the widest registers there are
  /// @pre isa_supported(isa), n_threads >= 1
  PeakMeter(Isa isa, int n_threads) : isa_(isa), n_threads_(n_threads) {}

  /// One round. Allocates 512 MiB (huge pages advised), writes it, reads it in several ways, frees
  /// it, then multiplies in registers; sums are checked. Cost: some tenths of a second.
  /// Errors: kResource for the memory.
  Status measure();

  const Peaks& best() const { return best_; }

 private:
  Isa isa_;
  int n_threads_;
  Peaks best_;
};

}  // namespace llm
