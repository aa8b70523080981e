#pragma once

#include <fmt/core.h>

#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "base/result.h"

namespace llm {

/// A thread that calls `body`, which throws nothing. Errors: kResource, with the system's words,
/// where it refuses a thread or the memory for one. @param purpose  what the thread is for, for the
/// error
template <typename Body>
Result<std::thread> start_thread(std::string_view purpose, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::exception& refused) {  // std::system_error, std::bad_alloc
    return Error{.code = ErrorCode::kResource,
                 .field = "threads",
                 .message = fmt::format("found none that can be started ({}), need one for {}",
                                        refused.what(), purpose),
                 .hint = "raise the limits of processes and memory"};
  }
}

}  // namespace llm
