// In place of http_call.cpp where libcurl is not there.
#include "tools/hub/http_call.h"

namespace llm {

Result<HttpReply> http_call(const HttpCall&) {
  return Error{.code = ErrorCode::kUnsupported,
               .field = "http",
               .message = "found a build without libcurl, need libcurl for requests to servers",
               .hint = "install libcurl4-openssl-dev and build again"};
}

}  // namespace llm
