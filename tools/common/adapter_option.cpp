#include "tools/common/adapter_option.h"

#include <fmt/core.h>

#include <algorithm>
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

namespace {

/// Without folders and ".gguf".
std::string stem(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return std::string(path.substr(0, path.rfind(".gguf")));
}

}  // namespace

Result<AdapterOption> AdapterOption::parse_named(std::string_view text) {
  const std::size_t end = std::min(text.find('='), text.size());
  const bool is_named = end < text.size() && text.substr(0, end).find('/') == std::string::npos;
  LLM_TRY(AdapterOption option, parse(is_named ? text.substr(end + 1) : text));
  option.name = is_named ? std::string(text.substr(0, end)) : stem(option.path);
  return option;
}

Result<std::vector<AdapterOption>> parse_adapters(const std::vector<std::string>& texts) {
  std::vector<AdapterOption> options;
  for (const std::string& text : texts) {
    LLM_TRY(options.emplace_back(), AdapterOption::parse(text));
  }
  return options;
}

}  // namespace llm
