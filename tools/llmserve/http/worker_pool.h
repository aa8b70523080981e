#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tools/llmserve/http/http_server.h"

namespace llm {

/// Does for the server's thread what would hold it up: reads bodies and writes answers. Pieces of
/// the same model are done one after the other, the short ones beside the long ones; those of
/// different models at once. So nobody's short request waits for a long one, and nobody's request
/// for what another model's chat template or grammar takes.
class WorkerPool {
 public:
  /// What the server's thread does with the result.
  using Then = std::function<void()>;

  struct Piece {
    std::size_t bytes = 0;        ///< to read or to write, about
    std::weak_ptr<void> owner;    ///< when it has gone, the piece is not begun
    const void* model = nullptr;  ///< which it is for; null: for none
    /// Done by a thread of the pool. Neither it nor what it captures is of the server's thread.
    std::function<Then()> work;
    /// Called by the server's thread in place of the result: `work` has thrown.
    std::function<void(const std::string& what)> failed;
    HttpExchange::Lost lost = {};  ///< set where memory is refused for either
  };

  /// @param post  HttpServer::post
  explicit WorkerPool(std::function<void(Then)> post) : post_(std::move(post)) {}
  /// Starts the threads. Once. Errors: those of start_thread().
  Status start();
  /// Waits for the pieces that were begun and drops the others.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void take(Piece piece);
  /// Whether a piece of so many bytes should be taken: not too many wait.
  bool has_room(std::size_t bytes);

  /// A piece of at most so many bytes is short: milliseconds.
  static constexpr std::size_t kShortBytes = 32 << 10;
  /// Of a piece's thread: whether the owner of the piece has gone, asked later and from any thread.
  /// Empty where the thread is none of a pool.
  static std::function<bool()> has_owner_gone();
  /// Of a piece's thread: the piece turns out to take seconds. Its lane goes on without it, and it
  /// waits until few others do the same. Does nothing where the thread is none of a pool.
  /// Errors: kResource where too many wait, or its owner has gone.
  static Status step_aside();

  /// The most that waits, unless it is one piece.
  static constexpr std::size_t kMostWaitingBytes = 64 << 20;

 private:
  using Lane = std::pair<const void*, bool>;    ///< a model, and whether its pieces are long
  static constexpr std::size_t kMostAside = 2;  ///< at work at once
  static constexpr std::size_t kMostWaitingAside = 16;  ///< of all models

  /// The piece that a thread does.
  struct Current {
    WorkerPool& workers;
    std::weak_ptr<void> owner;
    std::list<Lane> lane;  ///< one; none when it has stepped aside
  };
  static thread_local Current* here;

  void work();
  void finish(Piece piece);
  Status add_thread();
  /// Of the thread of `current`. @pre mutex_ is held, as for the next
  Status wait_aside(Current& current, std::unique_lock<std::mutex>& lock);
  void leave(Current& current);

  std::function<void(Then)> post_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stopped_ = false;
  std::size_t waiting_bytes_ = 0;
  std::map<Lane, std::deque<Piece>> lanes_;  ///< with a piece under way or pieces that wait
  std::list<Lane> ready_;                    ///< those of them that nobody works at, in turn
  std::size_t n_idle_ = 0;
  std::size_t n_aside_ = 0;           ///< pieces at work that have stepped aside
  std::size_t n_waiting_aside_ = 0;   ///< pieces that wait for that
  std::condition_variable aside_;     ///< wakes them
  std::vector<std::thread> threads_;  ///< two, and as many as pieces were done together
};

}  // namespace llm
