#include "engine/grammar/work_meter.h"

#include <limits>

namespace {

constexpr std::uint64_t kUnmetered = std::numeric_limits<std::uint64_t>::max();
thread_local std::uint64_t left = kUnmetered;

}  // namespace

extern "C" {

void* __real__Znwm(std::size_t size);  // NOLINT: the linker's name
void* __wrap__Znwm(std::size_t size);  // NOLINT

void* __wrap__Znwm(std::size_t size) {  // NOLINT
  if (left != kUnmetered) {
    const std::uint64_t units = 1 + size / 256;
    if (units > left) {
      left = kUnmetered;  // what cleans up behind the exception may ask for memory
      throw llm::WorkExceeded();
    }
    left -= units;
  }
  return __real__Znwm(size);
}
}

namespace llm {

WorkMeter::WorkMeter(std::uint64_t most) { left = most; }
WorkMeter::~WorkMeter() { left = kUnmetered; }

}  // namespace llm
