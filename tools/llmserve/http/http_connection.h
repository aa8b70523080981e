#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tools/llmserve/http/http_reader.h"
#include "tools/llmserve/http/http_server.h"

namespace llm {

/// "HTTP/1.1 200 OK" to the empty line. @param framing  Content-Length or Transfer-Encoding, or ""
std::string http_head(const HttpAnswer& answer, bool keep_alive, std::string_view framing);

class HttpConnection;

/// What the connections of a server share.
struct HttpShared {
  HttpLimits limits;
  HttpHandlers handlers = {};
  std::set<HttpConnection*> connections = {};
  bool drains = false;
  std::function<void()> on_empty = {};  ///< the last connection is closed
  bool is_over = false;                 ///< the server is being destroyed

  void tell_fault(const std::exception& what) const noexcept {
    try {
      handlers.fault(what.what());
    } catch (const std::exception&) {  // memory; a line of the log is lost
    }
  }
};

/// A client's connection: reads a request, lets it be answered, reads the next one. Lives as long
/// as it reads, writes or owes an answer.
///
/// While an answer is made, a read waits for the client to go; what it reads belongs to the next
/// request. It has to be done before that is read: `then_` says what follows. Who sends more ahead
/// than is kept is disconnected, since its going could not be noticed.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpShared& shared, boost::asio::ip::tcp::socket socket);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void read_request();
  /// Closes if no request has begun.
  void drain();
  /// Gives up what another thread could not answer (HttpExchange::lost()).
  void give_up_lost() noexcept;

  /// What is sent where there is no memory for an answer.
  static constexpr std::string_view kNoMemory =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
      "Retry-After: 1\r\nConnection: close\r\n\r\n"
      R"({"type":"error","error":{"message":"found memory refused; try again later",)"
      R"("type":"server_error","param":null,"code":null}})"
      "\n";

 private:
  class Exchange;
  enum class Then { kGoOn, kReadRequest, kLinger };
  using Failure = boost::beast::error_code;

  /// A handler of the connection's. What `step` throws, where memory is refused, ends this
  /// connection alone; so does a handler that is never called, because Asio had no memory for that.
  template <typename Step>
  class Next;
  template <typename Step>
  auto next(Step step);
  template <typename Step>
  void guard(const Step& step) noexcept;
  /// Answers without memory, unless an answer has begun, and reads no more requests.
  void give_up() noexcept;

  /// Takes what is there, first the header, then the body; reads when it needs more.
  void parse();
  void read_more();
  void take_head();
  void on_header();
  void on_body();
  /// What came is no request, or one beyond the limits.
  void on_broken();
  /// Answers and closes: the rest of the request is not read.
  void refuse(HttpAnswer answer);
  std::shared_ptr<HttpExchange> open_exchange();
  void watch();
  void on_watched(Failure failure, std::size_t n);
  void send(std::string_view bytes, bool is_last);
  void flush();
  void on_sent(Failure failure);
  void follow(Then then);
  /// Reads what still comes, for a while: closing at once would take the answer from the client.
  void linger();
  void close();

  HttpShared& shared_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  HttpRequest head_;  ///< of the request that is read
  std::string client_;
  std::string reached_;
  unsigned port_ = 0;
  std::optional<HttpReader> reader_;
  std::weak_ptr<Exchange> exchange_;  ///< under way
  std::shared_ptr<Exchange> ended_;   ///< the same, once all of its answer is there
  bool is_idle_ = false;              ///< waits for a request's header
  bool keep_alive_ = true;
  bool watches_ = false;
  bool is_closed_ = false;
  bool has_answered_ = false;  ///< something, to the request that is read or under way
  Then then_ = Then::kGoOn;
  std::string unsent_;
  std::string sending_;
  bool has_end_ = false;  ///< nothing follows `unsent_`
};

}  // namespace llm
