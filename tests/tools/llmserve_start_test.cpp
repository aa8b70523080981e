// llmserve's command line: what each option does, and what no server starts with.

#include "tests/tools/llmrun_process.h"
#include "tests/tools/llmserve_process.h"

namespace llm::test {
TEST_CASE("a chat template whose markers the vocabulary lacks is refused at the start",
          "[llmserve]") {
  const TinyModel tiny;
  std::vector<std::string> arguments = tiny.with({"--chat-template", "chatml"});
  const Finished run =
      run_tool("llmserve", arguments)
          .must_end(2, {"--chat-template: found chatml, whose marker <|im_start|> is no token"});
  REQUIRE(run.out.empty());
}

TEST_CASE("each option has its effect on what is served", "[llmserve]") {
  const TinyModel tiny;
  const auto fingerprint = [](const Server& server) {
    return server.get("/v1/models").json()["data"][0]["system_fingerprint"].get<std::string>();
  };
  Server usual = tiny.serve();
  const std::string print = fingerprint(usual);
  REQUIRE(print.ends_with("-int8-f16"));
  Server other = tiny.serve({"--kv", "q8", "--compute", "f32", "--alias", "mine", "--host",
                             "127.0.0.2", "-c", "64", "--isa", "scalar"});
  RawClient client(other.port());
  REQUIRE_FALSE(client.connected());  // it listens elsewhere
  const Finished run = other.end();
  REQUIRE(run.out.starts_with("http://127.0.0.2:"));
  Server facts = tiny.serve({"--kv", "q8", "--compute", "f32", "--alias", "mine", "-c", "64"});
  const Json model = facts.get("/v1/models").json()["data"][0];
  REQUIRE(model["id"] == "mine");
  REQUIRE(model["max_model_len"] == 64);
  REQUIRE(model["system_fingerprint"].get<std::string>().ends_with("-f32-q8"));
  // One page is 256 positions; a MiB is more than the tiny model's two full contexts need.
  Server small = serve_fable({"--kv-memory", "2", "--parallel", "2", "--chunk", "2"});
  Server large = serve_fable();
  REQUIRE(small.metric("kv_pages") < large.metric("kv_pages"));
  REQUIRE(small.complete({{"prompt", "a b c d e f"}, {"max_tokens", 1}}).status == 200);
  REQUIRE(large.complete({{"prompt", "a b c d e f"}, {"max_tokens", 1}}).status == 200);
  REQUIRE(large.metric("steps_total") == 1);
  REQUIRE(small.metric("steps_total") > 2);
}

TEST_CASE("llmserve --speculate ngram takes fewer steps to the same text", "[llmserve]") {
  // A text that repeats itself: of one token.
  const Json body = {{"prompt", "The dog"},
                     {"max_tokens", 100},
                     {"temperature", 0},
                     {"logit_bias", {{"300", 100}}}};
  Server plain = serve_fable();
  Server guessing = serve_fable({"--speculate", "ngram"});
  const Json text = plain.complete(body).json()["choices"][0]["text"];
  REQUIRE(guessing.complete(body).json()["choices"][0]["text"] == text);
  CHECK(plain.metric("proposed_tokens_total") == 0);
  CHECK(guessing.metric("accepted_tokens_total") > 0);
  CHECK(guessing.metric("steps_total") < plain.metric("steps_total"));
}

TEST_CASE("llmserve says what it does on stderr", "[llmserve]") {
  const TinyModel tiny;
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
  const TinyModel tiny;
  const auto refused = [&](std::vector<std::string> more, int exit_code, std::string_view words) {
    more.insert(more.begin(), {tiny.path("tiny.gguf"), "-q", "-t", "1", "--port", "0"});
    run_tool("llmserve", more).must_end(exit_code, {words});
  };
  Server taken = tiny.serve();
  refused({"--port", std::to_string(taken.port())}, 4, "--port: 127.0.0.1:");
  refused({"--host", "no such host"}, 4, "--host: no such host");
  refused({"--chunk", "4", "--parallel", "5"}, 2, "--chunk: found 4, need --parallel (5) or more");
  refused({"--port", "65536"}, 2, "--port");
  refused({"--verify-model"}, 4, "tiny.gguf.manifest");
  auto model = TinyGguf::llama();
  model.trailing = "junk";
  const ScratchDirectory directory;
  const std::string odd = directory.write("odd.gguf", model.bytes());
  run_tool("llmserve", {odd, "--strict", "-q", "--port", "0"}).must_end(3);
  run_tool("llmserve", {"/none", "--port", "0"}).must_end(4);
  // The port is asked for first: a model may take long to load.
  const Finished unread = run_tool("llmserve", {"/none", "--port", std::to_string(taken.port())});
  CAPTURE(unread.err);
  REQUIRE(unread.err.find("--port: 127.0.0.1:") != std::string::npos);
  REQUIRE(unread.err.find("/none") == std::string::npos);
  run_tool("llmserve", {}).must_end(2);
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
           {{"-mu", "https://x/y.gguf"}, "-hf owner/repo is what is downloaded"},
           {{"--ssl-key-file", "x"}, "a proxy"},
           {{"--max-model-len", "64"}, "the context is -c"},
       }) {
    std::vector<std::string> words = advice.words;
    words.insert(words.begin(), "m.gguf");
    run_tool("llmserve", words).must_end(2, {advice.says});
  }
}

TEST_CASE("a model that is named as hubs name it gets -hf's advice", "[llmserve]") {
  for (const std::string tool : {"llmserve", "llmrun", "llmcheck"}) {
    for (const std::string name :
         {"no-such-owner/repo", "no-such-owner/repo-GGUF:Q4_K_M", "no-such-model:tag"}) {
      std::vector<std::string> words = {name};
      if (tool == "llmserve") words.insert(words.end(), {"--port", "0"});
      if (tool == "llmcheck") words.emplace_back("--self");
      run_tool(tool, words)
          .must_end(4, {name, "-hf owner/repo:QUANT fetches a model of the Hugging Face hub"});
    }
  }
  for (const std::string path : {"/none", "no-such.gguf", "./owner/repo", "no-such-model"}) {
    const Finished run = run_tool("llmrun", {path}).must_end(4);
    CAPTURE(path);
    CHECK(run.err.find("-hf") == std::string::npos);
  }
}

}  // namespace llm::test
