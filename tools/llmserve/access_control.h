#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tools/llmserve/http/http_server.h"

namespace llm {

/// Whom a server answers, besides clients of this machine.
struct AccessOptions {
  std::string api_key;  ///< what clients must send; empty: nothing
  std::string host;     ///< what it listens on, a name or an address
  /// Names that it may be reached by besides: "llm.example.org" by any port, "a.example:9000"
  std::vector<std::string> hosts;
  std::vector<std::string>
      origins;  ///< sites whose pages may ask: "https://a.example", "null", "*"
};

/// Who may connect. A browser lets pages of any site send requests to this machine, and a site can
/// give its own name this machine's address (DNS rebinding); it also says what name and which site
/// a request is for (Host, Origin). Programs that are no browsers may write what they like there:
/// against those there is the key.
class AccessControl {
 public:
  /// Errors: kUsage naming --allow-host or --allow-origin.
  static Result<AccessControl> create(AccessOptions options);

  /// The answer to a request by a name, or of a site's page, that is not allowed: 403 naming the
  /// option. Allowed names: "localhost" and those that end in ".localhost", loopback addresses, the
  /// address that the client reached and `host`, each with the port that it reached or without one;
  /// and `hosts`. Allowed sites: the one of the request's own Host, and `origins`.
  std::optional<HttpAnswer> refuse(const HttpRequest& head) const;
  bool has_key(const HttpRequest& head) const;

  /// What an answer to a page of another site needs for the browser to hand it over (CORS).
  HttpHeaders headers(const HttpRequest& head) const;
  /// The answer to OPTIONS: what may be asked. @param methods  "GET, OPTIONS"
  static HttpAnswer preflight(std::string methods);

 private:
  explicit AccessControl(AccessOptions options) : options_(std::move(options)) {}

  bool is_own_name(std::string_view name, std::string_view reached) const;
  bool allows_host(const HttpRequest& head) const;
  bool is_listed(std::string_view origin) const;

  AccessOptions options_;
};

}  // namespace llm
