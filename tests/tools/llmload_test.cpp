// llmload as scripts meet it: the real program, its shapes and its exit codes. Never its times.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

class Llmload : public ToolFolder {
 public:
  Finished llmload(const std::string& arguments) {
    return shell("llmload tiny.gguf -t 1 -q --lengths " + lengths + " " + arguments);
  }
  Json report(const std::string& arguments, int exit_code = 0) {
    return test::parse_json(llmload(arguments + " --json").must_end(exit_code).out);
  }
  std::string lengths = "1:2-20:2-6";
};

}  // namespace

TEST_CASE_METHOD(Llmload, "each option of the load and of the scheduler has its effect") {
  const std::string words = "--mode simulate --rounds 1 --training 60 -s 5 ";
  const Finished text = llmload(words).must_end(0);
  REQUIRE_THAT(text.out, Contains("tbt p95 ms") && Contains("simulated") && !Contains("real"));
  const Json usual = report(words + "--rate 300");
  must_match(usual, R"({"rate": 300, "simulated": {"requests": 100, "finished": 100},
      "parallel": 16, "kv_pages": 16})"_j);
  REQUIRE(report(words + "--load 5")["rate"].get<double>() * 5 <
          report(words + "--load 100")["rate"].get<double>());
  REQUIRE(report(words + "--requests 7")["simulated"]["requests"] == 7);
  const Json second = report(words + "--rate 400 --duration 0.5");
  REQUIRE(second["simulated"]["requests"] > 120);
  REQUIRE(second["simulated"]["requests"] < 280);
  must_match(report(words + "--rate 10000 --arrivals burst --burst 100 --queue 10"),
             "{'simulated': {'refused_queue_full': 90}, 'burst': 100}"_j);
  const Json narrow = report(words + "--parallel 1 --chunk 2 --rate 1000000");
  REQUIRE(narrow["simulated"]["sequences_per_step"] == 1);
  REQUIRE(narrow["simulated"]["tokens_per_step"] <= 2);
  must_match(report(words + "--kv-pages 1 --rate 1000000"),
             "{'simulated': {'sequences_per_step': 1}}"_j);
}

TEST_CASE_METHOD(Llmload, "a real run decides as its replay and makes the texts of one alone") {
  const std::string words = "--mode real --check --rate 100000 --requests 12 ";
  for (const std::string more : {"", "--temp 0.9 -s 3 --kv f32 --compute f32 --isa scalar "}) {
    const Json json = report(words + more + "--parallel 4 --chunk 8");
    must_match(json, R"({"same_decisions": true, "differing_texts": [], "passed": true,
        "real": {"finished": 12}})"_j);
    REQUIRE(json["real"]["output_tokens/s"] > 0);
    REQUIRE_FALSE(json.contains("costs"));
    if (!more.empty()) must_match(json, "{'isa': 'scalar', 'kv': 'f32', 'compute': 'f32'}"_j);
  }
  const Finished text = llmload(words);
  REQUIRE_THAT(text.out, Contains("outputs: 12 are bit-identical to separate runs") &&
                             Contains("the same decisions, to the nanosecond"));
  REQUIRE_THAT(llmload("--mode real --rate 100000 --requests 3").out, !Contains("texts:"));
}

TEST_CASE_METHOD(Llmload, "what is drawn depends on --temp and --seed, and not on the scheduler") {
  const auto texts = [&](const std::string& words) {
    return report("--mode real --rate 100000 --requests 12 " + words)["texts_sha256"];
  };
  const Json greedy = texts("");
  REQUIRE(greedy.get<std::string>().size() == 64);
  REQUIRE(texts("--temp 0 --parallel 3 --chunk 5 --rounds 2") == greedy);
  const Json drawn = texts("--temp 2");
  REQUIRE(drawn != greedy);
  REQUIRE(texts("--temp 2 --parallel 3 --chunk 5") == drawn);
  REQUIRE(texts("--temp 2 -s 2") != drawn);
  REQUIRE(texts("--kv f32") != greedy);
  REQUIRE(texts("--compute f32") != greedy);
}

TEST_CASE_METHOD(Llmload, "a real run that loses pages makes the same texts") {
  // Prompts that grow over a page while all decode.
  lengths = "1:247-255:15-20";
  write("tiny.gguf", read_file(kFable));
  const Json json =
      report("--mode real --check --rate 100000 --requests 6 --kv-pages 4 --chunk 100");
  REQUIRE(json["real"]["preemptions"] > 0);
  must_match(json, "{'real': {'finished': 6}, 'same_decisions': true, 'differing_texts': []}"_j);
  llmload("--mode real --rate 1 --requests 2 --kv-pages 1")
      .must_end(2, {"--kv-pages: found 1, which is too small for every request"});
}

TEST_CASE_METHOD(Llmload, "both runs are compared, and the verdict is the exit code") {
  const std::string words = "--requests 10 --rounds 3 --training 20 ";
  const Json json = report(words + "--rate 1000 --agree 1000");
  REQUIRE(json["agree"] == 10);
  for (const char* key : {"real", "simulated", "costs", "real_range", "costs_on_real_steps"}) {
    REQUIRE(json.contains(key));
  }
  REQUIRE(json["real"]["requests"] == json["simulated"]["requests"]);
  REQUIRE(json["rounds"] == 3);
  REQUIRE(json["real_range"]["ttft_p50_ms"][0] <= json["real"]["ttft_p50_ms"]);
  REQUIRE(json["real_range"]["ttft_p50_ms"][1] > json["real_range"]["ttft_p50_ms"][0]);
  const std::size_t steps = json["costs"]["steps"];
  REQUIRE(
      report("--requests 10 --rounds 3 --training 60 --rate 1000 --agree 1000")["costs"]["steps"] >
      steps * 3 / 2);
  const Json differing = report(words + "--rate 1000 --agree 0", 1);
  REQUIRE(differing["passed"] == false);
  REQUIRE_FALSE(differing["disagreements"].empty());
  llmload(words + "--rate 1000 --agree 0")
      .must_end(1, {}, {"agreement (*): FAIL, beyond 0.0 %: ttft p50 ms"});
}

TEST_CASE_METHOD(Llmload, "input that llmload cannot use is rejected by name") {
  const std::string usual = lengths;
  for (const auto& [of, words, code, part] :
       std::vector<std::tuple<std::string, std::string, int, std::string>>{
           {usual, "--rate 1 --load 5", 2, "--load: found with --rate"},
           {usual, "--requests 1 --duration 5", 2, "--duration: found with --requests"},
           {usual, "--mode simulate --check", 2, "--check: found with --mode simulate"},
           {usual, "--chunk 15", 2, "--chunk: found 15, need --parallel (16) or more"},
           {usual, "--rate 0", 2, "--rate: found \"0\""},
           {usual, "--rate nan", 2, "--rate: found \"nan\""},
           {usual, "--rate 1000000 --duration 86400", 2, "--duration: found 8.64e+10 requests"},
           {usual, "--rate 0.001 --requests 1000000", 2, "--rate: found 1e+09 seconds"},
           {"1:2-20:0-6", "", 2, "--lengths: found \"1:2-20:0-6\", need"},
           {"1:2-200:1-6000", "", 5, "--lengths: found a request of 6200 tokens, need at most "}}) {
    lengths = of;
    llmload(words).must_refuse(code, {part});
  }
}

}  // namespace llm::test
