// llmrun replay: outputs of the embedded model made again from any token, and branches of them,
// whose receipts llmcheck --replay checks and llmcheck --compare holds against the first ones.

#include "tests/support/json.h"
#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

const std::string kSampled = "-n 40 -s 7 --temp 0.9 --top-k 30 --ignore-eos -p 'Once upon a time'";

/// A folder with a receipt of the embedded model, r.json.
class Bench : public ToolFolder {
 public:
  explicit Bench(const std::string& arguments) { shell(made(arguments)).must_end(0); }

  static std::string made(const std::string& arguments) {
    return "ln -sf " + kFable + " m.gguf; llmrun m.gguf -q -t 1 --receipt r.json " + arguments;
  }
  OrderedJson receipt(const std::string& name = "r.json") const {
    return test::parse_ordered_json(read(name));
  }
  Finished replay(const std::string& arguments) const {
    return shell("llmrun replay r.json -t 1 " + arguments);
  }
  /// A branch, whose receipt b.json the model confirms.
  OrderedJson branch(const std::string& arguments) const {
    replay(arguments + " --receipt b.json").must_end(0);
    shell("llmcheck --replay b.json -t 1").must_end(0);
    return receipt("b.json");
  }
};

std::vector<int> ids_of(const OrderedJson& receipt, const char* name) {
  return receipt[name].get<std::vector<int>>();
}

}  // namespace

TEST_CASE("an output is made again from any of its tokens, to the bit", "[llmrun][replay]") {
  const auto [arguments, reason] = GENERATE(table<std::string, std::string>({
      {kSampled, "length"},
      {"-n 20 --temp 0 -p 'One day'", "length"},
      {"-s 3 -p 'The fox' -r and --presence-penalty 0.5 --min-tokens 3", "stop_string"},
      {"-s 4 -p 'The end.' --temp 1.5", "eos"},
      {"-c 40 -s 4 -p 'The cat' --ignore-eos --kv q8", "context_full"},
      {"-n 12 -s 3 --kv f32 --compute f32 --chat-template zephyr --system Short. -p Hi", "length"},
  }));
  CAPTURE(arguments);
  const Bench bench(arguments);
  const OrderedJson receipt = bench.receipt();
  REQUIRE(receipt["stop_reason"] == reason);
  const std::size_t n = receipt["ids"].size();
  REQUIRE(n > 2);
  for (const std::size_t at : {std::size_t{0}, n / 2, n}) {
    CAPTURE(at);
    bench.replay(fmt::format("--at {} --receipt again.json", at))
        .must_end(0, {fmt::format("{} tokens from token {} on equal the receipt", n - at, at)});
    CHECK(bench.read("again.json") == bench.read("r.json"));
  }
  bench.shell("llmcheck --compare r.json again.json").must_end(0, {}, {"outputs are equal"});
}

TEST_CASE("the rest of the text alone is printed", "[llmrun][replay]") {
  const Bench bench(kSampled);
  const std::string text = bench.receipt()["text"];
  const Finished all = bench.replay("-q");
  CHECK(all.out == text);
  const Finished rest = bench.replay("-q --at 20");
  CHECK(rest.out.size() < text.size());
  CHECK(text.ends_with(rest.out));
  // Keys and values of the prompt that a cache has are those that would be computed.
  for (int i = 0; i < 2; ++i) CHECK(bench.replay("-q --at 20 --cache-dir cache").out == rest.out);
  bench.shell("ls cache/*.kv").must_end(0);
}

TEST_CASE("a receipt that the model does not give is a failed check", "[llmrun][replay]") {
  const Bench bench(kSampled);
  const OrderedJson receipt = bench.receipt();
  const auto fails = [&](const std::string& pointer, const std::string& value, int at,
                         const std::string& words) {
    bench.write("r.json", json_text(test::with_value(receipt, pointer, value)));
    bench.replay(fmt::format("-q --at {}", at)).must_end(1, {"llmrun: FAIL: r.json: " + words});
  };
  const std::string other = receipt["ids"][17] == 40 ? "41" : "40";
  fails("/ids/17", other, 0, "token 17: the receipt has " + other);
  fails("/ids/17", other, 20,
        "");  // tokens that are kept are not drawn, but their logits are others
  fails("/options/seed", "8", 0, "token ");
  fails("/drawn_logits_sha256", '"' + std::string(64, 'a') + '"', 40, "the tokens are equal, the");
  fails("/text", R"("other")", 3, "the tokens are equal, their text is not");
}

TEST_CASE("a branch has a receipt of its own that can be checked", "[llmrun][replay]") {
  const Bench bench(kSampled);
  const OrderedJson receipt = bench.receipt();
  const std::vector<int> ids = ids_of(receipt, "ids");
  const OrderedJson greedy = bench.branch("--at 10 --set temperature=0 --set n=30");
  std::vector<int> prompt = ids_of(receipt, "prompt_ids");
  prompt.insert(prompt.end(), ids.begin(), ids.begin() + 10);
  CHECK(ids_of(greedy, "prompt_ids") == prompt);
  CHECK(greedy["options"]["temperature"] == 0);
  CHECK(greedy["options"]["n"] == 20);
  CHECK(greedy["ids"].size() == 20);
  CHECK(!greedy.contains("prompt"));
  // The settings of the first run draw its own tokens again.
  const OrderedJson same = bench.branch("--at 10 --set top_k=30");
  CHECK(ids_of(same, "ids") == std::vector<int>(ids.begin() + 10, ids.end()));
  bench.shell("llmcheck --compare r.json b.json").must_end(0, {}, {"outputs are equal"});
  const OrderedJson seed = bench.branch("--set seed=8");
  CHECK(seed["prompt"] == receipt["prompt"]);
  CHECK(ids_of(seed, "ids") != ids);
}

TEST_CASE("messages are edited by number, from the command line or a file", "[llmrun][replay]") {
  const Bench bench("-n 8 -s 3 --chat-template zephyr --system Short. -p Hi");
  const OrderedJson edited = bench.branch("--edit '1=Be kind.' --edit '2=Tell me of a fox.'");
  CHECK(edited["options"]["system"] == "Be kind.");
  CHECK(edited["prompt"] == "Tell me of a fox.");
  CHECK(edited["prompt_ids"].size() > bench.receipt()["prompt_ids"].size());
  bench.write("text", "Tell me of a fox.");
  CHECK(ids_of(bench.branch("--edit '1=Be kind.' --edit 2=@text"), "ids") == ids_of(edited, "ids"));
  const OrderedJson kept = bench.branch("--edit '2=Tell me of a fox.' --at 3");
  CHECK(!kept.contains("prompt"));
  CHECK(kept["options"]["n"] == 5);
}

TEST_CASE("a conversation of several messages is edited in any of them", "[llmrun][replay]") {
  const Bench bench("-n 4 -p Hi");
  {
    Server server = serve_fable({"--chat-template", "zephyr", "--receipts", bench.path()});
    for (const char* last : {"And a fox?", "And a cat?"}) {
      const Json messages = {{{"role", "user"}, {"content", "Hi"}},
                             {{"role", "assistant"}, {"content", "Hello"}},
                             {{"role", "user"}, {"content", last}}};
      server.post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 8}, {"seed", 3}})
          .must_be(200);
    }
    server.end().must_end(0);
  }
  bench.shell("llmcheck --replay receipts.jsonl -t 1").must_end(0);
  bench
      .shell(
          "llmrun replay receipts.jsonl:1 -q -t 1 --edit '3=And a cat?' --receipt b.json && "
          "llmcheck --replay b.json -t 1 && llmcheck --compare b.json receipts.jsonl:2 -t 1")
      .must_end(0);
  CHECK(bench.receipt("b.json")["messages"][2]["content"] == "And a cat?");
  bench.shell("llmrun replay receipts.jsonl:1 -q --edit '4=x'")
      .must_end(2, {"receipts.jsonl:1: message: found 4, need 1..3"});
  bench.shell("llmrun replay receipts.jsonl:3").must_end(2, {"line: found 3, need 1..2"});
}

TEST_CASE("two outputs are compared at the place where they diverge", "[llmcheck][replay]") {
  const Bench bench(kSampled);
  const OrderedJson receipt = bench.receipt();
  const OrderedJson greedy = bench.branch("--at 10 --set temperature=0");
  const std::vector<int> ids = ids_of(receipt, "ids");
  const std::vector<int> others = ids_of(greedy, "ids");
  std::size_t at = 0;
  while (ids[10 + at] == others[at]) ++at;
  const Finished told = bench.shell("llmcheck --compare r.json b.json -t 1 --report c.json");
  told.must_end(1, {},
                {fmt::format("the outputs diverge at token {}", 10 + at), "temperature: 0.9 and 0",
                 "equal to the bit"});
  const OrderedJson table = bench.receipt("c.json")["figures"][0];
  REQUIRE(table["rows"].size() == 6);  // the token of each, and the five most likely
  const auto first = [&](std::size_t row, std::size_t column) {
    return std::next(table["rows"][row].begin(), static_cast<std::ptrdiff_t>(column)).value();
  };
  CHECK_THAT(first(0, 0).get<std::string>(), Contains(fmt::format("then: {} ", ids[10 + at])));
  CHECK_THAT(first(0, 2).get<std::string>(), Contains(fmt::format("then: {} ", others[at])));
  CHECK_THAT(first(1, 2).get<std::string>(), StartsWith(fmt::format("{} ", others[at])));
  // One that ends, and other numbers.
  bench
      .shell("llmrun m.gguf -q -t 1 --receipt short.json " + kSampled +
             " -n 5; llmrun m.gguf -q -t "
             "1 --compute f32 --kv f32 --receipt f32.json " +
             kSampled)
      .must_end(0);
  bench.shell("llmcheck --compare short.json r.json -t 1")
      .must_end(1, {}, {"diverge at token 5", "A has the end (length)", "n: 5 and 40"});
  bench.shell("llmcheck --compare r.json f32.json -t 1")
      .must_end(bench.receipt("f32.json")["ids"] == receipt["ids"] ? 0 : 1, {},
                {"compute: \"int8\" and \"f32\""});
}

TEST_CASE("bad values of a replay are rejected by name", "[llmrun][replay]") {
  const Bench bench(kSampled);
  const auto refused = [&](const std::string& arguments, int code, const std::string& words) {
    CAPTURE(arguments);
    bench.replay(arguments).must_end(code, {words});
  };
  refused("--at 41", 2, "--at: found 41, need at most 40, the tokens of the output");
  refused("--set temperature", 2, "--set: found \"temperature\", need KEY=VALUE");
  refused("--set heat=1", 2, "--set: found \"heat\", need one of seed, n, temperature");
  refused("--set temperature=hot", 2, "--set: found hot for temperature, need 0..100");
  refused("--set seed=-1", 2, "--set: found -1 for seed, need an integer in 0..");
  refused("--at 20 --set n=10", 2,
          "r.json: n: found 10, need at least 20, the tokens that are kept");
  refused("--edit Hi", 2, "--edit: found \"Hi\", need K=TEXT or K=@FILE");
  refused("--edit x=Hi", 2, "--edit: found \"x\", need the number of a message, from 1");
  refused("--edit 0=Hi", 2, "--edit: found \"0\", need the number of a message, from 1");
  refused("--edit 2=Hi", 2, "r.json: message: found 2, need 1..1");
  refused("--edit 1=@none", 4, "none: ");
  refused("--receipt r.json", 2, "--receipt: ");
  refused("-m " + kFableF16, 8, "SHA-256");
  bench.replay("--edit 1=\"$(yes Hi | head -600)\"")
      .must_end(2, {"tokens, need at most 512 (the context)"});
  OrderedJson receipt = bench.receipt();
  receipt.erase("prompt");
  bench.write("r.json", json_text(receipt));
  refused("--edit 1=Hi", 6,
          "r.json: prompt: found only ids, need a receipt with its prompt or messages");
  receipt["messages"] = {1};
  bench.write("r.json", json_text(receipt));
  refused("", 3, "r.json: messages[0]: found 1, need an object");
  receipt["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
  bench.write("r.json", json_text(receipt));
  refused("", 3, "r.json: messages: found 1 messages, need none with a prompt or without");
  bench.write("r.json", "{}");
  refused("", 3, "r.json: format: found none");
  bench.shell("llmrun replay").must_end(2, {"RECEIPT"});
  bench.shell("llmrun replay none.json").must_end(4, {"none.json"});
  bench.shell("llmcheck --compare r.json").must_end(2, {"--compare: found 1, need two receipts"});
  bench.shell("llmcheck --compare r.json --compare r.json --replay r.json")
      .must_end(2, {"--compare: found with --replay or --audit"});
  bench.shell("llmcheck --compare r.json none.json").must_end(3, {"r.json: format"});
}

}  // namespace llm::test
