// What every tool does when standard streams or the files it writes at the end cannot be written.

#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// A command of bash; $MODEL is a tiny model, $DIR a folder to write to.
struct Command {
  std::string words;
  int exit_code;
};

class Tools {
 public:
  Tools() {
    TinyGguf model = TinyGguf::llama();
    directory_.write("model.gguf", model.bytes());
    std::filesystem::create_directory(path("out"));
    setenv("BIN", tools_folder().c_str(), 1);
    setenv("MODEL", path("model.gguf").c_str(), 1);
    setenv("DIR", path("out").c_str(), 1);
    // A verdict in a fraction of a second: the model against its own dump.
    setenv("VERDICT", ("--layer-diff " + path("dump.npz")).c_str(), 1);
    const std::string dump = "\"$BIN\"/llmrun $MODEL -p the -n 1 --ignore-eos --dump-layers ";
    run_shell(dump + path("dump.npz")).must_end(0);
  }
  std::string path(std::string_view name) const { return directory_ / name; }
  void write(std::string_view name, const std::vector<std::byte>& content) const {
    directory_.write(name, content);
  }
  std::size_t written() const {
    using Iterator = std::filesystem::directory_iterator;
    return static_cast<std::size_t>(std::distance(Iterator(path("out")), Iterator()));
  }

 private:
  ScratchDirectory directory_;
};

const std::vector<Command>& failing() {
  static const std::vector<Command> commands = {
      {"llmrun /none", 4},      {"llmrun --zzz", 2},       {"llmrun $MODEL -p a -c 1", 2},
      {"llmcheck /none", 4},    {"llmcheck --zzz", 2},     {"llmquant /none $DIR/a Q8_0", 4},
      {"llmquant", 2},          {"llmgguf show /none", 4}, {"llmgguf", 2},
      {"llmtok /none -p a", 4}, {"llmtok --zzz", 2},       {"llmbench -m /none", 4},
      {"llmbench --zzz", 2},    {"llmsynth /none/a", 4},   {"llmsynth --zzz", 2},
      {"llmload /none/a", 4},   {"llmload --zzz", 2},      {"llmserve /none/a", 4},
      {"llmserve --zzz", 2}};
  return commands;
}

TEST_CASE("a stderr that takes nothing changes no exit code", "[tools][streams]") {
  const Tools tools;
  const std::string redirection = GENERATE("2>&-", "2>/dev/full", "2> >(exec true)");
  CAPTURE(redirection);
  for (const auto& [words, exit_code] : failing()) {
    CAPTURE(words);
    run_shell("\"$BIN\"/" + words + " " + redirection).must_end(exit_code);
  }
}

TEST_CASE("results are written without a stderr", "[tools][streams]") {
  const Tools tools;
  const std::string redirection = GENERATE("2>&-", "2>/dev/full", "2> >(exec true)");
  CAPTURE(redirection);
  const auto run = [&](const std::string& words) {
    CAPTURE(words);
    const Finished result = run_shell("\"$BIN\"/" + words + " " + redirection).must_end(0);
    return result.out;
  };
  const std::string verbose = "llmrun $MODEL -p the -n 3 --ignore-eos --temp 0 -vv ";
  const std::string text = run_shell("\"$BIN\"/" + verbose).out;
  CHECK_FALSE(text.empty());
  // A context beyond the model's is a warning.
  CHECK(run(verbose + "-c 99 --receipt $DIR/r.json --dump-layers $DIR/d.npz") == text);
  CHECK_FALSE(
      run("llmcheck $MODEL --dump $DIR/dump.npz $VERDICT -v --report $DIR/self.json").empty());
  CHECK_FALSE(run("llmquant $MODEL $DIR/q.gguf Q8_0 --allow-requantize -v").empty());
  CHECK(tools.written() == 5);
}

TEST_CASE("paths that cannot be written are told before the work", "[tools][streams]") {
  const Tools tools;
  const auto refused = [](const std::string& words, int exit_code, const std::string& part) {
    CAPTURE(words);
    const Finished result = run_shell("\"$BIN\"/" + words).must_end(exit_code, {part});
    CHECK(result.out.empty());
  };
  const std::string run = "llmrun $MODEL -p the -n 1 ";
  const std::string missing = "cannot create: No such file or directory";
  refused(run + "--receipt $DIR/no/a", 4, missing);
  refused(run + "--dump-layers $DIR/no/a", 4, missing);
  refused(run + "--receipt $DIR", 4, "Is a directory");
  refused(run + "--receipt $MODEL", 2, "--receipt: found a file that is read");
  refused(run + "--dump-layers $MODEL", 2, "--dump-layers: found a file that is read");
  refused(run + "--cache-save $MODEL", 2, "--cache-save: found a file that is read");
  refused(run + "--cache-save $DIR/no/a", 4, missing);
  refused("llmrun $MODEL -i --session $DIR/no/a", 4, missing);
  refused("llmcheck $MODEL --report $DIR/no/a.md", 4, missing);
  refused("llmcheck $MODEL --report $DIR/a.md --report $DIR/no/a.json", 4, missing);
  refused("llmcheck $MODEL --dump $DIR/no/a", 4, missing);
  refused("llmcheck $MODEL --dump $MODEL", 2, "--dump: found a file that is read");
  refused("llmquant $MODEL $DIR/no/a Q8_0 --allow-requantize", 4, missing);
  refused("llmsynth $DIR/no/a", 4, missing);
  CHECK(tools.written() == 0);
}

TEST_CASE("a verdict is printed even when its report cannot be written", "[tools][streams]") {
  const Tools tools;
  std::filesystem::create_symlink("/dev/full", tools.path("out/full.json"));
  run_shell("\"$BIN\"/llmcheck $MODEL $VERDICT --report $DIR/full.json --report $DIR/a.md")
      .must_end(4, {"full.json: cannot write: No space left on device"}, {"PASS"});
  CHECK(std::filesystem::exists(tools.path("out/a.md")));

  run_shell("\"$BIN\"/llmcheck $MODEL $VERDICT --report $DIR/b.md >&-").must_end(4);
  CHECK(std::filesystem::exists(tools.path("out/b.md")));

  std::filesystem::create_symlink("/dev/full", tools.path("out/full.npz"));
  run_shell("\"$BIN\"/llmrun $MODEL -p the -n 2 --receipt $DIR/full.json --dump-layers $DIR/d.npz")
      .must_end(4);
  CHECK(std::filesystem::exists(tools.path("out/d.npz")));
}

TEST_CASE("/save refuses the model's file", "[tools][streams]") {
  const Tools tools;
  const std::string before = read_file(tools.path("model.gguf"));
  const Finished run = run_shell(
      "printf '/save %s\\n' \"$MODEL\" | "
      "\"$BIN\"/llmrun $MODEL -i --chat-template zephyr");
  CHECK_THAT(run.err, Contains("/save: found a file that is read"));
  CHECK(read_file(tools.path("model.gguf")) == before);
}

TEST_CASE("options of llama.cpp get a sentence", "[tools][streams]") {
  const Tools tools;
  for (const std::string option :
       {"-mu a/b", "-ngl 99", "--n-gpu-layers 99", "--mlock", "-fa", "-fa on", "-sm row",
        "-ctk q8_0", "-no-cnv", "-st", "--nowordwrap", "-mli", "--in-prefix a", "--simple-io"}) {
    CAPTURE(option);
    const Finished result = run_shell("\"$BIN\"/llmrun $MODEL -p a -n 1 " + option).must_end(2);
    const std::string name = option.substr(0, option.find(' '));
    CHECK_THAT(result.err, Contains("llmrun: error: " + name + ": unknown here; "));
    CHECK(result.out.empty());
  }
  CHECK_THAT(run_shell("\"$BIN\"/llmrun $MODEL -st -p a").err, Contains("--chat with -p asks"));
  for (const std::string tool : {"llmcheck", "llmbench", "llmquant", "llmgguf", "llmtok"}) {
    CHECK_THAT(run_shell("\"$BIN\"/" + tool + " -ngl 99").err, Contains("no GPU code"));
  }
}

TEST_CASE("every tool prints its pages and colours its errors when told to", "[tools][streams]") {
  const Tools tools;
  for (const std::string tool : {"llmbench", "llmcheck", "llmgguf", "llmload", "llmquant", "llmrun",
                                 "llmserve", "llmsynth", "llmtok"}) {
    CAPTURE(tool);
    const auto run = [&](const std::string& words) {
      return run_shell("\"$BIN\"/" + tool + " " + words);
    };
    CHECK_THAT(run("--help").out, Contains("\nUsage: " + tool));
    CHECK_THAT(run("--version").out, Catch::Matchers::Matches(tool + " [0-9.]+\n"));
    CHECK(run("--man").out.starts_with(".TH LLM"));
    CHECK(run("--help-markdown").out.starts_with("## " + tool + "\n"));
    for (const std::string shell : {"bash", "zsh", "fish"}) {
      CHECK_THAT(run("--completion " + shell).out, Contains(tool) && Contains("color"));
    }
    CHECK(run("--zzz --color always").err.starts_with(tool + ": error: "));  // not yet read
    const std::string failing = tool == "llmgguf"    ? "show /none"
                                : tool == "llmquant" ? "/none $DIR/a Q8_0"
                                : tool == "llmsynth" || tool == "llmload" || tool == "llmserve"
                                    ? "/none/a"
                                : tool == "llmtok" ? "/none -p a"
                                                   : "-m /none";
    if (tool == "llmcheck") continue;  // below
    CHECK(run(failing + " --color always").err.starts_with(tool + ": \x1b[31m\x1b[1merror"));
  }
}

TEST_CASE("-q silences the warnings of every tool that has some", "[tools][streams]") {
  const Tools tools;
  auto pieces = TinyGguf::pieces();
  pieces.at(265) = "he";  // a second time
  TinyGguf model = TinyGguf::llama();
  model.set_strings("tokenizer.ggml.tokens", pieces);
  tools.write("odd.gguf", model.bytes());
  setenv("ODD", tools.path("odd.gguf").c_str(), 1);
  const std::string lengths = R"([{"prompt": [2, 2], "output": [2, 2]}])";
  const auto bytes = std::as_bytes(std::span(lengths));
  tools.write("lengths.json", {bytes.begin(), bytes.end()});
  setenv("LENGTHS", tools.path("lengths.json").c_str(), 1);
  const std::string bench = "llmbench $MODEL -n 0 -r 1 --no-load --no-peaks ";
  run_shell("\"$BIN\"/" + bench + "-p 2 -o json > $DIR/old.json").must_end(0);
  for (const std::string& words :
       {std::string("llmgguf verify $ODD"), std::string("llmtok $ODD -p the"),
        std::string("llmrun $ODD -p the -n 1"), std::string("llmcheck $ODD --dump $DIR/d.npz"),
        std::string("llmquant $MODEL $DIR/q.gguf Q4_K_M --allow-requantize"),
        bench + "-p 3 --compare $DIR/old.json",
        std::string("llmload $ODD --lengths $LENGTHS --mode real --rate 1000 --requests 1")}) {
    CAPTURE(words);
    CHECK_THAT(run_shell("\"$BIN\"/" + words).err, Contains(": warning: "));
    CHECK(run_shell("\"$BIN\"/" + words + " -q").err.empty());
  }
}

TEST_CASE("--self is asked beside another question", "[tools][streams]") {
  const Tools tools;
  const Finished alone = run_shell("\"$BIN\"/llmcheck $MODEL $VERDICT -t 1");
  const Finished both = run_shell("\"$BIN\"/llmcheck $MODEL $VERDICT -t 1 --self").must_end(0);
  CHECK_THAT(alone.out, !Contains("kernel"));
  CHECK_THAT(both.out, Contains("kernel"));
}

TEST_CASE("--color overrides the terminal's say", "[tools][streams]") {
  const Tools tools;
  const auto err = [](const std::string& words) { return run_shell("\"$BIN\"/" + words).err; };
  CHECK(err("llmrun /none").starts_with("llmrun: error: /none: "));
  const std::string red = "llmrun: \x1b[31m\x1b[1merror\x1b[m: ";
  CHECK(err("llmrun /none --color always").starts_with(red));
  CHECK(err("llmrun /none --color never").starts_with("llmrun: error: "));
  CHECK(err("llmrun $MODEL -p a -n 0 -c 99 --color always")
            .starts_with("llmrun: \x1b[33m\x1b[1mwarning\x1b[m: "));
  CHECK_THAT(run_shell("\"$BIN\"/llmcheck $MODEL $VERDICT --color always").out, Contains("\x1b["));
  CHECK_THAT(run_shell("\"$BIN\"/llmcheck $MODEL $VERDICT").out, !Contains("\x1b["));
}

}  // namespace
}  // namespace llm::test
