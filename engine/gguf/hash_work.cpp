#include "engine/gguf/hash_work.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/thread_team.h"

namespace llm {

void HashWork::add(std::uint64_t bytes, std::function<void(const Advance&)> job) {
  total_ += bytes;
  jobs_.push_back(std::move(job));
}

Status HashWork::run(const Hashing& hashing) {
  const int wanted = hashing.threads > 0 ? hashing.threads : available_cpus();
  const auto most = static_cast<int>(std::clamp<std::size_t>(jobs_.size(), 1, 1 << 16));
  const int threads = std::min(wanted, most);
  LLM_RETURN_IF_ERROR(start_threads(threads));
  std::mutex mutex;  // of progress
  std::size_t done = 0;
  const Advance advance = [&](std::size_t bytes) {
    if (!hashing.progress) return;
    const std::lock_guard lock(mutex);
    hashing.progress(done += bytes, static_cast<std::size_t>(total_));
  };
  std::atomic<std::size_t> next = 0;
  run_parallel(threads, [&](Worker) {
    for (std::size_t i = next++; i < jobs_.size(); i = next++) jobs_[i](advance);
  });
  return Ok{};
}

}  // namespace llm
