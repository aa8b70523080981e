#pragma once

#include <string>

#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/api/request_fields.h"

namespace llm {

// What the bodies of several APIs become requests by.

/// What all bodies say, but for the prompts and the number of tokens.
/// Errors: kUsage for fields that exclude each other; those of compile_structure().
Result<AnswerRequest> request_of(const RequestBody& body, const ServedModel& served);

/// Takes over what the body says of log probabilities.
/// Errors: kUsage for top_logprobs without logprobs
Status set_logprobs(RequestBody& body);

/// What an answer takes memory for besides its texts: prompts, log probabilities, what it repeats.
/// @param field  that asks for log probabilities. Errors: kUsage
Status check_cost(const AnswerRequest& request, const std::string& field);

/// What an API's requests for the reply to a conversation differ in.
struct ReplyApi {
  MakeWriter writer;
  std::string messages = "messages";  ///< the field of the conversation
  /// Where a tool has the schema of its function's arguments.
  std::string schema_place = "/function/parameters";
};
/// The reply to a conversation. Errors: kUsage, kResource
Result<AnswerRequest> reply_to(RequestBody& body, const ReplyApi& api, const ServedModel& served);

}  // namespace llm
