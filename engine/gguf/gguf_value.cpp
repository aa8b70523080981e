#include "engine/gguf/gguf_value.h"

#include <fmt/core.h>

namespace llm {

namespace {

struct TypeTraits {
  std::string_view name;
  std::size_t size;  ///< of one value; 0: it differs
};
/// By id.
constexpr TypeTraits kTypes[] = {{"UINT8", 1},  {"INT8", 1},  {"UINT16", 2},  {"INT16", 2},
                                 {"UINT32", 4}, {"INT32", 4}, {"FLOAT32", 4}, {"BOOL", 1},
                                 {"STRING", 0}, {"ARRAY", 0}, {"UINT64", 8},  {"INT64", 8},
                                 {"FLOAT64", 8}};
static_assert(std::size(kTypes) == kGgufTypeCount);

const TypeTraits& traits_of(GgufType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view gguf_type_name(GgufType type) { return traits_of(type).name; }

std::size_t gguf_fixed_size(GgufType type) { return traits_of(type).size; }

std::string GgufValue::type_name() const {
  if (type != GgufType::kArray) return std::string(gguf_type_name(type));
  return fmt::format("ARRAY of {}", gguf_type_name(element_type));
}

}  // namespace llm
