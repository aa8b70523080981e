#include "tools/llmserve/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/generate/chat_template.h"

namespace llm {
namespace {

constexpr std::string_view kContentNeed = "a string, or an array of parts of type text";

std::string at_index(std::string_view name, std::size_t index) {
  return fmt::format("{}[{}]", name, index);
}

/// A list of prompts, not a prompt.
bool is_list(const OrderedJson& prompt) {
  return prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
}

/// One message of a conversation, and one part of its content, as they were read last.
struct MessageFields {
  std::string role;
  const OrderedJson* content = nullptr;
  std::string piece;
  JsonFields fields;
  JsonFields part_fields;

  MessageFields() {
    part_fields
        .value("type", {{"const", "text"}},
               [](const OrderedJson& value, const std::string& path) -> Status {
                 if (value == "text") return Ok{};
                 return wrong_field(path, shown_json(value), "\"text\"");
               })
        .needed("\"text\"");
    part_fields.text("text", &piece).needed("a string");
    fields.text("role", &role).needed("user, assistant, system or developer").schema = {
        {"enum", {"system", "developer", "user", "assistant"}}};
    fields
        .value(
            "content",
            {{"oneOf", JsonSchema::array({{{"type", "string"}}, array_of(part_fields.schema())})}},
            JsonFields::keep(&content))
        .needed(std::string(kContentNeed));
    for (const char* list : {"tool_calls", "annotations"})
      fields.only(list, OrderedJson::array({OrderedJson::array()}));
    for (const char* absent : {"name", "refusal", "audio", "function_call"})
      fields.only(absent, OrderedJson::array());
  }
  MessageFields(const MessageFields&) = delete;
  MessageFields& operator=(const MessageFields&) = delete;

  /// A string, or parts of type text.
  Result<std::string> text(const std::string& path) const {
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) return wrong_field(path, shown_json(*content), kContentNeed);
    std::string text;
    for (std::size_t i = 0; i < content->size(); ++i) {
      LLM_RETURN_IF_ERROR(part_fields.read((*content)[i], at_index(path, i) + "."));
      text += piece;
    }
    return text;
  }
};

Result<ChatMessage> read_message(const OrderedJson& message, MessageFields& read, std::size_t index,
                                 std::size_t n) {
  const std::string path = at_index("messages", index);
  LLM_RETURN_IF_ERROR(read.fields.read(message, path + "."));
  LLM_TRY(std::string text, read.text(path + ".content"));
  const std::string& role = read.role;
  const bool is_system = role == "system" || role == "developer";
  const bool is_last = index + 1 == n;
  if (is_system && index == 0 && !is_last)
    return ChatMessage{ChatMessage::Role::kSystem, std::move(text)};
  if (role == "user") return ChatMessage{ChatMessage::Role::kUser, std::move(text)};
  if (role == "assistant" && !is_last)
    return ChatMessage{ChatMessage::Role::kAssistant, std::move(text)};
  return wrong_field(path + ".role", shown_json(role),
                     is_last ? "user: a reply is asked for"
                             : "user or assistant; system or developer for the first message");
}

using Ids = std::vector<TokenId>;

/// What follows another token: no BOS.
Ids encode_inside(const Tokenizer& tokenizer, std::string_view text, const Gap& gap,
                  bool add_space_prefix) {
  EncodeOptions options{.add_bos = false, .add_eos = false, .parse_special = gap.parse_special};
  // SentencePiece's dummy prefix: the text after a gap does not begin a word.
  if (!add_space_prefix) options.add_space_prefix = false;
  return tokenizer.encode(text, options);
}

void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

/// Of one file, with what sets it off.
Ids encode_file(const Tokenizer& tokenizer, const Gap& gap, const Gap::File& file) {
  const auto separator = tokenizer.spec().fim.file_separator;
  if (!separator) {
    return encode_inside(tokenizer, "\n\n--- " + file.name + " ---\n\n" + file.text, gap, false);
  }
  Ids ids = {*separator};
  append(ids, encode_inside(tokenizer, file.name + "\n" + file.text, gap, false));
  return ids;
}

/// The last files that `most` tokens hold, with what stands before and after them.
Ids encode_files(const Tokenizer& tokenizer, const Gap& gap, std::size_t most) {
  if (gap.files.empty()) return {};
  const auto& fim = tokenizer.spec().fim;
  Ids before;
  if (fim.repository) {
    before = {*fim.repository};
    append(before, encode_inside(tokenizer, "myproject\n", gap, false));
  }
  // The file of the gap has a name as well.
  Ids last = fim.file_separator ? encode_file(tokenizer, gap, {"filename", ""}) : Ids{};
  std::vector<Ids> files;
  std::size_t n = before.size() + last.size();
  for (auto file = gap.files.rbegin(); file != gap.files.rend(); ++file) {
    files.push_back(encode_file(tokenizer, gap, *file));
    n += files.back().size();
    if (n > most) {
      files.pop_back();
      break;
    }
  }
  if (files.empty()) return {};
  Ids ids = std::move(before);
  for (auto file = files.rbegin(); file != files.rend(); ++file) append(ids, *file);
  append(ids, last);
  return ids;
}

}  // namespace

JsonSchema message_schema() { return MessageFields().fields.schema(); }

std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const std::string& text,
                                bool add_special, bool parse_special) {
  EncodeOptions encoding;
  encoding.parse_special = parse_special;
  encoding.add_eos = false;
  if (!add_special) encoding.add_bos = false;
  return tokenizer.encode(text, encoding);
}

Result<std::vector<TokenId>> ids_of(const OrderedJson& array, const Tokenizer& tokenizer,
                                    const std::string& path) {
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const OrderedJson& id = array[i];
    const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() < tokenizer.size();
    if (!fits) {
      return wrong_field(at_index(path, i), shown_json(id),
                         fmt::format("a token id 0..{}", tokenizer.size() - 1));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

std::size_t count_prompts(const OrderedJson& prompt) { return is_list(prompt) ? prompt.size() : 1; }

Result<std::vector<Prompt>> read_prompts(const OrderedJson& prompt, const Tokenizer& tokenizer,
                                         const PromptOptions& options) {
  std::vector<Prompt> prompts;
  const auto read = [&](const OrderedJson& one, const std::string& path) -> Status {
    Prompt& next = prompts.emplace_back();
    const bool fills_in = !options.suffix.empty();
    if (one.is_string() && fills_in) {
      const Gap gap{.before = one.get<std::string>(),
                    .after = options.suffix,
                    .parse_special = options.parse_special};
      LLM_TRY(next.ids, fill_in_prompt(tokenizer, gap, 0, "suffix"));
    } else if (one.is_string()) {
      next.text = one.get<std::string>();
      next.ids = prompt_ids(tokenizer, *next.text, true, options.parse_special);
    } else if (one.is_array() && fills_in) {
      return wrong_field("suffix", "it with token ids", "a prompt that is text");
    } else if (one.is_array()) {
      LLM_TRY(next.ids, ids_of(one, tokenizer, path));
    } else {
      return wrong_field(path, shown_json(one), kPromptNeed);
    }
    if (!next.ids.empty()) return Ok{};
    return wrong_field(path, "no token",
                       "at least one (the vocabulary may have no BOS to start from)");
  };
  if (!is_list(prompt)) {
    LLM_RETURN_IF_ERROR(read(prompt, "prompt"));
    return prompts;
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    LLM_RETURN_IF_ERROR(read(prompt[i], at_index("prompt", i)));
  }
  return prompts;
}

Result<Prompt> chat_prompt(const OrderedJson& messages, const ServedModel& served) {
  if (!served.chat_format) {
    return Error{.code = ErrorCode::kUsage,
                 .field = "messages",
                 .message = "found a model without a known chat template, need one",
                 .hint = "start llmserve with --chat-template"};
  }
  if (!messages.is_array() || messages.empty())
    return wrong_field("messages", shown_json(messages), "an array of messages");
  MessageFields read;
  std::vector<ChatMessage> conversation;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    LLM_TRY(ChatMessage message, read_message(messages[i], read, i, messages.size()));
    conversation.push_back(std::move(message));
  }
  Prompt prompt;
  const auto parts = format_chat(*served.chat_format, conversation);
  LLM_TRY(prompt.ids, encode_chat(served.tokenizer(), parts, true));
  // One question, as llmrun takes it, can be told as texts.
  const bool has_system = conversation.front().role == ChatMessage::Role::kSystem;
  if (has_system) prompt.system = conversation.front().content;
  if (conversation.size() == (has_system ? 2 : 1) && has_system != prompt.system.empty())
    prompt.text = conversation.back().content;
  return prompt;
}

Result<Ids> fill_in_prompt(const Tokenizer& tokenizer, const Gap& gap, std::size_t most,
                           const std::string& field) {
  const auto& fim = tokenizer.spec().fim;
  if (!fim.prefix || !fim.suffix || !fim.middle) {
    return Error{.code = ErrorCode::kUsage,
                 .field = field,
                 .message =
                     "found a model whose vocabulary has no tokens for a text's prefix, "
                     "suffix and middle, need one that was trained to fill in"};
  }
  Ids ids = tokenizer.encode("", {.add_eos = false});  // BOS, where the vocabulary wants it
  Ids core = {*fim.prefix};
  append(core, encode_inside(tokenizer, gap.before, gap, true));
  core.push_back(*fim.suffix);
  append(core, encode_inside(tokenizer, gap.after, gap, false));
  core.push_back(*fim.middle);
  const std::size_t taken = ids.size() + core.size();
  append(ids, encode_files(tokenizer, gap, most - std::min(most, taken)));
  append(ids, core);
  return ids;
}

}  // namespace llm
