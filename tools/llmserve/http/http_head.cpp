#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <ctime>
#include <map>

#include "tools/llmserve/http/http_connection.h"
#include "tools/llmserve/http/http_reader.h"

namespace llm {
namespace {

namespace beast = boost::beast;
using beast::http::field;

constexpr std::array kDeciding = {field::host,         field::origin, field::authorization,
                                  field::content_type, field::expect, field::transfer_encoding};

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

/// With %XX decoded.
std::optional<std::string> decoded(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (failure != std::errc() || end != digits.data() + 2) return std::nullopt;
    bytes += static_cast<char>(byte);
    i += 2;
  }
  return bytes;
}

std::optional<std::string> decoded_path(std::string_view target) {
  return decoded(target.substr(0, target.find('?')));
}

/// What cannot be decoded is left out.
std::map<std::string, std::string> query_of(std::string_view target) {
  std::map<std::string, std::string> query;
  for (std::size_t at = target.find('?'); at < target.size();) {
    const std::size_t end = std::min(target.find('&', at + 1), target.size());
    std::string pair(target.substr(at + 1, end - at - 1));
    std::ranges::replace(pair, '+', ' ');
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const auto name = decoded(std::string_view(pair).substr(0, equals));
    const auto value = decoded(std::string_view(pair).substr(std::min(equals + 1, pair.size())));
    if (name && value) query.emplace(*name, *value);
    at = end;
  }
  return query;
}

}  // namespace

std::optional<std::string> header_fault(const HttpHeader& header) {
  for (const field name : kDeciding) {
    const std::size_t n = header.count(name);
    const bool is_needed = name == field::host;
    if (n == 1 || (n == 0 && !is_needed)) continue;
    return fmt::format("{}: found {} of them, need {}one", text_of(to_string(name)), n,
                       is_needed ? "" : "at most ");
  }
  if (const auto encoding = header.find(field::transfer_encoding); encoding != header.end()) {
    if (header.version() < 11 || !beast::iequals(encoding->value(), "chunked"))
      return "Transfer-Encoding: need `chunked` of HTTP/1.1, or none";
  }
  if (!decoded_path(text_of(header.target()))) return "path: found % without two digits";
  return std::nullopt;
}

bool has_fold(std::string_view raw) {
  return raw.find("\n ") != std::string_view::npos || raw.find("\n\t") != std::string_view::npos;
}

HttpRequest request_of(const HttpHeader& header) {
  const std::string target = text_of(header.target());
  // Anthropic's clients send the key by a name of their own.
  std::string authorization = text_of(header[field::authorization]);
  if (const std::string key = text_of(header["x-api-key"]); authorization.empty() && !key.empty())
    authorization = "Bearer " + key;
  return {.method = text_of(header.method_string()),
          .path = decoded_path(target).value_or(target),
          .query = query_of(target),
          .host = text_of(header[field::host]),
          .origin = text_of(header[field::origin]),
          .authorization = std::move(authorization),
          .content_type = text_of(header[field::content_type])};
}

std::string http_head(const HttpAnswer& answer, bool keep_alive, std::string_view framing) {
  const auto reason = beast::http::obsolete_reason(static_cast<beast::http::status>(answer.status));
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nConnection: {}\r\n", answer.status,
      text_of(reason), fmt::gmtime(std::time(nullptr)), keep_alive ? "keep-alive" : "close");
  if (!answer.content_type.empty())
    head += fmt::format("Content-Type: {}\r\n", answer.content_type);
  head += framing;
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

}  // namespace llm
