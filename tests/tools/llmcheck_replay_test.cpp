// llmcheck --replay on receipts that llmrun wrote, and --audit on those with a hash of their rows:
// each passes as it is, and what was changed is named.

#include "tests/support/json.h"
#include "tests/support/nonfinite_models.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

const std::string kSampled =
    "-n 40 -s 7 --temp 0.9 --top-k 30 --top-p 0.95 --min-p 0.01 --ignore-eos -p 'a tiny hat'";

/// A folder with a receipt of the tiny model, r.json. The model is found by the hash: it lies
/// beside.
class Replayed : public ToolFolder {
 public:
  explicit Replayed(const std::string& arguments) { make("r.json", arguments); }

  void make(const std::string& name, const std::string& arguments) const {
    shell("llmrun tiny.gguf -q -t 1 --receipt " + name + " " + arguments).must_end(0);
  }
  OrderedJson receipt(const std::string& name = "r.json") const {
    return test::parse_ordered_json(read(name));
  }
  Finished replay(const OrderedJson& receipt, const std::string& arguments = "") const {
    write("r.json", json_text(receipt));
    return shell("llmcheck --replay r.json -t 1 " + arguments);
  }
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
       "hi --ignore-eos",
       "length"},
      {"-c 300 -n 12 -s 3 --kv q8 --chat-template zephyr -p hi --ignore-eos --speculate ngram",
       "length"},
      {"-n 9 -p $'\\xff\\xc3' --ignore-eos", "length"},
  }));
  const Replayed bench(arguments);
  const OrderedJson receipt = bench.receipt();
  CAPTURE(arguments);
  REQUIRE(receipt["stop_reason"] == reason);
  REQUIRE(receipt["format"] == "llm-receipt/2");
  bench.replay(receipt, GENERATE("-t 2", "--isa scalar"))
      .must_end(0, {}, {"receipt: logits", "receipt: tokens", "receipt: text and end"});
}

TEST_CASE("a change in a receipt is named", "[llmcheck][replay]") {
  // What is put there ("": it is removed), and what is said of it.
  using Changed = std::array<std::string, 3>;
  const Replayed bench(kSampled);
  const OrderedJson receipt = bench.receipt();
  const std::string hash = '"' + std::string(64, 'a') + '"';
  for (const auto& [pointer, value, words] : std::vector<Changed>{
           {"/ids/17", receipt["ids"][17] == 40 ? "41" : "40", "token 17: the receipt has 4"},
           {"/prompt_ids/1", "40", "token 1: the text gives"},
           {"/prompt", R"("a tiny cat")", "prompt's text gives its ids"},
           {"/options/seed", "8", "seed 7 would give its tokens"},
           {"/options/temperature", "1.4", "temperature 0."},
           {"/options/top_k", "2", "top_k "},
           {"/options/sequence", "1", "the logits are the run's"},
           {"/text", R"("other")", "the tokens' text"},
           {"/stop_reason", R"("eos")", R"(found "eos" after 40 tokens, need "length")"},
           {"/options/n", "39", "found 40 tokens, need at most options.n, 39"},
           {"/ids/39", "", "receipt: logits"},
           {"/drawn_logits_sha256", hash, "the hash or an id of the prompt is not the run's"},
           {"/options/kv", R"("f32")", "receipt: logits"},
           {"/options/compute", R"("f32")", "receipt: logits"},
           {"/options/stop", R"(["a", "e", "t"])", R"("stop_string")"},
       }) {
    CAPTURE(pointer, value);
    bench.replay(test::with_value(receipt, pointer, value)).must_end(1, {}, {"FAIL", words});
  }
}

TEST_CASE("a text that overflows is its own receipt's error, whatever is evaluated with it",
          "[llmcheck][replay]") {
  constexpr TokenId kGuilty = 40;
  const Replayed bench("-n 1");
  TinyGguf broken = TinyGguf::llama();
  make_token_overflow(broken, kGuilty);
  bench.write("tiny.gguf", broken.bytes());
  for (const std::string name : {"a", "b", "c"})
    bench.make(name + ".json", "-n 4 --temp 0 --ignore-eos -p 'the hat " + name + "'");
  OrderedJson guilty = bench.receipt("b.json");
  guilty["ids"][2] = kGuilty;
  bench.write("b.json", json_text(guilty));
  bench.shell("llmcheck tiny.gguf --replay a.json --replay b.json --replay c.json")
      .must_end(9, {}, {"2 of 3", "b.json: can be checked", "position "});
}

TEST_CASE("a receipt of a different model or contract is rejected", "[llmcheck][replay]") {
  const Replayed bench(kSampled);
  const OrderedJson receipt = bench.receipt();
  bench.write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  bench.replay(receipt, "other.gguf").must_end(8, {"r.json: model.sha256: found "});
  bench.replay(test::with_value(receipt, "/contract_version", "99"))
      .must_end(8, {"r.json: contract_version: found 99, need 1"});
}

TEST_CASE("a malformed receipt is rejected by field, value and rule", "[llmcheck][replay]") {
  const Replayed bench(kSampled);
  const OrderedJson receipt = bench.receipt();
  const auto refused = [&](const OrderedJson& changed, int code, const std::string& words) {
    bench.replay(changed).must_end(code, {"r.json: " + words});
  };
  for (const auto& [pointer, value, words] : std::vector<std::array<std::string, 3>>{
           {"/format", R"("llm-receipt/1")", "format: found \"llm-receipt/1\""},
           {"/format", "", "format: found none"},
           {"/model", "3", "model: found 3, need an object"},
           {"/model/sha256", R"("ab")", "model.sha256: found \"ab\""},
           {"/prompt_ids", "[]", "prompt_ids: found 0 entries"},
           {"/prompt_ids/0", "-1", "prompt_ids[0]: found -1"},
           {"/ids/2", "1000000", "ids[2]: found 1000000, need an id below"},
           {"/ids", R"("abc")", "ids: found \"abc\", need an array of token ids"},
           {"/options/temperature", "-1", "options.temperature: found -1, need a number in 0..100"},
           {"/options/temperature", R"("1")", "options.temperature: found \"1\""},
           {"/options/repeat_last_n", "1e300", "options.repeat_last_n: found"},
           {"/options/n", "-2", "options.n: found -2"},
           {"/options/seed", "-2", "options.seed: found -2"},
           {"/options/stop", R"("a")", "options.stop: found \"a\""},
           {"/options/ignore_eos", "1", "options.ignore_eos: found 1"},
           {"/options/logit_bias", R"([[3, "x"]])",
            "options.logit_bias[0]: found an array, need [token id"},
           {"/options/logit_bias", "[[1000000, 1]]",
            "options.logit_bias: found 1000000, need an id below"},
           {"/options/kv", R"("q4")", "options.kv: found \"q4\", need one of f16, f32, q8"},
           {"/options/chat_template", R"("x")", "options.chat_template: found"},
           {"/options/context", "20",
            "ids: found 50 tokens with the prompt's, need what fits into options.context, 20"},
           {"/stop_reason", R"("tired")", "stop_reason: found \"tired\""},
           {"/drawn_logits_sha256", R"("zz")", "drawn_logits_sha256: found \"zz\""},
       }) {
    CAPTURE(pointer, value);
    refused(test::with_value(receipt, pointer, value),
            pointer == "/format" && !value.empty() ? 6 : 3, words);
  }
  refused(
      test::with_value(test::with_value(receipt, "/stop_reason", R"("interrupted")"), "/ids", "[]"),
      6, "stop_reason: found \"interrupted\" without a token, need at least one token");
}

namespace {

/// A folder with a model, a receipt r.json of it with a hash of its rows, and an opening o.bin.
class AuditFolder : public ToolFolder {
 public:
  explicit AuditFolder(const std::string& arguments = "-n 30 -s 7 --ignore-eos -p 'a tiny hat'") {
    write("tiny.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
    run("llmrun", "tiny.gguf -q --receipt r.json --receipt-rows " + arguments).must_end(0);
    run("llmcheck", "--audit r.json --challenge abc --make-opening o.bin").must_end(0, {}, {});
  }

  /// @param arguments  words of bash
  Finished run(const std::string& tool, const std::string& arguments) const {
    return shell(tool + " -t 2 " + arguments);
  }
  Finished audit(const std::string& arguments = "--challenge abc") const {
    return run("llmcheck", "--audit r.json --opening o.bin " + arguments);
  }
  OrderedJson receipt() const { return test::parse_ordered_json(read("r.json")); }
};

}  // namespace

TEST_CASE("what was opened for a challenge passes", "[llmcheck][audit]") {
  const AuditFolder folder(
      GENERATE("-n 30 -s 7 --ignore-eos -p 'a tiny hat'", "-n 0 -p 'a tiny hat'", "-n 1 -p a",
               "-c 40 -s 4 -p 'the hat' --ignore-eos",
               "-n 400 -s 2 -p 'the hat' --temp 3 --top-k 0 --top-p 1 --min-p 0",
               "-n 60 -s 3 -p 'the hat' -r a -r n -r e -r h --ignore-eos",
               "-n 20 -s 3 --kv q8 --chat-template zephyr --system 'Be kind' -p hi --ignore-eos"));
  folder.audit().must_end(0, {},
                          {"PASS  receipt: rows opened", "PASS  receipt: rows computed",
                           "PASS  receipt: tokens", "PASS  receipt: text and end"});
  folder.audit("--challenge abc --isa scalar").must_end(0);
  // A replay finds the same hash.
  folder.run("llmcheck", "--replay r.json --commit again.json").must_end(0);
  CHECK(folder.read("again.json") == folder.read("r.json"));
}

TEST_CASE("an audit that fails says so, by its exit code too", "[llmcheck][audit]") {
  const AuditFolder folder;
  const OrderedJson receipt = folder.receipt();
  using Changed = std::tuple<std::string, std::string, int, std::string>;
  for (const auto& [pointer, value, code, words] : std::vector<Changed>{
           {"/ids/17", receipt["ids"][17] == 40 ? "41" : "40", 1, "it is not of ids[17], 4"},
           {"/text", R"("other")", 1, "the tokens' text"},
           {"/options/seed", "8", 1, "seed 7 would give"},
           {"/rows_sha256", '"' + std::string(64, 'a') + '"', 8, "o.bin: root: found "},
           {"/rows_sha256", "\"abc\"", 3, "r.json: rows_sha256: found \"abc\""},
           {"/rows_sha256", "", 6, "r.json: rows_sha256: found no hash"},
           {"/contract_version", "99", 8, "contract_version: found 99"},
       }) {
    folder.write("r.json", json_text(test::with_value(receipt, pointer, value)));
    const Words printed = {words};
    folder.audit().must_end(code, code == 1 ? Words{} : printed, code == 1 ? printed : Words{});
  }
  folder.write("r.json", json_text(test::with_value(receipt, "/ids/17", "40")));
  folder.run("llmcheck", "--audit r.json --challenge abc --make-opening p.bin")
      .must_end(8, {"r.json: rows_sha256: found"});
  folder.run("llmcheck", "--replay r.json --commit p.json").must_end(1);
  CHECK(!std::filesystem::exists(folder / "p.json"));
  CHECK(!std::filesystem::exists(folder / "p.bin"));
}

TEST_CASE("a file that is not an opening is rejected", "[llmcheck][audit]") {
  const AuditFolder folder;
  const std::string opening = folder.read("o.bin");
  folder.audit("--challenge abd").must_end(8, {"o.bin: challenge: found "});
  folder.audit("--challenge abc --audit-rows 691").must_end(8, {"o.bin: rows: found \"690\""});
  folder.write("o.bin", opening.substr(0, opening.size() - 1));
  folder.audit().must_end(3, {"o.bin: size: found ", "need "});
  folder.write("o.bin", "x");
  folder.audit().must_end(3, {"o.bin: size: found 1 bytes"});
  folder.write("o.bin", "x" + opening);
  folder.audit().must_end(3, {"o.bin: format: found no line"});
  folder.write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  folder.write("o.bin", opening);
  folder.audit("other.gguf --challenge abc").must_end(8, {"other.gguf: SHA-256: found "});
}

TEST_CASE("options of audits that say nothing are refused", "[llmcheck][audit]") {
  const AuditFolder folder;
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"--audit r.json --opening o.bin", "--challenge: found none"},
           {"--audit r.json --challenge a", "--opening: found"},
           {"--audit r.json --challenge a --opening o.bin --make-opening p.bin", "--opening"},
           {"--audit r.json --replay r.json --challenge a --opening o.bin", "--audit: found with"},
           {"--opening o.bin", "--audit: found none"},
           {"tiny.gguf --commit c.json", "--commit: found without --replay"},
           {"--audit r.json --challenge a --make-opening r.json", "--make-opening"},
       }) {
    folder.run("llmcheck", arguments).must_end(2, {words});
  }
  folder.run("llmrun", "tiny.gguf -p a --receipt-rows")
      .must_end(2, {"--receipt-rows: found without"});
}

}  // namespace llm::test
