#include "tools/llmserve/http/worker_pool.h"

#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "base/start_thread.h"

namespace llm {

thread_local WorkerPool::Current* WorkerPool::here = nullptr;

Status WorkerPool::start() {
  for (int i = 0; i < 2; ++i) LLM_RETURN_IF_ERROR(add_thread());
  return Ok{};
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  aside_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::function<bool()> WorkerPool::has_owner_gone() {
  if (here == nullptr) return {};
  return [owner = here->owner] { return owner.expired(); };
}

Status WorkerPool::step_aside() {
  if (here == nullptr || here->lane.empty()) return Ok{};
  WorkerPool& workers = here->workers;
  std::unique_lock lock(workers.mutex_);
  return workers.wait_aside(*here, lock);
}

Status WorkerPool::wait_aside(Current& current, std::unique_lock<std::mutex>& lock) {
  if (n_waiting_aside_ == kMostWaitingAside)
    return Error{ErrorCode::kResource, "threads", "found too many long compilations in the queue"};
  leave(current);
  // Those that are there go on where another one is refused.
  if (!stopped_ && ready_.size() > n_idle_) (void)add_thread();
  wake_.notify_one();
  ++n_waiting_aside_;
  const auto may_go_on = [&] {
    return stopped_ || n_aside_ < kMostAside || current.owner.expired();
  };
  while (!may_go_on()) aside_.wait_for(lock, std::chrono::milliseconds(50));
  --n_waiting_aside_;
  ++n_aside_;
  return Ok{};
}

void WorkerPool::leave(Current& current) {
  if (current.lane.empty()) {
    --n_aside_;
    return aside_.notify_one();
  }
  const auto lane = lanes_.find(current.lane.front());
  if (lane->second.empty()) {
    lanes_.erase(lane);
    current.lane.clear();
  } else {
    ready_.splice(ready_.end(), current.lane);
  }
}

bool WorkerPool::has_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_ == 0 || waiting_bytes_ + bytes <= kMostWaitingBytes;
}

void WorkerPool::take(Piece piece) {
  const Lane lane(piece.model, piece.bytes > kShortBytes);
  const std::size_t bytes = piece.bytes;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = lanes_.try_emplace(lane);
    try {
      if (is_new) ready_.push_back(lane);
      at->second.push_back(std::move(piece));
    } catch (const std::bad_alloc&) {
      if (is_new && !ready_.empty() && ready_.back() == lane) ready_.pop_back();
      if (is_new) lanes_.erase(at);
      throw;
    }
    waiting_bytes_ += bytes;
    // Without another one those that are there do the piece.
    if (ready_.size() > n_idle_) (void)add_thread();
  }
  wake_.notify_one();
}

Status WorkerPool::add_thread() {
  try {
    threads_.reserve(threads_.size() + 1);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "threads", "no memory for another one"};
  }
  LLM_TRY(std::thread thread, start_thread("requests", [this] { work(); }));
  threads_.push_back(std::move(thread));
  return Ok{};
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++n_idle_;
    wake_.wait(lock, [this] { return stopped_ || !ready_.empty(); });
    --n_idle_;
    if (stopped_) return;
    // Moved from list to list, which needs no memory.
    Current current{*this, {}, {}};
    current.lane.splice(current.lane.end(), ready_, ready_.begin());
    std::deque<Piece>& waiting = lanes_.at(current.lane.front());
    Piece piece = std::move(waiting.front());
    waiting.pop_front();
    waiting_bytes_ -= piece.bytes;
    lock.unlock();
    current.owner = piece.owner;
    here = &current;
    if (!current.owner.expired()) finish(std::move(piece));
    piece = {};  // what it holds of others, outside the lock
    here = nullptr;
    lock.lock();
    leave(current);
  }
}

void WorkerPool::finish(Piece piece) {
  std::string fault;
  try {
    try {
      return post_(piece.work());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& what) {
      fault = what.what();
    }
    post_([failed = std::move(piece.failed), fault] { failed(fault); });
  } catch (...) {
    if (piece.lost) piece.lost->store(true);
  }
}

}  // namespace llm
