#pragma once

// What tests of the tools have in common: the tools' processes, scratch folders, small models.

#include "tests/support/process.h"
#include "tests/support/tiny_gguf.h"
