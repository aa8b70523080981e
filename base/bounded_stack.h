#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace llm {

/// Does `work` on a thread whose stack has `bytes` bytes, and waits for it: what recurses to a
/// depth that is bounded there needs no more, whatever the caller's stack is (`ulimit -s`, a
/// thread's). What `work` throws is thrown here. Cost: tens of microseconds. Errors: kResource
/// where the system refuses the thread; `work` was not begun then.
Status run_on_stack(std::size_t bytes, const std::function<void()>& work);

}  // namespace llm
