#pragma once

// What tests of the tools have in common: the tools' processes, scratch folders, small models.

#include "tests/support/catch.h"
#include "tests/support/process.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

using Catch::Matchers::Contains;

}  // namespace llm::test
