#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {

/// What a server answered.
struct Reply {
  int status = 0;  ///< 0: the connection ended without an answer
  std::string head;
  std::string body;     ///< chunks joined
  std::string request;  ///< the beginning of what was asked

  /// Itself, seen to have that status, with all of these words in its body.
  Reply must_be(int expected, Words words = {},
                std::source_location where = std::source_location::current()) const {
    INFO(where.file_name() << ':' << where.line() << ": " << request << '\n'
                           << head << body.substr(0, 2000));
    REQUIRE(status == expected);
    require_words(body, words);
    return *this;
  }
  /// The same of a request that is refused for one of its fields.
  Reply must_name(std::string_view param, Words words = {}, int expected = 400,
                  std::source_location where = std::source_location::current()) const {
    must_be(expected, words, where);
    INFO(where.file_name() << ':' << where.line() << ": " << request << '\n' << body);
    REQUIRE(json()["error"]["param"] == param);
    return *this;
  }

  Json json() const { return test::parse_json(body); }
  /// The value at a JSON pointer of a good answer.
  Json at(const std::string& pointer,
          std::source_location where = std::source_location::current()) const {
    const Json answer = must_be(200, {}, where).json();
    const Json::json_pointer place(pointer);
    INFO(where.file_name() << ':' << where.line() << ": " << pointer << " in " << body);
    REQUIRE(answer.contains(place));
    return answer[place];
  }
  /// A good answer, seen to be as `wanted`, which may leave out fields.
  Json must_match(const Json& wanted,
                  std::source_location where = std::source_location::current()) const {
    INFO(where.file_name() << ':' << where.line() << ": " << request);
    return test::must_match(must_be(200, {}, where).json(), wanted);
  }
  bool has_header(std::string_view line) const { return head.find(line) != std::string::npos; }
  /// What a header says, or "".
  std::string header(std::string_view name) const {
    const std::size_t at = head.find("\r\n" + std::string(name) + ": ");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

/// A client that says exactly what it is told. No Catch assertions: usable from any thread.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  /// @return whether all of it was taken
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  /// As many more bytes as came, none at the end. Waits at most a minute.
  std::string receive() {
    pollfd wait = {.fd = socket_, .events = POLLIN, .revents = 0};
    char buffer[1 << 14];
    if (::poll(&wait, 1, 60000) <= 0) return "";
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    has_ended_ = n <= 0;
    return n <= 0 ? "" : std::string(buffer, static_cast<std::size_t>(n));
  }
  /// Whether the server ends the connection, or has; waits at most a minute.
  bool is_ended() {
    while (more()) {
    }
    return has_ended_;
  }
  /// Everything until `mark` was received or the connection ended.
  std::string receive_until(std::string_view mark) {
    while (received_.find(mark) == std::string::npos && more()) {
    }
    return received_;
  }

  Reply reply() {
    Reply reply;
    std::size_t end = 0;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return reply;
    }
    reply.head = take(end + 4);
    reply.status = std::atoi(reply.head.c_str() + 9);
    if (reply.has_header("Transfer-Encoding: chunked")) {
      while (take_chunk(reply.body)) {
      }
    } else {
      const auto size =
          static_cast<std::size_t>(std::atoll(reply.header("Content-Length").c_str()));
      while (received_.size() < size && more()) {
      }
      reply.body = take(size);
    }
    return reply;
  }

 private:
  bool more() {
    const std::string bytes = receive();
    received_ += bytes;
    return !bytes.empty();
  }
  std::string take(std::size_t n) {
    std::string front = received_.substr(0, n);
    received_.erase(0, n);
    return front;
  }
  bool take_chunk(std::string& body) {
    std::size_t end = 0;
    while ((end = received_.find("\r\n")) == std::string::npos) {
      if (!more()) return false;
    }
    const std::size_t size = std::strtoul(received_.c_str(), nullptr, 16);
    while (received_.size() < end + 2 + size + 2) {
      if (!more()) return false;
    }
    body += take(end + 2 + size + 2).substr(end + 2, size);
    return size > 0;
  }

  int socket_;
  bool connected_ = false;
  bool has_ended_ = false;
  std::string received_;
};

inline std::string post_text(std::string_view path, std::string_view body,
                             std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}
inline std::string get_text(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "\r\n";
}

/// A request that takes longer than any test, on a server of a context of 110,000 (-c).
inline const std::string kEndless =
    post_text("/v1/completions",
              R"({"prompt": "Once", "max_tokens": 100000, "ignore_eos": true, "stream": true})");

/// The data of each server-sent event.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = std::min(end, body.size());
  }
  return events;
}

/// The JSON of each event, or line, of a stream.
inline std::vector<Json> parts_of(const std::string& body) {
  std::vector<Json> parts;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("data: ")) line.erase(0, 6);
    if (line.starts_with('{')) parts.push_back(test::parse_json(line));
  }
  return parts;
}
/// The texts at a JSON pointer, one after the other, of the parts that have one.
inline std::string joined(const std::vector<Json>& parts, const std::string& pointer) {
  const Json::json_pointer place(pointer);
  std::string text;
  for (const Json& part : parts)
    if (part.contains(place) && part[place].is_string()) text += part[place];
  return text;
}

/// A message, and a conversation of one question.
inline Json message(const Json& role, const Json& content) {
  return {{"role", role}, {"content", content}};
}
inline Json question(const Json& content) { return Json::array({message("user", content)}); }

/// Calls f(0), ..., f(n - 1), each in a thread of its own. Catch is of one thread: f asserts
/// nothing.
template <typename F>
void at_once(std::size_t n, const F& f) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < n; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}

/// llmserve on a free port of this machine.
class Server {
 public:
  /// @param limits  what a shell says before it becomes the server ("ulimit -v 1000000"), or ""
  explicit Server(std::vector<std::string> arguments, const std::string& limits = "")
      : process_(words(std::move(arguments), limits)) {
    while (process_.output_so_far().find('\n') == std::string::npos) {
      if (!process_.is_running()) FAIL("llmserve did not start: " + process_.wait().err);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const std::string url = process_.output_so_far();
    port_ = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  ~Server() {
    if (!ended_) ::kill(process_.pid(), SIGKILL);
  }

  std::uint16_t port() const { return port_; }
  Process& process() { return process_; }
  Finished end() {
    ended_ = true;
    process_.send(SIGTERM);
    return process_.wait();
  }
  /// Its end was caused otherwise.
  Finished wait() {
    ended_ = true;
    return process_.wait();
  }

  Reply ask(const std::string& request) const {
    RawClient client(port_);
    client.send(request);
    Reply reply = client.reply();
    reply.request = request.substr(0, 1000);
    return reply;
  }
  Reply post(std::string_view path, const Json& body) const {
    return ask(post_text(path, json_text(body)));
  }
  Reply complete(const Json& body) const { return post("/v1/completions", body); }
  /// The first choice of a completion.
  Json choice(const Json& body) const { return complete(body).must_be(200).json()["choices"][0]; }
  /// Of a body of /tokenize.
  Json tokens(const Json& body) const {
    return post("/tokenize", body).must_be(200).json()["tokens"];
  }
  /// What it reads a body of /tokenize as.
  std::string read_as(const Json& body) const {
    return post("/detokenize", {{"tokens", tokens(body)}}).at("/prompt");
  }
  Reply get(std::string_view path) const { return ask(get_text(path)); }

  /// A figure of /metrics, of all models together unless `name` has a label; -1: there is none.
  double metric(const std::string& name) const {
    std::istringstream text(get("/metrics").body);
    std::optional<double> sum;
    for (std::string line; std::getline(text, line);) {
      const std::string start = line.substr(0, line.find_last_of(' '));
      if (start == "llmserve_" + name || start.starts_with("llmserve_" + name + "{"))
        sum = sum.value_or(0) + std::atof(line.c_str() + start.size());
    }
    return sum.value_or(-1);
  }
  /// Waits until a figure is what it must become.
  bool comes_to(const std::string& name, double value) const {
    for (int i = 0; i < 6000; ++i) {
      if (metric(name) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  static std::vector<std::string> words(std::vector<std::string> arguments,
                                        const std::string& limits) {
    std::vector<std::string> first = {tool_path("llmserve"), "--port", "0", "-t", "1"};
    if (!limits.empty())
      first.insert(first.begin(), {"/bin/sh", "-c", limits + R"(; exec "$0" "$@")"});
    arguments.insert(arguments.begin(), first.begin(), first.end());
    return arguments;
  }

  Process process_;
  std::uint16_t port_ = 0;
  bool ended_ = false;
};

/// The embedded model, silent.
inline Server serve_fable(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {kFable, "-q"});
  return Server(std::move(more));
}

/// A folder with the tiny model, which is served.
class TinyModel : public ToolFolder {
 public:
  Server serve(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {path("tiny.gguf"), "-q"});
    return Server(std::move(more));
  }
};

/// Checks a receipt by llmcheck, which must end with that code.
inline Finished replay(const Json& receipt, int exit_code = 0, const std::string& model = kFable) {
  const ScratchDirectory folder;
  const std::string file = folder.write("r.json", json_text(receipt));
  return run_tool("llmcheck", {model, "--replay", file, "-t", "1"}).must_end(exit_code);
}

}  // namespace llm::test
