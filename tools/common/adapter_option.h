#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llm {

/// What --lora says of one adapter.
struct AdapterOption {
  std::string path;
  float scale = 1;
  std::string name = {};  ///< as clients call it

  /// FILE or FILE:SCALE; what stands behind the last colon is a scale if it is a number.
  /// Errors: kUsage for a scale that is not finite.
  static Result<AdapterOption> parse(std::string_view text);
  /// The same with NAME= before it; without, the name is the file's without .gguf.
  static Result<AdapterOption> parse_named(std::string_view text);
};

/// Of each. Errors: as parse().
Result<std::vector<AdapterOption>> parse_adapters(const std::vector<std::string>& texts);

}  // namespace llm
