#include "engine/forward/profile.h"

namespace llm {

std::string_view pass_op_name(PassOp op) {
  constexpr std::array<std::string_view, kPassOps> kNames = {
      "embed",       "norm",    "qkv",  "rope",     "attention", "merge", "attn_output",
      "ffn_gate_up", "ffn_act", "ffn_down", "output", "wait",      "region"};
  return kNames[static_cast<std::size_t>(op)];
}

void OpTotals::add(const OpTotals& other) {
  calls += other.calls;
  time += other.time;
  bytes += other.bytes;
  macs += other.macs;
}

void OpClock::lap_at(Time now, PassOp op, double bytes, double macs) {
  ops_[static_cast<std::size_t>(op)].add(
      {.calls = 1, .time = now - last_, .bytes = bytes, .macs = macs});
  last_ = now;
}

}  // namespace llm
