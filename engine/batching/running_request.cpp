#include "engine/batching/running_request.h"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "base/check.h"
#include "engine/forward/nonfinite_finder.h"

namespace llm {

RunningRequest::RunningRequest(const Model& model, GenerationRequest request, std::size_t n_new,
                               OnEvent on_event, std::unique_ptr<Speculation> speculation)
    : request_(std::move(request)),
      hashes_(request_.hash_logits || request_.hash_drawn),
      text_(model.tokenizer(), request_.options, sink_),
      tokens_(request_.prompt),
      speculation_(hashes_ ? nullptr : std::move(speculation)),
      row_size_(request_.embedding ? model.config().d_model : model.config().n_vocab),
      most_tokens_(tokens_.size() + n_new),
      next_row_(request_.hash_logits || request_.prompt_logprobs ? 0 : tokens_.size() - 1),
      rows_end_(hashes_                    ? std::numeric_limits<std::size_t>::max()
                : request_.prompt_logprobs ? tokens_.size() - 1
                                           : 0),
      hash_(row_size_, tokens_.size() - 1, next_row_),
      embedding_(request_.embedding.value_or(EmbeddingOptions{})) {
  LLM_CHECK(!tokens_.empty() && request_.options.max_tokens.has_value());
  if (request_.embedding) {
    LLM_CHECK(request_.options.max_tokens == 0 && rows_end_ == 0);
    next_row_ = embedding_.first_position(tokens_.size());
    rows_end_ = tokens_.size();
  }
  if (!on_event) return;
  sink_ = [on_event = std::move(on_event)](const GenerateEvent& event) -> Status {
    on_event(event);
    return Ok{};
  };
}

std::size_t RunningRequest::most_new_tokens(const GenerationRequest& request, std::size_t context) {
  const std::size_t drawn = *request.options.max_tokens;
  if (drawn == 0) return 1;  // one row of logits, from which nothing is drawn
  // The last token is evaluated for the hash alone, where it has a position.
  const bool evaluates_last = (request.hash_logits || request.hash_drawn) &&
                              drawn < Scheduler::most_new(context, request.prompt.size());
  return drawn + (evaluates_last ? 1 : 0);
}

BatchRunner::Rows RunningRequest::rows_of(const StepPart& part) const {
  const std::size_t end = part.first + part.n_tokens;
  const LogitRows which = next_row_ >= std::min(end, rows_end_) ? LogitRows::kNone
                          : next_row_ == end - 1                ? LogitRows::kLast
                                                                : LogitRows::kAll;
  return {which, request_.embedding.has_value()};
}

std::size_t RunningRequest::n_skippable() const {
  return std::min(next_row_ < rows_end_ ? next_row_ : tokens_.size(), tokens_.size() - 1);
}

void RunningRequest::note_adopted(std::size_t begin, std::size_t end) {
  const std::size_t first = std::max(begin, stored_);  // its own, after a preemption, do not count
  if (end <= first) return;
  if (text_.result.ids.empty()) n_cached_ += end - first;
  stored_ = end;
}

void RunningRequest::take(const StepPart& part, std::span<const float> rows) {
  if (part.n_proposed == 0) {  // those of an earlier step
    ahead_.clear();
    n_accepted_ = 0;
  }
  LLM_CHECK(part.n_proposed == ahead_.size());
  tokens_.resize(tokens_.size() - ahead_.size());
  const std::size_t end = part.first + part.n_tokens + part.n_proposed;
  taken_ = take_new_rows(rows, end - rows.size() / row_size_);
  if (!taken_.ok() || !part.wants_logits || request_.embedding) return;
  rows_ = rows.last((1 + ahead_.size()) * row_size_);
  taken_ = text_.draw(rows_.first(row_size_), tokens_, tokens_.size());
}

std::size_t RunningRequest::propose(const SequenceState* state, std::size_t most) {
  n_accepted_ = 0;
  ahead_.clear();
  if (speculation_ == nullptr) return 0;
  ahead_ = text_.propose(*speculation_, tokens_, state, tokens_.size(), most);
  tokens_.insert(tokens_.end(), ahead_.begin(), ahead_.end());
  text_.result.proposed += ahead_.size();
  return ahead_.size();
}

void RunningRequest::note_step(double seconds) {
  if (speculation_ == nullptr) return;
  speculation_->note({.proposed = ahead_.size(),
                      .accepted = n_accepted_,
                      .refuted = n_accepted_ < ahead_.size() && !text_.has_ended(),
                      .seconds = seconds});
}

Result<bool> RunningRequest::advance(const StepPart& part, std::size_t n_passes) {
  LLM_RETURN_IF_ERROR(std::exchange(taken_, Ok{}));
  if (!part.wants_logits) return false;
  if (text_.has_ended()) return true;
  if (text_.result.ids.empty()) text_.note_prefill(request_.prompt.size());
  LLM_RETURN_IF_ERROR(text_.advance(tokens_, n_passes));
  while (!text_.has_ended() && n_accepted_ < ahead_.size() &&
         tokens_.back() == ahead_[n_accepted_]) {
    ++n_accepted_;
    ++text_.result.accepted;
    const auto row = rows_.subspan(n_accepted_ * row_size_, row_size_);
    LLM_RETURN_IF_ERROR(text_.draw(row, tokens_, tokens_.size()));
    LLM_RETURN_IF_ERROR(text_.advance(tokens_, n_passes));
  }
  if (!text_.has_ended()) return false;
  LLM_RETURN_IF_ERROR(text_.finish());
  // The hash lacks the row of the last token, which is evaluated next.
  return !(hashes_ && next_row_ < tokens_.size() && tokens_.size() < most_tokens_);
}

Status RunningRequest::take_new_rows(std::span<const float> rows, std::size_t first) {
  const std::size_t end = first + rows.size() / row_size_;
  for (; next_row_ < std::min(end, rows_end_); ++next_row_) {
    LLM_CHECK(next_row_ >= first);
    const auto row = rows.subspan((next_row_ - first) * row_size_, row_size_);
    if (const std::size_t at = first_nonfinite(row); at < row.size()) {
      return Error{ErrorCode::kNonFinite, request_.embedding ? "result_norm" : "logits",
                   fmt::format("position {}: found {} for {} {}, need finite numbers", next_row_,
                               row[at], request_.embedding ? "dimension" : "token", at)};
    }
    if (request_.embedding) embedding_.add(row);
    if (hashes_) hash_.add(row);
    if (request_.prompt_logprobs && next_row_ + 1 < request_.prompt.size()) {
      prompt_logprobs_.push_back(
          logprobs_of(row, tokens_[next_row_ + 1], request_.options.logprobs.value_or(0)));
    }
  }
  return Ok{};
}

GenerationOutput RunningRequest::finish() && {
  LLM_CHECK(text_.has_ended());
  return {.result = std::move(text_.result),
          .prompt_logprobs = std::move(prompt_logprobs_),
          .end_logprobs = std::move(text_.end_logprobs),
          .logits_sha256 = request_.hash_logits ? hash_.all() : "",
          .drawn_logits_sha256 = hashes_ ? hash_.drawn() : "",
          .embedding = request_.embedding ? embedding_.result() : std::vector<float>(),
          .cached_tokens = n_cached_,
          .lost = lost_};
}

}  // namespace llm
