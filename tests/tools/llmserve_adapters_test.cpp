// llmserve --lora: each request has the adapters that it asks for, and the bits that it has alone.

#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

const Json kText = {{"prompt", "a tiny hen"},
                    {"max_tokens", 8},
                    {"temperature", 0},
                    {"ignore_eos", true},
                    {"logits_hash", true}};

/// A server of the tiny model with three adapters: one, 2 and 3.
class WithAdapters : public TinyModel {
 public:
  WithAdapters() {
    const auto model = loaded(TinyGguf::llama());
    for (std::uint64_t seed : {1, 2, 3}) {
      const TinyGguf adapter = tiny_adapter(*model, {.rank = 2 * seed, .seed = seed});
      write(fmt::format("{}.gguf", seed), adapter.bytes());
    }
  }
  Server start(std::vector<std::string> more = {}) const {
    for (const std::string lora : {"one=1.gguf", "2.gguf:0.5", "3.gguf"}) {
      const std::size_t file = lora.find('=') + 1;
      more.insert(more.end(), {"--lora", lora.substr(0, file) + path(lora.substr(file))});
    }
    return serve(std::move(more));
  }
  /// What llmrun's logits have with these options.
  std::string hash_of(const std::string& options) const {
    const std::string err = shell(
                                "llmrun tiny.gguf -t 1 -p 'a tiny hen' -n 8 --temp 0 "
                                "--ignore-eos -q --logits-hash " +
                                options)
                                .must_end(0)
                                .err;
    return err.substr(err.find(": ") + 2, 64);
  }
};

std::string hash(const Server& server, const Json& more = Json::object()) {
  return server.complete(kText | more).must_be(200).header("x-logits-sha256");
}

}  // namespace

TEST_CASE("a request has the adapters that it asks for", "[llmserve][adapter]") {
  const WithAdapters files;
  const Server server = files.start();
  const std::string plain = files.hash_of("");
  const std::string one = files.hash_of("--lora 1.gguf");
  const std::string two = files.hash_of("--lora 2.gguf:0.5");
  REQUIRE(one != plain);
  CHECK(hash(server) == files.hash_of("--lora 1.gguf --lora 2.gguf:0.5 --lora 3.gguf"));
  CHECK(hash(server, "{'lora': []}"_j) == plain);
  CHECK(hash(server, "{'lora': [{'id': 0, 'scale': 1.0}]}"_j) == one);
  CHECK(hash(server, "{'lora': [{'id': 'one'}]}"_j) == one);
  CHECK(hash(server, "{'lora': [{'id': '2', 'scale': 0.5}, {'id': 0, 'scale': 0}]}"_j) == two);
  CHECK(hash(server, "{'model': 'tiny:one'}"_j) == one);
  CHECK(hash(server, "{'model': 'tiny:2'}"_j) == two);
  CHECK(server.get("/v1/models").at("/data").size() == 4);
  const auto fingerprint = [&](const Json& more) {
    return server.complete(kText | more).at("/system_fingerprint");
  };
  CHECK(fingerprint("{'lora': []}"_j) != fingerprint("{'model': 'tiny:one'}"_j));
  CHECK(fingerprint("{'lora': [{'id': 0}]}"_j) == fingerprint("{'model': 'tiny:one'}"_j));

  // Of all requests that choose none.
  CHECK(server.get("/lora-adapters").at("/1") ==
        Json{{"id", 1}, {"name", "2"}, {"path", files.path("2.gguf")}, {"scale", 0.5}});
  server.post("/lora-adapters", "[{'id': 0, 'scale': 1}]"_j).must_match("{'success': true}"_j);
  CHECK(server.get("/lora-adapters").at("/1/scale") == 0);
  CHECK(hash(server) == one);
  server.post("/lora-adapters", "{'lora': []}"_j).must_be(200);
  CHECK(hash(server) == plain);
  CHECK(hash(files.start({"--lora-init-without-apply"})) == plain);
}

TEST_CASE("16 requests with adapters of their own have the bits that each has alone",
          "[llmserve][adapter]") {
  const WithAdapters files;
  const Server server = files.start({"--parallel", "16"});
  std::vector<Json> bodies;
  const Json all = "[[], [{'id': 0}], [{'id': 1}], [{'id': 2}]]"_j;
  for (int i = 0; i < 16; ++i)
    bodies.push_back(kText | Json{{"prompt", i < 8 ? "a tiny hen" : "Once upon a time"},
                                  {"lora", all[static_cast<std::size_t>(i % 4)]}});
  std::vector<std::string> alone;
  for (const Json& body : bodies)
    alone.push_back(server.complete(body).must_be(200).header("x-logits-sha256"));
  REQUIRE(std::set<std::string>(alone.begin(), alone.end()).size() == 8);
  std::vector<std::string> together(bodies.size());
  at_once(bodies.size(), [&](std::size_t i) {
    together[i] = server.complete(bodies[i]).header("x-logits-sha256");
  });
  CHECK(together == alone);
}

TEST_CASE("adapters that there are not are refused by name", "[llmserve][adapter]") {
  const WithAdapters files;
  const Server server = files.start();
  const auto refused = [&](const Json& more, std::string_view param, Words words) {
    server.complete(kText | more).must_name(param, words);
  };
  refused("{'lora': [{'id': 3}]}"_j, "lora[0].id", {"found 3, need a number below 3"});
  refused("{'lora': [{'id': 0}, {'id': 'x'}]}"_j, "lora[1].id", {"one of"});
  refused("{'lora': [{'id': 0, 'scale': 'x'}]}"_j, "lora[0].scale", {"need a number"});
  refused("{'lora': [7]}"_j, "lora[0]", {"need an object"});
  refused("{'lora': 7}"_j, "lora", {"need an array"});
  refused("{'receipt': true}"_j, "receipt", {"true with an adapter"});
  server.complete(kText | "{'model': 'tiny:x'}"_j).must_be(404);
  server.post("/lora-adapters", "[{'id': 5}]"_j).must_name("lora[0].id");
  const Server bare = files.serve();
  bare.complete(kText | "{'lora': [{'id': 0}]}"_j).must_name("lora[0].id", {"the server has none"});
  bare.complete(kText | "{'lora': []}"_j).must_be(200);
  files.shell("llmserve tiny.gguf --lora 1.gguf --receipts r")
      .must_end(2, {"--lora", "--receipts"});
  files.shell("llmserve --models . --lora 1.gguf").must_end(2, {"--lora", "--models"});
  files.shell("llmserve tiny.gguf --lora 1.gguf --lora 1.gguf")
      .must_end(2, {"the name \"1\" twice"});
  files.shell("llmserve tiny.gguf --port 0 --lora tiny.gguf").must_end(6, {"need \"adapter\""});
}

}  // namespace llm::test
