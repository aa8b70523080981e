#pragma once

#include <span>
#include <string_view>

namespace llm {

/// An architecture that llama.cpp loads and this engine does not.
struct MissingArchitecture {
  std::string_view name;   ///< general.architecture
  std::string_view needs;  ///< what is not computed here
};

/// The rows of the table in docs/models.md.
std::span<const MissingArchitecture> missing_architectures();
/// What that architecture would need; empty if it is in no row.
std::string_view needs_of(std::string_view architecture);

}  // namespace llm
