#include "tools/llmserve/metrics.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

namespace llm {
namespace {

/// As a label's value.
std::string label_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + '"';
}

class MetricsWriter {
 public:
  explicit MetricsWriter(std::span<const ModelFigures> models) : models_(models) {}

  /// A figure of each model. @param of  it, or nothing
  void of_models(std::string_view name, std::string_view type, std::string_view help,
                 const std::function<std::optional<std::uint64_t>(const ModelFigures&)>& of) {
    head(name, help, type);
    for (const ModelFigures& model : models_) {
      if (const auto value = of(model))
        text_ += fmt::format("llmserve_{}{{model={}}} {}\n", name, label_text(model.id), *value);
    }
  }
  template <typename T>
  void of_services(std::string_view name, std::string_view type, std::string_view help,
                   T ServiceFigures::*figure) {
    of_models(name, type, help, [figure](const ModelFigures& model) {
      return model.service ? std::optional<std::uint64_t>((*model.service).*figure) : std::nullopt;
    });
  }
  template <typename T>
  void gauge(std::string_view name, std::string_view help, T ServiceFigures::*figure) {
    of_services(name, "gauge", help, figure);
  }
  template <typename T>
  void counter(std::string_view name, std::string_view help, T ServiceFigures::*figure) {
    of_services(name, "counter", help, figure);
  }
  void histogram(std::string_view name, std::string_view help, Histogram ServiceFigures::*figure) {
    head(name, help, "histogram");
    for (const ModelFigures& model : models_) {
      if (model.service) add(name, label_text(model.id), (*model.service).*figure);
    }
  }
  void recomputed() {
    head("recomputed_tokens_total", "Tokens that had been in the KV cache and were computed again",
         "counter");
    for (const ModelFigures& model : models_) {
      for (std::size_t why = 0; model.service && why < SequenceState::kGoneNames.size(); ++why) {
        text_ += fmt::format("llmserve_recomputed_tokens_total{{model={},reason=\"{}\"}} {}\n",
                             label_text(model.id), SequenceState::kGoneNames[why],
                             model.service->recomputed_tokens[why]);
      }
    }
  }
  void http(const HttpFigures& http) {
    single("http_connections", "gauge", "Open connections", http.connections);
    head("http_answers_total", "Responses, by status; 499: the client disconnected before",
         "counter");
    for (const auto& [status, count] : http.answers)
      text_ += fmt::format("llmserve_http_answers_total{{status=\"{}\"}} {}\n", status, count);
  }
  void receipts(const ReceiptFigures& figures) {
    single("receipts_logged_total", "counter", "Receipts written to the log", figures.logged);
    single("receipts_lost_total", "counter", "Receipts that could not be written; its log says why",
           figures.lost);
  }
  std::string text() && { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP llmserve_{0} {1}\n# TYPE llmserve_{0} {2}\n", name, help, type);
  }
  void single(std::string_view name, std::string_view type, std::string_view help,
              std::uint64_t value) {
    head(name, help, type);
    text_ += fmt::format("llmserve_{} {}\n", name, value);
  }
  void add(std::string_view name, const std::string& model, const Histogram& histogram) {
    std::uint64_t so_far = 0;
    for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
      so_far += histogram.counts()[i];
      const bool is_last = i == histogram.limits().size();
      const std::string limit = is_last ? "+Inf" : fmt::format("{}", histogram.limits()[i]);
      text_ +=
          fmt::format("llmserve_{}_bucket{{model={},le=\"{}\"}} {}\n", name, model, limit, so_far);
    }
    text_ += fmt::format("llmserve_{0}_sum{{model={1}}} {2}\nllmserve_{0}_count{{model={1}}} {3}\n",
                         name, model, histogram.sum(), so_far);
  }

  std::span<const ModelFigures> models_;
  std::string text_;
};

}  // namespace

std::string metrics_text(std::span<const ModelFigures> models, const HttpFigures& http,
                         const std::optional<ReceiptFigures>& receipts) {
  using Figures = ServiceFigures;
  MetricsWriter w(models);
  w.of_models("model_loads_total", "counter", "Times a model was loaded",
              [](const ModelFigures& model) { return model.n_loads; });
  w.of_models("model_bytes", "gauge", "Approximate memory of a model; 0: it is not loaded",
              [](const ModelFigures& model) { return model.bytes; });
  w.gauge("texts_running", "Running requests", &Figures::running);
  w.gauge("texts_waiting", "Waiting requests", &Figures::waiting);
  w.counter("texts_finished_total", "Finished requests", &Figures::finished);
  w.counter("texts_failed_total", "Requests that ended with an error", &Figures::failed);
  w.counter("texts_cancelled_total", "Requests whose client disconnected", &Figures::cancelled);
  w.counter("prompt_tokens_total", "Tokens of prompts", &Figures::prompt_tokens);
  w.counter("generated_tokens_total", "Tokens generated", &Figures::generated_tokens);
  w.counter("proposed_tokens_total", "Proposed tokens that were evaluated",
            &Figures::proposed_tokens);
  w.counter("accepted_tokens_total", "Proposed tokens that were accepted",
            &Figures::accepted_tokens);
  w.counter("evaluated_tokens_total", "Tokens evaluated, of prompts and generated",
            &Figures::evaluated_tokens);
  w.counter("reused_tokens_total", "Tokens that were reused from the KV cache",
            &Figures::reused_tokens);
  w.counter("loaded_tokens_total", "Reused tokens that came from --cache-dir",
            &Figures::loaded_tokens);
  w.recomputed();
  w.counter("steps_total", "Steps: forward passes with tokens of the running requests",
            &Figures::steps);
  w.counter("preemptions_total", "Preemptions of a request", &Figures::preemptions);
  w.gauge("kv_pages", "KV pages of 256 positions", &Figures::kv_pages);
  w.gauge("kv_pages_in_use", "KV pages in use", &Figures::kv_pages_in_use);
  w.counter("kv_pages_shared_total", "Times a KV page with equal tokens was reused",
            &Figures::kv_pages_shared);
  w.histogram("step_texts", "Requests in a step", &Figures::step_texts);
  w.histogram("time_to_first_token_seconds",
              "Time from the arrival of a request to its first token",
              &Figures::first_token_seconds);
  w.histogram("time_between_tokens_seconds", "Time between tokens of a request",
              &Figures::between_tokens_seconds);
  w.http(http);
  if (receipts) w.receipts(*receipts);
  return std::move(w).text();
}

}  // namespace llm
