#pragma once

// What nearly every test needs: Catch2, the usual parts of the standard library, results, folders.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/require_ok.h"
#include "tests/support/scratch_directory.h"

namespace llm {
namespace test {

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

}  // namespace test

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

}  // namespace llm
