// llmrun --dump-layers: what it writes, read back by the reader of llmcheck, and what it refuses.

#include "base/sha256.h"
#include "tests/tools/llmrun_process.h"
#include "validate/reference/dump/dump.h"

namespace llm::test {
namespace {

const std::string kDumpRun = "tiny.gguf -p 'a tiny prompt' -n 5 --temp 0 --ignore-eos -q ";

TapMatrix tap_of(const Dump& dump, int layer, std::string_view name) {
  return require_ok(dump.tap(layer, name));
}

class Dumps : public Llmrun {
 public:
  Dump load_dump(const char* name) const { return require_ok(Dump::load(path(name))); }
};

}  // namespace

TEST_CASE_METHOD(Dumps, "--dump-layers writes every tap of every token") {
  const Finished run = llmrun(kDumpRun + "--json --logits-hash --dump-layers a").must_end(0);
  const auto json = test::parse_json(run.out);
  std::vector<std::int32_t> tokens = json["prompt_ids"].get<std::vector<std::int32_t>>();
  const std::size_t n_prompt = tokens.size();
  for (const auto& id : json["ids"]) tokens.push_back(id.get<std::int32_t>());

  const Dump dump = load_dump("a");
  REQUIRE(std::vector(dump.tokens().begin(), dump.tokens().end()) == tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    REQUIRE(dump.positions()[i] == static_cast<std::int32_t>(i));
  }
  // One forward call for the prompt, then one per token.
  REQUIRE(dump.step_ptr().size() == 1 + 1 + tokens.size() - n_prompt);
  REQUIRE(dump.step_ptr()[1] == static_cast<std::int64_t>(n_prompt));
  REQUIRE(dump.meta().producer == "llmrun");
  REQUIRE(dump.n_layers() == 1);
  for (const auto& [tap, layer] : taps_of_model(1)) {
    CAPTURE(tap_label(layer, tap->name));
    REQUIRE(dump.has(layer, tap->name));
    REQUIRE(tap_of(dump, layer, tap->name).rows == tokens.size());
  }
  REQUIRE(tap_of(dump, 0, "gate").features == 256);
  REQUIRE(tap_of(dump, 0, "k").features == 16);

  // The logits in it are those of the run, to the bit.
  const TapMatrix logits = tap_of(dump, ProbeSink::kGlobal, "logits");
  REQUIRE(logits.features == test::TinyGguf::pieces().size());
  Sha256 hash;
  hash.update(std::as_bytes(std::span(logits.values)));
  REQUIRE(contains(run.err, "logits-sha256: " + hash.hex()));
}

TEST_CASE_METHOD(Dumps, "receipt and dump name the model that ran, not what has its path later") {
  write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  // Lines of 8 KiB fill the pipe, so llmrun waits for the reader long before its last token.
  shell(
      "set -o pipefail; sha256sum < tiny.gguf > sum; llmrun tiny.gguf -p a -n 50 --temp 0 "
      "--ignore-eos -q --jsonl --logprobs 272 --receipt receipt.json --dump-layers dump.npz | { "
      "read -r line && mv other.gguf tiny.gguf && cat > /dev/null; }")
      .must_end(0);
  const std::string ran = read("sum").substr(0, 64);
  const std::string now = read("tiny.gguf");
  REQUIRE(ran != sha256_hex(std::as_bytes(std::span(now))));
  const auto receipt = test::parse_json(read("receipt.json"));
  REQUIRE(receipt["model"]["sha256"] == ran);
  REQUIRE(load_dump("dump.npz").meta().model_sha256 == ran);
}

TEST_CASE_METHOD(Dumps, "a dump of other batches, threads and ISA has the same activations") {
  llmrun(kDumpRun + "--dump-layers a").must_end(0);
  const Dump expected = load_dump("a");
  for (const char* extra : {"-b 2", "-t 3", "--isa scalar"}) {
    CAPTURE(extra);
    llmrun(kDumpRun + "--dump-layers b " + extra).must_end(0);
    const Dump dump = load_dump("b");
    const bool more_steps = dump.step_ptr().size() > expected.step_ptr().size();
    REQUIRE(more_steps == (std::string_view(extra) == "-b 2"));
    for (const auto& [tap, layer] : taps_of_model(1)) {
      CAPTURE(tap_label(layer, tap->name));
      REQUIRE(tap_of(dump, layer, tap->name).values == tap_of(expected, layer, tap->name).values);
    }
  }
}

TEST_CASE_METHOD(Dumps, "--dump-layers changes neither text nor hash") {
  const Finished plain = llmrun(kDumpRun + "--logits-hash");
  const Finished dumped = llmrun(kDumpRun + "--logits-hash --dump-layers a");
  REQUIRE(dumped.out == plain.out);
  REQUIRE(dumped.err == plain.err);
}

TEST_CASE_METHOD(Dumps, "--dump-layers refuses what computes a position twice") {
  for (const auto& [arguments, words] : std::vector<std::tuple<const char*, const char*>>{
           {"--context-shift", "--dump-layers: found with --context-shift or --no-cache"},
           {"--no-cache", "--dump-layers: found with --context-shift or --no-cache"},
           {"-i --chat-template zephyr",
            "-i: found with --jsonl, --logits-hash, --receipt or --dump-layers, need one text"},
       }) {
    llmrun(std::string("tiny.gguf -q -n 2 --dump-layers a ") + arguments).must_refuse(2, {words});
    REQUIRE_FALSE(std::filesystem::exists(path("a")));
  }
}

}  // namespace llm::test
