#pragma once

#include <string_view>

#include "engine/model/precision.h"

/// How a receipt spells what it holds; writer and reader have it from here.
namespace llm::receipt_names {

inline constexpr std::string_view kFormat = "llm-receipt/1";

constexpr std::string_view compute(Compute compute) {
  return compute == Compute::kInt8 ? "int8" : "f32";
}

}  // namespace llm::receipt_names
