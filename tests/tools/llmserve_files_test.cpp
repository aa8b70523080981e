// Files that change in place under llmserve: what that costs, and whom.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

/// A server of two models, of which one's files change.
class ChangingFiles {
 public:
  ChangingFiles() {
    std::filesystem::create_directory(folder_ / "models");
    for (const char* const name : {"good", "victim"}) write_model(name);
  }

  void write_model(const std::string& name) const {
    const std::string beside = folder_.write("models/" + name + ".new", read_file(kFable));
    std::filesystem::rename(beside, model(name));
  }
  std::string model(const std::string& name) const {
    return folder_ / ("models/" + name + ".gguf");
  }
  Server serve(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--models", folder_ / "models", "-q", "--kv-memory", "2"});
    return Server(std::move(more));
  }
  /// Makes a packed cache of the model. @return its path
  std::string pack(const std::string& name) const {
    run_tool("llmrun", {model(name), "-p", "a", "-n", "1", "-q", "--packed-cache", caches()})
        .must_end(0);
    for (const auto& entry : std::filesystem::directory_iterator(caches()))
      if (entry.path().filename().string().starts_with(name + "-")) return entry.path();
    FAIL("there is no packed cache");
    return "";
  }
  std::string caches() const { return folder_ / "caches"; }

  static std::string request(const std::string& model, int n = 3) {
    return post_text("/v1/completions",
                     json_text("{'prompt': 'Once', 'temperature': 0, 'ignore_eos': true}"_j |
                               Json{{"model", model}, {"max_tokens", n}}));
  }
  static Json text_of(const Server& server, const std::string& model) {
    return server.ask(request(model)).must_be(200).json()["choices"];
  }

 private:
  ScratchDirectory folder_;
};

void cut(const std::string& path) { std::filesystem::resize_file(path, 100000); }
void write_over(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1 << 20);
  file << std::string(1 << 20, '\x11');
  file.close();
  REQUIRE(file.good());
}

/// @return whether it came true within a minute
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Waits until the server has the file mapped.
void await_mapping(Server& server, const std::string& path) {
  const std::string maps = fmt::format("/proc/{}/maps", server.process().pid());
  REQUIRE(comes_true([&] { return read_file(maps).find(path) != std::string::npos; }));
}

/// Changes a model while a server loads it.
void change_while_loaded(void (*change)(const std::string& path)) {
  const ChangingFiles files;
  // What follows the weights is hashed with them, and takes time.
  std::filesystem::resize_file(files.model("victim"), std::uintmax_t{1} << 29);
  Server server = files.serve();
  const Json text = ChangingFiles::text_of(server, "good");
  RawClient client(server.port());
  REQUIRE(client.send(ChangingFiles::request("victim")));
  await_mapping(server, files.model("victim"));
  change(files.model("victim"));
  CHECK(ChangingFiles::text_of(server, "good") == text);
  const Reply refused =
      client.reply().must_be(500, {"victim.gguf: model changed while it was read"});
  CHECK(refused.json()["error"]["code"] == "model_not_loaded");
  // Nothing of it is kept.
  files.write_model("victim");
  CHECK(ChangingFiles::text_of(server, "victim") == text);
  CHECK(ChangingFiles::text_of(server, "good") == text);
  server.end().must_end(0);
}

/// Changes a packed cache while texts are generated from it, and then between two requests.
void change_while_used(void (*change)(const std::string& path)) {
  const ChangingFiles files;
  for (const bool is_between : {false, true}) {
    CAPTURE(is_between);
    const std::string cache = files.pack("victim");
    Server server = files.serve({"--packed-cache", files.caches(), "-c", "110000"});
    const Json text = ChangingFiles::text_of(server, "good");
    REQUIRE(ChangingFiles::text_of(server, "victim") == text);
    await_mapping(server, cache);
    RawClient client(server.port());
    if (!is_between) {
      const std::string figure = "generated_tokens_total{model=\"victim\"}";
      const double before = server.metric(figure);
      REQUIRE(client.send(ChangingFiles::request("victim", 100000)));
      REQUIRE(comes_true([&] { return server.metric(figure) > before + 3; }));
    }
    change(cache);
    CHECK(ChangingFiles::text_of(server, "good") == text);
    if (!is_between)
      client.reply().must_be(500, {cache + ": packed cache changed while it was read"});
    CHECK(ChangingFiles::text_of(server, "victim") == text);
    CHECK(server.metric("model_loads_total{model=\"victim\"}") == 2);
    CHECK(server.metric("model_loads_total{model=\"good\"}") == 1);
    server.end().must_end(0);
    std::filesystem::remove(cache);
  }
}

}  // namespace

TEST_CASE("bad input 105: a model cut in place while a server loads it", "[llmserve]") {
  change_while_loaded(cut);
}

TEST_CASE("bad input 106: a model overwritten in place while a server loads it", "[llmserve]") {
  change_while_loaded(write_over);
}

TEST_CASE("bad input 107: a packed cache cut in place while a server uses it", "[llmserve]") {
  change_while_used(cut);
}

TEST_CASE("bad input 108: a packed cache overwritten in place while a server uses it",
          "[llmserve]") {
  change_while_used(write_over);
}

}  // namespace llm::test
