#pragma once

#include <string>

#include "base/json.h"

namespace llm {

/// The JSON pointer into `root` that a reference is: "#", "#/...", "#ANCHOR", each behind the
/// root's
/// "$id" or alone; "?" for what is none of them.
std::string pointer_of_reference(const OrderedJson& root, const OrderedJson& reference);
/// What stands there; null: nothing.
const OrderedJson* schema_at(const OrderedJson& root, const std::string& pointer);

}  // namespace llm
