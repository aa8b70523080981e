#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "tools/llmserve/http/http_server.h"

namespace llm {

using HttpHeader = boost::beast::http::request_header<>;

/// What makes a request's header ambiguous, in which others could read another request: not one
/// Host; a field twice that decides something; a Transfer-Encoding but `chunked` of HTTP/1.1; a
/// path that cannot be decoded. Nothing: it is clear.
std::optional<std::string> header_fault(const HttpHeader& header);

/// Whether a line of a raw header goes on with the line before (obs-fold).
bool has_fold(std::string_view raw);

/// The request of a header, without client, address and body. A path that cannot be decoded stays
/// as it is.
HttpRequest request_of(const HttpHeader& header);

/// Reads one request out of the bytes of a connection, whatever their pieces are.
class HttpReader {
 public:
  static constexpr std::size_t kPiece = 64 << 10;  ///< bytes at a time; holds every header

  explicit HttpReader(const HttpLimits& limits);

  enum class Step {
    kNeedsMore,
    kHeader,  ///< the header is there; the next read() goes on with the body
    kWhole,   ///< the body, too
    kBroken,  ///< failure()
  };
  /// Takes bytes from the front of `buffer`; those of the next request stay.
  Step read(boost::beast::flat_buffer& buffer);

  bool has_begun() const { return parser_.got_some(); }
  bool is_whole() const { return parser_.is_done(); }
  bool has_header() const { return parser_.is_header_done(); }
  /// Of a broken request: what was understood of it.
  const HttpHeader& header() const { return parser_.get(); }
  bool keep_alive() const { return parser_.get().keep_alive(); }
  /// @pre kWhole
  std::string take_body() { return std::move(parser_.get().body()); }
  boost::beast::error_code failure() const { return failure_; }

 private:
  boost::beast::http::request_parser<boost::beast::http::string_body> parser_;
  std::size_t most_header_bytes_;
  std::size_t header_bytes_ = 0;
  boost::beast::error_code failure_;
};

}  // namespace llm
