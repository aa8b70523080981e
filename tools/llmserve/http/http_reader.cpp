#include "tools/llmserve/http/http_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>

namespace llm {

namespace {

namespace http = boost::beast::http;

// Every chunked body ends with this, so what is left of one is never less. Beast asserts that it
// has as much where no chunk came before the last one.
constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace

HttpReader::HttpReader(const HttpLimits& limits) : most_header_bytes_(limits.header_bytes) {
  parser_.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  parser_.body_limit(limits.body_bytes);
}

HttpReader::Step HttpReader::read(boost::beast::flat_buffer& buffer) {
  while (buffer.size() > 0) {
    const bool in_header = !parser_.is_header_done();
    const char* data = static_cast<const char*>(buffer.data().data());
    const bool may_be_last = !in_header && parser_.chunked() && data[0] == kLastChunk[0];
    if (may_be_last && buffer.size() < kLastChunk.size()) break;
    const std::size_t n_fed = std::min(buffer.size(), kPiece);
    boost::beast::error_code failure;
    const std::size_t n = parser_.put(boost::asio::buffer(data, n_fed), failure);
    if (in_header && has_fold({data, n})) failure = http::error::bad_obs_fold;
    buffer.consume(n);
    const bool needs_more = failure == http::error::need_more;
    if (in_header) {
      // The parser counts those bytes alone that it has not understood yet.
      header_bytes_ += n;
      const std::size_t more = needs_more ? buffer.size() : 0;
      if (header_bytes_ + more > most_header_bytes_) failure = http::error::header_limit;
    }
    if (needs_more && n == 0 && n_fed == kPiece) failure = http::error::header_limit;  // a trailer
    if (failure && failure != http::error::need_more) {
      failure_ = failure;
      return Step::kBroken;
    }
    if (in_header && parser_.is_header_done()) return Step::kHeader;
    if (parser_.is_done()) return Step::kWhole;
    if (needs_more && n_fed < kPiece) break;
  }
  return Step::kNeedsMore;
}

}  // namespace llm
