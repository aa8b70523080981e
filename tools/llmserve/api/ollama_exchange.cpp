#include "tools/llmserve/api/ollama_exchange.h"

#include <utility>

#include "base/json.h"

namespace llm {
namespace {

/// An exchange whose errors have Ollama's shape.
class OllamaExchange final : public HttpExchange {
 public:
  explicit OllamaExchange(std::shared_ptr<HttpExchange> exchange)
      : exchange_(std::move(exchange)) {}
  const HttpRequest& request() const override { return exchange_->request(); }
  std::string take_body() override { return exchange_->take_body(); }
  void answer(HttpAnswer answer) override {
    exchange_->answer(answer.status < 400 ? std::move(answer)
                                          : in_ollamas_shape(std::move(answer)));
  }
  void begin(HttpAnswer head) override { exchange_->begin(std::move(head)); }
  void write(std::string_view data) override { exchange_->write(data); }
  void end() override { exchange_->end(); }
  void set_on_gone(std::function<void()> on_gone) override {
    exchange_->set_on_gone(std::move(on_gone));
  }
  void set_note(std::string note) override { exchange_->set_note(std::move(note)); }
  void give_up() noexcept override { exchange_->give_up(); }
  Lost lost() const override { return exchange_->lost(); }

 private:
  std::shared_ptr<HttpExchange> exchange_;
};

}  // namespace

bool is_ollamas(std::string_view path) { return path.starts_with("/api/"); }

HttpAnswer in_ollamas_shape(HttpAnswer answer) {
  const OrderedJson body = parse_ordered_json(answer.body);
  const bool is_error = answer.status >= 400 && body.is_object() && body.contains("error") &&
                        body["error"].is_object();
  if (is_error)
    answer.body = json_text(OrderedJson{{"error", body["error"].value("message", "")}}) + "\n";
  return answer;
}

std::shared_ptr<HttpExchange> with_ollamas_errors(std::shared_ptr<HttpExchange> exchange) {
  return std::make_shared<OllamaExchange>(std::move(exchange));
}

}  // namespace llm
