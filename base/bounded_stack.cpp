#include "base/bounded_stack.h"

#include <fmt/core.h>
#include <pthread.h>

#include <exception>
#include <system_error>

namespace llm {
namespace {

struct Job {
  const std::function<void()>& work;
  std::exception_ptr thrown = nullptr;
};

void* run(void* given) {
  auto& job = *static_cast<Job*>(given);
  try {
    job.work();
  } catch (...) {
    job.thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

Status run_on_stack(std::size_t bytes, const std::function<void()>& work) {
  Job job{work};
  pthread_t thread{};
  pthread_attr_t attributes;
  int refused = pthread_attr_init(&attributes);
  if (refused == 0) {
    refused = pthread_attr_setstacksize(&attributes, bytes);
    if (refused == 0) refused = pthread_create(&thread, &attributes, run, &job);
    pthread_attr_destroy(&attributes);
  }
  if (refused != 0) {
    return Error{ErrorCode::kResource, "threads",
                 fmt::format("cannot start a thread with a stack of {} KiB: {}", bytes >> 10,
                             std::generic_category().message(refused))};
  }
  pthread_join(thread, nullptr);
  if (job.thrown) std::rethrow_exception(job.thrown);
  return Ok{};
}

}  // namespace llm
