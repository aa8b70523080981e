#include "tools/llmserve/http/http_server.h"

#include <fmt/core.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <new>
#include <utility>

#include "tools/llmserve/http/http_connection.h"

namespace llm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Failure = boost::system::error_code;

constexpr std::chrono::milliseconds kTick{100};

/// The handlers, so that no exception of theirs leaves them, but for memory: the connection is
/// given up then.
HttpHandlers guarded(HttpHandlers handlers) {
  const auto failed = [fault = handlers.fault, error = handlers.error](const std::exception& what) {
    fault(what.what());
    return error(500, "internal error of the server; see its log");
  };
  HttpHandlers kept = handlers;
  kept.refuse = [refuse = std::move(handlers.refuse),
                 failed](const HttpRequest& head) -> std::optional<HttpAnswer> {
    try {
      return refuse(head);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& what) {
      return failed(what);
    }
  };
  kept.handle = [handle = std::move(handlers.handle),
                 failed](const std::shared_ptr<HttpExchange>& exchange) {
    try {
      handle(exchange);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& what) {
      exchange->answer(failed(what));
    }
  };
  return kept;
}

/// Tells whether an operation is under way, also where it is lost because its result cannot be
/// taken.
class UnderWay {
 public:
  explicit UnderWay(bool& flag) : flag_(&flag) { flag = true; }
  ~UnderWay() { end(); }
  UnderWay(UnderWay&& other) noexcept : flag_(std::exchange(other.flag_, nullptr)) {}
  UnderWay& operator=(UnderWay&&) = delete;
  void end() {
    if (bool* const flag = std::exchange(flag_, nullptr)) *flag = false;
  }

 private:
  bool* flag_;
};

class BeastServer final : public HttpServer {
 public:
  explicit BeastServer(const HttpLimits& limits) : shared_{.limits = limits}, acceptor_(io_) {
    shared_.on_empty = [this] { stop_if_drained(); };
  }
  ~BeastServer() override {
    shared_.is_over = true;
    shared_.on_empty = nullptr;
    shared_.handlers.log = [](const HttpRequest&, const HttpOutcome&) {};
  }

  Status bind(const std::string& host, std::uint16_t port) {
    Failure failure;
    const auto found = tcp::resolver(io_).resolve(host, std::to_string(port), failure);
    if (failure) return refused("--host", host, failure);
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), failure);
    if (!failure) acceptor_.set_option(tcp::acceptor::reuse_address(true), failure);
    if (!failure) acceptor_.bind(endpoint, failure);
    if (failure) return refused("--port", fmt::format("{}:{}", host, port), failure);
    return Ok{};
  }

  Status listen(HttpHandlers handlers) override {
    shared_.handlers = guarded(std::move(handlers));
    Failure failure;
    acceptor_.listen(asio::socket_base::max_listen_connections, failure);
    if (failure) return refused("--port", url(), failure);
    return Ok{};
  }

  std::string url() const override {
    const tcp::endpoint at = acceptor_.local_endpoint();
    const std::string host = at.address().to_string();
    return fmt::format("http://{}:{}", at.address().is_v6() ? "[" + host + "]" : host, at.port());
  }

  bool is_public() const override { return !acceptor_.local_endpoint().address().is_loopback(); }

  void run(std::function<void()> tick) override {
    const auto stays = asio::make_work_guard(io_);
    while (true) {
      guard([&] { on_tick(tick); });
      if (io_.stopped()) return;
      guard([&] { io_.run_for(kTick); });
      if (io_.stopped()) return;
    }
  }

  void post(std::function<void()> function) override { asio::post(io_, std::move(function)); }

  void drain() override {
    if (std::exchange(shared_.drains, true)) return;
    Failure ignored;
    acceptor_.close(ignored);
    const std::set<HttpConnection*> connections = shared_.connections;
    for (HttpConnection* connection : connections) connection->drain();
    stop_if_drained();
  }

  std::size_t n_connections() const override { return shared_.connections.size(); }

 private:
  static Error refused(std::string field, const std::string& what, const Failure& failure) {
    return {.code = ErrorCode::kIo,
            .field = std::move(field),
            .message = fmt::format("{}: {}", what, failure.message())};
  }

  void stop_if_drained() {
    if (shared_.drains && shared_.connections.empty()) io_.stop();
  }

  /// What `step` throws has cost its connection; the server goes on.
  template <typename Step>
  void guard(const Step& step) noexcept {
    try {
      step();
    } catch (const std::exception& what) {
      shared_.tell_fault(what);
    }
  }

  void on_tick(const std::function<void()>& tick) {
    for (auto at = shared_.connections.begin(); at != shared_.connections.end();)
      (*at++)->give_up_lost();  // which may end it
    if (!accepts_ && !shared_.drains) accept();
    tick();
  }

  /// After a failure (no descriptors are left, or the client has gone) the next tick goes on.
  void accept() {
    acceptor_.async_accept(
        [this, under_way = UnderWay(accepts_)](Failure failure, tcp::socket socket) mutable {
          under_way.end();
          if (shared_.drains || failure) return;
          take(std::move(socket));
          accept();
        });
  }

  void take(tcp::socket socket) {
    if (shared_.connections.size() < shared_.limits.connections)
      return std::make_shared<HttpConnection>(shared_, std::move(socket))->read_request();
    const HttpAnswer answer = shared_.handlers.error(
        503, fmt::format("connections: need at most {}", shared_.limits.connections));
    const std::string text =
        http_head(answer, false, fmt::format("Content-Length: {}\r\n", answer.body.size())) +
        answer.body;
    Failure ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);  // fits into a new connection's buffer
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  HttpShared shared_;
  asio::io_context io_{1};  // its handlers own connections, which use shared_
  tcp::acceptor acceptor_;
  bool accepts_ = false;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(const std::string& host, std::uint16_t port,
                                                     const HttpLimits& limits) {
  auto server = std::make_unique<BeastServer>(limits);
  LLM_RETURN_IF_ERROR(server->bind(host, port));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace llm
