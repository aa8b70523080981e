#ifndef LLM_ENGINE_GENERATE_GENERATED_TEXT_H_
#define LLM_ENGINE_GENERATE_GENERATED_TEXT_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/generate/generate.h"
#include "engine/generate/stop_matcher.h"
#include "tokenizer/stream_decoder.h"

namespace llm {

/// The text of one run as it grows: ids to characters to what may be shown, and its clock.
class GeneratedText {
 public:
  GeneratedText(const Tokenizer& tokenizer, const GenerateOptions& options,
                const GenerateSink& sink)
      : decoder_(tokenizer, {.render_special = false,
                             .keep_invalid = false,
                             .continues_text = options.continues_text}),
        matcher_(options.stop),
        sink_(sink) {}

  /// @param n_passes  of the session so far
  void note_draw(std::size_t n_passes) {
    if (drawn_++ == 0) {
      result.first_token_seconds = seconds_since(started_);
      first_pass_ = n_passes;
    } else {
      result.token_seconds.push_back(seconds_since(last_draw_));
      result.decode_passes = n_passes - first_pass_;
    }
    last_draw_ = Clock::now();
  }

  void note_prefill(std::size_t n_tokens) {
    result.prefill_tokens = n_tokens;
    result.prefill_seconds = seconds_since(started_);
  }

  Status add(TokenId id, const Logprobs* logprobs) {
    result.ids.push_back(id);
    if (logprobs != nullptr) result.logprobs.push_back(*logprobs);
    return show(id, matcher_.push(decoder_.push(id)), logprobs);
  }

  bool stop_string_came() const { return matcher_.matched(); }

  /// Gives out what was held back for a character or a stop string that did not come.
  Status finish() {
    if (matcher_.matched()) return Ok{};
    std::string rest = matcher_.push(decoder_.flush());
    rest += matcher_.flush();
    return rest.empty() ? Status(Ok{}) : show(std::nullopt, rest, nullptr);
  }

  GenerateResult result;

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  Status show(std::optional<TokenId> id, const std::string& text, const Logprobs* logprobs) {
    result.text += text;
    if (!sink_) return Ok{};
    return sink_({.id = id, .text = text, .logprobs = logprobs});
  }

  StreamDecoder decoder_;
  StopMatcher matcher_;
  const GenerateSink& sink_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_draw_;
  std::size_t drawn_ = 0;
  std::size_t first_pass_ = 0;
};

}  // namespace llm

#endif  // LLM_ENGINE_GENERATE_GENERATED_TEXT_H_
