// Whom llmserve answers, and that nobody holds it up for the others.

#include <future>
#include <stdexcept>

#include "tests/tools/llmserve_process.h"
#include "tools/llmserve/http/worker_pool.h"

namespace llm::test {
namespace {

Reply ask(const Server& server, const std::string& host, const std::string& headers = "",
          const std::string& start = "GET /health") {
  return server.ask(start + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + "\r\n");
}

/// What is ready to be read, without waiting.
bool has_answer(const RawClient& client) {
  pollfd wait = {.fd = client.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 0) > 0;
}

/// A pool that is at work, and what its pieces have in common.
struct Pool {
  explicit Pool(std::shared_ptr<int> of) : owner(std::move(of)) { REQUIRE(pool.start().ok()); }

  /// @param work   what is done; its end tells nobody
  /// @param model  whose piece it is
  void take(std::function<void()> work, const int* model = nullptr, std::size_t bytes = 1) {
    take_of(owner, std::move(work), model, bytes);
  }
  void take_of(const std::shared_ptr<int>& other, std::function<void()> work,
               const int* model = nullptr, std::size_t bytes = 1) {
    pool.take({.bytes = bytes,
               .owner = other,
               .model = model,
               .work = [work = std::move(work)]() -> WorkerPool::Then { return work(), [] {}; },
               .failed = [this](const std::string& what) { failed.set_value(what); }});
  }

  std::shared_ptr<int> owner;
  std::promise<std::string> failed;
  WorkerPool pool{[](const WorkerPool::Then& then) { then(); }};
};

}  // namespace

TEST_CASE("pages of other sites get nothing", "[llmserve]") {
  Server server = serve_fable();
  const std::vector<std::string> names = {"localhost",     "LOCALHOST",         "localhost.",
                                          "app.localhost", "127.0.0.1",         "127.9.9.9",
                                          "[::1]",         "[::ffff:127.0.0.1]"};
  for (const std::string& name : names) {
    ask(server, name).must_be(200);
    ask(server, name + ":").must_be(200);  // no port (RFC 3986)
    ask(server, fmt::format("{}:{}", name, server.port())).must_be(200);
  }
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "evillocalhost", "10.1.2.3",
        "0.0.0.0", "[::2]", "127.0.0.1.evil.example", "", "[", "localhost@evil.example",
        ".localhost.evil"}) {
    ask(server, host).must_be(403, {"--allow-host"});
  }
  const std::string own = fmt::format("localhost:{}", server.port());
  ask(server, own, "Origin: http://" + own + "\r\n").must_be(200);
  ask(server, own, "Origin: HTTPS://" + own + "\r\n").must_be(200);  // behind a proxy
  for (const char* origin : {"http://evil.example", "http://localhost:1", "http://localhost",
                             "null", "https://app.example", "http://"}) {
    const Reply reply = ask(server, own, fmt::format("Origin: {}\r\n", origin));
    reply.must_be(403, {"--allow-origin"});
    CHECK(reply.header("Access-Control-Allow-Origin").empty());
  }
  // Nor does a preflight of theirs say yes.
  ask(server, own, "Origin: http://evil.example\r\n", "OPTIONS /v1/completions").must_be(403);
}

TEST_CASE("bad input 112: a port in Host that is not the server's", "[llmserve]") {
  const std::vector<std::string> options = {"--allow-host",   "a.example",    "--allow-host",
                                            "b.example:9000", "--allow-host", "[::1]:9001",
                                            "--allow-host",   "2001:db8::1"};
  Server server = serve_fable(options);
  const int other = server.port() == 8080 ? 8081 : 8080;
  const std::vector<std::string> names = {"localhost", "app.localhost", "127.0.0.1", "[::1]"};
  for (const std::string& name : names) {
    for (const std::string& port :
         {std::to_string(other), std::string("80"), std::string("0"), std::string("65536"),
          std::string("x"), std::string("-1"), fmt::format("{}x", server.port()),
          fmt::format("{}:1", server.port()), fmt::format(" {}", server.port()),
          fmt::format("+{}", server.port()), fmt::format("{}", server.port() + 65536)}) {
      CAPTURE(name, port);
      const Reply reply = ask(server, name + ":" + port);
      reply.must_be(403, {"Host: found ", fmt::format("with port {} or none", server.port()),
                          "--allow-host NAME[:PORT]"});
    }
  }
  for (const char* host : {"[::1]x", "[::1", "[::1]80", "::1"}) ask(server, host).must_be(403);
  for (const char* host : {"a.example", "a.example:1", "b.example:9000", "B.example:9000",
                           "[::1]:9001", "[2001:db8::1]:5"})
    ask(server, host).must_be(200);
  for (const char* host : {"b.example", "b.example:9001", "[::1]:9000"})
    ask(server, host).must_be(403);
  for (const char* bad : {"b.example:x", "b.example:70000", ":80", "[::1"})
    run_tool("llmserve", {kFable, "--allow-host", bad}).must_end(2, {"--allow-host: found "});
}

TEST_CASE("names and sites that are allowed are answered", "[llmserve]") {
  const std::vector<std::string> words = {kFable,           "-q",
                                          "--host",         "127.0.0.1",
                                          "--api-key",      "secret",  // clang-format off
      "--allow-host", "a.example", "--allow-host", "10.1.2.3",
      "--allow-origin", "https://app.example", "--allow-origin", "null"};  // clang-format on
  Server server(words);
  for (const char* host : {"a.example", "A.example:443", "10.1.2.3:1", "localhost"})
    ask(server, host).must_be(200);
  for (const char* host : {"b.a.example", "b.example", "10.1.2.4"}) ask(server, host).must_be(403);
  const std::string page = "Origin: https://app.example\r\n";
  for (const std::string& headers : {page, page + "Authorization: Bearer secret\r\n"}) {
    // The browser hands over errors as well.
    const Reply reply = ask(server, "localhost", headers, "GET /v1/models");
    reply.must_be(headers == page ? 401 : 200);
    CHECK(reply.header("Access-Control-Allow-Origin") == "https://app.example");
    CHECK(reply.header("Vary") == "Origin");
  }
  CHECK(ask(server, "localhost", "Origin: null\r\n").header("Access-Control-Allow-Origin") ==
        "null");
  for (const char* origin : {"http://app.example", "https://app.example:8443"})
    ask(server, "localhost", fmt::format("Origin: {}\r\n", origin)).must_be(403);
  // Without the key: a browser asks before it sends one. The connection stays.
  RawClient browser(server.port());
  browser.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + page +
               "Access-Control-Request-Method: POST\r\n"
               "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
  browser.send(get_text("/health", page));
  const Reply preflight = browser.reply().must_be(204);
  CHECK(preflight.header("Access-Control-Allow-Origin") == "https://app.example");
  CHECK(preflight.header("Access-Control-Allow-Methods") == "POST, OPTIONS");
  CHECK(preflight.header("Access-Control-Allow-Headers").find("Authorization") == 0);
  browser.reply().must_be(200);
  ask(server, "localhost", page, "OPTIONS /nothing").must_be(404);
  Server open = serve_fable({"--allow-origin", "*"});
  CHECK(ask(open, "localhost", "Origin: http://any.example\r\n")
            .header("Access-Control-Allow-Origin") == "http://any.example");
  ask(open, "evil.example").must_be(403);
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--allow-host", "http://a"},
                                              {"--allow-origin", "app.example"},
                                              {"--allow-origin", "https://app.example/"}}) {
    run_tool("llmserve", {kFable, bad[0], bad[1]}).must_end(2, {bad[0] + ": found \"" + bad[1]});
  }
}

TEST_CASE("a server that asks nobody for a key says so at its start", "[llmserve]") {
  const auto said = [](std::vector<std::string> words) {
    words.insert(words.begin(), kFable);
    Server server(words);
    ask(server, "127.0.0.1").must_be(200);
    return server.end().err;
  };
  CHECK_THAT(said({"--host", "0.0.0.0"}), Contains("warning: --host: found 0.0.0.0"));
  CHECK_THAT(said({"--api-key", ""}), Contains("warning: --api-key: found an empty key"));
  CHECK_THAT(said({"--host", "0.0.0.0", "--api-key", "k"}), !Contains("warning"));
  CHECK_THAT(said({}), !Contains("warning"));
}

TEST_CASE("long bodies do not delay other requests", "[llmserve]") {
  Server server = serve_fable({"--timeout", "600"});
  std::string prompt;
  while (prompt.size() < (2 << 20)) prompt += "The quick brown fox ";
  const std::string body = json_text(Json({{"prompt", prompt}}));
  const std::string text = post_text("/tokenize", body);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(text.substr(0, text.size() - 1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // all of it is read then
  for (const auto& client : clients) client->send("}");
  // Those come first that ask for little.
  server.get("/health").must_be(200);
  server.tokens({{"prompt", "a"}});
  server.complete({{"prompt", "a"}, {"max_tokens", 1}}).must_be(200);
  REQUIRE_FALSE(has_answer(*clients.back()));
  // Who goes meanwhile is noticed, and what was to be done for it is dropped.
  clients[2].reset();
  REQUIRE(server.comes_to("http_answers_total{status=\"499\"}", 1));
  REQUIRE(clients[0]->reply().json()["count"].get<int>() > 100000);
  // The others are still answered before it ends.
  server.process().send(SIGTERM);
  for (const int i : {1, 3}) clients[i]->reply().must_be(200);
  server.wait().must_end(0);
}

TEST_CASE("a worker pool does what is wanted, and tells of what it cannot", "[llmserve]") {
  std::promise<void> begun;
  std::promise<void> hold;
  std::promise<void> done;
  bool was_done = false;
  {
    Pool pool(std::make_shared<int>());
    constexpr std::size_t kLong = WorkerPool::kShortBytes + 1;
    const auto block = [&] {
      begun.set_value();
      hold.get_future().wait();
    };
    pool.take(block, nullptr, kLong);
    begun.get_future().wait();
    auto gone = std::make_shared<int>();
    pool.take_of(
        gone, [&] { was_done = true; }, nullptr, kLong);
    gone.reset();
    // A short one does not wait for it.
    pool.take([] { throw std::runtime_error("broke"); });
    CHECK(pool.failed.get_future().get() == "broke");
    CHECK(pool.pool.has_room(WorkerPool::kMostWaitingBytes - kLong));
    CHECK_FALSE(pool.pool.has_room(WorkerPool::kMostWaitingBytes));
    pool.pool.take({.bytes = kLong,
                    .owner = pool.owner,
                    .work = [&] { return [&] { done.set_value(); }; },
                    .failed = [](const std::string&) {}});
    hold.set_value();
    done.get_future().wait();
    CHECK_FALSE(was_done);
    CHECK(pool.pool.has_room(2 * WorkerPool::kMostWaitingBytes));  // one alone may be of any size
  }
}

TEST_CASE("pieces in a worker pool wait for those of their own model alone", "[llmserve]") {
  const std::array<int, 5> models{};
  std::promise<void> hold;
  const auto held = hold.get_future().share();
  std::array<std::promise<bool>, 5> asked;
  std::atomic<int> n_done = 0;
  {
    Pool pool(std::make_shared<int>());
    CHECK(!WorkerPool::has_owner_gone());
    // Four that do not end, of four models; each knows when its owner has gone.
    for (std::size_t i = 0; i < 4; ++i) {
      const auto wait = [&, i] {
        const auto has_gone = WorkerPool::has_owner_gone();
        asked[i].set_value(has_gone());
        held.wait();
        n_done += has_gone() ? 1 : 0;
      };
      pool.take(wait, &models[i]);
    }
    pool.take([&] { n_done = -100; }, &models[0]);  // dropped with its owner
    pool.take([&] { asked[4].set_value(false); }, &models[4]);
    for (auto& one : asked) CHECK_FALSE(one.get_future().get());
    pool.owner.reset();
    hold.set_value();
  }
  CHECK(n_done == 4);
}

TEST_CASE("bad input 102: a piece that turns out long leaves its lane", "[llmserve]") {
  const int model = 0;
  std::promise<void> hold;
  const auto held = hold.get_future().share();
  std::promise<Status> refused;
  Status told = Ok{};
  std::promise<void> passed;
  std::atomic<int> n_aside = 0;
  {
    Pool pool(std::make_shared<int>());
    CHECK(WorkerPool::step_aside().ok());
    for (int i = 0; i < 19; ++i) {  // 2 at work, 16 that wait, and one too many
      const auto step = [&, i] {
        Status aside = WorkerPool::step_aside();
        if (i == 18) {
          refused.set_value(std::move(aside));
        } else if (aside.ok()) {
          ++n_aside;
          held.wait();
        }
      };
      pool.take(step, &model);
    }
    pool.take([&] { passed.set_value(); }, &model);
    told = refused.get_future().get();
    passed.get_future().wait();
    CHECK(n_aside <= 2);
    hold.set_value();
  }
  CHECK(n_aside == 18);
  must_fail(told, ErrorCode::kResource, {"too many"});
}

}  // namespace llm::test
