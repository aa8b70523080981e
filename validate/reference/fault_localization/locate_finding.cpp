#include "validate/reference/fault_localization/locate_finding.h"

#include <fmt/core.h>

#include "validate/reference/dump/dump.h"

namespace llm {

std::string location_text(const Location& location) {
  if (!location.replayed) return {};
  std::string out =
      location.findings.empty()
          ? "locate: no op is wrong by itself: the differences come from earlier ops or add up\n"
          : fmt::format("locate: {} op{} an error of {} own\n", location.findings.size(),
                        location.findings.size() == 1 ? " has" : "s have",
                        location.findings.size() == 1 ? "its" : "their");
  for (const Finding& f : location.findings) {
    out += fmt::format("  {}: {}", tap_label(f.layer, f.tap), f.op);
    if (!f.weight_type.empty()) out += fmt::format(" ({})", f.weight_type);
    out += f.limit > 0 ? fmt::format(", nmse {:.3e} > {:.1e}\n", f.nmse, f.limit)
                       : fmt::format(", nmse {:.3e}, need equal bits\n", f.nmse);
    if (!f.signature.empty()) out += fmt::format("      signature: {}\n", f.signature);
    if (!f.tokens.empty()) out += fmt::format("      tokens: {}\n", f.tokens);
    out += fmt::format("      likely: {}\n", f.cause);
  }
  for (const auto& remark : location.remarks) out += fmt::format("  remark: {}\n", remark);
  return out;
}

}  // namespace llm
