#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace llm {

struct HttpCall {
  std::string url;         ///< http or https
  std::string token = {};  ///< a bearer token for the host of `url` alone; empty: none
  std::uint64_t from = 0;  ///< the first byte wanted
  std::uint64_t most_bytes = UINT64_MAX;  ///< of the answer's body
  long most_seconds = 0;                  ///< for all of it; 0: as long as bytes come
  std::optional<std::string> json = {};   ///< sent by POST; the answer may take its time
  /// Takes the body as it comes: its next bytes and where they stand in the file, from 0 where the
  /// server ignores `from`. Called for the statuses 200 and 206 alone; false ends the transfer.
  std::function<bool(std::uint64_t offset, std::span<const std::byte> bytes)> take;
};

struct HttpReply {
  long status = 0;
  std::string error_code = {};  ///< the hub's word for a refusal (X-Error-Code), empty: none
  std::string refusal = {};     ///< the first bytes of another status's body, as `take` has none;
                                ///< behind 64 KiB it is not read

  bool is_refusal() const { return status >= 400; }
  /// Whether another try may succeed.
  bool may_pass() const { return status == 408 || status == 429 || status >= 500; }
};

/// GET, or POST of JSON, through the proxies that the environment names; redirects are followed,
/// from https to https alone. Errors: kIo with libcurl's words where no whole answer came (a minute
/// of a GET below 1 KiB a second, ten without a byte of a POST, included), and where `take` ended
/// it; kIo for more than `most_bytes`, for headers of all redirects above 256 KiB, and for an
/// answer whose body has not begun after two minutes (ten of a POST); kUnsupported where this was
/// built without libcurl.
Result<HttpReply> http_call(const HttpCall& request);

}  // namespace llm
