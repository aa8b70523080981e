// In place of http_get.cpp where libcurl is not there.
#include "tools/hub/http_get.h"

namespace llm {

Result<HttpAnswer> http_get(const HttpRequest&) {
  return Error{.code = ErrorCode::kUnsupported,
               .field = "http",
               .message = "found a build without libcurl, which alone asks servers here",
               .hint = "install libcurl4-openssl-dev and build anew"};
}

}  // namespace llm
