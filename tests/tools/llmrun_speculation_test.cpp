// llmrun --speculate and --draft: the same output in every form, and what is refused.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

std::vector<std::string> all_ways() {
  return {"--speculate off", "--speculate ngram", "--speculate ngram --speculate-length 5",
          fmt::format("--draft {} --speculate-length 4", kFable)};
}

std::string hash_lines(const std::string& err) {
  std::string lines;
  for (std::size_t at = 0; (at = err.find("logits-sha256: ", at)) != std::string::npos; ++at)
    lines += err.substr(at, 15 + 64) + '\n';
  return lines;
}

/// Without the statistics, which tell the time.
std::string without_stats(const std::string& out) {
  std::string rest;
  for (Json line : json_lines(out)) {
    line.erase("stats");
    rest += json_text(line) + '\n';
  }
  return rest;
}

}  // namespace

TEST_CASE_METHOD(Llmrun, "speculation changes neither text nor hash nor JSON nor receipt") {
  // What is drawn and how a text ends is speculation_test's; here is what llmrun adds to it.
  for (const char* options :
       {"-n 5 --temp 0 -t 3", "-n 60 --temp 1.3 -r lived --repeat-penalty 1.2",
        "-c 60 -s 2 --ignore-eos", "-n 30 -s 5 --system Be --chat-template zephyr",
        "-n 20 -s 3 --no-cache -b 1"}) {
    const auto run = [&](const std::string& way, const char* form) {
      return llmrun(fmt::format("{} -p 'Once upon a time a time a time' -s 3 -q {} {} {}",
                                kFableF16, options, form, way))
          .must_end(0);
    };
    const Finished plain = run("", "--logits-hash");
    const Finished plain_lines = run("", "--jsonl --logprobs 2 --receipt plain");
    REQUIRE(!hash_lines(plain.err).empty());
    for (const std::string& way : all_ways()) {
      CAPTURE(options, way);
      const Finished text = run(way, "--logits-hash");
      REQUIRE(text.out == plain.out);
      REQUIRE(hash_lines(text.err) == hash_lines(plain.err));
      const Finished lines = run(way, "--jsonl --logprobs 2 --receipt receipt");
      REQUIRE(without_stats(lines.out) == without_stats(plain_lines.out));
      REQUIRE(read("receipt") == read("plain"));
    }
  }
}

TEST_CASE_METHOD(Llmrun, "speculation past a full context gives the same text") {
  const std::string run =
      fmt::format("{} -p 'Once upon a time' -q -c 40 -n 150 -s 3 --context-shift ", kFableF16);
  const std::string plain = llmrun(run).out;
  REQUIRE(plain.size() > 150);
  for (const std::string& way : all_ways()) REQUIRE(llmrun(run + way).out == plain);
}

TEST_CASE_METHOD(Llmrun, "a cache written or read with speculation is the same") {
  const std::string run =
      fmt::format("{} -p 'Once upon a time' -q -n 30 -s 3 --logits-hash ", kFableF16);
  const Finished plain = llmrun(run).must_end(0);
  for (const std::string& way : all_ways()) {
    CAPTURE(way);
    const Finished saved = llmrun(run + way + " --cache-dir cache");
    REQUIRE(saved.out == plain.out);
    const Finished loaded = llmrun(run + way + " --cache-dir cache");
    CAPTURE(loaded.err);
    REQUIRE(loaded.out == plain.out);
    REQUIRE(contains(hash_lines(plain.err), hash_lines(loaded.err)));
  }
}

TEST_CASE_METHOD(Llmrun, "a chat with speculation and its session file are the same") {
  write("input", "Tell me of a fox\nand more\n/regenerate\nand more\nagain\n");
  const auto chat = [&](const std::string& way) {
    const std::string run = fmt::format(
        "{} -i -q --chat-template zephyr -c 120 -n 25 -s 3 --session session {} ", kFableF16, way);
    const std::string out = llmrun(run + "< input").must_end(0).out;
    const std::string file = read("session");
    // Gone on with in another process.
    const Finished more = llmrun(run + "-p more --json < /dev/null").must_end(0);
    REQUIRE(std::filesystem::remove(path("session")));
    return out + file + without_stats(more.out);
  };
  const std::string plain = chat("");
  for (const std::string& way : all_ways()) {
    CAPTURE(way);
    REQUIRE(chat(way) == plain);
  }
}

TEST_CASE_METHOD(Llmrun,
                 "statistics tell what was proposed, accepted and how many passes there were") {
  const std::string run =
      fmt::format("{} -p 'Once upon a time' -n 33 --temp 0 --draft {} --speculate-length 3 ",
                  kFableF16, kFable);
  const Json stats = json_of(run + "--json -q")["stats"];
  const Json& speculation = stats["speculation"];
  const auto passes = speculation["passes"].get<double>();
  const int accepted = speculation["accepted"];
  const int proposed = speculation["proposed"];
  must_match(speculation, {{"proposer", "draft"}, {"tokens_per_pass", 32 / passes}});
  REQUIRE(stats["decode_tokens"] == 32);
  REQUIRE((passes < 20 && accepted > 12 && accepted <= proposed));
  const std::string line = fmt::format(" | draft: {} of {} proposed tokens accepted, {:.2f} tokens",
                                       accepted, proposed, 32 / passes);
  REQUIRE(contains(llmrun(run).err, line));
  REQUIRE(contains(llmrun(run + "-v").err, "info: draft: "));
  const std::string plain = fmt::format("{} -p a -n 3 --temp 0 ", kFableF16);
  REQUIRE(!json_of(plain + "--json -q")["stats"].contains("speculation"));
  REQUIRE(!contains(llmrun(plain).err, "proposed"));
}

TEST_CASE_METHOD(Llmrun, "--speculate ngram proposes from the text") {
  const Json json =
      json_of(fmt::format("{} -p 'a time, a time, a time' -n 20 --temp 0 --json -q --speculate "
                          "ngram --speculate-length 2",
                          kFableF16));
  REQUIRE(json["stats"]["speculation"]["proposer"] == "ngram");
  REQUIRE(json["stats"]["speculation"]["proposed"].get<int>() > 0);
}

TEST_CASE_METHOD(Llmrun, "a draft that cannot be used is rejected by name") {
  test::TinyGguf renamed = test::TinyGguf::llama();
  renamed.set_string("general.name", "other");
  write("renamed.gguf", renamed.bytes());
  llmrun("tiny.gguf -p a -n 3 -q --draft renamed.gguf").must_end(0);
  write("text.gguf", std::string("no model at all, but long enough"));
  for (const auto& [options, exit_code, words] :
       std::vector<std::tuple<const char*, int, const char*>>{
           {"--draft absent.gguf", 4, "absent.gguf: "},
           {"--draft text.gguf", 3, "text.gguf: "},
           {"--draft tiny.gguf --speculate ngram", 2,
            "--draft: found with --speculate, need one of"},
           {"--draft tiny.gguf --speculate off", 2, "--draft: found with --speculate, need one of"},
           {"--speculate-length 3", 2,
            "--speculate-length: found without --speculate ngram, --speculate mtp and --draft"},
           {"--speculate ngram --speculate-length 32", 2, "need an integer in 0..31"},
           {"--speculate words", 2, "--speculate: found \"words\", need auto, off, ngram or mtp"},
           {"--speculate mtp", 6, "nextn_predict_layers: found 0, need a block that predicts"},
           {"--speculate ngram --dump-layers d", 2, "--dump-layers: found with --speculate or"},
           {"--speculate ngram --profile", 2, "--profile: found with --speculate or --draft"},
           {"--draft renamed.gguf --receipt renamed.gguf", 2, "--receipt: found an input file ("},
       }) {
    llmrun(std::string("tiny.gguf -p a -n 3 ") + options).must_refuse(exit_code, {words});
  }
}

TEST_CASE_METHOD(Llmrun, "a draft with a different vocabulary is rejected with both") {
  llmrun(fmt::format("tiny.gguf -p a -n 3 --draft {}", kFableF16))
      .must_end(2, {"fable-3m-f16.gguf: vocabulary: found 1536 tokens in the draft, "});
  TinyGguf model = TinyGguf::llama();
  model.set_pieces({{270, "other"}});
  write("other.gguf", model.bytes());
  llmrun("tiny.gguf -p a -n 3 --draft other.gguf")
      .must_end(2, {"other.gguf: vocabulary: found token 270 as \"other\" of kind 1"});
}

}  // namespace llm::test
