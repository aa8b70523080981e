#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace llm {

/// Called during long work with the stage's name, items done and items in all.
using Progress = std::function<void(std::string_view stage, std::size_t done, std::size_t total)>;

}  // namespace llm
