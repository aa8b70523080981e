#include "engine/generation/chat_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "engine/chat/call_reader.h"

namespace llm {
namespace {

struct BuiltIn {
  std::string_view name;
  std::string_view jinja;
  std::array<std::string_view, 3> tokens;  ///< markers that its models have as tokens
};

// A system message of the first user's turn, as Llama 2 and Gemma have it.
#define LLM_SPLIT_SYSTEM(before, after)                                             \
  "{% set first = '' %}{% if messages[0].role == 'system' %}{% set first = " before \
  " ~ messages[0].content ~ " after " %}{% set messages = messages[1:] %}{% endif %}"

/// In our own words. Sources: the templates of Zephyr and TinyLlama-1.1B-Chat, Llama-2-7b-chat-hf,
/// Meta-Llama-3-8B-Instruct, Mistral-Nemo-Instruct-2407 and gemma-3; ChatML.
constexpr std::array<BuiltIn, 6> kBuiltIn = {{
    {"chatml",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{{ '\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}{% endif %}",
     {"<|im_start|>", "<|im_end|>"}},
    {"zephyr",
     "{% for m in messages %}<|{{ m.role }}|>{{ '\\n' ~ m.content }}</s>{{ '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}{% endif %}",
     {"</s>"}},
    {"llama2",
     LLM_SPLIT_SYSTEM("'<<SYS>>\\n'",
                      "'\\n<</SYS>>\\n\\n'") "{% for m in messages %}{% if m.role == 'assistant' "
                                             "%} {{ m.content | trim }} </s>"
                                             "{% if not loop.last or add_generation_prompt %}<s>{% "
                                             "endif %}{% else %}"
                                             "[INST] {{ ((first if loop.first else '') ~ "
                                             "m.content) | trim }} [/INST]{% endif %}"
                                             "{% endfor %}",
     {"<s>", "</s>"}},
    {"llama3",
     "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ '\\n\\n' }}"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
     "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}{% endif %}",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"mistral-nemo",
     LLM_SPLIT_SYSTEM(
         "''",
         "'\\n\\n'") "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}</s>{% "
                     "else %}"
                     "[INST]{{ first if loop.last }}{{ m.content }}[/INST]{% endif %}{% endfor %}",
     {"[INST]", "[/INST]", "</s>"}},
    {"gemma",
     LLM_SPLIT_SYSTEM(
         "''",
         "'\\n\\n'") "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' "
                     "else m.role }}\n"
                     "{{ first if loop.first }}{{ m.content | trim }}<end_of_turn>{{ '\\n' }}{% "
                     "endfor %}"
                     "{% if add_generation_prompt %}<start_of_turn>model{{ '\\n' }}{% endif %}",
     {"<start_of_turn>", "<end_of_turn>"}},
}};
#undef LLM_SPLIT_SYSTEM

const BuiltIn* find_built_in(std::string_view name) {
  const auto* at = std::ranges::find(kBuiltIn, name, &BuiltIn::name);
  return at == kBuiltIn.end() ? nullptr : at;
}

std::string hash_of(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

/// The text before and behind the message of that number; nothing where it did not come out.
struct Around {
  std::string before;
  std::string behind;
};
std::optional<Around> around(const std::vector<ChatPart>& parts, std::size_t message) {
  const auto at = std::ranges::find(parts, std::optional(message), &ChatPart::message);
  if (at == parts.end()) return std::nullopt;
  return Around{chat_text({parts.begin(), at}), chat_text({at + 1, parts.end()})};
}

}  // namespace

OrderedJson chat_message(std::string_view role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

std::vector<std::string_view> ChatStyle::built_in() {
  std::vector<std::string_view> names;
  for (const BuiltIn& one : kBuiltIn) names.push_back(one.name);
  return names;
}

std::string_view ChatStyle::built_in_text(std::string_view name) {
  LLM_CHECK(find_built_in(name) != nullptr);
  return find_built_in(name)->jinja;
}

bool ChatStyle::is_name(std::string_view name) {
  const bool is_hash =
      name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return is_hash || find_built_in(name) != nullptr;
}

ChatStyle::ChatStyle(std::string name, ChatTemplate chat_template, const Tokenizer& tokenizer)
    : name_(std::move(name)),
      template_(std::move(chat_template)),
      tokenizer_(tokenizer),
      markers_(tokenizer, template_.source()) {
  derive();
}

Result<std::shared_ptr<ChatStyle>> ChatStyle::create(std::string name, std::string jinja,
                                                     const Tokenizer& tokenizer) {
  LLM_TRY(ChatTemplate parsed, ChatTemplate::parse(std::move(jinja)));
  return std::shared_ptr<ChatStyle>(new ChatStyle(std::move(name), std::move(parsed), tokenizer));
}

Result<std::shared_ptr<ChatStyle>> ChatStyle::create_built_in(std::string_view name,
                                                              const Tokenizer& tokenizer) {
  const BuiltIn& found = *find_built_in(name);
  LLM_TRY(auto style, create(std::string(name), std::string(found.jinja), tokenizer));
  for (const std::string_view token : found.tokens) {
    const auto marker = token.empty() ? std::nullopt : style->markers_.at_start(token);
    if (token.empty() || (marker && marker->spelling == token)) continue;
    return Error{
        ErrorCode::kUsage, "--chat-template",
        fmt::format("found {}, whose marker {} is not a token of this vocabulary", name, token)};
  }
  return style;
}

Result<std::shared_ptr<ChatStyle>> ChatStyle::choose(const std::string& word,
                                                     const std::string& from_file,
                                                     const Tokenizer& tokenizer) {
  if (find_built_in(word) != nullptr) return create_built_in(word, tokenizer);
  if (word != "auto") {
    auto file = MappedFile::open(word);
    if (!file.ok()) {
      Error error = file.error();
      error.hint = fmt::format("auto, a file, or one of {}", fmt::join(built_in(), ", "));
      return error;
    }
    const auto bytes = file->bytes();
    std::string jinja(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    LLM_RETURN_IF_ERROR(file->check_unchanged("chat template"));
    auto made = create(hash_of(jinja), jinja, tokenizer);
    return made.ok() ? made : in_file(made.error(), word);
  }
  if (from_file.empty()) {
    return Error{.code = ErrorCode::kUsage,
                 .field = "--chat-template",
                 .message = "found no chat template in the model, need a name or a file",
                 .hint = fmt::format("one of {}", fmt::join(built_in(), ", "))};
  }
  auto made = create(hash_of(from_file), from_file, tokenizer);
  if (made.ok()) return made;
  Error error = std::move(made).error();
  error.hint =
      fmt::format("--chat-template takes one of {}, or a file", fmt::join(built_in(), ", "));
  return error;
}

Result<std::shared_ptr<ChatStyle>> ChatStyle::find(const std::string& name,
                                                   const std::string& from_file,
                                                   const Tokenizer& tokenizer) {
  if (find_built_in(name) != nullptr) return create_built_in(name, tokenizer);
  if (!from_file.empty() && hash_of(from_file) == name) return create(name, from_file, tokenizer);
  return Error{ErrorCode::kUnsupported, "chat_template",
               fmt::format("found {}, need the SHA-256 of the model's own template, or one of {}",
                           name, fmt::join(built_in(), ", "))};
}

ChatInput ChatStyle::input(OrderedJson messages) const {
  ChatInput input{.messages = std::move(messages), .date = date_};
  const VocabSpec& spec = tokenizer_.spec();
  if (spec.bos) input.bos_token = tokenizer_.spelling(*spec.bos);
  if (spec.eos) input.eos_token = tokenizer_.spelling(*spec.eos);
  return input;
}

Result<std::vector<ChatPart>> ChatStyle::render(OrderedJson messages, OrderedJson tools,
                                                OrderedJson variables, bool asks,
                                                const RenderLimits& limits) const {
  if (exhausted_) return *exhausted_;
  ChatInput all = input(std::move(messages));
  all.tools = std::move(tools);
  all.variables = std::move(variables);
  all.add_generation_prompt = asks;
  return template_.render(all, limits);
}

Result<std::vector<TokenId>> ChatStyle::encode_reply(const std::string& reply) const {
  const std::vector<ChatPart> parts = {{reply_begin_, false}, {reply, false}};
  return encode(parts, false);
}

/// Renders conversations of marks: what stands around them does not depend on their words.
void ChatStyle::derive() {
  OrderedJson messages = OrderedJson::array({chat_message("user", "U")});
  ChatInput probe = input(messages);
  const auto render = [this](const ChatInput& one) {
    return template_.render(one, trial_limits());
  };
  auto asked = render(probe);
  if (!asked.ok() && is_exhausting(asked.error())) {
    exhausted_ = asked.error();
    return;
  }
  if (!asked.ok()) {
    probe.date = std::chrono::year_month_day(std::chrono::year(2024), std::chrono::July,
                                             std::chrono::day(26));
    asked = render(probe);
    needs_date_ = asked.ok();
  }
  probe.messages.push_back(chat_message("assistant", "X"));
  probe.add_generation_prompt = false;
  const auto answered = render(probe);
  const auto reply = answered.ok() ? around(*answered, 1) : std::nullopt;
  if (!reply) return;
  add_end(reply->behind, false);
  const std::string asks = asked.ok() ? chat_text(*asked) : "";
  if (asked.ok() && reply->before.starts_with(asks)) {
    reply_begin_ = reply->before.substr(asks.size());
  }
  probe.messages.push_back(chat_message("user", "V"));
  probe.add_generation_prompt = true;
  const auto went_on = render(probe);
  const auto next = went_on.ok() ? around(*went_on, 2) : std::nullopt;
  const auto earlier = went_on.ok() ? around(*went_on, 1) : std::nullopt;
  if (!next || !earlier) return;
  std::string_view between = next->before;
  between.remove_prefix(std::min(between.size(), earlier->before.size() + 1));
  if (between.starts_with(reply->behind)) {
    add_end(between.substr(reply->behind.size()), true);
  }
}

void ChatStyle::add_end(std::string_view markup, bool is_opener) {
  const auto& bos = tokenizer_.spec().bos;
  for (std::size_t at = 0; at < markup.size(); ++at) {
    const auto marker = markers_.at_start(markup.substr(at));
    if (!marker) continue;
    const std::string_view before = without_spaces(markup.substr(0, at));
    if (before.empty() && is_opener && marker->id == bos) {  // what begins a text ends none
      return add_end(markup.substr(at + marker->spelling.size()), true);
    }
    if (before.empty()) {
      end_tokens_.push_back(marker->id);
      return;
    }
    markup = markup.substr(0, at);
    break;
  }
  // A word such as "user" may stand in a reply, so that the opening of a turn must look like one.
  const std::string_view text = without_spaces(markup);
  const bool is_mark = text.starts_with('<') || text.starts_with('[');
  if (!text.empty() && (is_mark || !is_opener)) end_texts_.emplace_back(text);
}

void ChatStyle::add_reply_ends(GenerateOptions& options) const {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(options.stop_tokens, end_tokens_);
  append(options.stop, end_texts_);
}

}  // namespace llm
