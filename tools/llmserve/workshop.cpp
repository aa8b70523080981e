#include "tools/llmserve/workshop.h"

#include <exception>
#include <system_error>
#include <utility>

namespace llm {

namespace {

/// The owner of the piece that this thread does.
thread_local const std::weak_ptr<void>* owner_here = nullptr;

}  // namespace

Workshop::Workshop(std::function<void(Then)> post) : post_(std::move(post)) {
  for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { work(); });
}

Workshop::~Workshop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::function<bool()> Workshop::has_owner_gone() {
  if (owner_here == nullptr) return {};
  return [owner = *owner_here] { return owner.expired(); };
}

bool Workshop::has_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_ == 0 || waiting_bytes_ + bytes <= kMostWaitingBytes;
}

void Workshop::take(Piece piece) {
  const Lane lane(piece.model, piece.bytes > kShortBytes);
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = lanes_.try_emplace(lane);
    if (is_new) ready_.push_back(lane);
    waiting_bytes_ += piece.bytes;
    at->second.push_back(std::move(piece));
    if (ready_.size() > n_idle_) grow();
  }
  wake_.notify_one();
}

void Workshop::grow() {
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
  }
}

void Workshop::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++n_idle_;
    wake_.wait(lock, [this] { return stopped_ || !ready_.empty(); });
    --n_idle_;
    if (stopped_) return;
    const Lane lane = ready_.front();
    ready_.pop_front();
    std::deque<Piece>& waiting = lanes_.at(lane);
    Piece piece = std::move(waiting.front());
    waiting.pop_front();
    waiting_bytes_ -= piece.bytes;
    lock.unlock();
    const std::weak_ptr<void> owner = piece.owner;
    owner_here = &owner;
    if (!owner.expired()) finish(std::move(piece));
    piece = {};  // what it holds of others, outside the lock
    owner_here = nullptr;
    lock.lock();
    if (waiting.empty()) {
      lanes_.erase(lane);
    } else {
      ready_.push_back(lane);
    }
  }
}

void Workshop::finish(Piece piece) {
  std::string fault;
  try {
    post_(piece.work());
    return;
  } catch (const std::exception& what) {
    fault = what.what();
  }
  piece.work = nullptr;  // its memory first
  post_([failed = std::move(piece.failed), fault] { failed(fault); });
}

}  // namespace llm
