// Where llmrun's prompt and model come from: standard input, the environment, directories, the
// model that comes with the program.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

const std::string kPromptRun = "llmrun tiny.gguf -n 0 --json ";

class Prompts : public Llmrun {
 public:
  /// The prompt that a command of bash runs with.
  std::string prompt_of(const std::string& command) {
    return test::parse_json(shell(command).must_end(0).out)["prompt"];
  }
};

}  // namespace

TEST_CASE_METHOD(Prompts, "the sources of a prompt") {
  write("text", "from a file\n");
  for (const auto& [command, prompt] : std::vector<std::pair<std::string, std::string>>{
           // A pipe or file on standard input, where none is given.
           {"echo piped | " + kPromptRun, "piped"},
           {"(sleep 0.2; echo late) | " + kPromptRun, "late"},
           {kPromptRun + "< text", "from a file"},
           {kPromptRun + "<<< 'a word'", "a word"},
           {"printf 'a\\\\nb' | " + kPromptRun + "-e", "a\nb"},
           {"true | " + kPromptRun, ""},
           {kPromptRun + "< /dev/null", ""},
           {kPromptRun + "<&-", ""},
           {kPromptRun + "< /dev/zero", ""},
           // It is not touched where there is a prompt.
           {"echo piped | " + kPromptRun + "-p given", "given"},
           {"echo piped | " + kPromptRun + "given", "given"},
           {"echo piped | " + kPromptRun + "-p ''", ""},
           {"echo piped | " + kPromptRun + "-f text", "from a file"},
           // Unless - asks for it: then it comes after a blank line.
           {"echo piped | " + kPromptRun + "-p given -", "given\n\npiped"},
           {"echo piped | " + kPromptRun + "given -", "given\n\npiped"},
           {"echo piped | " + kPromptRun + "-f text -", "from a file\n\npiped"},
           {kPromptRun + "given - < /dev/null", "given"},
           {"echo piped | " + kPromptRun + "-", "piped"},
           {"echo piped | " + kPromptRun + "-p -", "piped"}}) {
    CAPTURE(command);
    REQUIRE(prompt_of(command) == prompt);
  }
  shell("head -c 67108860 /dev/zero | tr '\\0' x | " + kPromptRun + "-p 'a prompt' -")
      .must_end(5, {"prompt: found 67108870 bytes, need at most 67108864"});
}

TEST_CASE_METHOD(Prompts,
                 "standard input that is not asked for holds up nothing and loses nothing") {
  // An open pipe that nobody writes to does not hold the program up.
  REQUIRE(prompt_of("mkfifo in; sleep 1000 > in & job=$!\n" + kPromptRun +
                    "-p given < in; kill $job") == "given");
  // Nor does a loop lose its lines.
  for (const char* loop :
       {"while read -r line; do llmrun tiny.gguf -p \"$line\" -n 0 --jsonl; done < list",
        "cat list | while read -r line; do llmrun tiny.gguf -p \"$line\" -n 0 --jsonl; done",
        "xargs -n 1 llmrun tiny.gguf -n 0 --jsonl -p < list"}) {
    write("list", "one\ntwo\nthree\n");
    const Finished all = shell(loop);
    CAPTURE(loop, all.out, all.err);
    REQUIRE(std::ranges::count(all.out, '\n') == 3);
    REQUIRE(contains(all.out, "\"prompt\":\"three\""));
  }
  // Text that is there and not read is told.
  const Finished told = shell("echo piped | (sleep 0.1; " + kPromptRun + "-p given)");
  REQUIRE(contains(told.err, "warning: standard input is not read, because there is a prompt"));
  REQUIRE(!contains(llmrun(std::string("tiny.gguf -n 0 -p given")).err, "standard input"));
}

TEST_CASE_METHOD(Prompts, "waiting for a prompt is said") {
  const Finished run = shell(std::string("(sleep 2.5; echo late) | ") + kPromptRun);
  REQUIRE(contains(run.err, "waiting for the prompt on standard input"));
  REQUIRE(test::parse_json(run.out)["prompt"] == "late");
}

TEST_CASE_METHOD(Prompts,
                 "a prompt longer than the context hints at --context-shift, or is cropped by it") {
  const std::string run =
      "tiny.gguf -c 20 -n 4 --ignore-eos -s 1 -p 'the tiny hen has a hat and a pen' ";
  llmrun(run).must_end(
      2, {"need at most 20 (the context); raise -c, shorten the prompt or use --context-shift"});
  const Finished cropped = llmrun(run + "--context-shift --json").must_end(0);
  const Json json = test::parse_json(cropped.out);
  REQUIRE(json["ids"].size() == 4);
  const auto n_dropped = json["prompt_ids"].size() - 20;
  REQUIRE(n_dropped > 0);
  REQUIRE(contains(cropped.err, "warning: prompt: the first " + std::to_string(n_dropped) +
                                    " tokens are dropped, so that the rest fits into 20 (-c)"));
  REQUIRE(!contains(cropped.err, "--context-shift"));
  // Where even that does not help, the option that is given is no hint.
  const Finished tiny =
      llmrun("tiny.gguf -c 1 -n 1 -p 'the hen' --context-shift")
          .must_end(2, {"need at most 1 (the context); raise -c or shorten the prompt\n"});
  // In a question the system message stays: cropped or not, the answer depends on it.
  const std::string question =
      "tiny.gguf --chat-template zephyr -c 80 -n 4 --ignore-eos --temp 0 --json --context-shift -p "
      "'the tiny hen has a hat and a pen and a net and the tiny hen has a hat' ";
  const Finished kind =
      llmrun(question + "--system 'Be kind'").must_end(0, {"warning: prompt: the first "});
  REQUIRE(test::parse_json(kind.out)["prompt_ids"].size() <= 80);
  REQUIRE(test::parse_json(kind.out)["prompt_ids"] !=
          json_of(question + "--system 'Be mean'")["prompt_ids"]);
}

TEST_CASE_METHOD(Prompts, "a directory with one model is accepted as the model") {
  const std::string tiny = read("tiny.gguf");
  std::filesystem::create_directory(path("d"));
  const auto run = [&](const char* arguments) {
    return llmrun(std::string(arguments) + " -n 0 -q < /dev/null");
  };
  run("d").must_end(4, {"d: is a directory without a *.gguf"});
  write("d/a.gguf", tiny);
  write("d/notes.txt", tiny);
  run("d").must_end(0);
  run("-m d").must_end(0);
  write("d/b.gguf", tiny);
  run("-m d").must_end(2, {"d: found 2 models in the directory, need one of a.gguf, b.gguf"});
  // The parts of a split model are one model, and the first of them is opened.
  std::filesystem::remove(path("d/a.gguf"));
  std::filesystem::remove(path("d/b.gguf"));
  write("d/m-00001-of-00003.gguf", "x");
  write("d/m-00002-of-00003.gguf", tiny);
  write("d/m-00003-of-00003.gguf", tiny);
  run("d").must_end(3, {"d/m-00001-of-00003.gguf: "});
}

TEST_CASE_METHOD(Prompts, "without a model: LLM_MODEL, else the one that comes with the program") {
  const Finished own = llmrun("-n 2 --temp 0 -p 'Once upon a time'")
                           .must_end(0, {"no model is given; using the bundled one",
                                         "/models/fable-3m-q4_k_m.gguf\n"});
  REQUIRE(llmrun("-n 2 --temp 0 -q -p 'Once upon a time'").err.empty());
  REQUIRE(own.out == llmrun("-n 2 --temp 0 -p 'Once upon a time' -m " + kFable).out);

  const auto prompt_ids = [&](const std::string& command) {
    return test::parse_json(shell(command).must_end(0).out)["prompt_ids"];
  };
  const std::string tiny = "LLM_MODEL=tiny.gguf llmrun -n 0 --json -p hen ";
  REQUIRE(prompt_ids(tiny) == prompt_ids("llmrun tiny.gguf -n 0 --json -p hen"));
  // One that is named counts more.
  REQUIRE(prompt_ids(tiny + kFable) != prompt_ids(tiny));

  // Installed: bin/llmrun finds share/llmrun/models; elsewhere there is none.
  shell("mkdir -p usr/bin; cp '" LLM_BIN_DIR "/llmrun' usr/bin/; usr/bin/llmrun -n 0 -p a")
      .must_end(2, {"MODEL: found nothing, need a GGUF file"});
  shell(
      "mkdir -p usr/share/llmrun/models; cp tiny.gguf "
      "usr/share/llmrun/models/fable-3m-q4_k_m.gguf; usr/bin/llmrun -n 0 --json -p hen")
      .must_end(0, {"usr/share/llmrun/models/fable-3m-q4_k_m.gguf"});
}

}  // namespace llm::test
