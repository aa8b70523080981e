// llmrun --cache-dir.

#include <filesystem>

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

std::string line_of(const std::string& text, const std::string& label) {
  const std::size_t at = text.find(label);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE_METHOD(Llmrun, "a cache changes no bit and saves the work") {
  const auto [kv, compute] =
      GENERATE(table<std::string, std::string>({{"f16", "int8"}, {"f32", "f32"}}));
  std::string text;
  for (int i = 0; i < 40; ++i) text += "Once upon a time there was a dog. ";
  write("text", text);
  const std::string run = fmt::format(
      "{} -f text -n 20 --temp 0 --kv {} --compute {} --json --logprobs 5 --logits-hash -q ",
      kFable, kv, compute);
  const Finished expected = llmrun(run).must_end(0);
  const Json plain = test::parse_json(expected.out);
  const auto n_prompt = plain["prompt_ids"].size();
  const std::string drawn = line_of(expected.err, "drawn-logits-sha256: ");
  REQUIRE(drawn.size() == 21 + 64);
  REQUIRE(expected.err.starts_with("logits-sha256: "));
  // The beginning, made before, as a server's operator would; then all of it.
  write("part", text.substr(0, 34 * 26 - 1));  // a space belongs to the next word
  llmrun(
      fmt::format("{} -f part -n 0 --kv {} --compute {} -q --cache-dir cache", kFable, kv, compute))
      .must_end(0);
  for (const std::size_t n_left : {n_prompt / 2, std::size_t{1}}) {
    const Finished cached = llmrun(run + "--cache-dir cache -b 70").must_end(0);
    REQUIRE(line_of(cached.err, "drawn-logits-sha256: ") == drawn);
    REQUIRE(!contains(cached.err, "\nlogits-sha256"));
    REQUIRE(!cached.err.starts_with("logits-sha256"));
    const Json json = test::parse_json(cached.out);
    REQUIRE(json["ids"] == plain["ids"]);
    REQUIRE(json["logprobs"] == plain["logprobs"]);
    REQUIRE(json["stats"]["prefill_tokens"] <= n_left);
  }
  // With all rows of a receipt, and of another kind, nothing of it is used.
  const Finished receipt = llmrun(run + "--cache-dir cache --receipt receipt").must_end(0);
  REQUIRE(receipt.err == expected.err);
  const Finished other = llmrun(run + "--cache-dir cache --kv q8").must_end(0);
  REQUIRE(test::parse_json(other.out)["stats"]["prefill_tokens"] == n_prompt);
}

TEST_CASE_METHOD(Llmrun, "a session's keys and values lie beside it") {
  const std::string chat = "tiny.gguf -i --chat-template zephyr -c 500 -n 6 --temp 0 --json ";
  write("one", "\"hi\"\n\"and\"\n");
  write("two", "\"so\"\n");
  llmrun(chat + "--session session < one").must_end(0);
  REQUIRE(!std::filesystem::is_empty(path("session.kv")));
  const Json reply = test::parse_json(llmrun(chat + "--session session < two").must_end(0).out);
  write("all", "\"hi\"\n\"and\"\n\"so\"\n");
  const std::string whole = llmrun(chat + "< all").must_end(0).out;
  const Json last = test::parse_json(whole.substr(whole.rfind('\n', whole.size() - 2) + 1));
  REQUIRE(reply["ids"] == last["ids"]);
  REQUIRE(reply["stats"]["prefill_tokens"] == last["stats"]["prefill_tokens"]);
}

}  // namespace llm::test
