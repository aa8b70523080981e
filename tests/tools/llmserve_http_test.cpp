// llmserve's HTTP: what it takes for a request, what a request may cost, and what it survives.

#include <mutex>
#include <stdexcept>

#include "tests/tools/llmserve_process.h"
#include "tools/llmserve/api/answer_json.h"
#include "tools/llmserve/api/answer_request.h"
#include "tools/llmserve/http/http_server.h"

namespace llm::test {
namespace {

const std::string kHost = "Host: localhost\r\n";
const std::string kPost =
    "POST /tokenize HTTP/1.1\r\n" + kHost + "Content-Type: application/json\r\n";
const std::string kBody = R"({"prompt": "a"})";

/// `[[1],[1],...]` of 4 MiB in all, in a request with these other fields.
std::string many_prompts(const std::string& fields) {
  std::string body = "{" + fields + ", \"prompt\": [[1]";
  while (body.size() < (4 << 20) - 10) body += ",[1]";
  return body + "]}";
}

double peak_mebibytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return -1;
}

/// A server in this process whose handlers are the test's.
class OwnServer {
 public:
  explicit OwnServer(std::function<void(const std::shared_ptr<HttpExchange>&)> handle,
                     std::function<std::optional<HttpAnswer>(const HttpRequest&)> refuse) {
    HttpHandlers handlers;
    handlers.refuse = std::move(refuse);
    handlers.handle = std::move(handle);
    handlers.error = [](int status, const std::string& message) {
      return HttpAnswer{.status = status, .body = message};
    };
    handlers.log = [](const HttpRequest&, const HttpOutcome&) {};
    handlers.fault = [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      faults_.push_back(what);
    };
    auto opened = require_ok(HttpServer::open("127.0.0.1", 0, {}));
    server_ = std::move(opened);
    REQUIRE(server_->listen(std::move(handlers)).ok());
    const std::string url = server_->url();
    port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
    thread_ = std::thread([this] { server_->run([] {}); });
  }
  ~OwnServer() {
    server_->post([this] { server_->drain(); });
    thread_.join();
  }

  HttpServer& server() { return *server_; }
  std::vector<std::string> faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }
  Reply ask(const std::string& text) const {
    RawClient client(port);
    client.send(text);
    return client.reply();
  }

  std::uint16_t port = 0;

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<std::string> faults_;
};

}  // namespace

TEST_CASE("an exception of a handler is an answer of 500 and a line in the log", "[llmserve]") {
  OwnServer own(
      [&](const std::shared_ptr<HttpExchange>& exchange) {
        if (exchange->request().path == "/handle") throw std::runtime_error("handle broke");
        exchange->answer({.body = "{}"});
      },
      [](const HttpRequest& head) -> std::optional<HttpAnswer> {
        if (head.path == "/refuse") throw std::bad_alloc();
        return std::nullopt;
      });
  const Reply handled = own.ask(get_text("/handle")).must_be(500);
  REQUIRE_THAT(handled.body, !Contains("handle broke"));  // for the log alone
  own.ask(get_text("/refuse")).must_be(503);              // memory is short for the moment
  own.server().post([] { throw std::logic_error("posted broke"); });
  own.ask(get_text("/")).must_be(200);
  REQUIRE(own.faults() ==
          std::vector<std::string>{"handle broke", std::bad_alloc().what(), "posted broke"});
}

TEST_CASE("a header that other programs could read differently is rejected", "[llmserve]") {
  Server server = serve_fable();
  const std::string hidden = get_text("/health");
  const auto with = [](const std::string& lines) {
    return "GET /health HTTP/1.1\r\n" + lines + "\r\n";
  };
  const std::string length = fmt::format("Content-Length: {}\r\n", hidden.size());
  std::string old = kPost + "Transfer-Encoding: chunked\r\n\r\n" + hidden;
  old.replace(old.find("1.1"), 3, "1.0");
  const std::string encoding = kPost + "Transfer-Encoding: ";
  for (const std::string& text :
       {encoding + "gzip\r\n\r\n" + hidden, encoding + "gzip, chunked\r\n\r\n" + hidden,
        encoding + "identity\r\n" + length + "\r\n" + hidden,
        encoding + "gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + hidden,
        encoding + "chunked\r\n" + length + "\r\n" + hidden, old, with("") + hidden,
        with(kHost + kHost) + hidden, with("Host:\r\n localhost\r\n") + hidden,
        with(kHost + "X: a\r\n\tb\r\n") + hidden,
        with(kHost + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n") + hidden,
        with(kHost + "Origin: http://localhost\r\nOrigin: http://a\r\n") + hidden,
        kPost + "Content-Type: text/plain\r\n" + length + "\r\n" + hidden, get_text("/health%4"),
        get_text("/%zz")}) {
    RawClient client(server.port());
    client.send(text);
    const std::string all = client.receive_until("\r\n\r\nno end");
    CAPTURE(text, all);
    CHECK(all.starts_with("HTTP/1.1 400 "));
    CHECK(all.find("HTTP/1.1 ", 1) == std::string::npos);  // what it hid is not answered
    CHECK(client.is_ended());
  }
  server.get("/%68ealth").must_be(200);
  server.get("/v1/models/fable-3m%2Dq4_k_m").must_be(200);
  server.ask(kPost + "TRANSFER-ENCODING: Chunked\r\n\r\nf\r\n" + kBody + "\r\n0\r\n\r\n")
      .must_be(200);
}

TEST_CASE("the length of a header is limited", "[llmserve]") {
  Server server = serve_fable();
  // Line by line, each understood before the next one comes.
  RawClient slow(server.port());
  slow.send("GET /health HTTP/1.1\r\n" + kHost);
  std::string line = "X: " + std::string(1000, 'x') + "\r\n";
  for (int i = 0; i < 40; ++i) {
    slow.send(line);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  slow.reply().must_be(431);
  // Behind the last chunk.
  std::string trailer;
  while (trailer.size() < (300 << 10)) trailer += line;
  server.ask(kPost + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + trailer + "\r\n").must_be(431);
  server.get("/health").must_be(200);
}

namespace {

/// The status of a good body after these lines.
int status_after(const Server& server, const std::string& lines) {
  return server
      .ask("POST /tokenize HTTP/1.1\r\n" + kHost + lines +
           fmt::format("Content-Length: {}\r\n\r\n", kBody.size()) + kBody)
      .status;
}

}  // namespace

TEST_CASE("types and schemes are read without regard to case", "[llmserve]") {
  Server server = serve_fable({"--api-key", "secret"});
  for (const auto& [type, key, status] : std::vector<std::tuple<std::string, std::string, int>>{
           {"application/json", "Bearer secret", 200},
           {"Application/JSON", "Bearer secret", 200},
           {"application/json; charset=utf-8", "Bearer secret", 200},
           {"application/json ;charset=utf-8", "Bearer secret", 200},
           {"application/json-evil", "Bearer secret", 415},
           {"application/jsonp", "Bearer secret", 415},
           {"text/plain", "Bearer secret", 415},
           {"application", "Bearer secret", 415},
           {"application/json", "bearer secret", 200},
           {"application/json", "BEARER secret", 200},
           {"application/json", "Bearer Secret", 401},
           {"application/json", "Bearer", 401},
           {"application/json", "Bearersecret", 401},
           {"application/json", "Bearer secre", 401},
           {"application/json", "Bearer secretsecretsecretsecretsecretsecret", 401}}) {
    CAPTURE(type, key);
    CHECK(status_after(server, "Content-Type: " + type + "\r\nAuthorization: " + key + "\r\n") ==
          status);
  }
}

TEST_CASE("a program may leave out the type of its JSON, a page may not", "[llmserve]") {
  Server server = serve_fable();
  const std::string origin = "Origin: http://" + kHost.substr(6);  // the server's own page
  const std::string form = "Content-Type: application/x-www-form-urlencoded";  // curl -d
  for (const std::string& type : {std::string(), std::string("Content-Type: \r\n"), form + "\r\n",
                                  form + "; charset=utf-8\r\n"}) {
    CAPTURE(type);
    CHECK(status_after(server, type) == 200);
    CHECK(status_after(server, origin + type) == 415);
  }
  CHECK(status_after(server, "Content-Type: multipart/form-data; boundary=x\r\n") == 415);
  CHECK(status_after(server, origin + "Content-Type: application/json\r\n") == 200);
}

TEST_CASE("JSON that other parsers could read differently is rejected", "[llmserve]") {
  Server server = serve_fable();
  for (const auto& [body, words] : std::vector<std::pair<std::string, std::string>>{
           {kBody + std::string(1, '\0'), "a NUL at byte 15"},
           {kBody + std::string(100, '\0') + "}", "a NUL at byte 15"},
           {R"({"prompt": "a", "n": 1, "n": 2})", R"(the field \"n\" twice)"},
           {R"({"prompt": "a", "logit_bias": {"7": 1, "7": 2}})", R"(the field \"7\" twice)"},
           {R"({"prompt": [[{"a": 1}, {"a": 1, "b": {"a": 1}, "a": 1}]]})", "twice"},
           {R"({"prompt": "a", "logit_bias": {"5": 1, "005": 2}})", "token ids 0.."},
           {R"({"prompt": "a", "logit_bias": {"-0": 1}})", "token ids 0.."},
           {R"({"prompt": "a", "logit_bias": {"": 1}})", "token ids 0.."},
           {R"({"prompt": "a", "tool_choise": 1})", "not supported"}}) {
    server.ask(post_text("/v1/completions", body)).must_be(400, {words});
  }
  server.complete({{"prompt", "a"}, {"max_tokens", 1}, {"logit_bias", {{"5", 1}, {"50", 1}}}})
      .must_be(200);
}

TEST_CASE("the cost of a response is known before it is computed", "[llmserve]") {
  Server server = serve_fable();
  for (const char* fields : {R"("n": 128, "max_tokens": 0)", R"("n": 8, "max_tokens": 0)",
                             R"("n": 1, "stream": true, "logprobs": 5)"}) {
    server.ask(post_text("/v1/completions", many_prompts(fields))).must_name("prompt");
  }
  const auto prompts = [](std::size_t n, std::size_t length) -> Json {
    const std::vector<std::vector<int>> all(n, std::vector<int>(length, 9));
    return {{"prompt", all}, {"max_tokens", 0}, {"n", 128}};
  };
  server.complete(prompts(8, 500) | "{'logprobs': 20, 'echo': true}"_j).must_name("logprobs");
  server.complete(prompts(9, 1)).must_name("n");
  server.get("/health").must_be(200);
  CHECK(peak_mebibytes(server.process().pid()) < 1024);
}

TEST_CASE("the choices of a request share its biases", "[llmserve]") {
  ServedModel served;
  served.model = require_ok(Model::load(kFable, {.threads = 1}));
  served.id = "m";
  served.context = served.most_new_tokens = 100;
  served.most_texts = 10;
  const auto request = require_ok(parse_completion(
      test::parse_ordered_json(R"({"prompt": "a", "n": 2, "logit_bias": {"5": 1, "6": 2}})"),
      served));
  const auto first = request.choice(0, served).options.logit_bias;
  REQUIRE(first->size() == 2);
  REQUIRE(request.choice(1, served).options.logit_bias == first);
}

TEST_CASE("a reply that ends in the beginning of a mark is one part", "[llmserve]") {
  ServedModel served;
  served.model = require_ok(Model::load(kFable, {.threads = 1}));
  AnswerRequest request;
  request.is_chat = true;
  request.reply.format.think_begin = "<think>";
  request.reply.format.think_end = "</think>";
  request.prompts.resize(1);
  GenerationOutput text;
  text.result.text = "a <thi";
  const Json answer = parse_json(messages_writer(served, request)->whole({&text, 1}));
  CHECK(answer["content"] == "[{'type': 'text', 'text': 'a <thi'}]"_j);
}

TEST_CASE("a name that is no UTF-8 is served as one that is", "[llmserve]") {
  const ScratchDirectory directory;
  const std::string path = directory.write("m\xff.gguf", TinyGguf::llama().bytes());
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{path, "-q"}, {path, "-q", "--alias", "caf\xe9"}}) {
    Server server(words);
    const std::string id = server.get("/v1/models").json()["data"][0]["id"];
    CHECK(id == (words.size() == 2 ? "m\xef\xbf\xbd" : "caf\xef\xbf\xbd"));
    server.tokens({{"prompt", "a"}});
    server.tokens({{"prompt", "a"}, {"model", id}});
    server.post("/tokenize", {{"prompt", "a"}, {"model", "x"}}).must_be(404);
    server.get("/v1/models/" + id.substr(0, id.size() - 3) + "%EF%BF%BD").must_be(200);
  }
}

TEST_CASE("a client that disconnects after sending more requests is noticed", "[llmserve]") {
  Server server = serve_fable({"-c", "110000"});
  const std::string next =
      post_text("/tokenize", json_text(Json({{"prompt", std::string(70 << 10, 'a')}})));
  {
    RawClient client(server.port());
    client.send(kEndless + next);
    client.receive_until("data: ");
  }
  REQUIRE(server.comes_to("texts_cancelled_total", 1));
  REQUIRE(server.metric("texts_running") == 0);
  // Who sends more than is kept is disconnected.
  RawClient flood(server.port());
  flood.send(kEndless + std::string(3 << 20, ' '));
  REQUIRE(flood.is_ended());
  REQUIRE(server.comes_to("texts_running", 0));
  // What is within it is answered in its turn.
  RawClient patient(server.port());
  patient.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 50})") + next +
               get_text("/health"));
  REQUIRE(patient.reply().json()["object"] == "text_completion");
  REQUIRE(patient.reply().json()["count"].get<int>() > 1000);
  REQUIRE(patient.reply().json()["status"] == "ok");
}

}  // namespace llm::test
