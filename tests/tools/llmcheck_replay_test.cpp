// llmcheck --replay on receipts that llmrun wrote: each passes as it is, and names what was
// changed.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

constexpr const char* kSampled =
    "-n 40 -s 7 --temp 0.9 --top-k 30 --top-p 0.95 --min-p 0.01 --ignore-eos -p 'a tiny hat'";

class Bench {
 public:
  explicit Bench(const std::string& arguments) {
    setenv("LLMCHECK", tool_path("llmcheck").c_str(), 1);
    const Finished made =
        llmrun_.llmrun(fmt::format("\"$TINY\" -q -t 1 --receipt \"$DIR/r.json\" {}", arguments));
    CAPTURE(arguments, made.err);
    REQUIRE(made.exit_code == 0);
  }

  OrderedJson receipt() const {
    return test::parse_ordered_json(read_file(llmrun_.path("r.json")));
  }
  void edit(const std::function<void(OrderedJson&)>& change) const {
    OrderedJson json = receipt();
    change(json);
    llmrun_.write("r.json", json_text(json));
  }
  /// The model is found by the hash: it lies beside the receipt.
  Finished replay(const std::string& arguments = "") {
    return llmrun_.shell("\"$LLMCHECK\" --replay \"$DIR/r.json\" -t 2 " + arguments);
  }
  const Llmrun& files() const { return llmrun_; }

 private:
  Llmrun llmrun_;
};

}  // namespace

TEST_CASE("a receipt as llmrun wrote it passes", "[llmcheck][replay]") {
  const auto [arguments, reason] = GENERATE(table<std::string, std::string>({
      {kSampled, "length"},
      {"-n 20 --temp 0 --ignore-eos -p ab", "length"},
      {"-n 20 --temp 0 --ignore-eos -p ''", "length"},
      {"-n 0 -p 'a tiny hat'", "length"},
      {"-n 60 -s 3 -p 'the hat' -r a -r n -r e -r h --ignore-eos", "stop_string"},
      {"-n 400 -s 2 -p 'the hat' --temp 3 --top-k 0 --top-p 1 --min-p 0", "eos"},
      {"-c 40 -s 4 -p 'the hat' --ignore-eos", "context_full"},
      {"-n 30 -s 5 --temp 1.3 --repeat-penalty 1.3 --repeat-last-n 9 --sampler-order llamacpp "
       "--ignore-eos -p 'x</s>y' --parse-special",
       "length"},
      {"-c 300 -n 12 -s 3 --kv f32 --compute f32 --chat-template llama2 --system 'Be \"kind\"' -p "
       "hi "
       "--ignore-eos",
       "length"},
      {"-c 300 -n 12 -s 3 --kv q8 --chat-template zephyr -p hi --ignore-eos --speculate ngram",
       "length"},
      {"-n 9 -p $'\\xff\\xc3' --ignore-eos", "length"},
  }));
  Bench bench(arguments);
  CAPTURE(arguments);
  REQUIRE(bench.receipt()["stop_reason"] == reason);
  REQUIRE(bench.receipt()["format"] == "llm-receipt/1");
  bench.replay(GENERATE("", "--isa scalar"))
      .must_end(0, {}, {"receipt: logits", "receipt: tokens", "receipt: text and end"});
}

TEST_CASE("what was changed in a receipt is named", "[llmcheck][replay]") {
  using Change = std::function<void(OrderedJson&)>;
  const auto [change, words] = GENERATE(table<Change, std::string>({
      {[](OrderedJson& j) { j["ids"][17] = j["ids"][17] == 40 ? 41 : 40; },
       "token 17: the receipt has 4"},
      {[](OrderedJson& j) { j["prompt_ids"][1] = 40; }, "token 1: the text gives"},
      {[](OrderedJson& j) { j["prompt"] = "a tiny cat"; }, "prompt's text gives its ids"},
      {[](OrderedJson& j) { j["options"]["seed"] = 8; }, "seed 7 would draw its tokens"},
      {[](OrderedJson& j) { j["options"]["temperature"] = 1.4; }, "temperature 0."},
      {[](OrderedJson& j) { j["options"]["top_k"] = 2; }, "top_k "},
      {[](OrderedJson& j) { j["options"]["sequence"] = 1; }, "the logits are the run's"},
      {[](OrderedJson& j) { j["text"] = j["text"].get<std::string>() + "!"; }, "the tokens' text"},
      {[](OrderedJson& j) { j["stop_reason"] = "eos"; },
       "found \"eos\" after 40 tokens, need \"length\""},
      {[](OrderedJson& j) { j["options"]["n"] = 39; },
       "found 40 tokens, need at most options.n, 39"},
      {[](OrderedJson& j) { j["ids"].erase(39); }, "receipt: logits"},
      {[](OrderedJson& j) { j["drawn_logits_sha256"] = std::string(64, 'a'); },
       "the hash or an id of the prompt is not the run's"},
      {[](OrderedJson& j) { j["logits_sha256"] = std::string(64, 'a'); }, "receipt: logits"},
      {[](OrderedJson& j) { j["options"]["kv"] = "f32"; }, "receipt: logits"},
      {[](OrderedJson& j) { j["options"]["compute"] = "f32"; }, "receipt: logits"},
      {[](OrderedJson& j) {
         j["options"]["stop"] = {"a", "e", "t"};
       },
       "\"stop_string\""},
  }));
  Bench bench(kSampled);
  bench.edit(change);
  bench.replay().must_end(1, {}, {"FAIL", words});
}

TEST_CASE("a receipt of another model or contract is refused", "[llmcheck][replay]") {
  Bench bench(kSampled);
  bench.files().write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  bench.replay("\"$DIR/other.gguf\"").must_end(8, {"r.json: model.sha256: found "});
  bench.edit([](OrderedJson& j) { j["contract_version"] = 99; });
  bench.replay().must_end(8, {"r.json: contract_version: found 99, need 1"});
}

TEST_CASE("a malformed receipt is refused by field, value and rule", "[llmcheck][replay]") {
  using Change = std::function<void(OrderedJson&)>;
  const auto [change, code, words] = GENERATE(table<Change, int, std::string>({
      {[](OrderedJson& j) { j["format"] = "llm-receipt/2"; }, 6, "format: found \"llm-receipt/2\""},
      {[](OrderedJson& j) { j.erase("format"); }, 3, "format: found none"},
      {[](OrderedJson& j) { j["model"] = 3; }, 3, "model: found 3, need an object"},
      {[](OrderedJson& j) { j["model"]["sha256"] = "ab"; }, 3, "model.sha256: found \"ab\""},
      {[](OrderedJson& j) { j["prompt_ids"] = OrderedJson::array(); }, 3,
       "prompt_ids: found 0 entries"},
      {[](OrderedJson& j) { j["prompt_ids"][0] = -1; }, 3, "prompt_ids[0]: found -1"},
      {[](OrderedJson& j) { j["ids"][2] = 1000000; }, 3, "ids[2]: found 1000000, need an id below"},
      {[](OrderedJson& j) { j["ids"] = "abc"; }, 3,
       "ids: found \"abc\", need an array of token ids"},
      {[](OrderedJson& j) { j["options"]["temperature"] = -1; }, 3,
       "options.temperature: found -1, need a number in 0..100"},
      {[](OrderedJson& j) { j["options"]["temperature"] = "1"; }, 3,
       "options.temperature: found \"1\""},
      {[](OrderedJson& j) { j["options"]["repeat_last_n"] = 1e300; }, 3,
       "options.repeat_last_n: found"},
      {[](OrderedJson& j) { j["options"]["n"] = -2; }, 3, "options.n: found -2"},
      {[](OrderedJson& j) { j["options"]["seed"] = -2; }, 3, "options.seed: found -2"},
      {[](OrderedJson& j) { j["options"]["stop"] = "a"; }, 3, "options.stop: found \"a\""},
      {[](OrderedJson& j) { j["options"]["ignore_eos"] = 1; }, 3, "options.ignore_eos: found 1"},
      {[](OrderedJson& j) {
         j["options"]["logit_bias"] = {{3, "x"}};
       },
       3, "options.logit_bias[0]: found an array, need [token id"},
      {[](OrderedJson& j) {
         j["options"]["logit_bias"] = {{1000000, 1}};
       },
       3, "options.logit_bias: found 1000000, need an id below"},
      {[](OrderedJson& j) { j["options"]["kv"] = "q4"; }, 3,
       "options.kv: found \"q4\", need one of f16, f32, q8"},
      {[](OrderedJson& j) { j["options"]["chat_template"] = "x"; }, 3,
       "options.chat_template: found"},
      {[](OrderedJson& j) { j["options"]["context"] = 20; }, 3,
       "ids: found 50 tokens with the prompt's, need what fits into options.context, 20"},
      {[](OrderedJson& j) { j["stop_reason"] = "tired"; }, 3, "stop_reason: found \"tired\""},
      {[](OrderedJson& j) { j["drawn_logits_sha256"] = "zz"; }, 3,
       "drawn_logits_sha256: found \"zz\""},
      {[](OrderedJson& j) {
         j["stop_reason"] = "interrupted";
         j["ids"] = OrderedJson::array();
       },
       6, "stop_reason: found \"interrupted\" without a token, need a text that began"},
  }));
  Bench bench(kSampled);
  bench.edit(change);
  bench.replay().must_end(code, {"r.json: " + words});
}

}  // namespace llm::test
