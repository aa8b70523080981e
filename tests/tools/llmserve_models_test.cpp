// llmserve --models: which models there are, and what requests to several of them get.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

/// A folder with copies of the embedded model, of which a server can hold only some.
class ModelFolder {
 public:
  explicit ModelFolder(const std::vector<std::string>& names,
                       std::vector<std::string> options = {"--kv-memory", "2"})
      : options_(std::move(options)) {
    for (const std::string& name : names) add(name);
  }

  void add(const std::string& name, const std::string& from = kFable) {
    folder_.write(name + ".gguf", read_file(from));
  }
  const ScratchDirectory& folder() const { return folder_; }
  Server serve(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), options_.begin(), options_.end());
    more.insert(more.begin(), {"--models", folder_.path(), "-q"});
    return Server(std::move(more));
  }
  /// What holds `n` of them, in MiB.
  std::string memory_for(double n) const {
    const Server server = serve();
    server.complete(ask(first_name(server)));
    return std::to_string(static_cast<int>(n * server.metric("model_bytes") / (1 << 20)));
  }

  static Json ask(const std::string& model, const Json& more = Json::object()) {
    return "{'prompt': 'Once', 'max_tokens': 3, 'temperature': 0}"_j | Json{{"model", model}} |
           more;
  }
  static std::string first_name(const Server& server) {
    return server.get("/v1/models").json()["data"][0]["id"];
  }

 private:
  ScratchDirectory folder_;
  std::vector<std::string> options_;
};

double loads(const Server& server, const std::string& model) {
  return server.metric("model_loads_total{model=\"" + model + "\"}");
}
bool is_loaded(const Server& server, const std::string& model) {
  return server.get("/v1/models/" + model).json()["loaded"];
}

std::ptrdiff_t count_threads(Server& server) {
  const std::filesystem::directory_iterator threads(
      fmt::format("/proc/{}/task", server.process().pid()));
  return std::distance(begin(threads), end(threads));
}

}  // namespace

TEST_CASE("every GGUF of a folder is a model by its name", "[llmserve]") {
  ModelFolder models({"b", "a"});
  std::filesystem::create_directories(models.folder() / "inner/deeper");
  models.add("inner/c.d");
  models.add("inner/deeper/hidden");
  models.folder().write("notes.txt", "no model");
  run_tool("llmgguf",
           {"split", models.folder() / "a.gguf", models.folder() / "parts", "--max-size", "1M"})
      .must_end(0);
  Server server = models.serve();
  const auto unloaded = [](const char* name) {
    return "{'loaded': false, 'max_model_len': null}"_j | Json{{"id", name}};
  };
  server.get("/v1/models")
      .must_match({{"data", {unloaded("a"), unloaded("b"), unloaded("c.d"), unloaded("parts")}}});
  CHECK(server.get("/api/tags").at("/models").size() == 4);
  for (const std::string name : {"a", "b", "c.d", "parts"}) {
    server.complete(ModelFolder::ask(name)).must_match({{"model", name}});
    server.get("/v1/models/" + name).must_match("{'loaded': true, 'max_model_len': 512}"_j);
  }
  server.complete("{'prompt': 'a', 'max_tokens': 1}"_j).must_match("{'model': 'a'}"_j);
  server.complete(ModelFolder::ask("b:latest")).must_match("{'model': 'b'}"_j);
  server.get("/props?x&model=c.d").must_match("{'model_alias': 'c.d'}"_j);
  server.get("/props?model=%62").must_match("{'model_alias': 'b'}"_j);
  server.get("/props").must_match("{'model_alias': 'a'}"_j);
  server.get("/tokenizer_info?model=b").must_match("{'bos_token': '<s>'}"_j);
  for (const Reply& unknown :
       {server.complete(ModelFolder::ask("hidden")), server.get("/props?model=notes"),
        server.post("/tokenize", {{"prompt", "a"}, {"model", 1}}), server.get("/v1/models/z")}) {
    unknown.must_be(404, {R"(need \"a\" or \"b\" or \"c.d\" or \"parts\")"});
    CHECK(unknown.json()["error"]["code"] == "model_not_found");
  }
}

TEST_CASE("bad input 95: an endless template does not delay other models", "[llmserve]") {
  const ModelFolder models({"good"});
  TinyGguf bomb = TinyGguf::llama();
  bomb.set_string("tokenizer.chat_template",
                  "{% for m in messages %}{{ m.content }}{% if m.content == 'boom' %}\n"
                  "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
                  "{% endif %}{% endfor %}");
  models.folder().write("bomb.gguf", bomb.bytes());
  bomb.set_string("tokenizer.chat_template",
                  "\n{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}");
  models.folder().write("deep.gguf", bomb.bytes());
  const Server server = models.serve();
  const auto chat = [](const std::string& model, const std::string& content) {
    const Json body = {{"model", model}, {"max_tokens", 1}, {"messages", question(content)}};
    return post_text("/v1/chat/completions", json_text(body));
  };
  server.ask(chat("bomb", "hi")).must_be(200);
  server.complete(ModelFolder::ask("good")).must_be(200);
  std::vector<std::unique_ptr<RawClient>> bombs;
  for (int i = 0; i < 4; ++i) {
    bombs.push_back(std::make_unique<RawClient>(server.port()));
    REQUIRE(bombs.back()->send(chat("bomb", "boom")));
  }
  // Each takes a part of a second or more, one after the other.
  bombs[0]->reply().must_be(400, {"line 2: found more than "});
  server.complete(ModelFolder::ask("good")).must_be(200);
  server.ask(chat("deep", "hi")).must_be(400, {"line 2: found more than 1000 evaluations"});
  pollfd last{.fd = bombs[3]->descriptor(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&last, 1, 0) == 0);
  bombs[2]->close();  // given up, whether it was begun or not
  bombs[3]->reply().must_be(400, {"line 2: found more than "});
  server.complete(ModelFolder::ask("good")).must_be(200);
}

TEST_CASE("what llmserve cannot serve a folder with is refused by name", "[llmserve]") {
  const ModelFolder models({"a"});
  const ScratchDirectory empty;
  const std::string folder = models.folder().path();
  std::filesystem::create_directory(empty / "inner");
  for (auto [words, exit_code, says] :
       std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{}, 2, "--models: found neither, need MODEL or --models, one of them"},
           {{kFable, "--models", folder}, 2, "need MODEL or --models, one of them"},
           {{"--models", folder, "--alias", "x"}, 2, "--alias"},
           {{"--models", folder, "--verify-model=m"}, 2, "--verify-model"},
           {{"--models", empty.path()}, 2, "--models: found no model in"},
           {{"--models", "/none"}, 4, "/none"},
           {{kFable, "--memory", "3"}, 5, "--memory: found 3 MiB, need "}}) {
    words.insert(words.end(), {"--port", "0", "-q"});
    run_tool("llmserve", words).must_end(exit_code, {says});
  }
  std::filesystem::create_directory(models.folder() / "inner");
  models.folder().write("inner/a.gguf", "");
  run_tool("llmserve", {"--models", folder, "--port", "0"})
      .must_end(2, {"a.gguf and ", "need files of different names"});
}

TEST_CASE("a model that cannot be loaded is tried again, and the others are served", "[llmserve]") {
  ModelFolder models({"good"});
  models.folder().write("bad.gguf", read_file(kFable).substr(0, 100000));
  Server server = models.serve();
  for (int i = 0; i < 2; ++i) {
    const Reply reply = server.complete(ModelFolder::ask("bad")).must_be(500, {"bad.gguf: "});
    CHECK(reply.json()["error"]["code"] == "model_not_loaded");
    server.get("/props?model=bad").must_be(500);
    server.complete(ModelFolder::ask("good")).must_be(200);
  }
  CHECK(loads(server, "bad") == 0);
  models.add("bad");
  server.complete(ModelFolder::ask("bad")).must_be(200);
  CHECK(loads(server, "bad") == 1);
}

TEST_CASE("the model that was asked for the longest ago gives way", "[llmserve]") {
  const ModelFolder models({"a", "b", "c"});
  Server server = models.serve({"--memory", models.memory_for(2.5), "-t", "2"});
  const auto ask = [&](const std::string& model) {
    server.complete(ModelFolder::ask(model)).must_be(200);
  };
  for (const char* model : {"a", "b", "a", "c"}) ask(model);
  CHECK(is_loaded(server, "a"));
  CHECK_FALSE(is_loaded(server, "b"));
  CHECK(is_loaded(server, "c"));
  const auto n_threads = count_threads(server);
  for (int i = 0; i < 5; ++i)
    for (const char* model : {"b", "a", "c"}) ask(model);
  CHECK(loads(server, "b") == 6);
  // A loading thread that is about to end may still be counted.
  CHECK(count_threads(server) <= n_threads + 1);
  Server small = models.serve({"--memory", models.memory_for(0.9)});
  small.complete(ModelFolder::ask("a")).must_be(507, {"--memory: found "});
  small.get("/health").must_be(200);
}

TEST_CASE("a model that is in use is not unloaded", "[llmserve]") {
  const ModelFolder models({"a", "b"}, {"-c", "110000"});
  Server server = models.serve({"--memory", models.memory_for(1.5), "--timeout", "1"});
  {
    RawClient client(server.port());
    const Json endless = "{'max_tokens': 100000, 'ignore_eos': true, 'stream': true}"_j;
    client.send(post_text("/v1/completions", json_text(ModelFolder::ask("a", endless))));
    client.receive_until("data: ");
    RawClient gone(server.port());
    gone.send(post_text("/v1/completions", json_text(ModelFolder::ask("b"))));
    gone.close();
    const Reply late = server.complete(ModelFolder::ask("b")).must_be(503);
    CHECK(late.header("Retry-After") == "1");
    CHECK(late.json()["error"]["code"] == "model_not_loaded");
    CHECK(is_loaded(server, "a"));
  }
  server.complete(ModelFolder::ask("b")).must_be(200);
  CHECK(loads(server, "b") == 1);
  CHECK_FALSE(is_loaded(server, "a"));
}

TEST_CASE("two models at once give the texts of two servers", "[llmserve]") {
  ModelFolder models({"small"});
  models.add("large", LLM_SOURCE_DIR "/models/fable-3m-f16.gguf");
  Server both = models.serve({"-t", "2"});
  constexpr std::size_t kClients = 6;
  std::vector<std::vector<Reply>> replies(kClients);  // Catch is of one thread, so they are kept
  const auto body_of = [](std::size_t i, const std::string& model) {
    return ModelFolder::ask(model, R"({"max_tokens": 24, "temperature": 1, "logits_hash": true,
        "ignore_eos": true})"_j | Json{{"seed", i}});
  };
  std::vector<Reply> expected;
  for (const std::string name : {"small", "large"}) {
    const Server one({models.folder() / (name + ".gguf"), "-q", "--kv-memory", "2"});
    for (std::size_t i = 0; i < kClients; ++i) expected.push_back(one.complete(body_of(i, name)));
  }
  at_once(kClients, [&](std::size_t i) {
    for (std::size_t k = 0; k < kClients; ++k)
      replies[i].push_back(both.complete(body_of(k, (i + k) % 2 == 1 ? "large" : "small")));
  });
  for (std::size_t i = 0; i < kClients; ++i) {
    for (std::size_t k = 0; k < kClients; ++k) {
      CAPTURE(i, k);
      const Reply& alone = expected[k + (i + k) % 2 * kClients];
      const Reply reply = replies[i][k].must_be(200);
      REQUIRE(alone.header("x-logits-sha256").size() == 64);
      REQUIRE(reply.header("x-logits-sha256") == alone.header("x-logits-sha256"));
      REQUIRE(reply.json()["choices"] == alone.json()["choices"]);
    }
  }
  CHECK(expected.front().header("x-logits-sha256") != expected.back().header("x-logits-sha256"));
  CHECK(loads(both, "small") == 1);
  CHECK(both.metric("texts_finished_total{model=\"large\"}") == 18);
}

}  // namespace llm::test
