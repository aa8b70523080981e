#include "tools/llmserve/answer.h"

#include <fmt/format.h>

#include <utility>

namespace llm {

HttpAnswer error_answer(int status, std::string_view message, std::string_view code) {
  const std::string_view type = status == 429  ? "rate_limit_error"
                                : status < 500 ? "invalid_request_error"
                                               : "server_error";
  return {.status = status, .body = error_body(message, type, "", code) + "\n"};
}

HttpAnswer error_answer(const Error& error) {
  const std::string text = error.to_string();
  const bool is_clients = error.code == ErrorCode::kUsage || error.code == ErrorCode::kResource;
  if (!is_clients || error.field == "memory")
    return {.status = 500, .body = error_body(text, "server_error") + "\n"};
  const bool is_model = error.field == "model";
  const std::string_view code = is_model                             ? "model_not_found"
                                : error.code == ErrorCode::kResource ? "context_length_exceeded"
                                                                     : "";
  return {.status = is_model ? 404 : 400,
          .body = error_body(text, "invalid_request_error", error.field, code) + "\n"};
}

Answer::Answer(Context& context, std::shared_ptr<HttpExchange> exchange, AnswerRequest request)
    : context_(context),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      writer_(context.served, request_),
      texts_(request_.n_choices()) {}

std::vector<TextJob> Answer::jobs() {
  std::vector<TextJob> jobs;
  for (std::size_t i = 0; i < request_.n_choices(); ++i) {
    TextJob job{.request = request_.choice(i, context_.served), .on_event = {}};
    const auto post = [weak = weak_from_this(), to_server = context_.post](auto function) {
      to_server([weak, function = std::move(function)] {
        if (const auto self = weak.lock()) function(*self);
      });
    };
    if (request_.stream) {
      job.on_event = [post, i](const GenerateEvent& event) {
        TextEvent kept{event.id, std::string(event.text), std::nullopt};
        if (event.logprobs != nullptr) kept.logprobs = *event.logprobs;
        post([i, kept = std::move(kept)](Answer& self) { self.grow(i, kept); });
      };
    }
    job.on_end = [post, i](const Result<ServedText>& text) {
      post([i, text](Answer& self) { self.end_choice(i, text); });
    };
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void Answer::start() {
  const std::size_t most = context_.service.capacity();
  if (request_.n_choices() > most) {
    return fail({.code = ErrorCode::kUsage,
                 .field = request_.prompts.size() > most ? "prompt" : "n",
                 .message = fmt::format("found {} texts to generate, need at most {}",
                                        request_.n_choices(), most)});
  }
  const auto submission = context_.service.submit(jobs());
  if (submission.admission == Admission::kTooLong) {
    return fail({.code = ErrorCode::kResource,
                 .field = "prompt",
                 .message = "found more tokens, with the new ones, than all KV pages hold"});
  }
  if (submission.admission == Admission::kQueueFull) {
    HttpAnswer busy = error_answer(429, "the queue is full; try again later", "queue_full");
    busy.headers.emplace_back("Retry-After", "1");
    exchange_->answer(std::move(busy));
    return done();
  }
  is_submitted_ = true;
  first_id_ = submission.first;
  exchange_->set_on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
  if (!request_.stream) return;
  exchange_->begin({.body = writer_.opening(),
                    .content_type = "text/event-stream",
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

void Answer::grow(std::size_t index, const TextEvent& event) {
  if (!is_done_) exchange_->write(writer_.growth(index, event));
}

void Answer::end_choice(std::size_t index, const Result<ServedText>& text) {
  if (is_done_) return;
  if (!text.ok()) return fail(text.error());
  texts_[index] = *text;
  if (request_.stream) exchange_->write(writer_.closing(index, *text));
  if (++n_ended_ == texts_.size()) finish();
}

void Answer::finish() {
  std::size_t n_tokens = 0;
  std::string hashes;
  for (const ServedText& text : texts_) {
    n_tokens += text.result.ids.size();
    hashes += (hashes.empty() ? "" : ", ") + text.logits_sha256;
  }
  exchange_->set_note(fmt::format("{}+{} tokens", writer_.prompt_tokens(), n_tokens));
  if (request_.stream) {
    exchange_->write(writer_.ending());
    exchange_->end();
  } else {
    HttpAnswer answer{.body = writer_.whole(texts_)};
    if (request_.logits_hash) answer.headers.emplace_back("x-logits-sha256", hashes);
    exchange_->answer(std::move(answer));
  }
  done();
}

void Answer::fail(const Error& error) {
  const HttpAnswer answer = error_answer(error);
  cancel();
  if (request_.stream && is_submitted_) {
    exchange_->write(AnswerWriter::failure(answer.body));
    exchange_->end();
  } else {
    exchange_->answer(answer);
  }
}

void Answer::cancel() {
  if (is_submitted_) context_.service.cancel(first_id_, texts_.size());
  done();
}

void Answer::done() {
  if (std::exchange(is_done_, true)) return;
  context_.on_done(shared_from_this());
}

}  // namespace llm
