// llmserve's command line: what each option does, and what no server starts with.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
TEST_CASE("each option has its effect on what is served", "[llmserve]") {
  const TinyModel tiny;
  CHECK_THAT(tiny.serve().get("/v1/models").at("/data/0/system_fingerprint").get<std::string>(),
             Catch::Matchers::EndsWith("-int8-f16"));
  Server other = tiny.serve({"--host", "127.0.0.2", "--isa", "scalar"});
  REQUIRE_FALSE(RawClient(other.port()).connected());  // it listens elsewhere
  REQUIRE(other.end().out.starts_with("http://127.0.0.2:"));
  Server facts = tiny.serve({"--kv", "q8", "--compute", "f32", "--alias", "mine", "-c", "64"});
  const Json model = facts.get("/v1/models").at("/data/0");
  must_match(model, "{'id': 'mine', 'max_model_len': 64}"_j);
  REQUIRE(model["system_fingerprint"].get<std::string>().ends_with("-f32-q8"));
  // One page is 256 positions; a MiB is more than the tiny model's two full contexts need.
  Server small = serve_fable({"--kv-memory", "2", "--parallel", "2", "--chunk", "2"});
  Server large = serve_fable();
  REQUIRE(small.metric("kv_pages") < large.metric("kv_pages"));
  for (const Server* server : {&small, &large})
    server->complete({{"prompt", "a b c d e f"}, {"max_tokens", 1}}).must_be(200);
  REQUIRE(large.metric("steps_total") == 1);
  REQUIRE(small.metric("steps_total") > 2);
}

TEST_CASE("llmserve --speculate ngram takes fewer steps to the same text", "[llmserve]") {
  // A text that repeats itself: of one token.
  const Json body =
      R"({"prompt": "The dog", "max_tokens": 100, "temperature": 0, "logit_bias": {"300": 100}})"_j;
  Server plain = serve_fable();
  Server guessing = serve_fable({"--speculate", "ngram"});
  REQUIRE(guessing.choice(body)["text"] == plain.choice(body)["text"]);
  CHECK(plain.metric("proposed_tokens_total") == 0);
  CHECK(guessing.metric("accepted_tokens_total") > 0);
  CHECK(guessing.metric("steps_total") < plain.metric("steps_total"));
}

/// A file with a block that predicts further tokens.
std::string mtp_model(const TinyModel& tiny) {
  tiny.write("mtp.gguf",
             TinyGguf::llama({.n_layers = 3, .architecture = "qwen35", .mtp = true}).bytes());
  return tiny.path("mtp.gguf");
}

TEST_CASE("llmserve with a draft or the model's own block gives the same text", "[llmserve]") {
  const TinyModel tiny;
  const Json body =
      R"({"prompt": "a b c", "max_tokens": 40, "temperature": 0, "ignore_eos": true})"_j;
  Server by_draft({kFable, "-q", "--draft", kFable});
  Server plain({kFable, "-q"});
  for (int i = 0; i < 8; ++i) REQUIRE(by_draft.choice(body)["text"] == plain.choice(body)["text"]);
  CHECK(by_draft.metric("proposed_tokens_total") > 0);
  CHECK(plain.metric("proposed_tokens_total") == 0);
  const std::string model = mtp_model(tiny);
  Server by_block({model, "-q"});
  Server without({model, "-q", "--speculate", "off"});
  for (int i = 0; i < 8; ++i)
    REQUIRE(by_block.choice(body)["text"] == without.choice(body)["text"]);
  CHECK(by_block.metric("proposed_tokens_total") > 0);
  CHECK(without.metric("proposed_tokens_total") == 0);
}

TEST_CASE("--memory counts what proposes tokens", "[llmserve]") {
  const auto need = [](const std::string& model, const std::string& option,
                       const std::string& value) {
    const Finished run = run_tool(
        "llmserve", {model, "--memory", "1", "--port", "0", "--parallel", "256", option, value});
    const std::size_t at = run.err.find("need ");
    REQUIRE(at != std::string::npos);
    return std::stoul(run.err.substr(at + 5));
  };
  const TinyModel tiny;
  CHECK(need(kFable, "--draft", kFable) > need(kFable, "--speculate", "off"));
  CHECK(need(mtp_model(tiny), "--speculate", "auto") > need(mtp_model(tiny), "--speculate", "off"));
}

TEST_CASE("llmserve says what it does on stderr", "[llmserve]") {
  const TinyModel tiny;
  Server server({tiny.path("tiny.gguf"), "--isa", "scalar"});
  server.complete({{"prompt", "a"}, {"max_tokens", 2}, {"ignore_eos", true}});
  server.get(std::string("/nothing\xc2\x9b") + "2J");  // a terminal's control sequence
  const Finished run = server.end().must_end(
      0, {"127.0.0.1 POST /v1/completions 200 ", " ms 2+2 tokens\n", ", scalar, 1 threads, "});
  REQUIRE(run.err.find('\x1b') == std::string::npos);
}

TEST_CASE("what llmserve cannot start with is refused by name", "[llmserve]") {
  const TinyModel tiny;
  auto model = TinyGguf::llama();
  model.trailing = "junk";
  tiny.write("odd.gguf", model.bytes());
  Server taken = tiny.serve();
  const std::string port = fmt::format("--port {}", taken.port());
  for (const auto& [words, exit_code, says] :
       std::vector<std::tuple<std::string, int, std::string>>{
           {"tiny.gguf " + port, 4, "--port: 127.0.0.1:"},
           {"tiny.gguf --host 'no such host'", 4, "--host: no such host"},
           {"tiny.gguf --chunk 4 --parallel 5", 2, "--chunk: found 4, need --parallel (5) or more"},
           {"tiny.gguf --port 65536", 2, "--port"},
           {"tiny.gguf --verify-model", 4, "tiny.gguf.manifest"},
           {"tiny.gguf --chat-template chatml", 2,
            "--chat-template: found chatml, whose marker <|im_start|> is not a token"},
           {"odd.gguf --strict", 3, "odd.gguf: "},
           {"/none", 4, "/none: "},
           // The port is asked for first: a model may take long to load.
           {"/none " + port, 4, "llmserve: error: --port: 127.0.0.1:"},
           {"", 2, "MODEL"}})
    tiny.shell("llmserve -q -t 1 --port 0 " + words).must_refuse(exit_code, {says});
}

TEST_CASE("options of other servers get a true sentence", "[llmserve]") {
  const ToolFolder folder;
  for (const auto& [words, says] : std::vector<std::pair<std::string, std::string>>{
           {"--temp 0.5", "requests set it"},
           {"--seed=1", "requests set it"},
           {"--dry-base 2", "requests set it"},
           {"-n 5", "--max-tokens limits a response"},
           {"-mu https://x/y.gguf", "-hf owner/repo downloads"},
           {"--ssl-key-file x", "a proxy"},
           {"--max-num-batched-tokens 64", "--chunk sets"},
       }) {
    folder.shell("llmserve m.gguf " + words).must_end(2, {says});
  }
}

TEST_CASE("a command line of llama-server starts a server", "[llmserve]") {
  const TinyModel tiny;
  const std::string command = "-m " + tiny.path("tiny.gguf") +
                              " -ngl 99 -fa on --jinja -np 3 -c 200 -b 64 -ub 64 --mlock "
                              "--no-mmap -cb --metrics --slots --no-webui --alias one";
  std::istringstream words(command);
  Server server(std::vector<std::string>(std::istream_iterator<std::string>(words), {}));
  server.get("/props").must_match(R"({"total_slots": 3, "model_alias": "one",
      "default_generation_settings": {"n_ctx": 200}})"_j);
  require_words(server.end().err, {"without effect: -ngl (there is no GPU code", "-fa (",
                                   "--jinja (", "-ub (", "--no-webui ("});
}

TEST_CASE("a model that is named as hubs name it gets -hf's advice", "[llmserve]") {
  const ToolFolder folder;
  for (const std::string run : {"llmserve --port 0 ", "llmrun ", "llmcheck --self "}) {
    for (const std::string name :
         {"no-such-owner/repo", "no-such-owner/repo-GGUF:Q4_K_M", "no-such-model:tag"}) {
      folder.shell(run + name)
          .must_end(4, {name, "-hf owner/repo:QUANT downloads a model of the Hugging Face hub"});
    }
  }
  for (const std::string path : {"/none", "no-such.gguf", "./owner/repo", "no-such-model"}) {
    CHECK_THAT(run_tool("llmrun", {path}).must_end(4).err, !Contains("-hf"));
  }
}

TEST_CASE("a model that is only a draft is neither served nor run", "[llmserve]") {
  const ToolFolder folder;
  const std::string draft = LLM_SOURCE_DIR "/tests/golden/assistant/gemma4-assistant.gguf";
  for (const char* program : {"llmserve ", "llmrun -p a "}) {
    CAPTURE(program);
    folder.shell(program + draft).must_end(6, {"gemma4-assistant", "--draft"});
  }
  const std::string other = LLM_SOURCE_DIR "/tests/golden/architectures/qwen3.gguf";
  for (const char* program : {"llmserve ", "llmrun -p a "}) {
    CAPTURE(program);
    folder.shell(program + other + " --draft " + draft)
        .must_end(2, {"need a draft of a qwen3 model"});
  }
}

}  // namespace llm::test
