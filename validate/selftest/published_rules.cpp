#include <algorithm>
#include <array>

#include "base/check.h"
#include "validate/selftest/naive_splitter.h"

namespace llm {
namespace {

// pre_tokenizers::digits::Digits: char::is_numeric.
constexpr PublishedStep kEachDigit{R"(\p{N})"};
// pre_tokenizers::byte_level::ByteLevel with use_regex.
constexpr PublishedStep kByteLevel{
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};

constexpr std::array kGpt2 = {kByteLevel};
constexpr std::array kDigitsThenByteLevel = {kEachDigit, kByteLevel};

constexpr std::array kLlama3 = {
    PublishedStep{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

constexpr std::array kQwen2 = {
    PublishedStep{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

constexpr std::array kLaguna = {PublishedStep{R"([^\n]+|[\n]+)"}, kQwen2[0]};

constexpr std::array kQwen35 = {
    PublishedStep{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                  R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

constexpr std::array kHunyuanDense = {
    PublishedStep{R"(\p{N}{1,3})"}, PublishedStep{"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"},
    PublishedStep{R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                  R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
                  R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// Published with a count of 1, {1}, at \p{N}.
constexpr std::array kSeedCoder = {
    PublishedStep{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                  R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

constexpr std::array kTekken = {
    PublishedStep{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                  R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

constexpr std::array kGpt4o = {
    PublishedStep{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
                  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})"
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

// pre_tokenizers::punctuation: char::is_ascii_punctuation or category P.
constexpr std::array kFalcon = {PublishedStep{R"([!-/:-@\[-`{-~\p{P}]+)"}, kByteLevel,
                                PublishedStep{R"(\p{N}+)", true},
                                PublishedStep{"[0-9][0-9][0-9]", true}};

// llama.cpp's for a file that says "default"; no tokenizer.json.
constexpr std::array kDefault = {
    PublishedStep{R"([\p{P}\$\+<=>\^\~\|]+)"},
    PublishedStep{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"},
    PublishedStep{R"(\p{N}+)"}, PublishedStep{"[0-9][0-9][0-9]"}};

constexpr PublishedStep kLineBreak{R"([\r\n])"};
constexpr PublishedStep kChinese{"[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"};

constexpr std::array kDeepSeekCoder = {kLineBreak, PublishedStep{R"(\s?\p{L}+)"},
                                       PublishedStep{R"(\s?\p{P}+)"}, kChinese, kEachDigit};

constexpr std::array kDeepSeekLlm = {
    kLineBreak,
    PublishedStep{
        "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-"
        "\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"
        "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-"
        "\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15"
        "\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-"
        "\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC"
        "\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
        "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B"
        "\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787"
        "\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-"
        "\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-"
        "\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+"},
    PublishedStep{"\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"},
    PublishedStep{R"(\s+$)"},
    kChinese,
    kEachDigit};

constexpr std::array kRules = {
    PublishedRule{"llama-bpe", kLlama3, true},
    PublishedRule{"smaug-bpe", kLlama3},
    PublishedRule{"qwen2", kQwen2},
    PublishedRule{"deepseek-r1-qwen", kQwen2},
    PublishedRule{"smollm", kDigitsThenByteLevel},
    PublishedRule{"gpt-2", kGpt2},
    PublishedRule{"default", kDefault},
    PublishedRule{"deepseek-llm", kDeepSeekLlm},
    PublishedRule{"deepseek-coder", kDeepSeekCoder},
    PublishedRule{"starcoder", kDigitsThenByteLevel},
    PublishedRule{"refact", kDigitsThenByteLevel},
    PublishedRule{"falcon", kFalcon},
    PublishedRule{"tekken", kTekken, true},
    PublishedRule{"gpt-4o", kGpt4o, true},
    PublishedRule{"mpt", kGpt2},
    PublishedRule{"command-r", kDigitsThenByteLevel},
    PublishedRule{"qwen35", kQwen35},
    PublishedRule{"dbrx", kLlama3},
    PublishedRule{"exaone4", kGpt2},
    PublishedRule{"seed-coder", kSeedCoder},
    PublishedRule{"hunyuan-dense", kHunyuanDense},
    PublishedRule{"chatglm-bpe", kLlama3},
    PublishedRule{"glm4", kLlama3, true},
    PublishedRule{"lfm2", kLlama3, true},
    PublishedRule{"hunyuan", kQwen2},
    PublishedRule{"minimax-m2", kGpt4o},
    PublishedRule{"olmo", kGpt2},
    PublishedRule{"laguna", kLaguna},
};

}  // namespace

std::span<const PublishedRule> all_published_rules() { return kRules; }

const PublishedRule& published_rule(std::string_view name) {
  const auto found = std::ranges::find(kRules, name, &PublishedRule::name);
  LLM_CHECK(found != kRules.end());
  return *found;
}

}  // namespace llm
