#include "tools/llmserve/workshop.h"

#include <exception>
#include <new>
#include <utility>

#include "base/start_thread.h"

namespace llm {

Status Workshop::start() {
  for (Lane& lane : lanes_) {
    LLM_TRY(lane.thread, start_thread("requests", [this, &lane] { work(lane); }));
  }
  return Ok{};
}

Workshop::~Workshop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  for (Lane& lane : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
}

bool Workshop::has_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_ == 0 || waiting_bytes_ + bytes <= kMostWaitingBytes;
}

void Workshop::take(Piece piece) {
  {
    const std::lock_guard lock(mutex_);
    Lane& lane = lanes_[piece.bytes > kShortBytes ? 1 : 0];
    const std::size_t bytes = piece.bytes;
    lane.waiting.push_back(std::move(piece));
    waiting_bytes_ += bytes;
  }
  wake_.notify_all();
}

void Workshop::work(Lane& lane) {
  while (true) {
    Piece piece;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopped_ || !lane.waiting.empty(); });
      if (stopped_) return;
      piece = std::move(lane.waiting.front());
      lane.waiting.pop_front();
      waiting_bytes_ -= piece.bytes;
    }
    if (!piece.owner.expired()) finish(std::move(piece));
  }
}

void Workshop::finish(Piece piece) {
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
    piece.lost->store(true);
  }
}

}  // namespace llm
