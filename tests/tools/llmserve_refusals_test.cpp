// What llmserve refuses, field by field.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
TEST_CASE("what llmserve cannot do is refused by field", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "100", "--max-tokens", "60"});
  struct Refused {
    Json more;
    std::string param;
    int status = 400;
  };
  const std::vector<Refused> both = {
      {{{"temprature", 1}}, "temprature"},
      {{{"max_tokens", 2}, {"maxTokens", 1}}, "maxTokens"},
      {{{"topP", 7}}, "topP"},
      {{{"sampling_method", 1}}, "sampling_method"},
      {{{"model", "gpt-4"}}, "model", 404},
      {{{"model", 4}}, "model", 404},
      {{{"temperature", "hot"}}, "temperature"},
      {{{"temperature", -1}}, "temperature"},
      {{{"top_p", 1.5}}, "top_p"},
      {{{"top_k", 1.5}}, "top_k"},
      {{{"min_p", -0.1}}, "min_p"},
      {{{"seed", 1.0e30}}, "seed"},
      {{{"seed", 18446744073709551615ULL}}, "seed"},
      {{{"n", 0}}, "n"},
      {{{"n", 129}}, "n"},
      {{{"max_tokens", -3}}, "max_tokens"},
      {{{"max_tokens", 1.5}}, "max_tokens"},
      {{{"top_k", -2}}, "top_k"},
      {{{"repeat_penalty", 1.1}, {"repetition_penalty", 1.2}}, "repetition_penalty"},
      {{{"stop", {"a", 1}}}, "stop"},
      {{{"stop", ""}}, "stop"},
      {{{"stop", std::vector<std::string>(17, "x")}}, "stop"},
      {{{"logit_bias", {{"999999", 1}}}}, "logit_bias"},
      {{{"logit_bias", {{"1x", 1}}}}, "logit_bias"},
      {{{"logit_bias", {{"1", 101}}}}, "logit_bias"},
      {{{"logit_bias", {1}}}, "logit_bias"},
      {{{"stream", 1}}, "stream"},
      {{{"stream", true}, {"logits_hash", true}}, "logits_hash"},
      {{{"stream", true}, {"receipt", true}}, "receipt"},
      {{{"stream_options", Json::object()}}, "stream_options"},
      {{{"stream", true}, {"stream_options", {{"x", 1}}}}, "stream_options.x"},
      {{{"frequency_penalty", 2.5}}, "frequency_penalty"},
      {{{"presence_penalty", "x"}}, "presence_penalty"},
      {{{"dry_multiplier", -0.8}}, "dry_multiplier"},
      {{{"dry_sequence_breakers", {"x"}}}, "dry_sequence_breakers"},
      {{{"mirostat", 2}}, "mirostat"},
      {{{"typical_p", 1.9}}, "typical_p"},
      {{{"min_tokens", -1}}, "min_tokens"},
      {{{"best_of", 2}}, "best_of"},
      {{{"response_format", {{"type", "xml"}}}}, "response_format.type"},
      {{{"response_format", {{"type", "text"}, {"x", 1}}}}, "response_format.x"},
      {{{"response_format", "text"}}, "response_format"},
      {{{"regex", 1}}, "regex"},
  };
  const auto refuses = [&](const std::string& path, Json body, const Refused& refused) {
    body.update(refused.more);
    const Reply reply = server.post(path, body).must_name(refused.param, {}, refused.status);
    CHECK(reply.json()["error"]["type"] == "invalid_request_error");
  };
  const Json completion = {{"prompt", "a"}};
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  for (const Refused& refused : both) {
    refuses("/v1/completions", completion, refused);
    refuses("/v1/chat/completions", chat, refused);
  }
  for (const Refused& refused : std::vector<Refused>{
           {{{"prompt", nullptr}}, "prompt"},
           {{{"prompt", 1}}, "prompt"},
           {{{"prompt", Json::array()}}, "prompt"},
           {{{"prompt", {1, 2, 99999}}}, "prompt[2]"},
           {{{"prompt", {1, -2}}}, "prompt[1]"},
           {{{"prompt", {{1}, {2, 1.5}}}}, "prompt[1][1]"},
           {{{"prompt", {"a", 3}}}, "prompt[1]"},
           {{{"prompt", {"a", Json::array()}}}, "prompt[1]"},
           {{{"prompt", std::vector<int>(101, 3)}}, "prompt"},
           {{{"logprobs", 21}}, "logprobs"},
           {{{"logprobs", 20},
             {"n", 20},
             {"max_tokens", 10},
             {"echo", true},
             {"prompt", std::vector<std::vector<int>>(40, std::vector<int>(90, 3))}},
            "logprobs"},
           {{{"logprobs", true}}, "logprobs"},
           {{{"suffix", "x"}}, "suffix"},
           {{{"parse_special", 1}}, "parse_special"},
           {{{"echo", true}, {"logprobs", 1}, {"stream", true}}, "echo"},
           {{{"messages", {1}}}, "messages"},
           {{{"tools", {1}}}, "tools"},
       }) {
    refuses("/v1/completions", completion, refused);
  }
  const auto message = [](const Json& role, const Json& content) {
    return Json{{"role", role}, {"content", content}};
  };
  const auto tool = [](const char* name) {
    return Json{{"type", "function"}, {"function", {{"name", name}}}};
  };
  const auto called = [](const char* arguments) {
    const Json function = {{"name", "f"}, {"arguments", arguments}};
    return Json{{"role", "assistant"},
                {"tool_calls", {{{"id", "c1"}, {"type", "function"}, {"function", function}}}}};
  };
  const auto result = [](const char* id) {
    return Json{{"role", "tool"}, {"tool_call_id", id}, {"content", "7"}};
  };
  for (const Refused& refused : std::vector<Refused>{
           {{{"messages", nullptr}}, "messages"},
           {{{"messages", Json::array()}}, "messages"},
           {{{"messages", {1}}}, "messages[0]"},
           {{{"messages", {message("tool", "a")}}}, "messages[0].tool_call_id"},
           {{{"messages", {message("robot", "a")}}}, "messages[0].role"},
           {{{"messages", {message("user", nullptr)}}}, "messages[0].content"},
           {{{"tools", {1}}}, "tools[0]"},
           {{{"tools", {{{"type", "functoin"}, {"function", {{"name", "f"}}}}}}}, "tools[0].type"},
           {{{"tools", {{{"type", "function"}}}}}, "tools[0].function"},
           {{{"tools", {tool("a b")}}}, "tools[0].function.name"},
           {{{"tools", {tool("f"), tool("f")}}}, "tools[1].function.name"},
           {{{"tools", {tool("f")}}, {"tool_choice", "maybe"}}, "tool_choice"},
           {{{"tools", {tool("f")}}, {"tool_choice", {{"type", "function"}, {"name", "g"}}}},
            "tool_choice"},
           {{{"tool_choice", "required"}}, "tool_choice"},
           {{{"parallel_tool_calls", 1}}, "parallel_tool_calls"},
           {{{"chat_template_kwargs", 1}}, "chat_template_kwargs"},
           {{{"messages", {called("{"), result("c1")}}},
            "messages[0].tool_calls[0].function.arguments"},
           {{{"messages", {called("[]"), result("c1")}}},
            "messages[0].tool_calls[0].function.arguments"},
           {{{"messages", {message("user", "a")}}, {"continue_final_message", true}},
            "continue_final_message"},
           {{{"add_generation_prompt", false}}, "add_generation_prompt"},
           {{{"messages", {message("user", 7)}}}, "messages[0].content"},
           {{{"messages", {message("user", {{{"type", "image_url"}}})}}},
            "messages[0].content[0].type"},
           {{{"messages", {message("user", {{{"type", "text"}, {"text", nullptr}}})}}},
            "messages[0].content[0].text"},
           {{{"messages", {{{"role", "user"}, {"content", "a"}, {"function_call", {1}}}}}},
            "messages[0].function_call"},
           {{{"messages", {message("user", std::string(500, 'a'))}}}, "messages"},
           {{{"top_logprobs", 3}}, "top_logprobs"},
           {{{"logprobs", 3}}, "logprobs"},
           {{{"prompt", "a"}}, "prompt"},
           {{{"echo", true}}, "echo"},
           {{{"suffix", "x"}}, "suffix"},
           {{{"parse_special", true}}, "parse_special"},
       }) {
    refuses("/v1/chat/completions", chat, refused);
  }
  server.post("/tokenize", {{"prompt", "a"}, {"add_specail_tokens", true}})
      .must_name("add_specail_tokens");
  server.post("/tokenize", Json::object()).must_name("prompt");
  server.post("/detokenize", {{"tokens", {1, 99999}}}).must_name("tokens[1]");
  // The values that ask for nothing are taken.
  Json neutral = completion;
  neutral.update({{"frequency_penalty", 0},
                  {"presence_penalty", 0.0},
                  {"best_of", 1},
                  {"suffix", nullptr},
                  {"user", "me"},
                  {"seed", nullptr},
                  {"tools", Json::array()},
                  {"max_tokens", 2},
                  {"model", "tiny"}});
  server.complete(neutral).must_be(200);
  REQUIRE(server.metric("texts_running") == 0);
}

TEST_CASE("templates see chat_template_kwargs, and what they refuse is told", "[llmserve]") {
  const ScratchDirectory scratch;
  const std::string path = scratch.write(
      "own.jinja",
      "{% if messages[0].role == 'system' %}{{ raise_exception('No system, please') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if loud is true %}!!!{% endif %}"
      "{{ 1 + nothing if odd is defined }}");
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", path});
  const Json user = {{"role", "user"}, {"content", "a tiny hen"}};
  const auto answer = [&](Json body, const std::string& where = "/tokenize") {
    if (!body.contains("messages")) body["messages"] = {user};
    return server.post(where, body);
  };
  const Json plain = answer(Json::object()).json()["tokens"];
  CHECK(answer({{"chat_template_kwargs", Json::object()}}).json()["tokens"] == plain);
  CHECK(answer({{"chat_template_kwargs", {{"loud", false}}}}).json()["tokens"] == plain);
  CHECK(answer({{"chat_template_kwargs", {{"messages", 1}}}}).json()["tokens"] == plain);
  CHECK(answer({{"chat_template_kwargs", {{"loud", true}}}}).json()["tokens"].size() >
        plain.size());
  const std::string chat = "/v1/chat/completions";
  answer({{"max_tokens", 1}, {"chat_template_kwargs", {{"loud", true}}}}, chat).must_be(200);
  for (const auto& [body, param, words] : std::vector<std::tuple<Json, std::string, std::string>>{
           {{{"chat_template_kwargs", {1}}}, "chat_template_kwargs", "an object"},
           {{{"chat_template_kwargs", {{"odd", 1}}}}, "messages", "line 1: 'nothing' is undefined"},
           {{{"chat_template_kwargs", {{"odd", 2}}}}, "messages", "line 1"}}) {
    answer(body, chat).must_name(param, {words});
  }
  CHECK(server.get("/props").json()["chat_template"] == read_file(path));
}

}  // namespace llm::test
