#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llm {

/// What one client may cost.
struct HttpLimits {
  std::size_t connections = 512;  ///< further ones get 503 and are closed
  std::size_t header_bytes = 16 << 10;
  std::size_t body_bytes = 4 << 20;
  std::size_t ahead_bytes = 1 << 20;   ///< of later requests, while one is answered
  std::size_t unsent_bytes = 4 << 20;  ///< of a streamed answer that is not taken
  /// For the whole header, from the end of the answer before it on; for the whole body; for each
  /// write. Who is slower is disconnected.
  std::chrono::milliseconds patience{30000};
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;                               ///< without the query, decoded
  std::map<std::string, std::string> query = {};  ///< decoded; of a name twice, the first
  std::string host = {};
  std::string origin = {};
  std::string authorization = {};
  std::string content_type = {};
  std::string client = {};   ///< its address
  std::string reached = {};  ///< this machine's address that it came to
  unsigned port = 0;         ///< and the port
  std::string body = {};
};

struct HttpAnswer {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";  ///< empty: there is no content
  HttpHeaders headers = {};
};

/// A request that is to be answered, at once or later: by answer(), or by begin(), any number of
/// write() and end(). What comes after the end, or after the client has gone, has no effect. One
/// that is dropped without an end is answered with 500, or cut off. Of the server's thread alone.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  /// The request's body, which it has no more then.
  virtual std::string take_body() = 0;
  virtual void answer(HttpAnswer answer) = 0;
  /// Status, type and headers of a streamed answer; a body in it is its beginning.
  virtual void begin(HttpAnswer head) = 0;
  virtual void write(std::string_view data) = 0;
  virtual void end() = 0;
  /// Called once when the client goes, or is too slow, before the end.
  virtual void set_on_gone(std::function<void()> on_gone) = 0;
  /// What the log says of it besides.
  virtual void set_note(std::string note) = 0;
  /// For want of memory it cannot be answered: it is answered with 503 where nothing is sent yet,
  /// and cut off. Needs no memory.
  virtual void give_up() noexcept = 0;
  /// The same asked for by any thread: what is set there is done with the next tick. For threads
  /// that cannot post, who keep this and not the exchange.
  using Lost = std::shared_ptr<std::atomic<bool>>;
  virtual Lost lost() const = 0;
};

/// For the log. A status of 499 is a client that went before the end of its answer.
struct HttpOutcome {
  int status = 0;
  std::uint64_t sent_bytes = 0;
  double seconds = 0;
  std::string note;
};

/// What a server is for; called by its thread. What one throws is told to `fault`, and a request
/// gets 500 for it.
struct HttpHandlers {
  /// An answer already to the header, before a body is read; nothing to go on.
  std::function<std::optional<HttpAnswer>(const HttpRequest& head)> refuse;
  std::function<void(std::shared_ptr<HttpExchange>)> handle;
  /// The answer to what is no request: a broken header (400), one too long (431), a body (413).
  std::function<HttpAnswer(int status, const std::string& message)> error;
  std::function<void(const HttpRequest&, const HttpOutcome&)> log;
  /// Something failed that nobody foresaw; the server goes on.
  std::function<void(const std::string& what)> fault;
  /// Headers of every answer to a request. May be empty.
  std::function<HttpHeaders(const HttpRequest&)> headers = {};
};

/// An HTTP/1.1 server on one thread (Boost.Beast), without TLS: that is for a proxy in front.
class HttpServer {
 public:
  /// Takes the port, but no connections yet. @param port  0: any free one. Errors: kIo naming host
  /// and port.
  static Result<std::unique_ptr<HttpServer>> open(const std::string& host, std::uint16_t port,
                                                  const HttpLimits& limits);
  virtual ~HttpServer() = default;

  /// "http://127.0.0.1:8080".
  virtual std::string url() const = 0;
  /// Whether other machines reach it.
  virtual bool is_public() const = 0;
  /// Takes connections, which wait for run(). Once. Errors: kIo naming the address.
  virtual Status listen(HttpHandlers handlers) = 0;
  /// Serves until it is drained. @param tick  called ten times a second. @pre it listens
  virtual void run(std::function<void()> tick) = 0;
  /// Lets the server's thread call `function`. From any thread.
  virtual void post(std::function<void()> function) = 0;
  /// Takes no more connections and ends run() when all requests are answered.
  virtual void drain() = 0;
  virtual std::size_t n_connections() const = 0;
};

}  // namespace llm
