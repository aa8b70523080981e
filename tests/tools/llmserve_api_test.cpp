// llmserve's API: its paths, its description, and what its fields do.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
TEST_CASE("/v1 may be left out of a path", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve();
  CHECK(server.get("/models").json() == server.get("/v1/models").json());
  CHECK(server.get("/models/tiny").json() == server.get("/v1/models/tiny").json());
  for (const char* path : {"/models/other", "/models/", "/v1", "/v", "/v1/v1/models"})
    server.get(path).must_be(404);
}

TEST_CASE("llmserve tells of itself", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve();
  for (const char* path : {"/health", "/v1/health"})
    REQUIRE(server.get(path).at("") == "{'status': 'ok'}"_j);
  const Json models =
      server.get("/v1/models").must_match("{'object': 'list', 'data': [{'id': 'tiny'}]}"_j);
  REQUIRE(server.get("/v1/models/tiny").json() == models["data"][0]);
  server.get("/v1/models/other").must_be(404);
  const Json ids = server.post("/tokenize", "{'prompt': 'ab', 'model': 'tiny'}"_j).json();
  REQUIRE(ids["count"] == ids["tokens"].size());
  REQUIRE(ids["tokens"][0] == 1);
  const Json bare = server.tokens("{'prompt': 'ab', 'add_special_tokens': false}"_j);
  REQUIRE(bare.size() + 1 == ids["count"]);
  REQUIRE(server.post("/detokenize", {{"tokens", ids["tokens"]}}).at("/prompt") == "ab");
  server.get("/tokenizer_info").must_match("{'bos_token': '<s>'}"_j);
  const Json settings = {{"n_ctx", models["data"][0]["max_model_len"]},
                         {"params", {{"temperature", 1}}}};
  server.get("/props").must_match(
      Json{{"default_generation_settings", settings}} |
      "{'total_slots': 16, 'model_alias': 'tiny', 'bos_token': '<s>', 'chat_template': ''}"_j);
  server.complete("{'prompt': 'a', 'max_tokens': 3, 'ignore_eos': true}"_j);
  const std::string metrics =
      server.get("/metrics").must_be(200, {"# TYPE llmserve_texts_running gauge\n"}).body;
  for (const auto& [name, value] :
       std::map<std::string, int>{{"texts_finished_total{model=\"tiny\"}", 1},
                                  {"generated_tokens_total{model=\"tiny\"}", 3},
                                  {"prompt_tokens_total{model=\"tiny\"}", 2},
                                  {"kv_pages_in_use{model=\"tiny\"}", 0},
                                  {"time_to_first_token_seconds_count{model=\"tiny\"}", 1},
                                  {"time_between_tokens_seconds_count{model=\"tiny\"}", 2},
                                  {"step_texts_bucket{model=\"tiny\",le=\"1\"}", 3},
                                  {"step_texts_bucket{model=\"tiny\",le=\"+Inf\"}", 3},
                                  {"http_answers_total{status=\"404\"}", 1}})
    CHECK_THAT(metrics, Contains(fmt::format("\nllmserve_{} {}\n", name, value)));
  REQUIRE(server.end().must_end(0).err == "");
}

TEST_CASE("the page and all of its files come from the server", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--api-key", "secret"});
  REQUIRE(server.get("/").body == server.get("/page/page.html").body);
  std::size_t n_files = 0;
  const auto check = [&](const std::string& folder, const std::map<std::string, std::string>& types,
                         const char* caching) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const auto type = types.find(entry.path().extension());
      if (!entry.is_regular_file() || type == types.end()) continue;
      const std::string name = std::filesystem::relative(entry.path(), folder);
      CAPTURE(name);
      const Reply reply = server.get("/page/" + name + "?anything");
      REQUIRE(reply.status == 200);
      REQUIRE((reply.body == read_file(entry.path())));
      CHECK(reply.header("Content-Type") == type->second);
      CHECK(reply.header("Cache-Control") == caching);
      const std::string policy = reply.header("Content-Security-Policy");
      CHECK(
          policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "
                             "style-src-attr 'unsafe-inline'; font-src 'self'; "));
      CHECK(policy.find("unsafe") == policy.rfind("unsafe"));
      ++n_files;
    }
  };
  const std::string own = LLM_SOURCE_DIR "/tools/llmserve/page";
  const std::string html = "text/html; charset=utf-8";
  const std::string css = "text/css; charset=utf-8";
  const std::string js = "text/javascript; charset=utf-8";
  check(own, {{".html", html}, {".css", css}, {".js", js}}, "no-cache");
  REQUIRE(n_files == 10);
  check(LLM_SOURCE_DIR "/third_party/page", {{".css", css}, {".js", js}, {".woff2", "font/woff2"}},
        "max-age=86400");
  REQUIRE(n_files > 25);
  for (const char* file : {"page.html", "page.css", "markdown.js", "tools.js", "server.js",
                           "store.js", "show.js", "conversation.js", "answer.js", "page.js"}) {
    const std::string text = read_file(own + "/" + file);
    for (const char* outside : {"http://", "https://", "//cdn", "@import", "innerHTML"})
      REQUIRE(text.find(outside) == std::string::npos);
  }
  for (const char* path : {"/page/", "/page/other.js", "/page/../page.html", "/page/katex/",
                           "/page/page_files.h", "/page/%2e%2e/page.html", "/page"})
    server.get(path).must_be(404);
}

TEST_CASE("null asks for nothing, whatever the field", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "400"});
  // A reply as the openai package's model_dump() gives it back.
  const Json reply = R"({"role": "assistant", "content": "b", "refusal": null, "annotations": null,
      "audio": null, "function_call": null, "tool_calls": null, "reasoning": null})"_j;
  const Json asked = "{'role': 'user', 'content': 'a', 'name': null}"_j;
  const auto chat = [&](const Json& more) {
    const Json body = "{'max_tokens': 1, 'audio': null, 'reasoning_effort': null}"_j;
    return server.post("/v1/chat/completions",
                       body | Json{{"messages", {asked, reply | more, asked}}});
  };
  chat(Json::object()).must_be(200);
  chat("{'annotations': [], 'tool_calls': []}"_j).must_be(200);
  // What else clients keep in a message is theirs.
  for (const std::string field : {"annotations", "audio", "refusal", "tags"})
    CHECK(chat({{field, {{"id", 1}}}}).must_be(200).header("x-llmserve-ignored") ==
          "messages[1]." + field);
  chat("{'function_call': {'name': 'f'}}"_j).must_name("messages[1].function_call");
}

TEST_CASE("a model may have several names", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"-a", "mine,gpt-4o", "--alias", "other"});
  REQUIRE(server.get("/v1/models").at("/data").size() == 3);
  for (const std::string name : {"mine", "gpt-4o", "other"}) {
    const Json body = {{"prompt", "a"}, {"model", name}};
    server.complete(body | "{'max_tokens': 1}"_j).must_match("{'model': 'mine'}"_j);
    server.get("/v1/models/" + name).must_match({{"id", name}});
    server.tokens(body);
  }
  server.complete({{"prompt", "a"}, {"model", "tiny"}})
      .must_be(404, {R"(need \"mine\" or \"gpt-4o\" or \"other\")"});
}

TEST_CASE("special tokens are read in a text only where that is asked for", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr"});
  const Json text = "{'prompt': 'a</s>b'}"_j;
  for (const Json& more : "[{'parse_special': true}, {'parse_special': false}, {}]"_j) {
    const bool parse = more.value("parse_special", false);
    const Json ids = server.tokens(text | more);
    REQUIRE(std::count(ids.begin(), ids.end(), 2) == (parse ? 1 : 0));
    const Json receipt =
        server.choice(text | more | "{'max_tokens': 1, 'receipt': true}"_j)["receipt"];
    must_match(receipt, {{"prompt_ids", ids}, {"options", {{"parse_special", parse}}}});
  }
  server.post("/tokenize", {{"messages", question("a")}, {"parse_special", true}})
      .must_name("parse_special");
}

TEST_CASE("a text gets what few KV pages hold", "[llmserve]") {
  Server server = serve_fable(
      {"--kv-memory", "1", "--parallel", "1", "-c", "100000", "--chat-template", "zephyr"});
  const int context = server.get("/v1/models").at("/data/0/max_model_len");
  REQUIRE(context == 256 * static_cast<int>(server.metric("kv_pages")));
  REQUIRE(context < 100000);
  // It ends at once, because the end is all but certain.
  const Json end = "{'logit_bias': {'2': 100}}"_j;
  server.post("/v1/chat/completions", Json{{"messages", question("a")}} | end).must_be(200);
  server.complete(Json{{"prompt", "a"}, {"max_tokens", context + 1}} | end).must_be(200);
}

TEST_CASE("the description of the API has the paths that there are", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve();
  const std::string served = server.get("/openapi.json").body;
  REQUIRE(served == run_tool("llmserve", {"--openapi"}).out);
  const std::string page = read_file(LLM_SOURCE_DIR "/docs/serving.md");
  const Json api = test::parse_json(served);
  for (const auto& [path, methods] : api["paths"].items()) {
    const bool takes_post = methods.contains("post");
    const bool is_post = takes_post && !methods.contains("get");
    const int status =
        is_post ? server.post(path, {{"zzz_penalty", 1}}).status : server.get(path).status;
    const std::string name = path.substr(0, path.find('{'));
    CAPTURE(path);
    CHECK(status == (is_post ? 400 : name != path ? 404 : 200));
    const std::size_t n_methods = std::size_t{takes_post} + (is_post ? 0 : 1) + 1;
    CHECK(methods.size() == n_methods + (name == path ? 0 : 1));
    if (takes_post) CHECK(server.post(path, {{"zzz_penalty", 1}}).status == 400);
    const auto start = [&](const char* method) {
      return fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
    };
    const Reply options = server.ask(start("OPTIONS"));
    CHECK(options.status == 204);
    CHECK(methods["options"]["responses"].contains("204"));
    for (const auto& [method, operation] : methods.items())
      if (method == "get" || method == "post") CHECK(operation["responses"].contains("200"));
    CHECK(options.header("Allow") == (is_post      ? "POST, OPTIONS"
                                      : takes_post ? "GET, POST, OPTIONS"
                                                   : "GET, OPTIONS"));
    CHECK(page.find(name) != std::string::npos);
    // HEAD is answered as GET is, without a body.
    RawClient client(server.port());
    client.send(start("HEAD"));
    const std::string head = client.receive_until(is_post ? "no end" : "\r\n\r\n");
    CHECK(head.starts_with(fmt::format("HTTP/1.1 {} ", is_post ? 405 : status)));
    CHECK(head.ends_with("\r\n\r\n"));
  }
}

TEST_CASE("docs/serving.md has the fields of the description, and no others", "[llmserve]") {
  const std::string page =
      read_file(LLM_SOURCE_DIR "/docs/serving.md") + read_file(LLM_SOURCE_DIR "/docs/fields.md");
  const Json api = test::parse_json(run_tool("llmserve", {"--openapi"}).out);
  std::set<std::string> names;
  for (const auto& [schema, value] : api["components"]["schemas"].items()) {
    if (!schema.ends_with("Request")) continue;
    for (const auto& [name, ignored] : value["properties"].items()) names.insert(name);
  }
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK((page.find("`" + name + "`") != std::string::npos ||
           page.find("`" + name + ".") != std::string::npos ||
           page.find("\"" + name + "\"") != std::string::npos));
  }
  const std::size_t begin = page.find("| field |");
  const std::string table = page.substr(begin, page.find("\n\n", begin) - begin);
  std::size_t n_named = 0;
  for (std::size_t line = table.find("\n| `"); line != std::string::npos;
       line = table.find("\n| `", line + 1)) {
    const std::size_t end = table.find(" | ", line + 2);
    for (std::size_t at = table.find('`', line); at < end; at = table.find('`', at + 1)) {
      const std::size_t close = table.find('`', at + 1);
      const std::string name = table.substr(at + 1, close - at - 1);
      CAPTURE(name);
      CHECK(names.contains(name.substr(0, name.find('.'))));
      ++n_named;
      at = close;
    }
  }
  CHECK(n_named > 20);
}

TEST_CASE("a model without a chat template has no chat", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve();
  server.post("/v1/chat/completions", {{"messages", question("a")}})
      .must_be(400, {"--chat-template"});
}

TEST_CASE("the key is needed on all paths except health", "[llmserve]") {
  const TinyModel tiny;
  setenv("LLM_API_KEY", "from the environment", 1);
  Server by_environment = tiny.serve();
  unsetenv("LLM_API_KEY");
  Server server = tiny.serve({"--api-key", "secret"});
  by_environment.get("/v1/models").must_be(401);
  for (const char* path : {"/v1/models", "/metrics", "/v1/models/tiny"}) {
    for (const char* header : {"", "Authorization: Bearer secre\r\n",
                               "Authorization: Bearer secrets\r\n", "Authorization: secret\r\n",
                               "Authorization: Bearer \r\n", "Authorization: Basic secret\r\n"}) {
      const Reply reply = server.ask(get_text(path, header)).must_be(401);
      REQUIRE(reply.json()["error"]["code"] == "invalid_api_key");
    }
    server.ask(get_text(path, "Authorization: Bearer secret\r\n")).must_be(200);
  }
  server.get("/health").must_be(200);
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    server.post(path, {{"prompt", "a"}}).must_be(401);
  // Nobody without the key makes the server read a body.
  server.ask("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")
      .must_be(401);
}

TEST_CASE("server, description and docs/serving.md ask for the key at the same paths",
          "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--api-key", "secret"});
  const Json api = test::parse_json(server.get("/openapi.json").must_be(200).body);
  REQUIRE(api["security"] == Json::array({{{"key", Json::array()}}}));
  std::set<std::string> open_in_page;
  std::istringstream page(read_file(LLM_SOURCE_DIR "/docs/serving.md"));
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `GET /") || line.find("Needs no key") == std::string::npos) continue;
    // The row's first cell has the paths, each to its backtick.
    const std::string cell = line.substr(0, line.find(" | "));
    for (std::size_t at = 0; (at = cell.find('/', at)) != std::string::npos;) {
      const std::size_t end = cell.find('`', at);
      open_in_page.insert(cell.substr(at, end - at));
      at = end;
    }
  }
  std::set<std::string> open_in_description;
  for (const auto& [path, methods] : api["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      if (method != "get" && method != "post") continue;
      CAPTURE(path, method);
      const bool is_open = operation.contains("security");
      if (is_open) open_in_description.insert(path);
      const int status =
          method == "post" ? server.post(path, {{"zzz", 1}}).status : server.get(path).status;
      CHECK((status == 401) != is_open);
      CHECK(operation["responses"].contains("401") != is_open);
    }
  }
  CHECK(open_in_description == open_in_page);
  CHECK(open_in_page.contains("/openapi.json"));
}

TEST_CASE("servers share the weights of a packed cache", "[llmserve]") {
  const TinyModel tiny;
  const ScratchDirectory cache;
  Server first = tiny.serve({"--packed-cache", cache.path()});
  REQUIRE(cache.count() == 1);
  Server second = tiny.serve({"--packed-cache", cache.path()});
  const Json body = "{'prompt': 'a', 'max_tokens': 5, 'temperature': 0, 'logits_hash': true}"_j;
  const std::string hash = first.complete(body).header("x-logits-sha256");
  REQUIRE(hash.size() == 64);
  REQUIRE(second.complete(body).header("x-logits-sha256") == hash);
}

}  // namespace llm::test
