// llmserve under clients that are broken, slow, gone, or too many; and its end.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

/// 500 tokens of "Once", and what else is asked for.
std::string long_stream(const std::string& more = "") {
  return post_text(
      "/v1/completions",
      R"({"prompt": "Once", "max_tokens": 500, "ignore_eos": true, "stream": true)" + more + "}");
}
Server roomy(std::vector<std::string> more) {
  more.insert(more.begin(), {"-c", "110000"});
  return serve_fable(std::move(more));
}

/// Whether the server is as it was before anybody came.
void require_idle(const Server& server) {
  REQUIRE(server.comes_to("texts_running", 0));
  REQUIRE(server.comes_to("texts_waiting", 0));
  REQUIRE(server.comes_to("kv_pages_in_use", 0));
  server.complete({{"prompt", "a"}, {"max_tokens", 1}}).must_be(200);
}

}  // namespace

TEST_CASE("invalid requests get an answer or are disconnected", "[llmserve]") {
  Server server = serve_fable();
  const std::string host = "Host: localhost\r\n";
  const std::string post = "POST /tokenize HTTP/1.1\r\n" + host;
  const std::string json = post + "Content-Type: application/json\r\n";
  const std::string chunked = json + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string deep(100000, '[');
  std::string many_names = "{";
  for (int i = 0; i < 200000; ++i) many_names += "\"" + std::to_string(i) + "\":0,";
  const auto complete = [](const std::string& body) { return post_text("/v1/completions", body); };
  const std::vector<std::pair<std::string, int>> abuses = {
      {"\r\n\r\n\r\n", 400},
      {std::string(100, '\0'), 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x01\x01", 400},  // TLS
      {"GET /health HTTP/1.1\r\nA: " + std::string(20000, 'x') + "\r\n\r\n", 431},
      {"GET /health HTTP/1.1\r\n" + std::string(10 << 20, 'x'), 431},
      {"GET /" + std::string(20000, 'x') + " HTTP/1.1\r\n\r\n", 431},
      {json + "Content-Length: 1073741824\r\n\r\n", 413},
      {json + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {json + "Content-Length: -1\r\n\r\n", 400},
      {json + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
      {chunked + "zz\r\n", 400},
      {chunked + "4ffff0\r\n" + std::string(0x4ffff0, ' '), 413},
      {post + "Content-Length: 2\r\n\r\n{}", 400},
      {post + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"BREW /health HTTP/1.1\r\n" + host + "\r\n", 405},
      {"POST /health HTTP/1.1\r\n" + host + "\r\n", 405},
      {get_text("/v1/completions"), 405},
      {get_text("/../../etc/passwd"), 404},
      {complete(""), 400},
      {complete("{"), 400},
      {complete("[1]"), 400},
      {complete("{\"prompt\": 1e999}"), 400},
      {complete("{\"prompt\": \"\xff\xfe\"}"), 400},
      {complete("{\"prompt\": \"\\ud800\"}"), 400},
      {complete(deep), 400},
      {complete("{\"prompt\": " + deep), 400},
      {complete(many_names + "\"prompt\":\"a\"}"), 400},
      {complete("{\"prompt\": \"" + std::string(4 << 20, 'a') + "\"}"), 413},
      {complete("{\"prompt\": \"" + std::string(3 << 20, 'a') + "\"}"), 400},
  };
  for (const auto& [text, status] : abuses) {
    const Reply reply = server.ask(text).must_be(status);
    CAPTURE(text.substr(0, 200), reply.body.substr(0, 500));
    REQUIRE(reply.json()["error"]["message"].is_string());
    REQUIRE(reply.body.size() < 1000);
  }
  const std::string nested = deep + std::string(deep.size(), ']');
  server.ask(post_text("/tokenize", nested)).must_be(400, {"100000 levels of JSON"});
  require_idle(server);
}

TEST_CASE("a client that disconnects at any time leaves nothing", "[llmserve]") {
  // One text at a time, so that the second waits; small steps, so that a prompt takes many.
  Server server = roomy({"--parallel", "1", "--chunk", "1"});
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{30}, kEndless.size() - 20,
                              kEndless.size() - 1}) {
    RawClient client(server.port());
    client.send(kEndless.substr(0, n));
  }
  require_idle(server);
  {
    RawClient streaming(server.port());
    streaming.send(kEndless);
    streaming.receive_until("data: ");
    RawClient waiting(server.port());
    waiting.send(kEndless);
    waiting.receive_until("\r\n\r\n");
    REQUIRE(server.comes_to("texts_waiting", 1));
    RawClient also_waiting(server.port());
    also_waiting.send(post_text("/v1/completions", R"({"prompt": "a", "n": 2})"));
    REQUIRE(server.comes_to("texts_waiting", 3));
    waiting.close();
    also_waiting.close();
    REQUIRE(server.comes_to("texts_waiting", 0));
    REQUIRE(server.metric("texts_running") == 1);
  }
  require_idle(server);
  {
    const std::string ids = json_text(Json(std::vector<int>(100000, 9)));
    RawClient prefilling(server.port());
    prefilling.send(post_text("/v1/completions", "{\"prompt\": " + ids + "}"));
    REQUIRE(server.comes_to("texts_running", 1));
  }
  require_idle(server);
  REQUIRE(server.metric("texts_cancelled_total") >= 4);
  server.get("/metrics").must_be(200, {"status=\"499\""});
}

TEST_CASE("a client that does not read is disconnected and its request cancelled", "[llmserve]") {
  Server server = serve_fable({"--timeout", "1"});
  // One whose answer piles up is disconnected by that alone.
  Server unhurried = serve_fable({"--timeout", "3600", "--parallel", "64"});
  // More than the buffers of a connection take.
  RawClient slow(unhurried.port(), 4096);
  slow.send(long_stream(R"(, "logprobs": 20, "n": 60)"));
  require_idle(unhurried);
  REQUIRE(unhurried.comes_to("http_answers_total{status=\"499\"}", 1));
  // One that would not pile up more than may wait is disconnected by the time-out alone.
  RawClient patient(server.port(), 4096);
  patient.send(long_stream(R"(, "logprobs": 20, "n": 2)"));
  REQUIRE(server.comes_to("texts_finished_total", 2));
  REQUIRE(server.comes_to("http_answers_total{status=\"499\"}", 1));
  // Nor does one that sends too slowly hold its connection.
  RawClient silent(server.port());
  RawClient half(server.port());
  half.send("GET /health HT");
  RawClient no_body(server.port());
  no_body.send(post_text("/tokenize", "{\"prompt\": 1}").substr(0, 90));
  REQUIRE(silent.is_ended());
  REQUIRE(half.is_ended());
  REQUIRE(no_body.is_ended());
  REQUIRE(server.comes_to("http_connections", 1));
}

TEST_CASE("too many connections and requests are rejected", "[llmserve]") {
  Server server = roomy({"--connections", "8", "--parallel", "1", "--queue", "1"});
  {
    RawClient running(server.port());
    running.send(kEndless);
    running.receive_until("data: ");
    RawClient waiting(server.port());
    waiting.send(kEndless);
    waiting.receive_until("\r\n\r\n");
    const Reply refused = server.complete({{"prompt", "a"}}).must_be(429);
    REQUIRE(refused.header("Retry-After") == "1");
    REQUIRE(refused.json()["error"]["code"] == "queue_full");
    server.complete({{"prompt", "a"}, {"n", 3}}).must_name("n");
    std::vector<std::unique_ptr<RawClient>> idle;
    for (int i = 0; i < 6; ++i) idle.push_back(std::make_unique<RawClient>(server.port()));
    RawClient too_many(server.port());
    REQUIRE(too_many.reply().status == 503);
  }
  require_idle(server);
}

TEST_CASE("requests follow each other on one connection", "[llmserve]") {
  Server server = serve_fable();
  RawClient client(server.port());
  const std::string ask = post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 3})");
  for (int i = 0; i < 3; ++i) {
    client.send(ask);
    REQUIRE(client.reply().status == 200);
  }
  // All at once, before the first is answered.
  client.send(ask + get_text("/health") + long_stream() + get_text("/v1/models") + ask);
  REQUIRE(client.reply().json()["object"] == "text_completion");
  REQUIRE(client.reply().json()["status"] == "ok");
  REQUIRE(events_of(client.reply().body).size() > 400);
  REQUIRE(client.reply().json()["object"] == "list");
  REQUIRE(client.reply().json()["object"] == "text_completion");
  // Who has no chunks gets the end of the connection as the answer's.
  RawClient old(server.port());
  std::string request = long_stream();
  request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
  old.send(request);
  const std::string answer = old.receive_until("[DONE]");
  REQUIRE(answer.find("chunked") == std::string::npos);
  REQUIRE_THAT(answer, Contains("data: [DONE]\n\n"));
  REQUIRE(old.is_ended());
  // A client that asks whether it may send a body is told so.
  RawClient careful(server.port());
  const std::string body = R"({"prompt": "a"})";
  const std::string head = post_text("/tokenize", body, "Expect: 100-continue\r\n");
  careful.send(head.substr(0, head.size() - body.size()));
  REQUIRE(careful.reply().status == 100);
  careful.send(body);
  REQUIRE(careful.reply().status == 200);
}

TEST_CASE("too few threads are an error at the start", "[llmserve]") {
  if (kSanitized) return;  // sanitizers need more addresses than any limit here
  // Each thread has a stack of 1 GiB; eight compute, one of them for all texts, and few do the
  // rest.
  const auto limited = [](int gib) {
    return "ulimit -s 1048576; ulimit -v " + std::to_string(gib << 20);
  };
  Server server({kFable, "-q", "-t", "8"}, limited(12));
  for (int i = 0; i < 2; ++i) server.complete({{"prompt", "a"}, {"max_tokens", 2}}).must_be(200);
  server.end().must_end(0);
  for (const int gib : {5, 8}) {
    const Finished run = run_shell(limited(gib) + "; exec '" + tool_path("llmserve") + "' '" +
                                   kFable + "' -q -t 8 --port 0")
                             .must_end(5, {"threads: found "});
    REQUIRE(run.out == "");  // it was never ready
  }
}

TEST_CASE("SIGTERM lets answers end, a second one does not", "[llmserve]") {
  Server server = serve_fable({"-c", "4000", "--timeout", "3600"});
  RawClient idle(server.port());
  RawClient client(server.port());
  const std::size_t n_tokens = effort(3000, 400);  // it must still run when the signal comes
  client.send(post_text(
      "/v1/completions",
      fmt::format(R"({{"prompt": "a", "max_tokens": {}, "ignore_eos": true, "stream": true}})",
                  n_tokens)));
  client.receive_until("data: ");
  server.process().send(SIGTERM);
  REQUIRE(idle.is_ended());
  const Reply reply = client.reply();
  REQUIRE(events_of(reply.body).back() == "[DONE]");
  REQUIRE(events_of(reply.body).size() > n_tokens * 5 / 6);
  server.wait().must_end(0);

  Server other = serve_fable({"--timeout", "3600"});
  RawClient half(other.port());
  half.send("GET /health HTTP");  // keeps the server from ending
  REQUIRE(other.comes_to("http_connections", 2));
  RawClient watcher(other.port());
  other.process().send(SIGTERM);
  REQUIRE(watcher.is_ended());  // it drains
  REQUIRE(other.process().is_running());
  other.process().send(SIGTERM);
  other.wait().must_end(143);
}

}  // namespace llm::test
