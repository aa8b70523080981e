#include "engine/forward/profile.h"

#include <fmt/format.h>

#include <algorithm>

namespace llm {

std::string_view pass_op_name(PassOp op) {
  constexpr std::array<std::string_view, kPassOps> kNames = {
      "embed",       "norm",      "qkv",         "rope",       "attention",   "merge",
      "convolution", "delta_net", "attn_output", "ffn_router", "ffn_gate_up", "ffn_act",
      "ffn_down",    "output",    "wait",        "region",     "pack"};
  return kNames[static_cast<std::size_t>(op)];
}

namespace {

double seconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string share_of_limit(double gb_per_s, double gmac_per_s, const ProfileLimits& limits) {
  if (limits.read_gb_per_s <= 0 || limits.gmac_per_s <= 0) return "";
  const double share = std::max(gb_per_s / limits.read_gb_per_s, gmac_per_s / limits.gmac_per_s);
  return share > 0 ? fmt::format("{:.1f} %", share * 100) : "";
}

std::string rate_text(double rate) { return rate > 0 ? fmt::format("{:.1f}", rate) : ""; }

}  // namespace

std::string profile_table(std::string_view title, const OpProfile& profile, double seconds,
                          const ProfileLimits& limits) {
  if (profile.passes == 0) return {};
  const double wall = seconds_of(profile.wall);
  const double workers = seconds_of(profile.worker_time) / wall;
  std::string text = fmt::format("{}: {} passes, {:.3f} ms, {:.1f} workers\n", title,
                                 profile.passes, seconds * 1e3, workers);
  text += fmt::format("{:<12}{:>9}{:>12}{:>9}{:>9}{:>10}{:>10}\n", "op", "calls", "ms", "share",
                      "GB/s", "GMAC/s", "of limit");
  const auto line = [&](std::string_view name, std::string_view calls, double time,
                        double gb_per_s = 0, double gmac_per_s = 0) {
    text += fmt::format("{:<12}{:>9}{:>12.3f}{:>7.1f} %{:>9}{:>10}{:>10}\n", name, calls,
                        time * 1e3, time / seconds * 100, rate_text(gb_per_s),
                        rate_text(gmac_per_s), share_of_limit(gb_per_s, gmac_per_s, limits));
  };
  double accounted = 0;
  for (std::size_t i = 0; i < kPassOps; ++i) {
    const OpTotals& op = profile.ops[i];
    if (op.calls == 0) continue;
    const double time = seconds_of(op.time) / workers;
    accounted += time;
    line(pass_op_name(static_cast<PassOp>(i)), fmt::format("{}", op.calls), time,
         op.bytes / time * 1e-9, op.macs / time * 1e-9);
  }
  line("outside", "", seconds - wall);
  line("sum", "", accounted + seconds - wall);
  return text;
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
