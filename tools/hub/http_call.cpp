#include "tools/hub/http_call.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace llm {
namespace {

constexpr long kConnectSeconds = 20;
constexpr long kStallSeconds = 60;
constexpr long kLeastPerSecond = 1024;
constexpr long kAnswerSeconds = 600;
constexpr double kHeadSeconds = 120;
constexpr std::uint64_t kMostHeaderBytes = 256 << 10;
constexpr std::uint64_t kMostRefusalBytes = 64 << 10;
constexpr std::size_t kKeptRefusal = 4096;
constexpr long kMostRedirects = 10;

/// What a transfer's callbacks, which C calls, work on.
struct Transfer {
  const HttpCall& request;
  CURL* curl;
  std::uint64_t header_bytes = 0;
  std::uint64_t received = 0;  ///< of the last answer's body
  std::string refusal = {};
  bool is_refused = false;  ///< enough was read of a refusal's body
  std::string limit = {};   ///< the one that ended the transfer

  long status() const {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  /// @return what makes libcurl end the transfer
  template <typename... Args>
  std::size_t end(fmt::format_string<Args...> words, Args&&... args) {
    limit = fmt::format(words, std::forward<Args>(args)...);
    return 0;
  }
};

std::size_t on_header(char*, std::size_t, std::size_t size, void* user) noexcept try {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.header_bytes += size;
  if (transfer.header_bytes <= kMostHeaderBytes) return size;
  return transfer.end("found {} bytes of headers or more, need at most {}", transfer.header_bytes,
                      kMostHeaderBytes);
} catch (...) {
  return 0;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) noexcept try {
  auto& transfer = *static_cast<Transfer*>(user);
  const HttpCall& request = transfer.request;
  const long status = transfer.status();
  const std::uint64_t before = std::exchange(transfer.received, transfer.received + size);
  if (status != 200 && status != 206) {
    transfer.refusal.append(data, std::min(size, kKeptRefusal - transfer.refusal.size()));
    transfer.is_refused = transfer.received > kMostRefusalBytes;
    return transfer.is_refused ? 0 : size;
  }
  if (transfer.received > request.most_bytes) {
    return transfer.end("found {} bytes or more, need at most {}", transfer.received,
                        request.most_bytes);
  }
  const std::uint64_t offset = (status == 206 ? request.from : 0) + before;
  return request.take(offset, std::as_bytes(std::span(data, size))) ? size : 0;
} catch (...) {
  return 0;
}

/// Ends what brings no answer: headers that never end, and bodies of redirects, which go nowhere.
int on_progress(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) noexcept try {
  auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.received > 0) return 0;
  if (std::cmp_greater(received, kMostRefusalBytes + kMostHeaderBytes)) {
    transfer.end("found {} bytes before the answer, need at most {}", received,
                 kMostRefusalBytes + kMostHeaderBytes);
    return 1;
  }
  double seconds = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_TOTAL_TIME, &seconds);
  const double most = transfer.request.json ? static_cast<double>(kAnswerSeconds) : kHeadSeconds;
  if (seconds <= most) return 0;
  transfer.end("found no answer for {:.0f} s, need one within {:.0f} s", seconds, most);
  return 1;
} catch (...) {
  return 1;
}

}  // namespace

Result<HttpReply> http_call(const HttpCall& request) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(
      ready == CURLE_OK ? curl_easy_init() : nullptr, curl_easy_cleanup);
  if (!curl) return Error{ErrorCode::kResource, "libcurl", "found no memory for it"};
  const auto set = [&](CURLoption option, auto value) {
    return curl_easy_setopt(curl.get(), option, value) == CURLE_OK;
  };
  Transfer transfer{request, curl.get()};
  char reason[CURL_ERROR_SIZE] = "";
  const std::string range = std::to_string(request.from) + "-";
  const bool is_secure = request.url.starts_with("https:");
  bool is_set = set(CURLOPT_URL, request.url.c_str()) && set(CURLOPT_ERRORBUFFER, reason) &&
                set(CURLOPT_NOSIGNAL, 1L) && set(CURLOPT_USERAGENT, "llmrun") &&
                set(CURLOPT_PROTOCOLS_STR, "http,https") &&
                set(CURLOPT_REDIR_PROTOCOLS_STR, is_secure ? "https" : "http,https") &&
                set(CURLOPT_FOLLOWLOCATION, 1L) && set(CURLOPT_MAXREDIRS, kMostRedirects) &&
                set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds) &&
                set(CURLOPT_TIMEOUT, request.most_seconds) &&
                set(CURLOPT_LOW_SPEED_LIMIT, request.json ? 1L : kLeastPerSecond) &&
                set(CURLOPT_LOW_SPEED_TIME, request.json ? kAnswerSeconds : kStallSeconds) &&
                set(CURLOPT_HEADERFUNCTION, on_header) && set(CURLOPT_HEADERDATA, &transfer) &&
                set(CURLOPT_WRITEFUNCTION, on_body) && set(CURLOPT_WRITEDATA, &transfer) &&
                set(CURLOPT_XFERINFOFUNCTION, on_progress) &&
                set(CURLOPT_XFERINFODATA, &transfer) && set(CURLOPT_NOPROGRESS, 0L);
  if (request.from > 0) is_set = is_set && set(CURLOPT_RANGE, range.c_str());
  if (!request.token.empty()) {
    is_set = is_set && set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER)) &&
             set(CURLOPT_XOAUTH2_BEARER, request.token.c_str());
  }
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), curl_slist_free_all);
  if (request.json) {
    is_set = is_set && headers && set(CURLOPT_HTTPHEADER, headers.get()) &&
             set(CURLOPT_POSTFIELDS, request.json->c_str());
  }
  const CURLcode code = is_set ? curl_easy_perform(curl.get()) : CURLE_OUT_OF_MEMORY;
  if (code != CURLE_OK && !transfer.is_refused) {
    std::string words = *reason != 0 ? reason : curl_easy_strerror(code);
    if (!transfer.limit.empty()) words = std::move(transfer.limit);
    return in_file(Error{ErrorCode::kIo, "", std::move(words)}, request.url);
  }
  HttpReply answer;
  answer.refusal = std::move(transfer.refusal);
  answer.status = transfer.status();
  curl_header* header = nullptr;
  if (curl_easy_header(curl.get(), "X-Error-Code", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
    answer.error_code = header->value;
  return answer;
}

}  // namespace llm
