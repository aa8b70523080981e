#include "validate/remote_server/serving_hypothesis.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/generation/chat_style.h"
#include "validate/remote_server/kv_filters.h"

namespace llm {
namespace {

void add_templates(const Model& model, std::vector<ServingHypothesis>& ways) {
  if (model.chat_template().empty()) return;
  for (const auto name : ChatStyle::built_in()) {
    const std::string text(ChatStyle::built_in_text(name));
    if (text == model.chat_template()) continue;
    ways.push_back(
        {.name = fmt::format("a different chat template: {}", name), .template_text = text});
  }
  ways.push_back({.name = "no chat template: the bare message", .template_text = ""});
  ways.push_back({.name = "a different chat template: roles as words",
                  .template_text = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                                   "{% endfor %}assistant:"});
  ways.push_back({.name = "chat template: nothing asks for the reply", .asks = false});
  for (const char* system : {"", "You are a helpful assistant.", "You are a helpful assistant"}) {
    ways.push_back({.name = fmt::format("a system message added by the server: \"{}\"", system),
                    .system = system});
  }
}

ServingHypothesis with_base(float base, float own) {
  return {.name = fmt::format("RoPE base {:.6g} instead of {:.6g}", base, own), .rope_base = base};
}
ServingHypothesis with_factor(double factor) {
  return {.name = fmt::format("RoPE scale: positions divided by {:.4g}", factor),
          .rope_factor = factor};
}
ServingHypothesis with_eps(float eps, float own) {
  return {.name = fmt::format("RMSNorm's eps {:.4g} instead of {:.4g}", eps, own), .norm_eps = eps};
}

float own_base(const Model& model) {
  return model.config().ropes.empty() ? 0 : model.config().ropes.front().theta;
}

void add_numbers(const Model& model, std::vector<ServingHypothesis>& ways) {
  const HyperParameters& config = model.config();
  const float own = own_base(model);
  for (const float base : {1e4F, 1e5F, 5e5F, 1e6F, own / 2, own * 2})
    if (base != own && own > 0) ways.push_back(with_base(base, own));
  for (const double factor : {0.25, 0.5, 2.0, 4.0, 8.0})
    if (own > 0) ways.push_back(with_factor(factor));
  for (const float eps : {1e-6F, 1e-5F, 1e-4F, 1e-3F})
    if (eps != config.norm_eps) ways.push_back(with_eps(eps, config.norm_eps));
  if (std::ranges::any_of(config.layers, [](const LayerSpec& one) { return one.window() > 0; }))
    ways.push_back({.name = "sliding window ignored", .has_windows = false});
}

}  // namespace

bool ServingHypothesis::concerns(QuestionKind kind) const {
  const bool is_chat = kind == QuestionKind::kChat;
  if (template_text || system || !asks) return is_chat;
  if (bos != 0) return chat_too || !is_chat;
  if (cut != Cut::kNone || !has_windows) return kind == QuestionKind::kLong;
  return true;
}

std::shared_ptr<const Model> ServingHypothesis::model(
    const std::shared_ptr<const Model>& plain) const {
  if (!rope_base && rope_factor == 1 && !norm_eps && has_windows) return plain;
  return plain->with_numbers([this](HyperParameters& config) {
    config.norm_eps = norm_eps.value_or(config.norm_eps);
    for (RopeSpec& rope : config.ropes) {
      rope.theta = rope_base.value_or(rope.theta);
      rope.scale *= static_cast<float>(rope_factor);
    }
    for (LayerSpec& layer : config.layers)
      if (!has_windows && layer.attention() != nullptr) layer.attention()->window = 0;
  });
}

Result<std::vector<TokenId>> ServingHypothesis::chat(const Model& model,
                                                     const JudgeQuestion& question) const {
  const Tokenizer& tokenizer = model.tokenizer();
  if (template_text && template_text->empty())
    return tokenizer.encode(question.text, {.add_eos = false});
  LLM_TRY(const auto style,
          ChatStyle::create("", template_text.value_or(model.chat_template()), tokenizer));
  OrderedJson messages = OrderedJson::array();
  const auto& told = question.system ? question.system : system;
  if (told) messages.push_back(chat_message("system", *told));
  messages.push_back(chat_message("user", question.text));
  const auto parts = style->render(std::move(messages), {}, OrderedJson::object(), asks);
  if (!parts.ok()) return std::vector<TokenId>{};  // a template that refuses system messages
  return style->encode(*parts, true);
}

Result<std::vector<TokenId>> ServingHypothesis::prompt(const Model& model,
                                                       const JudgeQuestion& question,
                                                       const JudgeAnswer& answer) const {
  const VocabSpec& spec = model.tokenizer().spec();
  std::vector<TokenId> ids;
  if (question.kind == QuestionKind::kChat) {
    LLM_TRY(ids, chat(model, question));
  } else {
    ids = model.tokenizer().encode(question.text, {.add_eos = false});
  }
  const bool has_bos = !ids.empty() && spec.bos && spec.add_bos && ids.front() == *spec.bos;
  if (concerns(question.kind) && bos > 0) ids.insert(ids.begin(), *spec.bos);
  if (concerns(question.kind) && bos < 0 && has_bos) ids.erase(ids.begin());
  const std::size_t n = answer.prompt_tokens.value_or(ids.size());
  if (cut == Cut::kNone || !concerns(question.kind) || n >= ids.size() || n < 2) return ids;
  if (cut == Cut::kEnd) ids.resize(n);
  if (cut == Cut::kFront)
    ids.erase(ids.begin() + (has_bos ? 1 : 0),
              ids.end() - static_cast<std::ptrdiff_t>(n - has_bos));
  return ids;
}

std::vector<ServingHypothesis> served_otherwise(const Model& model) {
  std::vector<ServingHypothesis> ways;
  const VocabSpec& spec = model.tokenizer().spec();
  if (spec.bos) {
    const std::string added = spec.add_bos ? "BOS twice" : "BOS added";
    ways.push_back({.name = added + " in front of plain prompts", .bos = 1, .chat_too = false});
    ways.push_back({.name = added, .bos = 1});
    if (spec.add_bos) {
      ways.push_back({.name = "BOS absent from plain prompts", .bos = -1, .chat_too = false});
      ways.push_back({.name = "BOS absent", .bos = -1});
    }
  }
  add_templates(model, ways);
  add_numbers(model, ways);
  ways.push_back(
      {.name = "prompt cut: its front is missing", .cut = ServingHypothesis::Cut::kFront});
  ways.push_back({.name = "prompt cut: its end is missing", .cut = ServingHypothesis::Cut::kEnd});
  for (const KvFilterRow& row : kKvFilters)
    ways.push_back(
        {.name = fmt::format("keys and values quantized: {}", row.name), .kv_filter = row.filter});
  return ways;
}

std::optional<ServingHypothesis> with_number(const ServingHypothesis& way, const Model& model,
                                             double factor) {
  const auto times = [factor](float number) {
    return static_cast<float>(static_cast<double>(number) * factor);
  };
  if (way.rope_base) return with_base(times(*way.rope_base), own_base(model));
  if (way.norm_eps) return with_eps(times(*way.norm_eps), model.config().norm_eps);
  if (way.rope_factor != 1) return with_factor(way.rope_factor * factor);
  return std::nullopt;
}

}  // namespace llm
