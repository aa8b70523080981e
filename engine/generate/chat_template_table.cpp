#include "engine/generate/chat_template_table.h"

#include <algorithm>

namespace llm {
namespace {

constexpr std::string_view kSmolLm3Thinks =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role "
    "as an assistant involves thoroughly exploring questions through a systematic "
    "thinking process before providing the final precise and accurate solutions. This"
    " requires engaging in a comprehensive cycle of analysis, summarizing, "
    "exploration, reassessment, reflection, backtracking, and iteration to develop "
    "well-considered thinking process. Please structure your response into two main "
    "sections: Thought and Solution using the specified format: <think> Thought "
    "section </think> Solution section. In the Thought section, detail your reasoning"
    " process in steps. Each step should include detailed considerations such as "
    "analysing questions, summarizing relevant findings, brainstorming new ideas, "
    "verifying the accuracy of the current steps, refining any errors, and revisiting"
    " previous steps. In the Solution section, based on various attempts, "
    "explorations, and reflections from the Thought section, systematically present "
    "the final solution that you deem correct. The Solution section should be "
    "logical, accurate, and concise and detail necessary steps needed to reach the "
    "conclusion.";

constexpr Markup chatml(ChatFormat format, std::string_view name,
                        std::optional<std::string_view> default_system = {},
                        ReplyRule reply_rule = ReplyRule::kAsGiven) {
  return {.format = format,
          .name = name,
          .system_begin = "<|im_start|>system\n",
          .system_end = "<|im_end|>\n",
          .default_system = default_system,
          .user_begin = "<|im_start|>user\n",
          .user_end = "<|im_end|>\n<|im_start|>assistant\n",
          .reply_end = "<|im_end|>\n",
          .reply_rule = reply_rule,
          .tokens = {"<|im_start|>", "<|im_end|>"},
          .stops = {"<|im_end|>", "<|im_start|>"}};
}

constexpr Markup smollm3(bool thinks) {
  Markup markup =
      chatml(ChatFormat::kSmolLm3, "smollm3", kSmolLm3Thinks, ReplyRule::kNoLeadingLines);
  markup.system_end = "\n\n<|im_end|>\n";
  markup.system_begin =
      "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
      "Reasoning Mode: /think\n\n## Custom Instructions\n\n";
  if (thinks) return markup;
  markup.system_begin =
      "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
      "Reasoning Mode: /no_think\n\n## Custom Instructions\n\n";
  markup.default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face.";
  markup.user_end = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n";
  return markup;
}

/// Sources: the chat templates of TinyLlama-1.1B-Chat-v1.0, Llama-2-7b-chat-hf,
/// Meta-Llama-3-8B-Instruct, Llama-3.1-8B-Instruct and Llama-3.2-3B-Instruct (which differ in tools
/// alone), Qwen1.5, Qwen2, Qwen2.5, Qwen3, SmolLM2, SmolLM3-3B, Mistral-Nemo-Instruct-2407 and
/// gemma-3.
constexpr std::array<Markup, 12> kMarkups = {{
    {.format = ChatFormat::kZephyr,
     .name = "zephyr",
     .system_begin = "<|system|>\n",
     .system_end = "</s>\n",
     .user_begin = "<|user|>\n",
     .user_end = "</s>\n<|assistant|>\n",
     .reply_end = "</s>\n",
     .tokens = {"</s>"},
     .stops = {"</s>", "<|user|>"}},
    {.format = ChatFormat::kLlama2,
     .name = "llama2",
     .system_begin = "<<SYS>>\n",
     .system_end = "\n<</SYS>>\n\n",
     .user_begin = "[INST] ",
     .user_end = " [/INST]",
     .reply_begin = " ",
     .reply_end = " </s><s>",
     .system_place = SystemPlace::kFirstUser,
     .strip = Strip::kTurn,
     .tokens = {"<s>", "</s>"},
     .stops = {"</s>", "[INST]"}},
    chatml(ChatFormat::kChatMl, "chatml"),
    chatml(ChatFormat::kQwen2, "qwen2", "You are a helpful assistant."),
    chatml(ChatFormat::kQwen25, "qwen2.5",
           "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    chatml(ChatFormat::kQwen3, "qwen3", {}, ReplyRule::kNoThinking),
    chatml(ChatFormat::kSmolLm2, "smollm2",
           "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    smollm3(true),
    {.format = ChatFormat::kLlama3,
     .name = "llama3",
     .system_begin = "<|start_header_id|>system<|end_header_id|>\n\n",
     .system_end = "<|eot_id|>",
     .user_begin = "<|start_header_id|>user<|end_header_id|>\n\n",
     .user_end = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .reply_end = "<|eot_id|>",
     .strip = Strip::kContents,
     .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .stops = {"<|eot_id|>", "<|start_header_id|>"}},
    {.format = ChatFormat::kLlama31,
     .name = "llama3.1",
     .system_begin =
         "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
         "2023\nToday Date: 26 Jul 2024\n\n",
     .system_end = "<|eot_id|>",
     .default_system = "",
     .user_begin = "<|start_header_id|>user<|end_header_id|>\n\n",
     .user_end = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .reply_end = "<|eot_id|>",
     .strip = Strip::kContents,
     .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .stops = {"<|eot_id|>", "<|start_header_id|>"}},
    {.format = ChatFormat::kMistralNemo,
     .name = "mistral-nemo",
     .system_end = "\n\n",
     .user_begin = "[INST]",
     .user_end = "[/INST]",
     .reply_end = "</s>",
     .system_place = SystemPlace::kLastUser,
     .tokens = {"[INST]", "[/INST]", "</s>"},
     .stops = {"</s>", "[INST]"}},
    {.format = ChatFormat::kGemma,
     .name = "gemma",
     .system_end = "\n\n",
     .user_begin = "<start_of_turn>user\n",
     .user_end = "<end_of_turn>\n<start_of_turn>model\n",
     .reply_end = "<end_of_turn>\n",
     .system_place = SystemPlace::kFirstUser,
     .strip = Strip::kContents,
     .tokens = {"<start_of_turn>", "<end_of_turn>"},
     .stops = {"<end_of_turn>", "<start_of_turn>"}},
}};

constexpr Markup kQuietSmolLm3 = smollm3(false);

constexpr std::array<std::string_view, 18> kMarkers = {
    "<s>",
    "</s>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<think>",
    "</think>",
};

/// What tells a template's format: every text of `has` is in it, and none of `lacks`.
struct Signs {
  ChatFormat format;
  std::array<std::string_view, 3> has;
  std::array<std::string_view, 2> lacks = {};
};

/// The first row that fits counts.
constexpr std::array kSigns = {
    // SmolLM3's first template writes the date of the day and has other modes.
    Signs{ChatFormat::kSmolLm3,
          {"<|im_start|>", "Reasoning Mode: ", "named SmolLM"},
          {"Today Date: ", "/system_override"}},
    // Relatives that only think, or never do, ask for the reply in other words.
    Signs{ChatFormat::kQwen3,
          {"<|im_start|>assistant\\n'", "last_query_index", "enable_thinking is false"}},
    Signs{ChatFormat::kQwen25, {"<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are"}},
    Signs{ChatFormat::kSmolLm2,
          {"<|im_start|>", "named SmolLM, trained by Hugging Face<|im_end|>"},
          {"<think>"}},
    Signs{ChatFormat::kQwen2,
          {"<|im_start|>", "You are a helpful assistant.<|im_end|>"},
          {"<think>"}},
    Signs{ChatFormat::kChatMl, {"<|im_start|>"}, {"<think>"}},
    Signs{ChatFormat::kLlama31,
          {"<|start_header_id|>", "Cutting Knowledge Date: December 2023", "26 Jul 2024"}},
    Signs{ChatFormat::kLlama3, {"<|start_header_id|>"}, {"Today Date: "}},
    Signs{ChatFormat::kMistralNemo,
          {R"("[INST]" + message["content"] + "[/INST]")",
           R"("[INST]" + system_message + "\n\n" + message["content"])", "loop.last and"}},
    Signs{ChatFormat::kLlama2, {"[INST]", "<<SYS>>"}},
    Signs{ChatFormat::kGemma, {"<start_of_turn>", "<end_of_turn>", "model"}, {"tools", "<think>"}},
    // Phi-3 uses the same headings but ends its turns with <|end|>.
    Signs{ChatFormat::kZephyr, {"<|user|>", "eos_token"}, {"<|end|>"}},
};

constexpr auto kFormats = [] {
  std::array<ChatFormat, kMarkups.size()> formats{};
  std::ranges::transform(kMarkups, formats.begin(), &Markup::format);
  return formats;
}();

}  // namespace

const Markup& markup_of(ChatFormat format) {
  return *std::ranges::find(kMarkups, format, &Markup::format);
}

const Markup& smollm3_without_thinking() { return kQuietSmolLm3; }

std::span<const std::string_view> chat_markers() { return kMarkers; }

std::span<const ChatFormat> all_chat_formats() { return kFormats; }

std::string_view chat_format_name(ChatFormat format) { return markup_of(format).name; }

std::optional<ChatFormat> recognize_chat_format(std::string_view jinja) {
  const auto has = [jinja](std::string_view sign) {
    return jinja.find(sign) != std::string_view::npos;
  };
  const auto lacked = [&](std::string_view sign) { return sign.empty() || !has(sign); };
  for (const Signs& signs : kSigns) {
    // An empty sign is in every text.
    if (std::ranges::all_of(signs.has, has) && std::ranges::all_of(signs.lacks, lacked)) {
      return signs.format;
    }
  }
  return std::nullopt;
}

}  // namespace llm
