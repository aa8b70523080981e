#include "tools/hub/http_call.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace llm {
namespace {

constexpr long kConnectSeconds = 20;
constexpr long kStallSeconds = 60;
constexpr long kAnswerSeconds = 600;
constexpr std::size_t kMostRefusal = 4096;
constexpr long kMostRedirects = 10;

/// What a transfer's callbacks, which C calls, work on.
struct Transfer {
  const HttpCall& request;
  CURL* curl;
  std::uint64_t received = 0;
  std::string refusal = {};
};

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) noexcept {
  auto& transfer = *static_cast<Transfer*>(user);
  long status = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
  const bool is_refused = status != 200 && status != 206;
  const std::uint64_t offset = (status == 206 ? transfer.request.from : 0) +
                               std::exchange(transfer.received, transfer.received + size);
  try {
    if (is_refused) {
      transfer.refusal.append(data, std::min(size, kMostRefusal - transfer.refusal.size()));
      return size;
    }
    return transfer.request.take(offset, std::as_bytes(std::span(data, size))) ? size : 0;
  } catch (...) {
    return 0;
  }
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
                set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds) && set(CURLOPT_LOW_SPEED_LIMIT, 1L) &&
                set(CURLOPT_LOW_SPEED_TIME, request.json ? kAnswerSeconds : kStallSeconds) &&
                set(CURLOPT_WRITEFUNCTION, on_body) && set(CURLOPT_WRITEDATA, &transfer);
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
  if (code != CURLE_OK) {
    return in_file(Error{ErrorCode::kIo, "", *reason != 0 ? reason : curl_easy_strerror(code)},
                   request.url);
  }
  HttpReply answer;
  answer.refusal = std::move(transfer.refusal);
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  curl_header* header = nullptr;
  if (curl_easy_header(curl.get(), "X-Error-Code", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
    answer.error_code = header->value;
  return answer;
}

}  // namespace llm
