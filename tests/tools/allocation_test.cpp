// Row 84: limits on memory, address space and threads are exit code 5 in every tool. That every
// single request for memory may be refused, `./dev inject` tries.

#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// A directory with a small model, a text, and a reference of the model's own.
class Bench : public ToolFolder {
 public:
  Bench() {
    write("text", std::string(300, 'a'));
    shell("llmcheck tiny.gguf -p ab --compute f32 --dump own.npz -q").must_end(0);
  }

  /// How often `command` asks for memory.
  std::size_t requests(const std::string& command, int expected = 0) const {
    write("state", std::string(32, '\0'));
    shell("env LLM_INJECT=memory,map LLM_INJECT_STATE=state LD_PRELOAD=" LLM_INJECT " " + command)
        .must_end(expected);
    std::uint64_t count = 0;
    std::memcpy(&count, read("state").data() + 24, sizeof count);
    return count;
  }

  /// Runs `command` for each request in `refused`, and looks at its exit code and words.
  /// @param suffix    "+": all further requests are refused too
  /// @param expected  the exit code of one that can do without
  void refuse(const std::string& command, const std::set<std::size_t>& refused,
              const std::string& suffix, int expected = 0) const {
    std::string numbers;
    for (const std::size_t k : refused) numbers += " " + std::to_string(k) + suffix;
    const Finished runs = shell("for k in" + numbers +
                                "; do timeout --signal=KILL 60 env LLM_INJECT=memory,map:$k "
                                "LD_PRELOAD=" LLM_INJECT " " +
                                command + " > out 2> err; echo $k $? $(head -c 200 err); done");
    CAPTURE(command);
    std::istringstream lines(runs.out);
    std::size_t n_lines = 0;
    for (std::string line; std::getline(lines, line); ++n_lines) {
      std::string k;
      int code = 0;
      std::istringstream(line) >> k >> code;
      CAPTURE(line);
      const bool said = code == 5 && line.find(": error: ") != std::string::npos;
      CHECK((code == expected || said));
    }
    CHECK(n_lines == refused.size());
  }
};

}  // namespace

// A thread's first use of a thread_local with a destructor may be the request that is refused, in
// some runs only. See base/per_thread.h.
TEST_CASE("no tool has thread_local variables with destructors", "[bad_input][allocation]") {
  const Finished tools = run_shell(
      "cd '" LLM_BIN_DIR "' && nm -D llm{run,serve,check,quant,gguf,tok,bench,load,synth}");
  CHECK_THAT(tools.must_end(0, {}, {"__cxa_atexit"}).out, !Contains("__cxa_thread_atexit"));
}

// libstdc++ ends the process where memory runs out while it lists a directory.
TEST_CASE("memory that runs out in a function that may not throw is exit code 5",
          "[bad_input][allocation]") {
  const Bench bench;
  bench.shell("mkdir d && cp tiny.gguf d/a.gguf && cp tiny.gguf d/b.gguf").must_end(0);
  const int two_models = 2;  // the run ends where it has listed them
  const std::size_t n = bench.requests("llmrun d", two_models);
  std::set<std::size_t> last;
  for (std::size_t k = n - 20; k <= n; ++k) last.insert(k);
  bench.refuse("llmrun d", last, "", two_models);
  bench.refuse("llmrun d", last, "+", two_models);
}

TEST_CASE("a limit on memory is exit code 5, whatever it cuts", "[bad_input][allocation]") {
  const Bench bench;
  const std::string command = GENERATE(values<std::string>(
      {"llmrun tiny.gguf -p a -n 4 -t 2", "llmcheck tiny.gguf --layer-diff own.npz --threads 2",
       "llmquant tiny.gguf out.gguf Q8_0 2 --allow-requantize --force"}));
  for (int mib = 20; mib < 250; mib += 23) {
    const Finished run = bench.shell("ulimit -v " + std::to_string(mib * 1024) + "; " + command);
    CAPTURE(command, mib, run.err, run.exit_code);
    // Below that, the loader finds no room for the libraries.
    if (run.exit_code == 127 && run.err.find("shared") != std::string::npos) continue;
    CHECK((run.exit_code == 0 || run.exit_code == 5));
  }
}

TEST_CASE("a file that the address space cannot hold is exit code 5", "[bad_input][allocation]") {
  const Bench bench;
  for (const std::string command : {"llmgguf verify big", "llmrun big -n 1"}) {
    bench.shell("cp tiny.gguf big; truncate -s 3G big; ulimit -v 1000000; " + command)
        .must_end(5, {"big: address space: need 3073 MiB"});
  }
}

TEST_CASE("threads that the system refuses are named", "[bad_input][allocation]") {
  const Bench bench;
  for (const std::string command :
       {"llmrun tiny.gguf -n 1 -t 200", "llmcheck tiny.gguf --ppl text --threads 200",
        "llmquant tiny.gguf out.gguf Q8_0 200 --allow-requantize --force",
        "llmsynth s.gguf --shape mqa -t 200",
        "llmbench tiny.gguf --no-peaks -p 2 -n 2 -r 1 -t 200"}) {
    // The stacks of 200 threads do not fit.
    bench.shell("ulimit -s 8192; ulimit -v 1000000; " + command)
        .must_end(5, {"threads: found ", "need 200", "use fewer threads"});
  }
}

// For receipts, to load on, for texts, to compute on, and two for requests.
TEST_CASE("threads that a server cannot start are exit code 5", "[bad_input][allocation]") {
  const Bench bench;
  for (int k = 1; k <= 6; ++k) {
    CAPTURE(k);
    bench
        .shell("timeout --signal=KILL 60 env LLM_INJECT=thread:" + std::to_string(k) +
               " LD_PRELOAD=" LLM_INJECT
               " llmserve tiny.gguf --port 0 -t 2 --kv-memory 8 --receipts folder")
        .must_end(5, {"threads: found ", "that can be started"});
  }
}

}  // namespace llm::test
