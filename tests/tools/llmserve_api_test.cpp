// llmserve's API: its paths, what it refuses and how, and the effect of each option.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/tools/llmrun_process.h"
#include "tests/tools/llmserve_process.h"

namespace llm {
namespace {

using Json = nlohmann::json;
using test::Finished;
using test::Reply;
using test::Server;

const std::string kModel = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";

/// A directory with the tiny model.
class Tiny {
 public:
  Tiny() { path_ = directory_.write("tiny.gguf", test::TinyGguf::llama().bytes()); }
  std::vector<std::string> with(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {path_, "-q"});
    return more;
  }
  std::string path(std::string_view name) const { return directory_ / name; }

 private:
  test::ScratchDirectory directory_;
  std::string path_;
};

std::string param_of(const Reply& reply) {
  const Json error = reply.json()["error"];
  return error["param"].is_null() ? "" : error["param"].get<std::string>();
}

}  // namespace

TEST_CASE("llmserve tells of itself", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with());
  REQUIRE(server.get("/health").json() == Json{{"status", "ok"}});
  REQUIRE(server.get("/v1/health").json() == Json{{"status", "ok"}});
  const Json models = server.get("/v1/models").json();
  REQUIRE(models["object"] == "list");
  REQUIRE(models["data"][0]["id"] == "tiny");
  REQUIRE(server.get("/v1/models/tiny").json() == models["data"][0]);
  REQUIRE(server.get("/v1/models/other").status == 404);
  const Json ids = server.post("/tokenize", {{"prompt", "ab"}, {"model", "tiny"}}).json();
  REQUIRE(ids["count"] == ids["tokens"].size());
  REQUIRE(ids["tokens"][0] == 1);
  const Json bare =
      server.post("/tokenize", {{"prompt", "ab"}, {"add_special_tokens", false}}).json();
  REQUIRE(bare["count"].get<int>() + 1 == ids["count"].get<int>());
  REQUIRE(server.post("/detokenize", {{"tokens", ids["tokens"]}}).json()["prompt"] == "ab");
  REQUIRE(server.get("/tokenizer_info").json()["bos_token"] == "<s>");
  const Json props = server.get("/props").json();
  REQUIRE(props["default_generation_settings"]["n_ctx"] == models["data"][0]["max_model_len"]);
  REQUIRE(props["default_generation_settings"]["params"]["temperature"] == 1);
  REQUIRE(props["total_slots"] == 16);
  REQUIRE(props["model_alias"] == "tiny");
  REQUIRE(props["bos_token"] == "<s>");
  REQUIRE(props["chat_template"] == "");
  const Reply page = server.get("/?anything");
  REQUIRE(page.header("Content-Type") == "text/html; charset=utf-8");
  for (const char* part : {"page.css", "markdown.js", "page.js"}) {
    const std::string text = test::read_file(LLM_SOURCE_DIR "/tools/llmserve/" + std::string(part));
    CAPTURE(part);
    REQUIRE(page.body.find(text) != std::string::npos);
  }
  for (const char* outside : {"http://", "https://", "//cdn", "@import", "innerHTML", ".js@"})
    REQUIRE(page.body.find(outside) == std::string::npos);
  server.complete({{"prompt", "a"}, {"max_tokens", 3}, {"ignore_eos", true}});
  const std::string metrics = server.get("/metrics").body;
  for (const std::string line :
       {"llmserve_texts_finished_total 1\n", "llmserve_generated_tokens_total 3\n",
        "llmserve_prompt_tokens_total 2\n", "llmserve_kv_pages_in_use 0\n",
        "llmserve_time_to_first_token_seconds_count 1\n",
        "llmserve_time_between_tokens_seconds_count 2\n",
        "llmserve_step_texts_bucket{le=\"1\"} 3\n", "llmserve_step_texts_bucket{le=\"+Inf\"} 3\n",
        "llmserve_http_answers_total{status=\"404\"} 1\n",
        "# TYPE llmserve_texts_running gauge\n"}) {
    CAPTURE(line, metrics);
    REQUIRE(metrics.find(line) != std::string::npos);
  }
  const Finished run = server.end();
  REQUIRE(run.exit_code == 0);
  REQUIRE(run.err == "");
}

TEST_CASE("what llmserve cannot do is refused by field", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with({"--chat-template", "zephyr", "-c", "100", "--max-tokens", "60"}));
  struct Refused {
    Json more;
    std::string param;
    int status = 400;
  };
  const std::vector<Refused> both = {
      {{{"bogus", 1}}, "bogus"},
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
      {{{"max_tokens", 61}}, "max_tokens"},
      {{{"max_tokens", -1}}, "max_tokens"},
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
      {{{"frequency_penalty", 0.5}}, "frequency_penalty"},
      {{{"presence_penalty", 1}}, "presence_penalty"},
      {{{"best_of", 2}}, "best_of"},
      {{{"tools", {1}}}, "tools"},
      {{{"response_format", {{"type", "json_object"}}}}, "response_format"},
      {{{"user", 1}}, "user"},
  };
  const auto refuses = [&](const std::string& path, Json body, const Refused& refused) {
    body.update(refused.more);
    const Reply reply = server.post(path, body);
    CAPTURE(path, body.dump(), reply.body);
    CHECK(reply.status == refused.status);
    CHECK(param_of(reply) == refused.param);
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
           {{{"prompt", std::vector<int>(90, 3)}, {"max_tokens", 12}}, "max_tokens"},
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
           {{{"messages", Json::array()}}, "messages"},
       }) {
    refuses("/v1/completions", completion, refused);
  }
  const auto message = [](const Json& role, const Json& content) {
    return Json{{"role", role}, {"content", content}};
  };
  for (const Refused& refused : std::vector<Refused>{
           {{{"messages", nullptr}}, "messages"},
           {{{"messages", Json::array()}}, "messages"},
           {{{"messages", {1}}}, "messages[0]"},
           {{{"messages", {message("tool", "a")}}}, "messages[0].role"},
           {{{"messages", {message("assistant", "a")}}}, "messages[0].role"},
           {{{"messages", {message("system", "a")}}}, "messages[0].role"},
           {{{"messages", {message("user", "a"), message("system", "b"), message("user", "a")}}},
            "messages[1].role"},
           {{{"messages", {message("user", 7)}}}, "messages[0].content"},
           {{{"messages", {message("user", {{{"type", "image_url"}}})}}},
            "messages[0].content[0].type"},
           {{{"messages", {message("user", {{{"type", "text"}, {"text", nullptr}}})}}},
            "messages[0].content[0].text"},
           {{{"messages", {{{"role", "user"}, {"content", "a"}, {"x", 1}}}}}, "messages[0].x"},
           {{{"messages", {message("user", std::string(500, 'a'))}}}, "messages"},
           {{{"top_logprobs", 3}}, "top_logprobs"},
           {{{"logprobs", 3}}, "logprobs"},
           {{{"max_tokens", 3}, {"max_completion_tokens", 3}}, "max_completion_tokens"},
           {{{"prompt", "a"}}, "prompt"},
           {{{"echo", true}}, "echo"},
           {{{"suffix", "x"}}, "suffix"},
           {{{"parse_special", true}}, "parse_special"},
       }) {
    refuses("/v1/chat/completions", chat, refused);
  }
  REQUIRE(param_of(server.post("/tokenize", {{"prompt", "a"}, {"x", 1}})) == "x");
  REQUIRE(param_of(server.post("/tokenize", Json::object())) == "prompt");
  REQUIRE(param_of(server.post("/detokenize", {{"tokens", {1, 99999}}})) == "tokens[1]");
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
  REQUIRE(server.complete(neutral).status == 200);
  REQUIRE(server.metric("texts_running") == 0);
}

TEST_CASE("null asks for nothing, whatever the field", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with({"--chat-template", "zephyr", "-c", "400"}));
  // A reply as the openai package's model_dump() gives it back.
  const Json reply = {{"role", "assistant"},    {"content", "b"},      {"refusal", nullptr},
                      {"annotations", nullptr}, {"audio", nullptr},    {"function_call", nullptr},
                      {"tool_calls", nullptr},  {"reasoning", nullptr}};
  const Json question = {{"role", "user"}, {"content", "a"}, {"name", nullptr}};
  const Json chat = {{"messages", {question, reply, question}},
                     {"max_tokens", 1},
                     {"audio", nullptr},
                     {"reasoning_effort", nullptr}};
  const Reply answer = server.post("/v1/chat/completions", chat);
  CAPTURE(answer.body);
  REQUIRE(answer.status == 200);
  Json empty = reply;
  empty.update({{"annotations", Json::array()}, {"tool_calls", Json::array()}});
  REQUIRE(server
              .post("/v1/chat/completions",
                    {{"messages", {question, empty, question}}, {"max_tokens", 1}})
              .status == 200);
  for (const char* field : {"annotations", "audio", "function_call", "refusal"}) {
    Json other = reply;
    other[field] = {{"id", 1}};
    CAPTURE(field);
    REQUIRE(param_of(
                server.post("/v1/chat/completions", {{"messages", {question, other, question}}})) ==
            std::string("messages[1].") + field);
  }
}

TEST_CASE("a model may have several names", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with({"-a", "mine,gpt-4o", "--alias", "other"}));
  const Json models = server.get("/v1/models").json()["data"];
  REQUIRE(models.size() == 3);
  for (const char* name : {"mine", "gpt-4o", "other"}) {
    CAPTURE(name);
    const Json body = {{"prompt", "a"}, {"max_tokens", 1}, {"model", name}};
    REQUIRE(server.complete(body).json()["model"] == "mine");
    REQUIRE(server.get(std::string("/v1/models/") + name).json()["id"] == name);
    REQUIRE(server.post("/tokenize", {{"prompt", "a"}, {"model", name}}).status == 200);
  }
  const Reply reply = server.complete({{"prompt", "a"}, {"model", "tiny"}});
  REQUIRE(reply.status == 404);
  REQUIRE(reply.body.find(R"(need \"mine\" or \"gpt-4o\" or \"other\")") != std::string::npos);
}

TEST_CASE("the text of a gap is asked for by the vocabulary's tokens", "[llmserve]") {
  test::TinyGguf model = test::TinyGguf::llama();
  auto pieces = test::TinyGguf::pieces();
  // The last seven pieces, which nothing is merged from.
  const std::vector<std::string> texts = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                          "<|fim_pad|>",    "<|repo_name|>",  "<|file_sep|>"};
  const auto first = static_cast<int>(pieces.size() - texts.size());
  std::ranges::copy(texts, pieces.end() - static_cast<std::ptrdiff_t>(texts.size()));
  model.set_strings("tokenizer.ggml.tokens", pieces);
  const test::ScratchDirectory directory;
  Server server({directory.write("fim.gguf", model.bytes()), "-q", "-c", "200"});
  const auto ids = [&](const std::string& text) {
    return server.post("/tokenize", {{"prompt", text}, {"add_special_tokens", false}})
        .json()["tokens"]
        .get<std::vector<int>>();
  };
  // Without the dummy prefix.
  const auto inside = [&](const std::string& text) {
    const std::vector<int> x = ids("x");
    const std::vector<int> all = ids("x" + text);
    return std::vector<int>(all.begin() + static_cast<std::ptrdiff_t>(x.size()), all.end());
  };
  const auto joined = [](const std::vector<std::vector<int>>& parts) {
    std::vector<int> all;
    for (const std::vector<int>& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const std::vector<int> core =
      joined({{first}, ids("ab"), {first + 1}, inside("ba"), {first + 2}});
  const Json usual = {{"max_tokens", 8}, {"temperature", 0}, {"receipt", true}};
  Json body = usual;
  body.update({{"prompt", "ab"}, {"suffix", "ba"}});
  const Reply filled = server.complete(body);
  CAPTURE(filled.body);
  REQUIRE(filled.status == 200);
  const Json choice = filled.json()["choices"][0];
  REQUIRE(choice["receipt"]["prompt_ids"] == joined({{1}, core}));

  // The same gap by llama-server's path: the prompt was written behind the prefix.
  Json infill = {{"input_prefix", "a"}, {"input_suffix", "ba"}, {"prompt", "b"},
                 {"n_predict", 8},      {"temperature", 0},     {"cache_prompt", true}};
  const Json gap = server.post("/infill", infill).json();
  REQUIRE(gap["content"] == choice["text"]);
  REQUIRE(gap["tokens_evaluated"] == core.size() + 1);
  REQUIRE(gap["stop"] == true);
  REQUIRE(gap["stop_type"] == (choice["finish_reason"] == "length" ? "limit" : "eos"));
  infill["stream"] = true;
  std::string text;
  const auto events = test::events_of(server.post("/infill", infill).body);
  for (const std::string& event : events) {
    const Json piece = Json::parse(event);
    text += piece["content"].get<std::string>();
    REQUIRE(piece["stop"] == (&event == &events.back()));
  }
  REQUIRE(text == choice["text"]);

  // Other files stand before it; those that find no room are left out, the first ones first.
  const auto file = [&](const std::string& name, const std::string& content) {
    return joined({{first + 5}, inside(name + "\n" + content)});
  };
  infill.update({{"stream", false}, {"n_predict", 1}});
  const auto evaluated = [&](const Json& extra) {
    infill["input_extra"] = extra;
    const Reply reply = server.post("/infill", infill);
    CAPTURE(reply.body);
    REQUIRE(reply.status == 200);
    return reply.json()["tokens_evaluated"].get<std::size_t>();
  };
  const std::size_t around =
      1 + core.size() + 1 + inside("myproject\n").size() + file("filename", "").size();
  const Json a = {{"filename", "a"}, {"text", "aba"}};
  const Json b = {{"filename", "b"}, {"text", "bab"}};
  const Json large = {{"filename", "c"}, {"text", std::string(300, 'a')}};
  REQUIRE(evaluated(Json::array({a, b})) ==
          around + file("a", "aba").size() + file("b", "bab").size());
  REQUIRE(evaluated(Json::array({large, b})) == around + file("b", "bab").size());
  REQUIRE(evaluated(Json::array({large})) == core.size() + 1);
  infill.erase("input_extra");

  // What ends a text of such a model.
  const Json ended =
      server.complete({{"prompt", "ab"}, {"logit_bias", {{std::to_string(first + 5), 100}}}})
          .json()["choices"][0];
  REQUIRE(ended["finish_reason"] == "stop");
  REQUIRE(ended["text"] == "");

  const auto refused = [&](const std::string& path, const Json& more, const std::string& param) {
    Json changed = path == "/infill" ? infill : body;
    changed.update(more);
    const Reply reply = server.post(path, changed);
    CAPTURE(path, changed.dump(), reply.body);
    CHECK(reply.status == 400);
    CHECK(param_of(reply) == param);
  };
  refused("/v1/completions", {{"echo", true}}, "echo");
  refused("/v1/completions", {{"prompt", {1, 5}}}, "suffix");
  refused("/v1/completions", {{"suffix", 5}}, "suffix");
  refused("/v1/completions", {{"suffix", std::string(300, 'a')}}, "prompt");
  refused("/infill", {{"n", 2}}, "n");
  refused("/infill", {{"receipt", true}}, "receipt");
  refused("/infill", {{"n_predict", -2}}, "n_predict");
  refused("/infill", {{"input_extra", Json::array({Json{{"text", 1}}})}}, "input_extra[0].text");
  refused("/infill", {{"input_extra", "a"}}, "input_extra");
  refused("/infill", {{"bogus", 1}}, "bogus");
  refused("/infill", {{"input_prefix", std::string(300, 'a')}}, "input_prefix");

  const Tiny tiny;
  Server without(tiny.with());
  for (const auto& [path, more, param] : {std::tuple("/v1/completions", body, "suffix"),
                                          std::tuple("/infill", infill, "input_prefix")}) {
    const Reply reply = without.post(path, more);
    CAPTURE(path, reply.body);
    REQUIRE(reply.status == 400);
    REQUIRE(param_of(reply) == param);
    REQUIRE(reply.body.find("no tokens for a text's prefix, suffix and middle") !=
            std::string::npos);
  }
}

TEST_CASE("special tokens are read in a text only where that is asked for", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with({"--chat-template", "zephyr"}));
  const auto ids = [&](const Json& more) {
    Json body = {{"prompt", "a</s>b"}};
    body.update(more);
    return server.post("/tokenize", body).json()["tokens"].get<std::vector<int>>();
  };
  REQUIRE(std::ranges::count(ids({{"parse_special", true}}), 2) == 1);
  REQUIRE(std::ranges::count(ids({{"parse_special", false}}), 2) == 0);
  REQUIRE(std::ranges::count(ids(Json::object()), 2) == 0);
  for (const bool parse : {true, false}) {
    const Json body = {
        {"prompt", "a</s>b"}, {"max_tokens", 1}, {"parse_special", parse}, {"receipt", true}};
    const Json choice = server.complete(body).json()["choices"][0];
    REQUIRE(choice["receipt"]["prompt_ids"] == ids({{"parse_special", parse}}));
    REQUIRE(choice["receipt"]["options"]["parse_special"] == parse);
  }
  const Json messages = {{{"role", "user"}, {"content", "a"}}};
  REQUIRE(param_of(server.post("/tokenize", {{"messages", messages}, {"parse_special", true}})) ==
          "parse_special");
}

TEST_CASE("a text gets what few KV pages hold", "[llmserve]") {
  Server server({kModel, "-q", "--kv-memory", "1", "--parallel", "1", "-c", "100000",
                 "--chat-template", "zephyr"});
  const auto context = server.get("/v1/models").json()["data"][0]["max_model_len"].get<int>();
  REQUIRE(context == 256 * static_cast<int>(server.metric("kv_pages")));
  REQUIRE(context < 100000);
  // It ends at once, because the end is all but certain.
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                     {"logit_bias", {{"2", 100}}}};
  const Reply reply = server.post("/v1/chat/completions", chat);
  CAPTURE(reply.body);
  REQUIRE(reply.status == 200);
  const Reply refused = server.complete({{"prompt", "a"}, {"max_tokens", context + 1}});
  REQUIRE(refused.status == 400);
  REQUIRE(param_of(refused) == "max_tokens");
}

TEST_CASE("the description of the API has the fields and paths that there are", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with({"--chat-template", "zephyr"}));
  const Json api = server.get("/openapi.json").json();
  for (const auto& [path, methods] : api["paths"].items()) {
    const bool is_post = methods.contains("post");
    const int status = is_post ? server.post(path, {{"zzz", 1}}).status : server.get(path).status;
    CAPTURE(path);
    CHECK(status == (is_post ? 400 : path == "/v1/models/{model}" ? 404 : 200));
  }
  struct Body {
    const char* path;
    const char* schema;
  };
  for (const Body& body :
       {Body{"/v1/completions", "CompletionRequest"}, Body{"/v1/chat/completions", "ChatRequest"},
        Body{"/infill", "InfillRequest"}, Body{"/tokenize", "TokenizeRequest"},
        Body{"/detokenize", "DetokenizeRequest"}}) {
    // A field that there is has another fault than not to be known.
    for (const auto& [name, schema] :
         api["components"]["schemas"][body.schema]["properties"].items()) {
      const Reply reply = server.post(body.path, {{name, {{"wrong", "type"}}}});
      CAPTURE(body.path, name, reply.body);
      CHECK(reply.body.find("not supported, need none of that name") == std::string::npos);
    }
  }
}

TEST_CASE("a model without a known chat template has no chat", "[llmserve]") {
  const Tiny tiny;
  Server server(tiny.with());
  const Reply reply =
      server.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}}});
  REQUIRE(reply.status == 400);
  REQUIRE(reply.body.find("--chat-template") != std::string::npos);
}

TEST_CASE("a chat template whose markers the vocabulary lacks is refused at the start",
          "[llmserve]") {
  const Tiny tiny;
  std::vector<std::string> arguments = tiny.with({"--chat-template", "chatml"});
  const Finished run = test::run_tool("llmserve", arguments);
  REQUIRE(run.exit_code == 2);
  REQUIRE(run.out.empty());
  REQUIRE(run.err.find("--chat-template: found chatml, whose marker <|im_start|> is no token") !=
          std::string::npos);
}

TEST_CASE("the key is asked for, but for health", "[llmserve]") {
  const Tiny tiny;
  setenv("LLM_API_KEY", "from the environment", 1);
  Server by_environment(tiny.with());
  unsetenv("LLM_API_KEY");
  Server server(tiny.with({"--api-key", "secret"}));
  REQUIRE(by_environment.get("/v1/models").status == 401);
  for (const char* path : {"/v1/models", "/metrics", "/v1/models/tiny"}) {
    for (const char* header : {"", "Authorization: Bearer secre\r\n",
                               "Authorization: Bearer secrets\r\n", "Authorization: secret\r\n",
                               "Authorization: Bearer \r\n", "Authorization: Basic secret\r\n"}) {
      const Reply reply = server.ask(test::get_text(path, header));
      CAPTURE(path, header);
      REQUIRE(reply.status == 401);
      REQUIRE(reply.json()["error"]["code"] == "invalid_api_key");
    }
    REQUIRE(server.ask(test::get_text(path, "Authorization: Bearer secret\r\n")).status == 200);
  }
  REQUIRE(server.get("/health").status == 200);
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    REQUIRE(server.post(path, {{"prompt", "a"}}).status == 401);
  // Nobody without the key makes the server read a body.
  REQUIRE(
      server.ask("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")
          .status == 401);
}

TEST_CASE("each option has its effect on what is served", "[llmserve]") {
  const Tiny tiny;
  const auto fingerprint = [](const Server& server) {
    return server.get("/v1/models").json()["data"][0]["system_fingerprint"].get<std::string>();
  };
  Server usual(tiny.with());
  const std::string print = fingerprint(usual);
  REQUIRE(print.ends_with("-int8-f16"));
  Server other(tiny.with({"--kv", "q8", "--compute", "f32", "--alias", "mine", "--host",
                          "127.0.0.2", "-c", "64", "--isa", "scalar"}));
  test::RawClient client(other.port());
  REQUIRE_FALSE(client.connected());  // it listens elsewhere
  const Finished run = other.end();
  REQUIRE(run.out.starts_with("http://127.0.0.2:"));
  Server facts(tiny.with({"--kv", "q8", "--compute", "f32", "--alias", "mine", "-c", "64"}));
  const Json model = facts.get("/v1/models").json()["data"][0];
  REQUIRE(model["id"] == "mine");
  REQUIRE(model["max_model_len"] == 64);
  REQUIRE(model["system_fingerprint"].get<std::string>().ends_with("-f32-q8"));
  // One page is 256 positions; a MiB is more than the tiny model's two full contexts need.
  Server small({kModel, "-q", "--kv-memory", "2", "--parallel", "2", "--chunk", "2"});
  Server large({kModel, "-q"});
  REQUIRE(small.metric("kv_pages") < large.metric("kv_pages"));
  REQUIRE(small.complete({{"prompt", "a b c d e f"}, {"max_tokens", 1}}).status == 200);
  REQUIRE(large.complete({{"prompt", "a b c d e f"}, {"max_tokens", 1}}).status == 200);
  REQUIRE(large.metric("steps_total") == 1);
  REQUIRE(small.metric("steps_total") > 2);
}

TEST_CASE("servers share the weights of a packed cache", "[llmserve]") {
  const Tiny tiny;
  const test::ScratchDirectory cache;
  Server first(tiny.with({"--packed-cache", cache.path()}));
  REQUIRE(cache.count() == 1);
  Server second(tiny.with({"--packed-cache", cache.path()}));
  const Json body = {{"prompt", "a"}, {"max_tokens", 5}, {"temperature", 0}, {"logits_hash", true}};
  const std::string hash = first.complete(body).header("x-logits-sha256");
  REQUIRE(hash.size() == 64);
  REQUIRE(second.complete(body).header("x-logits-sha256") == hash);
}

TEST_CASE("llmserve says what it does on stderr", "[llmserve]") {
  const Tiny tiny;
  std::vector<std::string> words = tiny.with({"--isa", "scalar"});
  words.erase(words.begin() + 1);  // -q
  Server server(words);
  server.complete({{"prompt", "a"}, {"max_tokens", 2}, {"ignore_eos", true}});
  server.get(
      "/nothing\xc2\x9b"
      "2J");  // a terminal's control sequence
  const Finished run = server.end();
  CAPTURE(run.err);
  REQUIRE(run.err.find("127.0.0.1 POST /v1/completions 200 ") != std::string::npos);
  REQUIRE(run.err.find(" ms 2+2 tokens\n") != std::string::npos);
  REQUIRE(run.err.find(", scalar, 1 threads, ") != std::string::npos);
  REQUIRE(run.err.find('\x1b') == std::string::npos);
}

TEST_CASE("what llmserve cannot start with is refused by name", "[llmserve]") {
  const Tiny tiny;
  const auto refused = [&](std::vector<std::string> more, int exit_code, std::string_view words) {
    more.insert(more.begin(), {tiny.path("tiny.gguf"), "-q", "-t", "1", "--port", "0"});
    const Finished run = test::run_tool("llmserve", more);
    CAPTURE(run.err);
    CHECK(run.exit_code == exit_code);
    CHECK(run.err.find(words) != std::string::npos);
  };
  Server taken(tiny.with());
  refused({"--port", std::to_string(taken.port())}, 4, "--port: 127.0.0.1:");
  refused({"--host", "no such host"}, 4, "--host: no such host");
  refused({"--chunk", "4", "--parallel", "5"}, 2, "--chunk: found 4, need --parallel (5) or more");
  refused({"--port", "65536"}, 2, "--port");
  refused({"--verify-model"}, 4, "tiny.gguf.manifest");
  auto model = test::TinyGguf::llama();
  model.trailing = "junk";
  const test::ScratchDirectory directory;
  const std::string odd = directory.write("odd.gguf", model.bytes());
  REQUIRE(test::run_tool("llmserve", {odd, "--strict", "-q", "--port", "0"}).exit_code == 3);
  REQUIRE(test::run_tool("llmserve", {"/none", "--port", "0"}).exit_code == 4);
  // The port is asked for first: a model may take long to load.
  const Finished unread =
      test::run_tool("llmserve", {"/none", "--port", std::to_string(taken.port())});
  CAPTURE(unread.err);
  REQUIRE(unread.err.find("--port: 127.0.0.1:") != std::string::npos);
  REQUIRE(unread.err.find("/none") == std::string::npos);
  REQUIRE(test::run_tool("llmserve", {}).exit_code == 2);
}

TEST_CASE("options of other servers get a true sentence", "[llmserve]") {
  struct Advice {
    std::vector<std::string> words;
    const char* says;
  };
  for (const Advice& advice : std::vector<Advice>{
           {{"-np", "4"}, "--parallel says"},
           {{"-cb"}, "always so here"},
           {{"--metrics"}, "always there, at /metrics"},
           {{"--slots"}, "there are no slots"},
           {{"--temp", "0.5"}, "each request says that"},
           {{"--seed=1"}, "each request says that"},
           {{"-n", "5"}, "--max-tokens limits an answer"},
           {{"-ub", "64"}, "--chunk says"},
           {{"-b", "64"}, "--chunk says"},
           {{"-m", "m.gguf"}, "the first argument"},
           {{"-hf", "owner/repo"}, "nothing is downloaded"},
           {{"--ssl-key-file", "x"}, "a proxy"},
           {{"--max-model-len", "64"}, "the context is -c"},
       }) {
    std::vector<std::string> words = advice.words;
    words.insert(words.begin(), "m.gguf");
    const Finished run = test::run_tool("llmserve", words);
    CAPTURE(advice.words[0], run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(advice.says) != std::string::npos);
  }
}

TEST_CASE("a model that is named as hubs name it gets -hf's advice", "[llmserve]") {
  for (const std::string tool : {"llmserve", "llmrun", "llmcheck"}) {
    for (const std::string name :
         {"no-such-owner/repo", "no-such-owner/repo-GGUF:Q4_K_M", "no-such-model:tag"}) {
      std::vector<std::string> words = {name};
      if (tool == "llmserve") words.insert(words.end(), {"--port", "0"});
      if (tool == "llmcheck") words.emplace_back("--self");
      const Finished run = test::run_tool(tool, words);
      CAPTURE(tool, name, run.err);
      CHECK(run.exit_code == 4);
      CHECK(run.err.find(name) != std::string::npos);
      CHECK(run.err.find("nothing is downloaded; download the GGUF first and give its path") !=
            std::string::npos);
    }
  }
  for (const std::string path : {"/none", "no-such.gguf", "./owner/repo", "no-such-model"}) {
    const Finished run = test::run_tool("llmrun", {path});
    CAPTURE(path, run.err);
    CHECK(run.exit_code == 4);
    CHECK(run.err.find("downloaded") == std::string::npos);
  }
}

}  // namespace llm
