// Rows 65-89 of docs/bad_input.md as a user meets them: references, prompts, options, memory,
// outputs, signals. What is tested closer to its code is named in the page.

#include "tests/tools/bad_input_support.h"
#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

class BadRuns : public Llmrun {
 public:
  /// A dump of the tiny model's own, which passes.
  std::string own_dump() {
    llmrun("tiny.gguf -p the -n 2 --ignore-eos -q --dump-layers dump.npz").must_end(0);
    return read("dump.npz");
  }

  Finished layer_diff(const std::string& reference) {
    write("bad.npz", reference);
    return shell("llmcheck tiny.gguf -t 1 --layer-diff bad.npz");
  }
};

TEST_CASE_METHOD(BadRuns, "bad input 65: a reference that is empty or cut short") {
  const std::string dump = own_dump();
  layer_diff(dump).must_end(0);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{21}, dump.size() / 2,
                                 dump.size() - 22, dump.size() - 1}) {
    layer_diff(dump.substr(0, size)).must_refuse(3, {"bad.npz: zip", "need"});
  }
}

TEST_CASE_METHOD(BadRuns, "bad input 66, 69: a reference with flipped bytes") {
  const std::string dump = own_dump();
  // The header of the first member, its data, and the directory at the end.
  for (const std::size_t at : {std::size_t{14}, std::size_t{200}, dump.size() - 30}) {
    CAPTURE(at);
    std::string bad = dump;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    const Finished run = layer_diff(bad);
    CHECK((run.exit_code == 3 || run.exit_code == 6));
    CHECK_THAT(run.err, Contains("bad.npz: "));
  }
}

TEST_CASE_METHOD(BadRuns, "bad input 78: a prompt beyond the context") {
  llmrun("tiny.gguf -c 4 -p 'more than four tokens'")
      .must_end(2, {"tokens, need at most 4 (the context)"});
}

TEST_CASE_METHOD(BadRuns, "bad input 80: a megabyte of one character") {
  const char byte = GENERATE('a', ' ');
  write("long", std::string(1 << 20, byte));
  CHECK(shell("llmtok " + kFable + " -f long --ids").must_end(0).out.size() > 1000);
}

TEST_CASE_METHOD(BadRuns, "bad input 82: --top-k 0 disables the filter") {
  const std::string usual =
      "tiny.gguf -p the -n 24 --ignore-eos -s 3 --temp 5 --top-p 1 --min-p 0 ";
  const std::string disabled = llmrun(usual + "--top-k 0 -q").out;
  CHECK(disabled == llmrun(usual + "--top-k 100000 -q").out);
  CHECK(disabled != llmrun(usual + "--top-k 2 -q").out);
}

TEST_CASE_METHOD(BadRuns, "bad input 83: threads out of range, none, and more than CPUs") {
  const std::string one = llmrun("tiny.gguf -p the -n 3 --ignore-eos -s 1 -q -t 1").out;
  CHECK(llmrun("tiny.gguf -p the -n 3 --ignore-eos -s 1 -q -t 0").out == one);
  CHECK(llmrun("tiny.gguf -p the -n 3 --ignore-eos -s 1 -q -t 19").out == one);
  llmrun("tiny.gguf -p the -n 3 -t 10000")
      .must_end(2, {"-t: found \"10000\", need an integer in 0..256"});
}

TEST_CASE_METHOD(BadRuns, "bad input 85: a full disk leaves the old report") {
  write("report.json", std::string("old"));
  own_dump();
  // A file size limit is a disk that is full.
  shell(
      "(ulimit -f 0; exec llmcheck tiny.gguf -t 1 --layer-diff dump.npz --report report.json) 2>&1 "
      "| cat; exit ${PIPESTATUS[0]}")
      .must_end(4, {}, {"report.json: cannot write: File too large", "PASS"});
  CHECK(read("report.json") == "old");
}

}  // namespace
}  // namespace llm::test
