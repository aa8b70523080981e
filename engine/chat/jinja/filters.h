#pragma once

#include <span>

#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {

struct Filter {
  std::string_view name;
  Value (*apply)(Runtime& rt, const Value& input, const Args& args);
};

/// Filters of texts and numbers, and those of lists and dicts. Source: jinja2's documentation
/// ("List of Builtin Filters"), and what jinja2 3.1.6 does.
std::span<const Filter> text_filters();
std::span<const Filter> list_filters();

/// Whether an argument is given and true.
inline bool is_set(const Value* value) { return value && is_true(*value); }

}  // namespace llm::jinja
