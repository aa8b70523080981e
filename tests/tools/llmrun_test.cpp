// llmrun as its users meet it: the real program, its streams and its exit codes.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

const std::string kGreedy = "tiny.gguf -n 8 --temp 0 --ignore-eos -q ";

std::string hash_line(const Finished& run) {
  const std::size_t at = run.err.find("logits-sha256: ");
  return at == std::string::npos ? "" : run.err.substr(at, 15 + 64);
}

}  // namespace

TEST_CASE_METHOD(Llmrun, "greedy texts of stories260K are llama.cpp's") {
  const char* data = std::getenv("LLM_TEST_DATA");
  if (data == nullptr) {
    std::cerr << "SKIPPED: stories260K.gguf (LLM_TEST_DATA is not set)\n";
    return;
  }
  const std::string model = fmt::format("'{}/stories260K.gguf'", data);
  const auto cases =
      test::parse_json(test::read_file(std::string(data) + "/stories260K_greedy.json"));
  REQUIRE(!cases.empty());
  for (const Json& item : cases) {
    write("prompt", item["prompt"].get<std::string>());
    for (const char* extra : {"", "--no-cache", "-b 1", "--compute f32"}) {
      const Finished run =
          llmrun(fmt::format("{} -f prompt -n 64 --temp 0 --kv f32 {}", model, extra)).must_end(0);
      CAPTURE(extra);
      REQUIRE(run.out == item["greedy_64"]);
    }
  }
}

TEST_CASE_METHOD(Llmrun, "the logits hash is of the tokens alone") {
  const Finished base = llmrun(kGreedy + "-p 'a tiny prompt' --logits-hash");
  REQUIRE(hash_line(base).size() == 15 + 64);
  REQUIRE(base.err.starts_with("\nlogits-sha256: "));
  for (const char* extra : {"--no-cache", "-b 1", "-b 2", "-b 7", "-b 32", "-t 1", "-t 3",
                            "--isa scalar", "--temp 0 -s 9", "--json"}) {
    CAPTURE(extra);
    const Finished run = llmrun(kGreedy + "-p 'a tiny prompt' --logits-hash " + extra);
    REQUIRE(hash_line(run) == hash_line(base));
  }
  for (const char* extra : {"--kv f32", "--compute f32", "-n 7", "-p other"}) {
    CAPTURE(extra);
    REQUIRE(hash_line(llmrun(kGreedy + "--logits-hash " + extra)) != hash_line(base));
  }
}

TEST_CASE_METHOD(Llmrun, "wrong usage exits with 2 and names flag, value and rule") {
  for (const auto& [arguments, words] : std::vector<std::pair<const char*, const char*>>{
           {"tiny.gguf -n -5", "-n: found \"-5\", need an integer in -1..2147483647"},
           {"tiny.gguf --temp nan", "--temp: found \"nan\", need 0..100"},
           {"tiny.gguf --top-p 1.5", "--top-p: found \"1.5\", need 0..1"},
           {"tiny.gguf --tmp 1", "--tmp: unknown option; did you mean --temp?"},
           {"tiny.gguf -p a -f b", "prompt: found more than one, need one of PROMPT, -p and -f"},
           {"tiny.gguf a -p b", "prompt: found more than one"},
           {"tiny.gguf a b", "prompt: found more than one"},
           {"-m tiny.gguf a b", "prompt: found more than one"},
           {"tiny.gguf a b c", "found 4 arguments without a dash"},
           {"tiny.gguf -i --jsonl", "-i: found with --jsonl"},
           {"tiny.gguf -i -", "-: found with -i, need standard input for the chat"},
           {"tiny.gguf --session a", "--session: found without -i"},
           {"tiny.gguf -i --session a --no-cache", "--session: found with --no-cache"},
           {"tiny.gguf --cache-dir a --no-cache", "--cache-dir: found with --no-cache"},
           {"tiny.gguf --json --jsonl", "--json: found with --jsonl"},
           {"tiny.gguf --logprobs 2", "--logprobs: found without --json"},
           {"tiny.gguf --context-shift --logits-hash", "--context-shift: found with a logits hash"},
           {"tiny.gguf --system x -p y", "--chat-template: found no chat template in the model"},
       }) {
    llmrun(arguments).must_refuse(2, {"llmrun: error: ", words});
  }
}

TEST_CASE_METHOD(Llmrun, "a prompt may come from anywhere and is one text") {
  write("prompt", "two\nlines\n");
  const Json ids = json_of("tiny.gguf -p $'two\\nlines' -n 0 --json -q")["prompt_ids"];
  for (const std::string arguments :
       {"tiny.gguf $'two\\nlines'", "-m tiny.gguf $'two\\nlines'",
        "tiny.gguf --prompt=$'two\\nlines'", "tiny.gguf -e -p 'two\\nl\\x69nes'",
        "tiny.gguf -f prompt", "tiny.gguf -f - < prompt", "tiny.gguf - < prompt"}) {
    CAPTURE(arguments);
    must_match(json_of("-n 0 --json -q " + arguments),
               {{"prompt_ids", ids}, {"prompt", "two\nlines"}});
  }
}

TEST_CASE_METHOD(Llmrun, "odd prompts: empty, not UTF-8, with NUL, too large") {
  REQUIRE(json_of("tiny.gguf -p '' -n 0 --json -q")["prompt_ids"] == Json{1});  // BOS alone
  write("odd", std::string("\xFF\0\xC3", 3));
  const Json odd = json_of("tiny.gguf -f odd -n 0 --json -q");
  REQUIRE(odd["prompt"].get<std::string>().size() == 7);  // two of them U+FFFD
  REQUIRE(odd["prompt_ids"].size() >= 4);
  shell("truncate -s 2G large && llmrun tiny.gguf -f large -n 1")
      .must_end(5, {"large: found more than 67108864 bytes, need at most that"});
  llmrun("tiny.gguf -f absent").must_end(4);
  llmrun("tiny.gguf -f .").must_end(4);
}

TEST_CASE_METHOD(Llmrun, "special tokens in a prompt are plain text by default") {
  REQUIRE(json_of("tiny.gguf -p 'x</s>' -n 0 --json -q")["prompt_ids"].back() != 2);
  REQUIRE(json_of("tiny.gguf -p 'x</s>' -n 0 --json -q --parse-special")["prompt_ids"].back() == 2);
}

TEST_CASE_METHOD(Llmrun, "--json is one object of the documented shape") {
  const Finished run =
      llmrun("tiny.gguf -p hi -n 5 --ignore-eos --json --logprobs 3 -s 7").must_end(0);
  const Json json = test::parse_json(run.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  REQUIRE(keys == std::vector<std::string>{"ids", "logprobs", "prompt", "prompt_ids",
                                           "schema_version", "stats", "stop_reason", "text"});
  must_match(json, "{'schema_version': 1, 'stop_reason': 'length', 'stats': {'seed': 7}}"_j);
  REQUIRE(json["ids"].size() == 5);
  REQUIRE(json["logprobs"].size() == 5);
  for (const Json& token : json["logprobs"]) {
    REQUIRE(token["logprob"] < 0);
    REQUIRE(token["top"].size() == 3);
    REQUIRE(token["top"][0]["logprob"] >= token["top"][1]["logprob"]);
  }
  REQUIRE(!json_of("tiny.gguf -n 1 --json").contains("logprobs"));
}

TEST_CASE_METHOD(Llmrun, "--jsonl prints a line per token and the result") {
  const Finished run = llmrun("tiny.gguf -p hi -n 5 --ignore-eos --jsonl -s 7");
  const auto objects = json_lines(run.out);
  const Json last = objects.back();
  std::vector<int> ids;
  std::string text;
  for (std::size_t i = 0; i + 1 < objects.size(); ++i) {
    if (objects[i].contains("id")) ids.push_back(objects[i]["id"]);
    text += objects[i]["text"];
  }
  REQUIRE(last["ids"] == ids);
  REQUIRE(last["text"] == text);
  REQUIRE(last["schema_version"] == 1);
}

TEST_CASE_METHOD(Llmrun, "a seed gives the same text again, no seed a new one") {
  const auto ids = [&](const char* extra) {
    return json_of(
        fmt::format("tiny.gguf -n 20 --ignore-eos --top-k 0 --top-p 1 --json {}", extra))["ids"];
  };
  REQUIRE(ids("-s 1") == ids("-s 1"));
  REQUIRE(ids("-s 1") != ids("-s 2"));
  REQUIRE(ids("") != ids(""));
}

TEST_CASE_METHOD(Llmrun, "a stop string ends the text before it; --echo prints the prompt") {
  const std::string text = llmrun(kGreedy + "-p ab").out;
  REQUIRE(!text.empty());
  REQUIRE(llmrun(kGreedy + "-p ab --echo").out == "ab" + text);
  const std::string json = llmrun(kGreedy + "-p ab --json -r ''").out;
  REQUIRE(test::parse_json(json)["text"] == text);
}

TEST_CASE_METHOD(Llmrun, "a full context ends with a warning and exit code 0") {
  const Finished run =
      llmrun("tiny.gguf -p hi --ignore-eos -c 20 -s 1 --json")
          .must_end(0, {"context full: 20 tokens; raise -c or use --context-shift"});
  REQUIRE(test::parse_json(run.out)["stop_reason"] == "context_full");
  const Finished shifted =
      llmrun("tiny.gguf -p hi --ignore-eos -c 20 -n 60 -s 1 --json --context-shift");
  REQUIRE(test::parse_json(shifted.out)["ids"].size() == 60);
}

// That a receipt is enough to run again is llmcheck_replay_test's.
TEST_CASE_METHOD(Llmrun, "a receipt holds the text and the hash that are printed") {
  const Finished run =
      llmrun("tiny.gguf -q --logits-hash --receipt r -n 12 -s 7 -p $'a\\ntiny </s> hen\\n' -b 3");
  const Json receipt = test::parse_json(read("r"));
  const std::string drawn = receipt["drawn_logits_sha256"].get<std::string>();
  run.must_end(0, {"drawn-logits-sha256: " + drawn + '\n'});
  REQUIRE(receipt["text"] == run.out);
}

TEST_CASE_METHOD(Llmrun, "a failing stdout exits with 4, without a message if it is closed") {
  llmrun("tiny.gguf -n 4 --ignore-eos > /dev/full")
      .must_end(4, {"llmrun: error: stdout: No space left on device"});
  const Finished closed = llmrun("tiny.gguf -n 4 --ignore-eos >&-").must_end(4);
  REQUIRE(closed.err.empty());
  const Finished piped = shell(
                             "llmrun tiny.gguf --ignore-eos --context-shift | head -c 1 > "
                             "/dev/null; exit ${PIPESTATUS[0]}")
                             .must_end(4);
  REQUIRE(piped.err.empty());
  llmrun("--help >&-").must_end(4);
}

TEST_CASE_METHOD(Llmrun, "a signal while text is printed ends it with the statistics") {
  const auto [signal, exit_code] = GENERATE(table<const char*, int>({{"INT", 130}, {"TERM", 143}}));
  // `read` returns when text has come; then the signal goes out and the rest is drained. A job that
  // bash starts in the background ignores SIGINT, so monitor mode is on.
  const Finished run =
      shell(fmt::format("set -m; mkfifo pipe\n"
                        "llmrun tiny.gguf --ignore-eos --context-shift -s 1 > pipe & job=$!\n"
                        "exec 3< pipe; head -c 20 <&3; kill -{} $job; cat <&3\n"
                        "wait $job",
                        signal))
          .must_end(exit_code, {"llmrun: load ", "peak RSS"});
  REQUIRE(run.out.size() >= 20);
}

TEST_CASE_METHOD(Llmrun, "a signal in a long prefill ends the program") {
  shell(
      "set -m; mkfifo pipe; head -c 60000 /dev/zero | tr '\\0' a > long\n"
      "llmrun tiny.gguf -v -c 100000 -b 16 -f long 2> pipe & job=$!\n"
      "exec 3< pipe; grep -q 'llmrun: info' <&3; kill -INT $job; cat <&3 > /dev/null\n"
      "wait $job")
      .must_refuse(130);
}

}  // namespace llm::test
