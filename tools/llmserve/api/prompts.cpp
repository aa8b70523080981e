#include "tools/llmserve/api/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/generation/chat_style.h"
#include "tools/common/options.h"
#include "tools/llmserve/http/worker_pool.h"

namespace llm {
namespace {

/// By the clock. A template may work for less; there is more of it where others work, too.
constexpr std::chrono::seconds kMostRenderTime(5);

/// Bytes of a conversation as the template writes it: a body's most. A template may write much for
/// a few bytes of a body, and each takes time to become tokens.
constexpr std::size_t kMostChatBytes = std::size_t{4} << 20;

/// A list of prompts, not a prompt.
bool is_list(const OrderedJson& prompt) {
  return prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
}

/// Whether the template has begun a thought for the model.
bool begins_thought(const ReplyFormat& format, std::span<const ChatPart> parts) {
  if (format.think_begin.empty() || parts.empty() || !parts.back().is_markup) return false;
  std::string_view text = parts.back().text;
  text = text.substr(0, text.find_last_not_of(" \n\r\t") + 1);
  return text.ends_with(format.think_begin);
}

/// The last message, which the reply goes on with; "" where none is.
std::string take_begun_reply(RequestedChat& chat) {
  OrderedJson& messages = chat.messages;
  const bool is_begun =
      chat.continues_reply && messages.size() > 1 && messages.back()["role"] == "assistant" &&
      !messages.back().contains("tool_calls") && messages.back()["content"].is_string();
  if (!is_begun) return "";
  std::string text = messages.back()["content"];
  messages.erase(messages.size() - 1);
  if (!chat.variables.contains("enable_thinking")) chat.variables["enable_thinking"] = false;
  return text;
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

ReplyFormat reply_format_of(const ChatStyle& style, const Tokenizer& tokenizer) {
  GenerateOptions options;
  style.add_reply_ends(options);
  std::vector<std::string> ends = options.stop;
  for (const TokenId id : options.stop_tokens) ends.emplace_back(tokenizer.spelling(id));
  if (tokenizer.spec().eos) ends.emplace_back(tokenizer.spelling(*tokenizer.spec().eos));
  std::optional<Error> exhausted;  // by one conversation: no other is tried
  const auto render = [&](const OrderedJson& messages, const OrderedJson& tools,
                          bool asks) -> Result<std::string> {
    if (exhausted) return *exhausted;
    const auto parts = style.render(messages, tools, OrderedJson::object(), asks, trial_limits());
    if (parts.ok()) return chat_text(*parts);
    if (is_exhausting(parts.error())) exhausted = parts.error();
    return parts.error();
  };
  std::string marks;
  for (const VocabSpec::Token& token : tokenizer.spec().tokens)
    if (token.kind == TokenKind::kControl || token.kind == TokenKind::kUserDefined)
      marks += token.text + "\n";
  const ReplyFormat format = reply_format(style.source(), render, ends, marks);
  return format.knows_tools || format.writes_calls ? format : usual_reply_format(style.source());
}

bool has_control_tokens(const ReplyFormat& format, const Tokenizer& tokenizer) {
  if (format.call == ReplyFormat::Call::kChannels) return true;
  std::string texts;
  for (const std::string* text :
       {&format.think_begin, &format.think_end, &format.begin, &format.between, &format.end,
        &format.middle, &format.key_begin, &format.key_end, &format.value_end})
    texts += *text + "\n";
  for (const std::string& text : format.more_begins) texts += text + "\n";
  for (TokenId id = 0; tokenizer.contains(id); ++id) {
    const std::string spelling(tokenizer.spelling(id));
    if (tokenizer.kind(id) == TokenKind::kControl && !spelling.empty() &&
        texts.find(spelling) != std::string::npos)
      return true;
  }
  return false;
}

std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const std::string& text,
                                bool add_special, bool parse_special, bool add_eos) {
  EncodeOptions encoding;
  encoding.parse_special = parse_special;
  if (!add_eos) encoding.add_eos = false;
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
      next.ids = prompt_ids(tokenizer, *next.text, true, options.parse_special, options.add_eos);
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
    LLM_RETURN_IF_ERROR(read(prompt, options.field));
    return prompts;
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    LLM_RETURN_IF_ERROR(read(prompt[i], at_index(options.field, i)));
  }
  return prompts;
}

Result<ChatPrompt> chat_prompt(RequestedChat chat, const ServedModel& served) {
  if (!served.style) {
    return usage_error("messages", "found a model without a chat template, need one",
                       "start llmserve with --chat-template");
  }
  adapt_chat(served.reply_format, served.roles, chat);
  ChatPrompt prompt;
  const std::string begun = take_begun_reply(chat);
  auto parts = served.style->render(
      chat.messages, chat.tools, chat.variables, /*asks=*/true,
      {.most_time = kMostRenderTime, .is_given_up = WorkerPool::has_owner_gone()});
  const bool lacks_thread = !parts.ok() && parts.error().field == "threads";
  if (lacks_thread) return std::move(parts).error();
  if (!parts.ok()) {  // whatever it is: other messages are told otherwise
    Error error = std::move(parts).error();
    error.code = ErrorCode::kUsage;
    error.field = "messages";
    return error;
  }
  const auto text_bytes = [](std::size_t n, const ChatPart& part) { return n + part.text.size(); };
  const auto bytes = std::accumulate(parts->begin(), parts->end(), std::size_t{0}, text_bytes);
  if (bytes > kMostChatBytes)
    return wrong_field("messages", fmt::format("{} bytes as the chat template writes them", bytes),
                       fmt::format("at most {}", kMostChatBytes));
  prompt.is_thinking = begins_thought(served.reply_format, *parts);
  if (!begun.empty()) {
    // What the assistant has said so far is no thought.
    if (std::exchange(prompt.is_thinking, false))
      parts->push_back({.text = served.reply_format.think_end + "\n\n", .is_markup = true});
    parts->push_back({.text = begun, .is_markup = false});
  }
  LLM_TRY(prompt.prompt.ids, served.style->encode(*parts, true, &prompt.prompt.message_ends));
  prompt.notes = chat.notes;
  prompt.text = chat_text(*parts);
  const auto is_text = [](const OrderedJson& message) {
    return message.size() == 2 && message["role"].is_string() && message.contains("content") &&
           message["content"].is_string();
  };
  // One question, as llmrun takes it, can be told as texts.
  const OrderedJson& messages = chat.messages;
  const bool has_system = messages.front()["role"] == "system";
  if (has_system) prompt.prompt.system = messages.front()["content"];
  const bool is_plain =
      begun.empty() && chat.tools.is_null() && chat.variables.empty() && !served.style->has_date();
  const bool is_one =
      is_plain && messages.size() == (has_system ? 2 : 1) && messages.back()["role"] == "user";
  if (is_one && has_system != prompt.prompt.system.empty()) {
    prompt.prompt.text = messages.back()["content"];
  } else if (is_plain && std::ranges::all_of(messages, is_text)) {
    prompt.prompt.messages = messages;
  }
  return prompt;
}

Result<Ids> fill_in_prompt(const Tokenizer& tokenizer, const Gap& gap, std::size_t most,
                           const std::string& field) {
  const auto& fim = tokenizer.spec().fim;
  if (!fim.prefix || !fim.suffix || !fim.middle) {
    return usage_error(field,
                       "found a model whose vocabulary has no tokens for a text's prefix, suffix "
                       "and middle, need one that was trained to fill in");
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
