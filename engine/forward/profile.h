#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llm {

/// What the time of a pass is divided among. Every moment of every worker belongs to exactly one.
enum class PassOp {
  kEmbed,        ///< rows of the embedding, and RoPE's angles
  kNorm,         ///< norms, and the quantization of what products read
  kQkv,          ///< products, with biases
  kRope,         ///< head norms, RoPE, K and V into the cache
  kAttention,    ///< scores and values
  kMerge,        ///< chunks of attention merged, and quantized
  kConvolution,  ///< of Gated DeltaNets and short convolutions, with its gates
  kDeltaNet,     ///< states and their norm
  kAttnOutput,   ///< product, with the residual
  kRouter,       ///< which experts a row goes through; rows gathered for them, and mixed
  kGateUp,       ///< products
  kActivation,   ///< LayerSpec::activation of the gate
  kFfnDown,      ///< product, with the residual
  kOutput,       ///< logits
  kWait,         ///< for other workers
  kRegion,       ///< start and end of the parallel region
  kPack,         ///< weights packed to stay, before a pass
};
constexpr std::size_t kPassOps = 17;

/// "norm", "ffn_down", ...
std::string_view pass_op_name(PassOp op);

/// One row of a profile, summed over workers.
struct OpTotals {
  std::uint64_t calls = 0;
  std::chrono::nanoseconds time{0};
  double bytes = 0;  ///< of weights, or of keys and values, that were read
  double macs = 0;   ///< multiply-adds

  void add(const OpTotals& other);
};

/// Times of passes, each worker's summed: all of them are worker_time.
struct OpProfile {
  std::array<OpTotals, kPassOps> ops;
  std::uint64_t passes = 0;
  std::chrono::nanoseconds wall{0};
  std::chrono::nanoseconds worker_time{0};  ///< wall time times workers, summed over passes
};

/// Where the time of passes goes: those of one row (decode), and the others.
struct PassProfile {
  OpProfile batch;
  OpProfile one_row;
};

/// What a machine can do, in the same process; 0: not measured.
struct ProfileLimits {
  double read_gb_per_s = 0;
  double gmac_per_s = 0;
};

/// The profile as an aligned table: a line for each op that took time, with its calls, milliseconds
/// (a worker's mean), share of `seconds`, rates, and the share of the limit that is nearer. The
/// last lines are what was outside the passes, and the sum.
/// @param seconds  wall time of everything that is accounted for; at least profile.wall
std::string profile_table(std::string_view title, const OpProfile& profile, double seconds,
                          const ProfileLimits& limits = {});

/// One worker's stopwatch: every lap gives the time since the last one to an op. Off, a lap is one
/// branch.
class OpClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void start(bool on, Time now) {
    on_ = on;
    last_ = now;
    if (on) ops_ = {};
  }
  void lap(PassOp op, double bytes = 0, double macs = 0) {
    if (on_) [[unlikely]]
      lap_at(std::chrono::steady_clock::now(), op, bytes, macs);
  }
  void lap_at(Time now, PassOp op, double bytes = 0, double macs = 0);
  const std::array<OpTotals, kPassOps>& ops() const { return ops_; }

 private:
  bool on_ = false;
  Time last_;
  std::array<OpTotals, kPassOps> ops_;
};

}  // namespace llm
