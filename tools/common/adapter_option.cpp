#include "tools/common/adapter_option.h"

#include <fmt/core.h>

#include <cmath>

#include "tools/common/options.h"

namespace llm {

Result<AdapterOption> AdapterOption::parse(std::string_view text) {
  AdapterOption option{.path = std::string(text)};
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return option;
  const auto scale = parse_real(text.substr(colon + 1));
  if (!scale) return option;
  option.path.resize(colon);
  option.scale = static_cast<float>(*scale);
  if (std::isfinite(option.scale)) return option;
  return usage_error("--lora", fmt::format("found \"{}\", need FILE or FILE:SCALE with a finite "
                                           "number",
                                           text));
}

Result<std::vector<AdapterOption>> parse_adapters(const std::vector<std::string>& texts) {
  std::vector<AdapterOption> options;
  for (const std::string& text : texts) {
    LLM_TRY(options.emplace_back(), AdapterOption::parse(text));
  }
  return options;
}

}  // namespace llm
