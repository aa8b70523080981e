#include "tools/llmserve/api/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

namespace llm {

/// The first places, of characters that a header may have.
static std::string not_enforced_text(const AnswerRequest& request) {
  constexpr std::size_t kMostPlaces = 8;
  constexpr std::size_t kMostBytes = 200;  // of each
  std::string text;
  for (std::size_t i = 0; i < std::min(request.not_enforced.size(), kMostPlaces); ++i) {
    text += i == 0 ? "" : ", ";
    for (const char c : request.not_enforced[i].substr(0, kMostBytes))
      text += c > 0x20 && c < 0x7F && c != ',' ? c : '?';
  }
  if (request.not_enforced.size() > kMostPlaces)
    text += fmt::format(" and {} more", request.not_enforced.size() - kMostPlaces);
  return text;
}

HttpAnswer answer_of(const AnswerJson& json) { return {.body = json_text(json) + "\n"}; }

HttpHeaders note_headers(const RequestNotes& notes) {
  const std::string ignored = notes.header();
  return ignored.empty() ? HttpHeaders{} : HttpHeaders{{kIgnoredHeader, ignored}};
}

HttpAnswer error_answer(int status, std::string_view message, std::string_view code,
                        HttpHeaders headers) {
  const std::string_view type = status == 429  ? "rate_limit_error"
                                : status < 500 ? "invalid_request_error"
                                               : "server_error";
  return {.status = status,
          .body = error_body(message, type, "", code) + "\n",
          .headers = std::move(headers)};
}

HttpAnswer error_answer(const Error& error) {
  const std::string text = error.to_string();
  const bool lacks_memory =
      error.code == ErrorCode::kResource && (error.field == "memory" || error.field == "threads");
  const bool is_clients = error.code == ErrorCode::kUsage || error.code == ErrorCode::kResource;
  if (lacks_memory) return error_answer(503, text, "", {{"Retry-After", "1"}});
  if (!is_clients) return {.status = 500, .body = error_body(text, "server_error") + "\n"};
  const bool is_model = error.field == "model";
  const std::string_view code = is_model                             ? "model_not_found"
                                : error.code == ErrorCode::kResource ? "context_length_exceeded"
                                                                     : "";
  return {.status = is_model ? 404 : 400,
          .body = error_body(text, "invalid_request_error", error.field, code) + "\n"};
}

HttpAnswer busy_answer() {
  return error_answer(429, "the queue is full; try again later", "queue_full",
                      {{"Retry-After", "1"}});
}

HttpAnswer failed_answer() {
  return error_answer(500, "internal error of the server; see its log");
}

void fail_exchange(HttpExchange& exchange, const std::exception& what) noexcept {
  try {
    if (dynamic_cast<const std::bad_alloc*>(&what) == nullptr)
      return exchange.answer(failed_answer());
  } catch (const std::exception&) {
  }
  exchange.give_up();
}

Answer::Answer(Context& context, Lease model, std::shared_ptr<HttpExchange> exchange,
               std::shared_ptr<const AnswerRequest> request)
    : context_(context),
      model_(std::move(model)),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      writer_(request_->writer(model_->facts, *request_)),
      texts_(request_->n_choices()) {}

std::vector<GenerationJob> Answer::jobs() {
  std::vector<GenerationJob> jobs;
  for (std::size_t i = 0; i < request_->n_choices(); ++i) {
    GenerationJob job{.request = request_->choice(i, model_->facts), .on_event = {}};
    if (context_.cache_by_key) job.request.scope = exchange_->request().authorization;
    const auto post = [weak = weak_from_this(), lost = exchange_->lost(),
                       to_server = context_.post](const auto& make_function) noexcept {
      try {
        to_server([weak, lost, function = make_function()] {
          const auto self = weak.lock();
          if (self == nullptr) return;
          if (*lost) return self->exchange_->give_up();  // what came before this is missing
          try {
            function(*self);
          } catch (const std::exception& what) {
            self->fail(what);
            throw;  // to the log
          }
        });
      } catch (const std::exception&) {
        lost->store(true);
      }
    };
    if (request_->stream) {
      job.on_event = [post, i](const GenerateEvent& event) {
        post([&] { return [i, kept = TextEvent(event)](Answer& self) { self.grow(i, kept); }; });
      };
    }
    if (request_->stream && request_->progress) {
      job.on_progress = [post, i](const PromptProgress& progress) {
        post([&] { return [i, progress](Answer& self) { self.tell_progress(i, progress); }; });
      };
    }
    job.on_end = [post, i](const Result<GenerationOutput>& text) {
      post([&] { return [i, text](Answer& self) { self.end_choice(i, text); }; });
    };
    jobs.push_back(std::move(job));
  }
  return jobs;
}

/// What a client should know of a reply that is less than what it asked for.
static void add_notes(const AnswerRequest& request, HttpHeaders& headers) {
  if (!request.not_enforced.empty())
    headers.emplace_back("x-not-enforced", not_enforced_text(request));
}

/// What was stored once and was computed again, where that took a while.
static std::string recomputed_note(std::span<const GenerationOutput> texts) {
  constexpr std::size_t kWorthTelling = 1024;  // tokens
  std::string note;
  for (const GenerationOutput& text : texts) {
    if (text.lost.n_tokens <= kWorthTelling) continue;
    note += fmt::format("; {} tokens computed again ({})", text.lost.n_tokens,
                        SequenceState::kGoneNames[static_cast<std::size_t>(text.lost.why)]);
  }
  return note;
}

void Answer::start() {
  exchange_->set_on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
  const auto submission = model_->service->submit(jobs());
  if (submission.admission == Admission::kTooLong) {
    return fail(error_answer(
        {.code = ErrorCode::kResource,
         .field = "prompt",
         .message =
             "found more tokens, with the generated ones, than fit into all KV cache pages"}));
  }
  if (submission.admission == Admission::kQueueFull) {
    exchange_->answer(busy_answer());
    return done();
  }
  is_submitted_ = true;
  first_id_ = submission.first;
  if (!request_->stream) return;
  HttpHeaders headers = note_headers(request_->notes);
  headers.insert(headers.end(), {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  add_notes(*request_, headers);
  exchange_->begin({.body = writer_->opening(),
                    .content_type = writer_->stream_type(),
                    .headers = std::move(headers)});
}

void Answer::grow(std::size_t index, const TextEvent& event) {
  if (!is_done_) exchange_->write(writer_->growth(index, event));
}

void Answer::tell_progress(std::size_t index, const PromptProgress& progress) {
  if (!is_done_) exchange_->write(writer_->progress(index, progress));
}

void Answer::end_choice(std::size_t index, const Result<GenerationOutput>& text) {
  if (is_done_) return;
  if (!text.ok()) return fail(error_answer(text.error()));
  texts_[index] = *text;
  if (context_.receipts != nullptr && !request_->embedding)
    context_.receipts->add([model = model_, request = request_, index, text = *text] {
      return receipt_of(model->facts, *request, index, text);
    });
  if (request_->stream) exchange_->write(writer_->closing(index, *text));
  if (++n_ended_ == texts_.size()) finish();
}

void Answer::finish() {
  std::size_t n_tokens = 0;
  std::string hashes;
  for (const GenerationOutput& text : texts_) {
    n_tokens += text.result.ids.size();
    hashes += (hashes.empty() ? "" : ", ") + text.logits_sha256;
  }
  std::string note = fmt::format("{}+{} tokens", writer_->prompt_tokens(), n_tokens);
  note += recomputed_note(texts_);
  if (!request_->not_enforced.empty()) note += "; not enforced: " + not_enforced_text(*request_);
  exchange_->set_note(std::move(note));
  if (!request_->stream) return write_whole(std::move(hashes));
  exchange_->write(writer_->ending());
  exchange_->end();
  done();
}

void Answer::write_whole(std::string hashes) {
  HttpHeaders headers = note_headers(request_->notes);
  add_notes(*request_, headers);
  if (request_->logits_hash) headers.emplace_back("x-logits-sha256", std::move(hashes));
  const auto texts = std::make_shared<const std::vector<GenerationOutput>>(std::move(texts_));
  const std::weak_ptr<Answer> weak = weak_from_this();
  context_.workers.take({.bytes = writer_->size_of(*texts),
                         .owner = weak,
                         .work = [weak, texts, headers, model = model_, writer = writer_,
                                  request = request_]() -> WorkerPool::Then {
                           HttpAnswer whole{.body = writer->whole(*texts), .headers = headers};
                           return [weak, kept = std::make_shared<HttpAnswer>(std::move(whole))] {
                             const auto self = weak.lock();
                             if (self == nullptr) return;
                             try {
                               self->exchange_->answer(std::move(*kept));
                               self->done();
                             } catch (const std::exception& failed) {
                               self->fail(failed);
                               throw;  // to the log
                             }
                           };
                         },
                         .failed =
                             [weak](const std::string& what) {
                               if (const auto self = weak.lock()) self->fail(failed_answer());
                               throw std::runtime_error(what);  // to the log
                             },
                         .lost = exchange_->lost()});
}

void Answer::fail(const HttpAnswer& answer) {
  cancel();
  if (request_->stream && is_submitted_) {
    exchange_->write(writer_->failure(answer.body));
    exchange_->end();
  } else {
    exchange_->answer(answer);
  }
}

void Answer::fail(const std::exception& what) noexcept {
  const auto kept = shared_from_this();
  try {
    if (dynamic_cast<const std::bad_alloc*>(&what) == nullptr) return fail(failed_answer());
  } catch (const std::exception&) {
  }
  exchange_->give_up();
}

void Answer::cancel() {
  const auto kept = shared_from_this();
  done();
  if (is_submitted_) model_->service->cancel(first_id_, request_->n_choices());
}

void Answer::done() {
  if (std::exchange(is_done_, true)) return;
  context_.on_done(shared_from_this());
}

}  // namespace llm
