#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "tools/llmserve/http_server.h"

namespace llm {

/// Does for the server's thread what would hold it up: reads bodies and writes answers. Two
/// threads: one for short pieces, one for long ones, so that nobody's short request waits for a
/// long one.
class Workshop {
 public:
  /// What the server's thread does with the result.
  using Then = std::function<void()>;

  struct Piece {
    std::size_t bytes = 0;      ///< to read or to write, about
    std::weak_ptr<void> owner;  ///< when it has gone, the piece is not begun
    /// Done by a thread of the workshop. Neither it nor what it captures is of the server's thread.
    std::function<Then()> work;
    /// Called by the server's thread in place of the result: `work` has thrown.
    std::function<void(const std::string& what)> failed;
    HttpExchange::Lost lost;  ///< set where memory is refused for either
  };

  /// @param post  HttpServer::post
  explicit Workshop(std::function<void(Then)> post) : post_(std::move(post)) {}
  /// Starts the threads. Once. Errors: those of start_thread().
  Status start();
  /// Waits for the pieces that were begun and drops the others.
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  void take(Piece piece);
  /// Whether a piece of so many bytes should be taken: not too many wait.
  bool has_room(std::size_t bytes);

  /// A piece of at most so many bytes is short: milliseconds.
  static constexpr std::size_t kShortBytes = 32 << 10;
  /// The most that waits, unless it is one piece.
  static constexpr std::size_t kMostWaitingBytes = 64 << 20;

 private:
  struct Lane {
    std::deque<Piece> waiting;
    std::thread thread;
  };

  void work(Lane& lane);
  void finish(Piece piece);

  std::function<void(Then)> post_;
  std::mutex mutex_;  // guards what waits
  std::condition_variable wake_;
  bool stopped_ = false;
  std::size_t waiting_bytes_ = 0;
  std::array<Lane, 2> lanes_;  ///< of short pieces, of long ones
};

}  // namespace llm
