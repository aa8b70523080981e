// --judge: another engine's server, by its own answers.

#include "validate/remote_server/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_members.h"
#include "base/shown_text.h"
#include "tools/hub/http_call.h"
#include "tools/llmcheck/run.h"
#include "validate/remote_server/question.h"

namespace llm {
namespace {

constexpr std::size_t kMaxBody = std::size_t{16} << 20;
constexpr double kLeast = -1e30;  ///< for the null of an infinite one

struct Body {
  HttpReply answer;
  std::string text;
};

Result<Body> transfer(const std::string& url, const std::string& key,
                      std::optional<std::string> json) {
  Body body;
  HttpCall request;
  request.url = url;
  request.token = key;
  request.json = std::move(json);
  request.most_bytes = kMaxBody;
  request.take = [&](std::uint64_t, std::span<const std::byte> bytes) {
    body.text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  };
  LLM_TRY(body.answer, http_call(request));
  return body;
}

/// The bytes of a token: the array beside it, else its text, which may spell bytes ("bytes:\xe2").
std::string token_bytes(const std::string& text, const Json& bytes) {
  std::string out;
  if (bytes.is_array()) {
    for (const Json& byte : bytes)
      out += static_cast<char>(byte.is_number_integer() ? byte.get<int>() : 0);
    return out;
  }
  constexpr std::string_view kSpelled = "bytes:";
  if (!text.starts_with(kSpelled)) return text;
  for (std::size_t at = kSpelled.size(); at + 4 <= text.size(); at += 4)
    out += static_cast<char>(std::strtol(text.substr(at + 2, 2).c_str(), nullptr, 16));
  return out;
}

Result<double> logprob_of(const Json& value, const std::string& field) {
  if (value.is_null()) return kLeast;
  if (!value.is_number() || std::isnan(value.get<double>()) || value.get<double>() > 1e-3)
    return malformed_json(field, shown_json(value), "a log-probability, at most 0");
  return value.get<double>();
}

Result<ReportedToken> parse_token(const Json& json, const std::string& field) {
  if (!json.is_object()) return malformed_json(field, shown_json(json), "an object");
  const JsonMembers members(json, field);
  LLM_TRY(const std::string text, members.text("token"));
  LLM_TRY(const Json* logprob, members.member("logprob", "a number"));
  LLM_TRY(const double value, logprob_of(*logprob, members.field("logprob")));
  return ReportedToken{token_bytes(text, json.value("bytes", Json())), value};
}

/// {"content": [{"token", "bytes", "logprob", "top_logprobs": [...]}]}
Status parse_content(const Json& content, const std::string& path, JudgeAnswer& answer) {
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string field = fmt::format("{}.content[{}]", path, i);
    AnsweredToken& token = answer.tokens.emplace_back();
    LLM_TRY(token.chosen, parse_token(content[i], field));
    LLM_TRY(const Json* top, JsonMembers(content[i], field).list("top_logprobs"));
    for (std::size_t j = 0; j < top->size(); ++j) {
      LLM_TRY(ReportedToken one,
              parse_token((*top)[j], fmt::format("{}.top_logprobs[{}]", field, j)));
      token.top.push_back(std::move(one));
    }
  }
  return Ok{};
}

/// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{TOKEN: LOGPROB}]}
Status parse_arrays(const Json& logprobs, const std::string& path, JudgeAnswer& answer) {
  const JsonMembers members(logprobs, path);
  LLM_TRY(const Json* tokens, members.list("tokens"));
  LLM_TRY(const Json* values, members.list("token_logprobs"));
  LLM_TRY(const Json* tops, members.list("top_logprobs"));
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    const std::string field = fmt::format("{}.tokens[{}]", path, i);
    if (i >= values->size() || i >= tops->size() || !(*tops)[i].is_object())
      return malformed_json(field, "no log-probabilities", "a number and an object");
    if (!(*tokens)[i].is_string()) return malformed_json(field, shown_json((*tokens)[i]), "a text");
    AnsweredToken& token = answer.tokens.emplace_back();
    token.chosen.bytes = token_bytes((*tokens)[i].get<std::string>(), {});
    LLM_TRY(token.chosen.logprob, logprob_of((*values)[i], field));
    for (const auto& [text, value] : (*tops)[i].items()) {
      LLM_TRY(const double logprob, logprob_of(value, field));
      token.top.push_back({token_bytes(text, {}), logprob});
    }
  }
  return Ok{};
}

/// The answer in a body of either API: OpenAI's old logprobs (tokens, token_logprobs, top_logprobs)
/// or new ones (content). Errors: kMalformed.
Result<JudgeAnswer> parse_judge_answer(std::string_view body) {
  LLM_TRY(const Json json, parse_json_object(body));
  LLM_TRY(const Json* choices, JsonMembers(json, "").array("choices", 1));
  const std::string path = "choices[0]";
  if (!(*choices)[0].is_object())
    return malformed_json(path, shown_json((*choices)[0]), "an object");
  LLM_TRY(const Json* logprobs, JsonMembers((*choices)[0], path).object("logprobs"));
  JudgeAnswer answer;
  const std::string field = path + ".logprobs";
  const auto content = logprobs->find("content");
  LLM_RETURN_IF_ERROR(content != logprobs->end() && content->is_array()
                          ? parse_content(*content, field, answer)
                          : parse_arrays(*logprobs, field, answer));
  const auto usage = json.find("usage");
  if (usage != json.end() && usage->is_object() && usage->contains("prompt_tokens") &&
      (*usage)["prompt_tokens"].is_number_unsigned())
    answer.prompt_tokens = (*usage)["prompt_tokens"].get<std::size_t>();
  return answer;
}

/// A server behind OpenAI's API.
class JudgedServer {
 public:
  /// @param url  of the server, with or without /v1
  /// @param model  its name of the model; empty: the first that it lists, or none
  /// @param key  that it asks for; empty: none
  JudgedServer(std::string url, std::string model, std::string key)
      : url_(std::move(url)), model_(std::move(model)), key_(std::move(key)) {
    while (url_.ends_with('/')) url_.pop_back();
    if (!url_.ends_with("/v1")) url_ += "/v1";
  }

  const std::string& model() const { return model_; }

  /// Takes the name of the first model that it lists, if it lists any and none was given.
  Status find_model() {
    if (!model_.empty()) return Ok{};
    LLM_TRY(const Body body, transfer(url_ + "/models", key_, {}));
    const Json json = parse_json(body.text);
    if (!json.is_object() || !json.contains("data") || !json["data"].is_array()) return Ok{};
    for (const Json& one : json["data"]) {
      if (!one.is_object() || !one.contains("id") || !one["id"].is_string()) continue;
      model_ = one["id"].get<std::string>();
      break;
    }
    return Ok{};
  }

  /// Its greedy answer with log-probabilities, asked of /v1/completions, or of
  /// /v1/chat/completions. A refusal of the question (400, 413, 422) is an answer.
  /// Errors, naming the URL: kIo where it is not reached or refuses otherwise; kMalformed for what
  /// is no answer of that API, naming field, value and rule.
  Result<JudgeAnswer> ask(const JudgeQuestion& question) const {
    const bool is_chat = question.kind == QuestionKind::kChat;
    Json json = {{"max_tokens", kAnswerTokens}, {"temperature", 0}};
    if (!model_.empty()) json["model"] = model_;
    if (is_chat) {
      json["messages"] = Json::array();
      if (question.system)
        json["messages"].push_back({{"role", "system"}, {"content", *question.system}});
      json["messages"].push_back({{"role", "user"}, {"content", question.text}});
      json["logprobs"] = true;
      json["top_logprobs"] = kAnswerTop;
    } else {
      json["prompt"] = question.text;
      json["logprobs"] = kAnswerTop;
    }
    const std::string url = url_ + (is_chat ? "/chat/completions" : "/completions");
    LLM_TRY(const Body body, transfer(url, key_, json_text(json)));
    const long status = body.answer.status;
    if (status == 400 || status == 413 || status == 422)
      return JudgeAnswer{{}, {}, fmt::format("HTTP {}: {}", status, body.answer.refusal)};
    if (status != 200) {
      return in_file(
          Error{ErrorCode::kIo, "HTTP status",
                fmt::format("found {} ({}), need 200", status, shown(body.answer.refusal))},
          url);
    }
    return in_file(parse_judge_answer(body.text), url);
  }

 private:
  std::string url_;
  std::string model_;
  std::string key_;
};

}  // namespace

Status run_judge(CheckRun& run) {
  LLM_TRY(const ModelPointer model, run.load(Compute::kInt8));
  JudgedServer server(run.a.judge, run.a.judge_model, run.a.judge_key);
  LLM_RETURN_IF_ERROR(server.find_model());
  const std::vector<JudgeQuestion> questions = judge_questions(*model);
  std::vector<JudgeAnswer> answers;
  for (const JudgeQuestion& question : questions) {
    LLM_TRY(JudgeAnswer answer, run.ended(server.ask(question), run.a.judge));
    answers.push_back(std::move(answer));
    run.bar("ask", answers.size(), questions.size());
  }
  if (std::ranges::none_of(answers, [](const auto& one) { return one.refusal.empty(); })) {
    return in_file(
        Error{ErrorCode::kIo, "answers",
              fmt::format("found that the server rejected every prompt, need one response; {}",
                          answers.front().refusal)},
        run.a.judge);
  }
  LLM_TRY(JudgeOutcome outcome,
          run.ended(judge_answers(model, questions, answers, std::ref(run.bar)), run.path));
  run.fact("judged", fmt::format("{}{}, {} prompts of {} tokens each", run.a.judge,
                                 server.model().empty() ? "" : " (" + server.model() + ")",
                                 questions.size(), kAnswerTokens));
  run.add(std::move(outcome.checks));
  for (FigureTable& table : outcome.figures) run.report.figures.push_back(std::move(table));
  run.report.summary = std::move(outcome.summary);
  if (outcome.is_unexplained) {
    run.report.next.push_back(
        "python3 -m llmrun.reference ORIGINAL.gguf --ids-random 64 -o ref.npz, then llmcheck FILE "
        "--layer-diff ref.npz with the file that the server has loaded: names the operation that "
        "differs from the original's (docs/doctor.md)");
  }
  return Ok{};
}

}  // namespace llm
