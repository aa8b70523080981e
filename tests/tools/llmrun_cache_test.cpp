// llmrun --cache-dir and --packed-cache.

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

namespace {

const std::string kCachedRun = "tiny.gguf -p the -n 6 --ignore-eos --temp 0 --logits-hash ";
const std::string kCache = "--packed-cache cache ";

class PackedRuns : public Llmrun {
 public:
  std::string the_cache() const {
    for (const auto& entry : std::filesystem::directory_iterator(path("cache")))
      return entry.path().string();
    return "";
  }
};

}  // namespace

TEST_CASE_METHOD(PackedRuns, "--packed-cache changes no bit and is used from the second start on") {
  const Finished plain = llmrun(kCachedRun + "-q").must_end(0);
  for (int start = 0; start < 2; ++start) {
    const Finished run = llmrun(kCachedRun + kCache + "-q").must_end(0);
    CAPTURE(start);
    REQUIRE(run.out == plain.out);
    REQUIRE(run.err == plain.err);
  }
  const std::string file = the_cache();
  REQUIRE(std::filesystem::path(file).filename().string().starts_with("tiny-"));
  // It is what is read: another model's panels give another text.
  const auto time = std::filesystem::last_write_time(file);
  llmrun(kCachedRun + kCache).must_end(0);
  REQUIRE(std::filesystem::last_write_time(file) == time);
  std::filesystem::resize_file(file, 100);
  const Finished warned =
      llmrun(kCachedRun + kCache)
          .must_end(0, {"packed cache: cache/tiny-", ": head: found different bytes"});
  REQUIRE(warned.out == plain.out);
  REQUIRE(std::filesystem::file_size(file) > 100);
}

TEST_CASE_METHOD(PackedRuns, "a packed cache on a full disk leaves no file") {
  const std::string plain = llmrun(kCachedRun + "-q").out;
  // A file size limit is a disk that is full.
  const auto limited = [&](const std::string& blocks) {
    const Finished run =
        shell("(ulimit -f " + blocks + "; exec llmrun " + kCachedRun + kCache + ") 2>&1 | cat");
    CAPTURE(run.out);
    REQUIRE(contains(run.out, plain));
    REQUIRE(contains(run.out, "packed cache: "));
    REQUIRE(contains(run.out, "cannot write: File too large; continuing without it"));
  };
  limited("0");
  REQUIRE(the_cache().empty());
  limited("2049");  // of 1024 bytes: the head, and not all of the panels
  REQUIRE(the_cache().empty());
  // What was there stays, even where it cannot be used.
  llmrun(kCachedRun + kCache).must_end(0);
  const std::string file = the_cache();
  std::filesystem::resize_file(file, 100);
  limited("0");
  REQUIRE(std::filesystem::file_size(file) == 100);
}

TEST_CASE_METHOD(PackedRuns, "a packed cache that is truncated in use is named") {
  TinyGguf model = TinyGguf::llama();
  model.set_u32("llama.context_length", 4096);
  write("long.gguf", model.bytes());
  llmrun(std::string("long.gguf -p the -n 1 ") + kCache).must_end(0);
  const std::string file = the_cache();
  Process process({tool_path("llmrun"), path("long.gguf"), "-p", "the", "-n", "4000",
                   "--ignore-eos", "--packed-cache", path("cache")});
  while (process.is_running() && process.output_so_far().empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::filesystem::resize_file(file, 0);
  const Finished result = process.wait();
  CAPTURE(result.err);
  // By the signal of a read past its end, or by the look at it after each pass.
  REQUIRE((result.exit_code == 4 || result.exit_code == 8));
  REQUIRE(contains(result.err,
                   file + (result.exit_code == 4 ? ": found fewer bytes than when it was opened"
                                                 : ": packed cache changed while it was read")));
}

}  // namespace llm::test
