#include "tokenizer/pre_tokenizer_rules.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace llm {
namespace {

// The expressions are published data: the `pre_tokenizer` of each model's tokenizer.json (named at
// its row), read from left to right. "Digits" and "Punctuation" there are the classes of the
// `tokenizers` library, written as expressions. Which name of tokenizer.ggml.pre stands for which
// model, and the two flags, are llama.cpp's list (src/llama-vocab.cpp).

// ByteLevel with use_regex: GPT-2's encoder.py (OpenAI).
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kEachDigit = R"(\p{N})";  // Digits, individual_digits

// openai-community/gpt2, mosaicml/mpt-7b
constexpr std::array kGpt2 = {SplitPass{kGpt2Words}};

// meta-llama/Meta-Llama-3-8B
constexpr std::array kLlama3 = {
    SplitPass{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
              R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// Qwen/Qwen2-7B: the same, digits one by one.
constexpr std::array kQwen2 = {
    SplitPass{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
              R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// poolside/Laguna-XS.2: the same, within lines.
constexpr std::array kLaguna = {SplitPass{R"([^\n]+|[\n]+)"}, kQwen2[0]};

// ByteDance-Seed/Seed-OSS-36B-Instruct: as Qwen2, but no line breaks after punctuation.
constexpr std::array kSeedCoder = {
    SplitPass{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
              R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// tencent/Hunyuan-4B-Instruct, as deepseek-ai/DeepSeek-V3
constexpr std::array kHunyuanDense = {
    SplitPass{R"(\p{N}{1,3})"}, SplitPass{"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"},
    SplitPass{R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
              R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
              R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// Qwen/Qwen3.5: marks go with letters.
constexpr std::array kQwen35 = {
    SplitPass{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
              R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// HuggingFaceTB/SmolLM2-360M, bigcode/starcoder, smallcloudai/Refact-1_6B-fim,
// CohereForAI/c4ai-command-r-v01
constexpr std::array kDigitsThenGpt2 = {SplitPass{kEachDigit}, SplitPass{kGpt2Words}};

// mistralai/Mistral-Nemo-Instruct-2407
constexpr std::array kTekken = {
    SplitPass{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
              R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// openai/gpt-oss-20b, microsoft/Phi-4-mini-instruct
constexpr std::array kGpt4o = {
    SplitPass{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
              R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// tiiuae/falcon-7b: Punctuation, ByteLevel, Digits, Split. Digits comes after ByteLevel, where each
// byte is a character of GPT-2's alphabet: bytes B2, B3, B9 and BC to BE are superscripts and
// fractions there (U+00B2 ...), which are numbers, too.
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~]+)";
constexpr std::array kFalcon = {SplitPass{kPunctuation}, SplitPass{kGpt2Words},
                                SplitPass{R"([0-9\xB2\xB3\xB9\xBC-\xBE]+)", true},
                                SplitPass{"[0-9][0-9][0-9]", true}};

// No model's: what llama.cpp does for a file that says "default".
constexpr std::array kDefault = {
    SplitPass{R"([\p{P}$+<=>^~|]+)"},
    SplitPass{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"},
    SplitPass{R"(\p{N}+)"}, SplitPass{"[0-9][0-9][0-9]"}};

// deepseek-ai/deepseek-coder-6.7b-instruct
constexpr std::string_view kEachLineBreak = R"([\r\n])";
constexpr std::string_view kChinese = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr std::array kDeepSeekCoder = {SplitPass{kEachLineBreak}, SplitPass{R"(\s?\p{L}+)"},
                                       SplitPass{R"(\s?\p{P}+)"}, SplitPass{kChinese},
                                       SplitPass{kEachDigit}};

// deepseek-ai/deepseek-llm-7b-base: its own list of letters.
constexpr std::string_view kCasedWord =
    "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-"
    "\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"
    "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD"
    "\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D"
    "\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-"
    "\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
    "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D"
    "\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943]+";
constexpr std::string_view kPunctuationWord =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
// Published as \s+$. In a run of spaces only the first can begin the leftmost match. Readers differ
// in whether $ also stands before a line break; here a line break is a piece of its own, so $ is
// the end. Said so, a run costs its length and not its square where PCRE2 cannot compile to machine
// code.
constexpr std::string_view kSpacesAtEnd = R"((?<!\s)\s++\z)";
constexpr std::array kDeepSeekLlm = {SplitPass{kEachLineBreak},   SplitPass{kCasedWord},
                                     SplitPass{kPunctuationWord}, SplitPass{kSpacesAtEnd},
                                     SplitPass{kChinese},         SplitPass{kEachDigit}};

constexpr std::array kRules = {
    PreTokenizerRule{
        .name = "llama-bpe", .passes = kLlama3, .ignore_merges = true, .add_bos = true},
    PreTokenizerRule{.name = "smaug-bpe", .passes = kLlama3},
    PreTokenizerRule{.name = "qwen2", .passes = kQwen2},
    PreTokenizerRule{.name = "deepseek-r1-qwen", .passes = kQwen2},
    PreTokenizerRule{.name = "smollm", .passes = kDigitsThenGpt2},
    PreTokenizerRule{.name = "gpt-2", .passes = kGpt2},
    PreTokenizerRule{.name = "default", .passes = kDefault},
    PreTokenizerRule{.name = "deepseek-llm", .passes = kDeepSeekLlm},
    PreTokenizerRule{.name = "deepseek-coder", .passes = kDeepSeekCoder},
    PreTokenizerRule{.name = "starcoder", .passes = kDigitsThenGpt2},
    PreTokenizerRule{.name = "refact", .passes = kDigitsThenGpt2},
    PreTokenizerRule{.name = "falcon", .passes = kFalcon},
    PreTokenizerRule{.name = "tekken", .passes = kTekken, .ignore_merges = true, .add_bos = true},
    PreTokenizerRule{.name = "gpt-4o", .passes = kGpt4o, .ignore_merges = true},
    PreTokenizerRule{.name = "mpt", .passes = kGpt2},
    PreTokenizerRule{.name = "command-r", .passes = kDigitsThenGpt2},
    PreTokenizerRule{.name = "qwen35", .passes = kQwen35},
    PreTokenizerRule{.name = "dbrx", .passes = kLlama3},
    PreTokenizerRule{.name = "exaone4", .passes = kGpt2},
    PreTokenizerRule{.name = "seed-coder", .passes = kSeedCoder},
    PreTokenizerRule{.name = "hunyuan-dense", .passes = kHunyuanDense},
    PreTokenizerRule{.name = "chatglm-bpe", .passes = kLlama3},
    PreTokenizerRule{.name = "glm4", .passes = kLlama3, .ignore_merges = true},
    PreTokenizerRule{.name = "lfm2", .passes = kLlama3, .ignore_merges = true, .add_bos = true},
    PreTokenizerRule{.name = "hunyuan", .passes = kQwen2},
    PreTokenizerRule{.name = "minimax-m2", .passes = kGpt4o},
    PreTokenizerRule{.name = "olmo", .passes = kGpt2},
    PreTokenizerRule{.name = "laguna", .passes = kLaguna},
};

}  // namespace

std::span<const PreTokenizerRule> all_pre_tokenizer_rules() { return kRules; }

const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name) {
  const auto found = std::ranges::find(kRules, name, &PreTokenizerRule::name);
  return found == kRules.end() ? nullptr : &*found;
}

std::string pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const PreTokenizerRule& rule : kRules) names.push_back(rule.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace llm
