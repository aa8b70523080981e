#include "tools/llmserve/access_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <cstdint>
#include <span>

#include "base/sha256.h"
#include "base/shown_text.h"
#include "tools/common/options.h"
#include "tools/llmserve/api/answer.h"

namespace llm {
namespace {

using boost::asio::ip::address;
using boost::beast::iequals;

/// "name:8080", "[::1]:8080", or either without a port.
struct HostText {
  std::string_view name;  ///< without brackets
  std::optional<unsigned> port = std::nullopt;
};

/// Nothing for a port that is no number in 1..65535. An empty one is none (RFC 3986, 3.2.3).
std::optional<HostText> parse_host(std::string_view text) {
  HostText host{.name = text.substr(0, text.find(':'))};
  std::string_view rest = text.substr(host.name.size());
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host.name = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  }
  if (rest.empty() || rest == ":") return host;
  const char* const end = rest.data() + rest.size();
  unsigned port = 0;
  if (rest.front() != ':' || rest.size() > 6 ||
      std::from_chars(rest.data() + 1, end, port).ptr != end || port == 0 || port > UINT16_MAX)
    return std::nullopt;
  host.port = port;
  return host;
}

/// The address that a text spells, those of IPv4 inside IPv6 as themselves.
std::optional<address> address_of(std::string_view text) {
  boost::system::error_code failure;
  const address found = boost::asio::ip::make_address(std::string(text), failure);
  if (failure) return std::nullopt;
  if (!found.is_v6() || !found.to_v6().is_v4_mapped()) return found;
  return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, found.to_v6());
}

/// A name of --allow-host, which may be an address of IPv6 without brackets.
std::optional<HostText> parse_listed(std::string_view text) {
  return address_of(text) ? HostText{.name = text} : parse_host(text);
}

/// Takes as long wherever the texts differ, also in length, so that nothing of a key is told.
bool same_secret(std::string_view text, std::string_view secret) {
  const std::string a = sha256_hex(std::as_bytes(std::span(text)));
  const std::string b = sha256_hex(std::as_bytes(std::span(secret)));
  unsigned differs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned>(a[i] ^ b[i]);
  return differs == 0;
}

/// "https://a.example" or with a port, as browsers send it; else nothing.
std::optional<std::string_view> authority_of(std::string_view origin) {
  const std::size_t at = origin.find("://");
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view rest = origin.substr(at + 3);
  if (rest.empty() || rest.find_first_of("/?# @") != std::string_view::npos) return std::nullopt;
  return rest;
}

}  // namespace

Result<AccessControl> AccessControl::create(AccessOptions options) {
  for (const std::string& host : options.hosts) {
    const auto parsed = parse_listed(host);
    if (!parsed || parsed->name.empty() || host.find_first_of("/?# @*") != std::string::npos)
      return usage_error("--allow-host",
                         fmt::format("found {}, need a name, such as llm.example.org, or a name "
                                     "with a port",
                                     llm::quoted(host)));
  }
  for (const std::string& origin : options.origins) {
    if (origin != "*" && origin != "null" && !authority_of(origin))
      return usage_error("--allow-origin",
                         fmt::format("found {}, need https://NAME or with a port, null, or *",
                                     llm::quoted(origin)));
  }
  return AccessControl(std::move(options));
}

bool AccessControl::is_own_name(std::string_view name, std::string_view reached) const {
  if (const auto at = address_of(name)) {
    if (at->is_loopback() || at == address_of(reached)) return true;
  } else {
    constexpr std::string_view kLocal = ".localhost";
    if (iequals(name, kLocal.substr(1))) return true;
    if (name.size() > kLocal.size() && iequals(name.substr(name.size() - kLocal.size()), kLocal))
      return true;
  }
  return iequals(name, options_.host);
}

bool AccessControl::allows_host(const HttpRequest& head) const {
  auto host = parse_host(head.host);
  if (!host) return false;
  if (host->name.ends_with('.')) host->name.remove_suffix(1);
  if (is_own_name(host->name, head.reached) && host->port.value_or(head.port) == head.port)
    return true;
  return std::ranges::any_of(options_.hosts, [&host](const std::string& text) {
    const auto listed = parse_listed(text);
    return listed && iequals(host->name, listed->name) &&
           (!listed->port || listed->port == host->port);
  });
}

bool AccessControl::is_listed(std::string_view origin) const {
  return std::ranges::any_of(options_.origins, [&](const std::string& listed) {
    return listed == "*" || iequals(listed, origin);
  });
}

std::optional<HttpAnswer> AccessControl::refuse(const HttpRequest& head) const {
  if (!allows_host(head)) {
    return error_answer(403, fmt::format("Host: found {}, need a name of this server, with port {} "
                                         "or none; --allow-host NAME[:PORT] allows another one",
                                         llm::quoted(head.host), head.port));
  }
  if (head.origin.empty() || is_listed(head.origin)) return std::nullopt;
  const auto authority = authority_of(head.origin);
  if (authority && iequals(*authority, head.host)) return std::nullopt;
  return error_answer(403, fmt::format("Origin: found {}, need this server's own page; "
                                       "--allow-origin ORIGIN allows another site's",
                                       llm::quoted(head.origin)));
}

bool AccessControl::has_key(const HttpRequest& head) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = head.authorization;
  return options_.api_key.empty() ||
         (iequals(given.substr(0, kBearer.size()), kBearer) &&
          same_secret(given.substr(std::min(given.size(), kBearer.size())), options_.api_key));
}

HttpHeaders AccessControl::headers(const HttpRequest& head) const {
  if (options_.origins.empty()) return {};
  HttpHeaders headers = {{"Vary", "Origin"}};
  if (!head.origin.empty() && is_listed(head.origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", head.origin);
    headers.emplace_back("Access-Control-Expose-Headers", "X-Logits-Sha256, Retry-After");
  }
  return headers;
}

HttpAnswer AccessControl::preflight(std::string methods) {
  return {.status = 204,
          .content_type = "",
          .headers = {{"Allow", methods},
                      {"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace llm
