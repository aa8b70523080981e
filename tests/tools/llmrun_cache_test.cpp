// llmrun --cache-save and --cache-load.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

std::string line_of(const std::string& text, const std::string& label) {
  const std::size_t at = text.find(label);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE_METHOD(Llmrun, "a loaded cache changes no bit and saves the work") {
  const auto [kv, compute] =
      GENERATE(table<std::string, std::string>({{"f16", "int8"}, {"f32", "f32"}}));
  std::string text;
  for (int i = 0; i < 40; ++i) text += "Once upon a time there was a dog. ";
  write("text", text);
  const std::string run = fmt::format(
      "{} -f text -n 20 --temp 0 --kv {} --compute {} --json --logprobs 5 --logits-hash -q ",
      kFable, kv, compute);
  const Finished expected = llmrun(run).must_end(0);
  const auto n_prompt = test::parse_json(expected.out)["prompt_ids"].size();
  REQUIRE(n_prompt > 300);
  const std::string drawn = line_of(expected.err, "drawn-logits-sha256: ");
  REQUIRE(drawn.size() == 21 + 64);
  REQUIRE(expected.err.starts_with("logits-sha256: "));
  for (const std::size_t bytes : {34, 34 * 26, 34 * 40}) {
    CAPTURE(bytes);
    write("part", text.substr(0, bytes - 1));  // a space belongs to the next word
    llmrun(fmt::format("{} -f part -n 3 --kv {} --compute {} -q --cache-save cache", kFable, kv,
                       compute))
        .must_end(0);
    for (const char* extra : {"", "-b 7"}) {
      const Finished cached = llmrun(run + "--cache-load cache " + extra).must_end(0);
      CAPTURE(extra);
      REQUIRE(line_of(cached.err, "drawn-logits-sha256: ") == drawn);
      REQUIRE(!contains(cached.err, "\nlogits-sha256"));
      const Json json = test::parse_json(cached.out);
      REQUIRE(json["ids"] == test::parse_json(expected.out)["ids"]);
      REQUIRE(json["logprobs"] == test::parse_json(expected.out)["logprobs"]);
      REQUIRE(json["stats"]["prefill_tokens"] < n_prompt - bytes / 6);
    }
  }
}

TEST_CASE_METHOD(Llmrun, "a cache of a question's beginning serves the question") {
  const std::string chat =
      "tiny.gguf --chat-template zephyr --system 'Be kind' -c 500 -n 6 --temp 0 ";
  llmrun(chat + "-p hi -q --cache-save cache").must_end(0);
  const Finished cached = llmrun(chat + "-p hi -q --json --cache-load cache").must_end(0);
  REQUIRE(test::parse_json(cached.out)["stats"]["prefill_tokens"] == 1);
  REQUIRE(test::parse_json(cached.out)["ids"] == json_of(chat + "-p hi -q --json")["ids"]);
}

TEST_CASE_METHOD(Llmrun, "a cache that is not of this run is refused by name") {
  write("other.gguf", test::TinyGguf::llama({.seed = 2}).bytes());
  llmrun("tiny.gguf -p 'a tiny' -n 0 -q --cache-save cache").must_end(0);
  std::string flipped = read("cache");
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  write("flipped", flipped);
  for (const auto& [arguments, exit_code, words] :
       std::vector<std::tuple<const char*, int, const char*>>{
           {"tiny.gguf -p 'a tiny hen' --kv f32", 8,
            "cache: --kv: found f16 in the cache, need f32"},
           {"tiny.gguf -p 'a tiny hen' --compute f32", 8, "cache: --compute: found int8"},
           {"other.gguf -p 'a tiny hen'", 8, "cache: model: found SHA-256 "},
           {"tiny.gguf -p 'b tiny hen'", 8, "cache: tokens: found "},
           {"tiny.gguf -p 'a'", 8, "need the beginning of the prompt"},
           {"tiny.gguf -p a --cache-load tiny.gguf", 3,
            "tiny.gguf: found no prompt cache or session"},
           {"tiny.gguf -p a --cache-load flipped", 3, "flipped: SHA-256: found "},
           {"tiny.gguf -p a --cache-load absent", 4, "absent: "},
       }) {
    llmrun(std::string("--cache-load cache -n 4 -q ") + arguments).must_refuse(exit_code, {words});
  }
}

}  // namespace llm::test
