// What llmserve refuses, field by field.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

/// What a body has besides, and the field that is refused for it.
using Rows = std::vector<std::pair<Json, const char*>>;

void must_refuse(const Server& server, const std::string& path, const Json& body,
                 const Rows& rows) {
  for (const auto& [more, param] : rows) {
    const int status = param == std::string("model") ? 404 : 400;
    const Reply reply = server.post(path, body | more).must_name(param, {}, status);
    CHECK(reply.json()["error"]["type"] == "invalid_request_error");
  }
}

}  // namespace

TEST_CASE("unsupported fields are rejected by name", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "100", "--max-tokens", "60"});
  const Rows both = {
      {"{'temprature': 1}"_j, "temprature"},
      {"{'max_tokens': 2, 'maxTokens': 1}"_j, "maxTokens"},
      {"{'topP': 7}"_j, "topP"},
      {"{'sampling_method': 1}"_j, "sampling_method"},
      {"{'model': 'gpt-4'}"_j, "model"},
      {"{'model': 4}"_j, "model"},
      {"{'temperature': 'hot'}"_j, "temperature"},
      {"{'temperature': -1}"_j, "temperature"},
      {"{'top_p': 1.5}"_j, "top_p"},
      {"{'top_k': 1.5}"_j, "top_k"},
      {"{'min_p': -0.1}"_j, "min_p"},
      {"{'seed': 1.0e30}"_j, "seed"},
      {"{'seed': 18446744073709551615}"_j, "seed"},
      {"{'n': 0}"_j, "n"},
      {"{'n': 129}"_j, "n"},
      {"{'max_tokens': -3}"_j, "max_tokens"},
      {"{'max_tokens': 1.5}"_j, "max_tokens"},
      {"{'top_k': -2}"_j, "top_k"},
      {"{'repeat_penalty': 1.1, 'repetition_penalty': 1.2}"_j, "repetition_penalty"},
      {"{'stop': ['a', 1]}"_j, "stop"},
      {"{'stop': ''}"_j, "stop"},
      {{{"stop", std::vector<std::string>(17, "x")}}, "stop"},
      {"{'logit_bias': {'999999': 1}}"_j, "logit_bias"},
      {"{'logit_bias': {'1x': 1}}"_j, "logit_bias"},
      {"{'logit_bias': {'1': 101}}"_j, "logit_bias"},
      {"{'logit_bias': [1]}"_j, "logit_bias"},
      {"{'stream': 1}"_j, "stream"},
      {"{'stream': true, 'logits_hash': true}"_j, "logits_hash"},
      {"{'stream': true, 'receipt': true}"_j, "receipt"},
      {"{'stream_options': {}}"_j, "stream_options"},
      {"{'stream': true, 'stream_options': {'x': 1}}"_j, "stream_options.x"},
      {"{'frequency_penalty': 2.5}"_j, "frequency_penalty"},
      {"{'presence_penalty': 'x'}"_j, "presence_penalty"},
      {"{'dry_multiplier': -0.8}"_j, "dry_multiplier"},
      {"{'dry_sequence_breakers': ['x']}"_j, "dry_sequence_breakers"},
      {"{'mirostat': 2}"_j, "mirostat"},
      {"{'typical_p': 1.9}"_j, "typical_p"},
      {"{'min_tokens': -1}"_j, "min_tokens"},
      {"{'best_of': 2}"_j, "best_of"},
      {"{'response_format': {'type': 'xml'}}"_j, "response_format.type"},
      {"{'response_format': {'type': 'text', 'x': 1}}"_j, "response_format.x"},
      {"{'response_format': 'text'}"_j, "response_format"},
      {"{'regex': 1}"_j, "regex"},
  };
  const Json completion = "{'prompt': 'a'}"_j;
  const Json chat = {{"messages", question("a")}};
  must_refuse(server, "/v1/completions", completion, both);
  must_refuse(server, "/v1/chat/completions", chat, both);
  const Json many = std::vector<std::vector<int>>(40, std::vector<int>(90, 3));
  must_refuse(
      server, "/v1/completions", completion,
      {{"{'prompt': null}"_j, "prompt"},
       {"{'prompt': 1}"_j, "prompt"},
       {"{'prompt': []}"_j, "prompt"},
       {"{'prompt': [1, 2, 99999]}"_j, "prompt[2]"},
       {"{'prompt': [1, -2]}"_j, "prompt[1]"},
       {"{'prompt': [[1], [2, 1.5]]}"_j, "prompt[1][1]"},
       {"{'prompt': ['a', 3]}"_j, "prompt[1]"},
       {"{'prompt': ['a', []]}"_j, "prompt[1]"},
       {{{"prompt", std::vector<int>(101, 3)}}, "prompt"},
       {"{'logprobs': 21}"_j, "logprobs"},
       {"{'logprobs': 20, 'n': 20, 'max_tokens': 10, 'echo': true}"_j | Json{{"prompt", many}},
        "logprobs"},
       {"{'logprobs': true}"_j, "logprobs"},
       {"{'suffix': 'x'}"_j, "suffix"},
       {"{'parse_special': 1}"_j, "parse_special"},
       {"{'echo': true, 'logprobs': 1, 'stream': true}"_j, "echo"},
       {"{'messages': [1]}"_j, "messages"},
       {"{'tools': [1]}"_j, "tools"}});
  const auto said = [](const Json& role, const Json& content) -> Json {
    return {{"messages", {message(role, content)}}};
  };
  const auto called = [](const char* arguments) -> Json {
    Json call = R"({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "f"}}]})"_j;
    call["tool_calls"][0]["function"]["arguments"] = arguments;
    return {{"messages", {call, "{'role': 'tool', 'tool_call_id': 'c1', 'content': '7'}"_j}}};
  };
  const Json f = "{'tools': [{'type': 'function', 'function': {'name': 'f'}}]}"_j;
  must_refuse(server, "/v1/chat/completions", chat,
              {{"{'messages': null}"_j, "messages"},
               {"{'messages': []}"_j, "messages"},
               {"{'messages': [1]}"_j, "messages[0]"},
               {said("tool", "a"), "messages[0].tool_call_id"},
               {said("robot", "a"), "messages[0].role"},
               {said("user", nullptr), "messages[0].content"},
               {said("user", 7), "messages[0].content"},
               {said("user", "[{'type': 'image_url'}]"_j), "messages[0].content[0].type"},
               {said("user", "[{'type': 'text', 'text': null}]"_j), "messages[0].content[0].text"},
               {said("user", std::string(500, 'a')), "messages"},
               {"{'messages': [{'role': 'user', 'content': 'a', 'function_call': [1]}]}"_j,
                "messages[0].function_call"},
               {called("{"), "messages[0].tool_calls[0].function.arguments"},
               {called("[]"), "messages[0].tool_calls[0].function.arguments"},
               {"{'tools': [1]}"_j, "tools[0]"},
               {"{'tools': [{'type': 'functoin', 'function': {'name': 'f'}}]}"_j, "tools[0].type"},
               {"{'tools': [{'type': 'function'}]}"_j, "tools[0].function"},
               {"{'tools': [{'type': 'function', 'function': {'name': 'a b'}}]}"_j,
                "tools[0].function.name"},
               {Json{{"tools", {f["tools"][0], f["tools"][0]}}}, "tools[1].function.name"},
               {f | "{'tool_choice': 'maybe'}"_j, "tool_choice"},
               {f | "{'tool_choice': {'type': 'function', 'name': 'g'}}"_j, "tool_choice"},
               {"{'tool_choice': 'required'}"_j, "tool_choice"},
               {"{'parallel_tool_calls': 1}"_j, "parallel_tool_calls"},
               {"{'chat_template_kwargs': 1}"_j, "chat_template_kwargs"},
               {"{'continue_final_message': true}"_j, "continue_final_message"},
               {"{'add_generation_prompt': false}"_j, "add_generation_prompt"},
               {"{'top_logprobs': 3}"_j, "top_logprobs"},
               {"{'logprobs': 3}"_j, "logprobs"},
               {"{'prompt': 'a'}"_j, "prompt"},
               {"{'echo': true}"_j, "echo"},
               {"{'suffix': 'x'}"_j, "suffix"},
               {"{'parse_special': true}"_j, "parse_special"}});
  server.post("/tokenize", "{'prompt': 'a', 'add_specail_tokens': true}"_j)
      .must_name("add_specail_tokens");
  server.post("/tokenize", Json::object()).must_name("prompt");
  server.post("/detokenize", "{'tokens': [1, 99999]}"_j).must_name("tokens[1]");
  // The values that ask for nothing are taken.
  server
      .complete(R"({"prompt": "a", "frequency_penalty": 0, "presence_penalty": 0.0, "best_of": 1,
          "suffix": null, "user": "me", "seed": null, "tools": [], "max_tokens": 2,
          "model": "tiny"})"_j)
      .must_be(200);
  REQUIRE(server.metric("texts_running") == 0);
}

TEST_CASE("templates get chat_template_kwargs, and their errors are returned", "[llmserve]") {
  const ScratchDirectory scratch;
  const std::string path = scratch.write(
      "own.jinja",
      "{% if messages[0].role == 'system' %}{{ raise_exception('No system, please') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if loud is true %}!!!{% endif %}"
      "{{ 1 + nothing if odd is defined }}");
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", path});
  const auto with = [](const Json& variables) {
    return Json{{"messages", question("a tiny hen")}, {"chat_template_kwargs", variables}};
  };
  const Json plain = server.tokens({{"messages", question("a tiny hen")}});
  for (const Json& nothing : "[{}, {'loud': false}, {'messages': 1}]"_j)
    CHECK(server.tokens(with(nothing)) == plain);
  CHECK(server.tokens(with("{'loud': true}"_j)).size() > plain.size());
  const std::string chat = "/v1/chat/completions";
  server.post(chat, with("{'loud': true}"_j) | "{'max_tokens': 1}"_j).must_be(200);
  server.post(chat, with("[1]"_j)).must_name("chat_template_kwargs", {"an object"});
  for (const Json& odd : "[{'odd': 1}, {'odd': 2}]"_j)
    server.post(chat, with(odd)).must_name("messages", {"line 1: 'nothing' is undefined"});
  CHECK(server.get("/props").at("/chat_template") == read_file(path));
}

}  // namespace llm::test
