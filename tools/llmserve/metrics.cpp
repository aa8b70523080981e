#include "tools/llmserve/metrics.h"

#include <fmt/format.h>

namespace llm {
namespace {

class MetricsWriter {
 public:
  void gauge(std::string_view name, std::string_view help, std::size_t value) {
    head(name, help, "gauge");
    text_ += fmt::format("llmserve_{} {}\n", name, value);
  }
  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    head(name, help, "counter");
    text_ += fmt::format("llmserve_{} {}\n", name, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    head(name, help, "histogram");
    std::uint64_t so_far = 0;
    for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
      so_far += histogram.counts()[i];
      const bool is_last = i == histogram.limits().size();
      const std::string limit = is_last ? "+Inf" : fmt::format("{}", histogram.limits()[i]);
      text_ += fmt::format("llmserve_{}_bucket{{le=\"{}\"}} {}\n", name, limit, so_far);
    }
    text_ += fmt::format("llmserve_{0}_sum {1}\nllmserve_{0}_count {2}\n", name, histogram.sum(),
                         so_far);
  }
  void answers(const HttpFigures& http) {
    head("http_answers_total", "Answers sent, by status; 499: the client went before", "counter");
    for (const auto& [status, count] : http.answers)
      text_ += fmt::format("llmserve_http_answers_total{{status=\"{}\"}} {}\n", status, count);
  }
  std::string text() && { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP llmserve_{0} {1}\n# TYPE llmserve_{0} {2}\n", name, help, type);
  }

  std::string text_;
};

}  // namespace

std::string metrics_text(const ServiceFigures& s, const HttpFigures& http) {
  MetricsWriter w;
  w.gauge("texts_running", "Texts that are generated now", s.running);
  w.gauge("texts_waiting", "Texts in the queue", s.waiting);
  w.counter("texts_finished_total", "Texts generated to their end", s.finished);
  w.counter("texts_failed_total", "Texts that ended with an error", s.failed);
  w.counter("texts_cancelled_total", "Texts whose client went", s.cancelled);
  w.counter("prompt_tokens_total", "Tokens of prompts", s.prompt_tokens);
  w.counter("generated_tokens_total", "Tokens generated", s.generated_tokens);
  w.counter("proposed_tokens_total", "Tokens evaluated on trial", s.proposed_tokens);
  w.counter("accepted_tokens_total", "Of those, the ones that texts went on with",
            s.accepted_tokens);
  w.counter("evaluated_tokens_total", "Tokens evaluated, again after a preemption",
            s.evaluated_tokens);
  w.counter("steps_total", "Evaluations of some tokens of all running texts", s.steps);
  w.counter("preemptions_total", "Times a text gave its KV pages to an older one", s.preemptions);
  w.gauge("kv_pages", "KV pages of 256 positions", s.kv_pages);
  w.gauge("kv_pages_in_use", "KV pages that texts hold", s.kv_pages_in_use);
  w.counter("kv_pages_shared_total", "Times a page of equal tokens was taken over",
            s.kv_pages_shared);
  w.histogram("step_texts", "Texts evaluated together", s.step_texts);
  w.histogram("time_to_first_token_seconds", "From a request to its first token",
              s.first_token_seconds);
  w.histogram("time_between_tokens_seconds", "Between neighbouring tokens of a text",
              s.between_tokens_seconds);
  w.gauge("http_connections", "Open connections", http.connections);
  w.answers(http);
  return std::move(w).text();
}

}  // namespace llm
