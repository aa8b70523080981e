#include "validate/remote_server/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llm {
namespace {

constexpr std::size_t kLongTokens = 640;
constexpr std::size_t kMostLongTokens = 4608;

constexpr std::array<std::string_view, 6> kShort = {"Once upon a time",
                                                    "The capital of France is",
                                                    "The little girl went to the park and saw a",
                                                    "def add(a, b):\n    return",
                                                    "Water boils at a temperature of",
                                                    "One day, a cat named Tom"};
constexpr std::array<std::string_view, 4> kSpecial = {
    "Café, naïve, Zürich: 100 € — “quoted” words, then",
    "<b>tags</b>, {braces}, [x] \\ and </i> are text here. The",
    "  two blanks\tand a tab\n\n\nthree lines,   and",
    "🙂🙃 日本語 и русский: 12345 + 67890 ="};
constexpr std::array<std::string_view, 6> kChat = {
    "What is gravity?",          "Tell me a short story about a dog.",
    "Write a haiku about rain.", "Is 17 a prime number?",
    "Name three colors.",        "Say hello to my friend Anna."};
constexpr std::array<std::string_view, 4> kWho = {"a fox", "the old miller", "Lily", "a blue bird"};
constexpr std::array<std::string_view, 5> kDid = {"found", "lost", "painted", "gave away", "hid"};
constexpr std::array<std::string_view, 7> kWhat = {
    "a red ball", "two apples", "the key", "a small boat", "her hat", "some bread", "a long rope"};

/// A story of about that many tokens whose sentences differ.
std::string story(const Tokenizer& tokenizer, std::size_t n_tokens, std::size_t seed) {
  std::string text = "This is a story of many days.";
  for (std::size_t day = 1;; ++day) {
    const std::size_t i = day * (seed + 3) + seed;
    const std::string next = fmt::format(" On day {} {} {} {}.", day, kWho[i % kWho.size()],
                                         kDid[i % kDid.size()], kWhat[(i + day) % kWhat.size()]);
    if (tokenizer.encode(text + next).size() > n_tokens) break;
    text += next;
  }
  return text + " The next day";
}

}  // namespace

std::string_view question_kind_name(QuestionKind kind) {
  constexpr std::array<std::string_view, kQuestionKinds> kNames = {"short", "special", "long",
                                                                   "chat"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<JudgeQuestion> judge_questions(const Model& model) {
  std::vector<JudgeQuestion> questions;
  for (const auto text : kShort) questions.push_back({QuestionKind::kShort, std::string(text)});
  for (const auto text : kSpecial) questions.push_back({QuestionKind::kSpecial, std::string(text)});
  std::size_t n_long = kLongTokens;
  for (const LayerSpec& layer : model.config().layers)
    n_long = std::max(n_long, std::min(2 * layer.window(), kMostLongTokens));
  const std::size_t room =
      model.config().context - std::min(model.config().context, std::size_t{48});
  for (std::size_t seed = 0; seed < 4; ++seed)
    questions.push_back(
        {QuestionKind::kLong, story(model.tokenizer(), std::min(n_long, room), seed)});
  for (const auto text : kChat) {
    if (model.chat_template().empty()) break;
    questions.push_back({QuestionKind::kChat, std::string(text)});
  }
  if (!model.chat_template().empty()) questions.back().system = "You are terse.";
  return questions;
}

}  // namespace llm
