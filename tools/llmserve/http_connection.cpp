#include "tools/llmserve/http_connection.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <ctime>
#include <utility>

namespace llm {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadAhead = 64 << 10;  // of the requests to come
constexpr int kSendBuffer = 256 << 10;        // of the system, which would take megabytes for each
constexpr std::chrono::seconds kLinger{2};
constexpr int kClientGone = 499;

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

/// Whether what came is no HTTP, and not just cut off.
bool is_broken(const beast::error_code& failure) {
  static const auto& category = http::make_error_code(http::error::bad_method).category();
  return failure && failure.category() == category && failure != http::error::end_of_stream &&
         failure != http::error::partial_message;
}

}  // namespace

std::string http_head(const HttpAnswer& answer, bool keep_alive, std::string_view framing) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(answer.status));
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nConnection: {}\r\n"
      "Content-Type: {}\r\n{}",
      answer.status, text_of(reason), fmt::gmtime(std::time(nullptr)),
      keep_alive ? "keep-alive" : "close", answer.content_type, framing);
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

class HttpConnection::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, HttpRequest request, bool may_chunk)
      : connection_(std::move(connection)), request_(std::move(request)), may_chunk_(may_chunk) {}
  ~Exchange() override {
    if (connection_ == nullptr) return;
    connection_->close();
    finish(kClientGone);
  }

  const HttpRequest& request() const override { return request_; }
  void answer(HttpAnswer answer) override {
    if (connection_ == nullptr || status_ != 0) return;
    status_ = answer.status;
    sent_bytes_ = answer.body.size();
    const std::string framing = fmt::format("Content-Length: {}\r\n", answer.body.size());
    send(http_head(answer, connection_->keep_alive_, framing) + answer.body, true);
  }
  void begin(HttpAnswer head) override {
    if (connection_ == nullptr || status_ != 0) return;
    status_ = head.status;
    // HTTP/1.0 has no chunks: the end of the connection is the answer's.
    if (!may_chunk_) connection_->keep_alive_ = false;
    const std::string_view framing = may_chunk_ ? "Transfer-Encoding: chunked\r\n" : "";
    send(http_head(head, connection_->keep_alive_, framing), false);
    write(head.body);
  }
  void write(std::string_view data) override {
    if (data.empty()) return;
    sent_bytes_ += data.size();
    send(may_chunk_ ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : std::string(data), false);
  }
  void end() override { send(may_chunk_ ? "0\r\n\r\n" : "", true); }
  void set_on_gone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }
  void set_note(std::string note) override { note_ = std::move(note); }

  /// The answer is sent.
  void finish() { finish(status_); }
  /// It never will be.
  void client_gone() {
    const auto on_gone = std::exchange(on_gone_, nullptr);
    finish(kClientGone);
    if (on_gone) on_gone();
  }

 private:
  void finish(int status) {
    const std::chrono::duration<double> taken = Clock::now() - started_;
    connection_->shared_.handlers.log(request_, {status, sent_bytes_, taken.count(), note_});
    connection_.reset();
    on_gone_ = nullptr;
  }
  void send(std::string_view bytes, bool is_last) {
    if (connection_ == nullptr) return;
    const auto connection = connection_;  // sending may end this exchange
    connection->send(bytes, is_last);
  }

  std::shared_ptr<HttpConnection> connection_;  ///< null: finished
  HttpRequest request_;
  bool may_chunk_;
  int status_ = 0;  ///< 0: nothing is sent yet
  std::uint64_t sent_bytes_ = 0;
  Clock::time_point started_ = Clock::now();
  std::function<void()> on_gone_;
  std::string note_;
};

HttpConnection::HttpConnection(HttpShared& shared, asio::ip::tcp::socket socket)
    : shared_(shared),
      stream_(std::move(socket)),
      buffer_(shared.limits.header_bytes + kReadAhead) {
  shared_.connections.insert(this);
  Failure ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().set_option(asio::socket_base::keep_alive(true), ignored);
  stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  const auto remote = stream_.socket().remote_endpoint(ignored);
  if (!ignored) client_ = remote.address().to_string(ignored);
}

HttpConnection::~HttpConnection() {
  shared_.connections.erase(this);
  if (shared_.connections.empty() && shared_.on_empty) shared_.on_empty();
}

void HttpConnection::drain() {
  if (is_idle_ && buffer_.size() == 0 && !parser_->got_some()) close();
}

void HttpConnection::read_request() {
  is_idle_ = true;
  has_end_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_.limits.header_bytes));
  parser_->body_limit(shared_.limits.body_bytes);
  stream_.expires_after(shared_.limits.patience);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](Failure failure, std::size_t) { self->on_header(failure); });
}

void HttpConnection::on_header(Failure failure) {
  is_idle_ = false;
  const HttpLimits& limits = shared_.limits;
  const auto& error = shared_.handlers.error;
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow)
    return refuse(error(431, fmt::format("header: need at most {} bytes", limits.header_bytes)));
  if (failure == http::error::body_limit)
    return refuse(error(413, fmt::format("body: need at most {} bytes", limits.body_bytes)));
  if (is_broken(failure)) return refuse(error(400, "HTTP: found " + failure.message()));
  if (failure) return close();
  const HttpRequest head = take_request();
  if (auto answer = shared_.handlers.refuse(head)) return refuse(std::move(*answer));
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.expires_after(limits.patience);
  asio::async_write(stream_, asio::buffer(kContinue),
                    [self = shared_from_this()](Failure failed, std::size_t) {
                      if (failed) return self->close();
                      self->read_body();
                    });
}

void HttpConnection::read_body() {
  stream_.expires_after(shared_.limits.patience);
  http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](Failure failure, std::size_t) { self->on_body(failure); });
}

void HttpConnection::on_body(Failure failure) {
  const auto& error = shared_.handlers.error;
  if (failure == http::error::body_limit) {
    return refuse(
        error(413, fmt::format("body: need at most {} bytes", shared_.limits.body_bytes)));
  }
  if (is_broken(failure)) return refuse(error(400, "HTTP: found " + failure.message()));
  if (failure) return close();
  keep_alive_ = parser_->get().keep_alive() && !shared_.drains;
  const auto exchange = open_exchange();
  watch();
  shared_.handlers.handle(exchange);
}

HttpRequest HttpConnection::take_request() {
  auto& message = parser_->get();
  const auto target = text_of(message.target());
  return {.method = text_of(message.method_string()),
          .path = target.substr(0, target.find('?')),
          .client = client_,
          .authorization = text_of(message[http::field::authorization]),
          .content_type = text_of(message[http::field::content_type]),
          .body = std::move(message.body())};
}

std::shared_ptr<HttpExchange> HttpConnection::open_exchange() {
  const bool may_chunk = parser_->get().version() >= 11;
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), take_request(), may_chunk);
  exchange_ = exchange;
  return exchange;
}

void HttpConnection::refuse(HttpAnswer answer) {
  keep_alive_ = false;
  open_exchange()->answer(std::move(answer));
}

void HttpConnection::watch() {
  if (is_closed_ || buffer_.size() >= kReadAhead) return;
  watches_ = true;
  stream_.expires_never();
  stream_.async_read_some(buffer_.prepare(1024),
                          [self = shared_from_this()](Failure failure, std::size_t n) {
                            self->on_watched(failure, n);
                          });
}

void HttpConnection::on_watched(Failure failure, std::size_t n) {
  watches_ = false;
  if (failure && (failure != asio::error::operation_aborted || then_ == Then::kGoOn))
    return close();
  buffer_.commit(n);
  if (then_ == Then::kGoOn) return watch();
  follow(then_);
}

void HttpConnection::send(std::string_view bytes, bool is_last) {
  if (is_closed_) return;
  unsent_ += bytes;
  if (is_last) {
    has_end_ = true;
    ended_ = exchange_.lock();
  }
  // A whole answer has the size that its request asked for; a stream piles up for who does not
  // read.
  if (!has_end_ && unsent_.size() > shared_.limits.unsent_bytes) return close();
  flush();
}

void HttpConnection::flush() {
  if (!sending_.empty()) return;
  sending_.swap(unsent_);
  if (sending_.empty()) {
    if (has_end_) on_sent({});
    return;
  }
  stream_.expires_after(shared_.limits.patience);
  asio::async_write(
      stream_, asio::buffer(sending_),
      [self = shared_from_this()](Failure failure, std::size_t) { self->on_sent(failure); });
}

void HttpConnection::on_sent(Failure failure) {
  sending_.clear();
  if (failure) return close();
  if (!unsent_.empty()) return flush();
  if (!has_end_) return;
  if (const auto exchange = std::exchange(ended_, nullptr)) exchange->finish();
  exchange_.reset();
  follow(keep_alive_ && !shared_.drains ? Then::kReadRequest : Then::kLinger);
}

void HttpConnection::follow(Then then) {
  then_ = then;
  if (is_closed_) return;
  if (watches_) return stream_.cancel();  // goes on in on_watched()
  then_ = Then::kGoOn;
  if (then == Then::kReadRequest) return read_request();
  Failure ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  stream_.expires_after(kLinger);
  linger();
}

void HttpConnection::linger() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadAhead),
                          [self = shared_from_this()](Failure failure, std::size_t) {
                            if (failure) return self->close();
                            self->linger();
                          });
}

void HttpConnection::close() {
  if (std::exchange(is_closed_, true)) return;
  stream_.close();
  if (const auto exchange = exchange_.lock()) exchange->client_gone();
  exchange_.reset();
  ended_.reset();
}

}  // namespace llm
