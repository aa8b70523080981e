#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tools/llmserve/http_server.h"

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

/// "HTTP/1.1 200 OK" to the empty line. @param framing  Content-Length or Transfer-Encoding, or ""
std::string http_head(const HttpAnswer& answer, bool keep_alive, std::string_view framing);

}  // namespace llm
