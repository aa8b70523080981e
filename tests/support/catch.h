#pragma once

// The one place that knows which Catch2 is installed: v2 on Debian 12, v3 elsewhere.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
