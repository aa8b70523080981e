#include "tools/llmserve/http/http_connection.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

namespace llm {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLeastRead = 1 << 10;  // bytes at a time
constexpr std::size_t kPiece = HttpReader::kPiece;
constexpr int kSendBuffer = 256 << 10;  // of the system, which would take megabytes for each
constexpr std::chrono::seconds kLinger{2};
constexpr int kClientGone = 499;

}  // namespace

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
  std::string take_body() override { return std::exchange(request_.body, {}); }
  void answer(HttpAnswer answer) override {
    if (connection_ == nullptr || status_ != 0) return;
    status_ = answer.status;
    const std::string framing =
        answer.status == 204 ? "" : fmt::format("Content-Length: {}\r\n", answer.body.size());
    if (request_.method == "HEAD") answer.body.clear();  // no answer to it has one
    sent_bytes_ = answer.body.size();
    send(head_of(answer, framing) + answer.body, true);
  }
  void begin(HttpAnswer head) override {
    if (connection_ == nullptr || status_ != 0) return;
    status_ = head.status;
    // HTTP/1.0 has no chunks: the end of the connection is the answer's.
    if (!may_chunk_) connection_->keep_alive_ = false;
    const std::string_view framing = may_chunk_ ? "Transfer-Encoding: chunked\r\n" : "";
    send(head_of(head, framing), false);
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
  void give_up() noexcept override {
    if (const auto connection = connection_) connection->give_up();
  }
  Lost lost() const override { return lost_; }

  /// The answer is sent.
  void finish() { finish(status_); }
  /// It never will be.
  void client_gone() noexcept { drop(kClientGone); }
  /// Whoever makes the answer may stop.
  void drop(int status) noexcept {
    const auto on_gone = std::exchange(on_gone_, nullptr);
    finish(status);
    try {
      if (on_gone) on_gone();
    } catch (const std::exception&) {  // memory; what is still made for it ends by itself
    }
  }

 private:
  std::string head_of(HttpAnswer& answer, std::string_view framing) const {
    const auto& more = connection_->shared_.handlers.headers;
    const HttpHeaders headers = more ? more(request_) : HttpHeaders{};
    answer.headers.insert(answer.headers.end(), headers.begin(), headers.end());
    return http_head(answer, connection_->keep_alive_, framing);
  }
  void finish(int status) noexcept {
    const std::chrono::duration<double> taken = Clock::now() - started_;
    try {
      connection_->shared_.handlers.log(request_, {status, sent_bytes_, taken.count(), note_});
    } catch (const std::exception&) {  // memory; a line of the log is lost
    }
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
  Lost lost_ = std::make_shared<std::atomic<bool>>(false);
  std::function<void()> on_gone_;
  std::string note_;
};

HttpConnection::HttpConnection(HttpShared& shared, asio::ip::tcp::socket socket)
    : shared_(shared), stream_(std::move(socket)), buffer_(shared.limits.ahead_bytes + 2 * kPiece) {
  Failure ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().set_option(asio::socket_base::keep_alive(true), ignored);
  stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  const auto remote = stream_.socket().remote_endpoint(ignored);
  if (!ignored) client_ = remote.address().to_string(ignored);
  const auto local = stream_.socket().local_endpoint(ignored);
  if (!ignored) reached_ = local.address().to_string(ignored);
  if (!ignored) port_ = local.port();
  shared_.connections.insert(this);  // last: where anything throws, nobody takes it out
}

HttpConnection::~HttpConnection() {
  shared_.connections.erase(this);
  if (shared_.connections.empty() && shared_.on_empty) shared_.on_empty();
}

template <typename Step>
void HttpConnection::guard(const Step& step) noexcept {
  try {
    step();
  } catch (const std::exception& what) {
    shared_.tell_fault(what);
    give_up();
  }
}

template <typename Step>
class HttpConnection::Next {
 public:
  Next(std::shared_ptr<HttpConnection> self, Step step) : self_(std::move(self)), step_(step) {}
  ~Next() {
    if (self_ != nullptr && !self_->shared_.is_over) self_->give_up();
  }
  Next(Next&&) = default;
  Next& operator=(Next&&) = delete;
  void operator()(Failure failure, std::size_t n) {
    const auto self = std::exchange(self_, nullptr);
    self->guard([&] { step_(*self, failure, n); });
  }

 private:
  std::shared_ptr<HttpConnection> self_;  ///< null: called, or moved from
  Step step_;
};

template <typename Step>
auto HttpConnection::next(Step step) {
  return Next<Step>(shared_from_this(), step);
}

void HttpConnection::give_up_lost() noexcept {
  const auto exchange = exchange_.lock();
  if (exchange != nullptr && exchange->lost()->exchange(false)) give_up();
}

void HttpConnection::give_up() noexcept {
  if (is_closed_) return;
  const auto self = weak_from_this().lock();  // the exchange may have been the last that holds it
  const bool answers = !std::exchange(has_answered_, true);
  keep_alive_ = false;
  if (answers)
    ::send(stream_.socket().native_handle(), kNoMemory.data(), kNoMemory.size(),
           MSG_NOSIGNAL | MSG_DONTWAIT);
  if (const auto exchange = exchange_.lock()) exchange->drop(answers ? 503 : kClientGone);
  exchange_.reset();
  ended_.reset();
  try {
    if (answers) return follow(Then::kLinger);
  } catch (const std::exception&) {
  }
  close();
}

void HttpConnection::drain() {
  if (is_idle_ && buffer_.size() == 0 && !reader_->has_begun()) close();
}

void HttpConnection::read_request() {
  is_idle_ = true;
  has_end_ = false;
  has_answered_ = false;
  head_ = {};
  if (buffer_.size() == 0 && buffer_.capacity() > kPiece) buffer_.shrink_to_fit();
  reader_.emplace(shared_.limits);
  guard([this] {
    stream_.expires_after(shared_.limits.patience);
    parse();
  });
}

void HttpConnection::parse() {
  switch (reader_->read(buffer_)) {
    case HttpReader::Step::kNeedsMore:
      return read_more();
    case HttpReader::Step::kHeader:
      return on_header();
    case HttpReader::Step::kWhole:
      return on_body();
    case HttpReader::Step::kBroken:
      return on_broken();
  }
}

void HttpConnection::read_more() {
  const auto bytes = buffer_.prepare(std::clamp(buffer_.size(), kLeastRead, kPiece));
  stream_.async_read_some(bytes, next([](HttpConnection& self, Failure failure, std::size_t n) {
                            if (failure) return self.close();
                            self.buffer_.commit(n);
                            self.parse();
                          }));
}

void HttpConnection::on_broken() {
  const Failure failure = reader_->failure();
  const HttpLimits& limits = shared_.limits;
  const auto& error = shared_.handlers.error;
  if (!reader_->has_header()) take_head();
  if (failure == http::error::header_limit)
    return refuse(error(431, fmt::format("header: need at most {} bytes", limits.header_bytes)));
  if (failure == http::error::body_limit)
    return refuse(error(413, fmt::format("body: need at most {} bytes", limits.body_bytes)));
  refuse(error(400, "HTTP: found " + failure.message()));
}

void HttpConnection::take_head() {
  is_idle_ = false;
  head_ = request_of(reader_->header());
  head_.client = client_;
  head_.reached = reached_;
  head_.port = port_;
}

void HttpConnection::on_header() {
  take_head();
  if (const auto fault = header_fault(reader_->header()))
    return refuse(shared_.handlers.error(400, "HTTP: " + *fault));
  if (auto answer = shared_.handlers.refuse(head_)) return refuse(std::move(*answer));
  stream_.expires_after(shared_.limits.patience);  // for the body
  if (reader_->is_whole()) return on_body();
  if (!beast::iequals(reader_->header()[http::field::expect], "100-continue")) return parse();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(kContinue),
                    next([](HttpConnection& self, Failure failed, std::size_t) {
                      if (failed) return self.close();
                      self.parse();
                    }));
}

void HttpConnection::on_body() {
  keep_alive_ = reader_->keep_alive() && !shared_.drains;
  head_.body = reader_->take_body();
  const auto exchange = open_exchange();
  guard([&] {
    watch();
    shared_.handlers.handle(exchange);
  });
}

std::shared_ptr<HttpExchange> HttpConnection::open_exchange() {
  const bool may_chunk = reader_->header().version() >= 11;
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(head_), may_chunk);
  exchange_ = exchange;
  return exchange;
}

void HttpConnection::refuse(HttpAnswer answer) {
  keep_alive_ = false;
  const auto exchange = open_exchange();
  guard([&] { exchange->answer(std::move(answer)); });
}

void HttpConnection::watch() {
  if (is_closed_) return;
  if (buffer_.size() > shared_.limits.ahead_bytes) return close();
  stream_.expires_never();
  stream_.async_read_some(buffer_.prepare(std::clamp(buffer_.size(), kLeastRead, kPiece)),
                          next([](HttpConnection& self, Failure failure, std::size_t n) {
                            self.on_watched(failure, n);
                          }));
  watches_ = true;
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
      next([](HttpConnection& self, Failure failure, std::size_t) { self.on_sent(failure); }));
  has_answered_ = true;
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
  stream_.async_read_some(buffer_.prepare(kPiece),
                          next([](HttpConnection& self, Failure failure, std::size_t) {
                            if (failure) return self.close();
                            self.linger();
                          }));
}

void HttpConnection::close() {
  if (std::exchange(is_closed_, true)) return;
  stream_.close();
  if (const auto exchange = exchange_.lock()) exchange->client_gone();
  exchange_.reset();
  ended_.reset();
}

}  // namespace llm
