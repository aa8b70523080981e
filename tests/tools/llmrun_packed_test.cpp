// llmrun --packed-cache.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

const std::string kRun = "tiny.gguf -p the -n 6 --ignore-eos --temp 0 --logits-hash ";
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
  const Finished plain = llmrun(kRun + "-q").must_end(0);
  for (int start = 0; start < 2; ++start) {
    const Finished run = llmrun(kRun + kCache + "-q").must_end(0);
    CAPTURE(start);
    REQUIRE(run.out == plain.out);
    REQUIRE(run.err == plain.err);
  }
  const std::string file = the_cache();
  REQUIRE(std::filesystem::path(file).filename().string().starts_with("tiny-"));
  // It is what is read: another model's panels give another text.
  const auto time = std::filesystem::last_write_time(file);
  llmrun(kRun + kCache).must_end(0);
  REQUIRE(std::filesystem::last_write_time(file) == time);
  std::filesystem::resize_file(file, 100);
  const Finished warned =
      llmrun(kRun + kCache).must_end(0, {"packed cache: cache/tiny-", ": head: found other bytes"});
  REQUIRE(warned.out == plain.out);
  REQUIRE(std::filesystem::file_size(file) > 100);
}

TEST_CASE_METHOD(PackedRuns, "a packed cache that finds no room leaves nothing") {
  const std::string plain = llmrun(kRun + "-q").out;
  // A file size limit is a disk that is full.
  const auto limited = [&](const std::string& blocks) {
    const Finished run =
        shell("(ulimit -f " + blocks + "; exec llmrun " + kRun + kCache + ") 2>&1 | cat");
    CAPTURE(run.out);
    REQUIRE(contains(run.out, plain));
    REQUIRE(contains(run.out, "packed cache: "));
    REQUIRE(contains(run.out, "cannot write: File too large; going on without"));
  };
  limited("0");
  REQUIRE(the_cache().empty());
  limited("2049");  // of 1024 bytes: the head, and not all of the panels
  REQUIRE(the_cache().empty());
  // What was there stays, even where it cannot be used.
  llmrun(kRun + kCache).must_end(0);
  const std::string file = the_cache();
  std::filesystem::resize_file(file, 100);
  limited("0");
  REQUIRE(std::filesystem::file_size(file) == 100);
}

TEST_CASE_METHOD(PackedRuns, "a packed cache cut in use is named") {
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
