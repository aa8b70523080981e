// What every tool does when standard streams or the files it writes at the end cannot be written.

#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// A folder with the tiny model and another, out, to write to.
class Tools : public ToolFolder {
 public:
  Tools() {
    std::filesystem::create_directory(path("out"));
    shell("llmrun tiny.gguf -p the -n 1 --ignore-eos --dump-layers dump.npz").must_end(0);
  }
  std::ptrdiff_t written() const {
    return std::distance(std::filesystem::directory_iterator(path("out")), {});
  }
};

/// A verdict in a fraction of a second: the model against its own dump.
const std::string kVerdict = "llmcheck tiny.gguf --layer-diff dump.npz ";

const std::vector<std::pair<std::string, int>> kFailing = {
    {"llmrun /none", 4},      {"llmrun --zzz", 2},       {"llmrun tiny.gguf -p a -c 1", 2},
    {"llmcheck /none", 4},    {"llmcheck --zzz", 2},     {"llmquant /none out/a Q8_0", 4},
    {"llmquant", 2},          {"llmgguf show /none", 4}, {"llmgguf", 2},
    {"llmtok /none -p a", 4}, {"llmtok --zzz", 2},       {"llmbench -m /none", 4},
    {"llmbench --zzz", 2},    {"llmsynth /none/a", 4},   {"llmsynth --zzz", 2},
    {"llmload /none/a", 4},   {"llmload --zzz", 2},      {"llmserve /none/a", 4},
    {"llmserve --zzz", 2}};

TEST_CASE("a stderr that takes nothing changes no exit code", "[tools][streams]") {
  const Tools tools;
  const std::string redirection = GENERATE("2>&-", "2>/dev/full", "2> >(exec true)");
  for (const auto& [words, exit_code] : kFailing)
    tools.shell(words + " " + redirection).must_end(exit_code);
}

TEST_CASE("results are written without a stderr", "[tools][streams]") {
  const Tools tools;
  const std::string redirection = GENERATE("2>&-", "2>/dev/full", "2> >(exec true)");
  CAPTURE(redirection);
  const auto run = [&](const std::string& words) {
    return tools.shell(words + " " + redirection).must_end(0).out;
  };
  const std::string verbose = "llmrun tiny.gguf -p the -n 3 --ignore-eos --temp 0 -vv ";
  const std::string text = tools.shell(verbose).out;
  CHECK_FALSE(text.empty());
  // A context beyond the model's is a warning.
  CHECK(run(verbose + "-c 99 --receipt out/r.json --dump-layers out/d.npz") == text);
  CHECK_FALSE(run(kVerdict + "--dump out/dump.npz -v --report out/self.json").empty());
  CHECK_FALSE(run("llmquant tiny.gguf out/q.gguf Q8_0 --allow-requantize --force -v").empty());
  CHECK(tools.written() == 5);
}

TEST_CASE("paths that cannot be written are told before the work", "[tools][streams]") {
  const Tools tools;
  const std::string run = "llmrun tiny.gguf -p the -n 1 ";
  const std::string missing = "cannot create: No such file or directory";
  for (const auto& [words, exit_code, part] :
       std::vector<std::tuple<std::string, int, std::string>>{
           {run + "--receipt out/no/a", 4, missing},
           {run + "--dump-layers out/no/a", 4, missing},
           {run + "--receipt out", 4, "Is a directory"},
           {run + "--receipt tiny.gguf", 2, "--receipt: found an input file"},
           {run + "--dump-layers tiny.gguf", 2, "--dump-layers: found an input file"},
           {run + "--cache-dir tiny.gguf", 4, "tiny.gguf: cache directory: cannot create: "},
           {run + "--cache-dir out/no/a", 4, missing},
           {"llmrun tiny.gguf -i --session out/no/a", 4, missing},
           {"llmcheck tiny.gguf --report out/no/a.html", 4, missing},
           {"llmcheck tiny.gguf --report out/a.html --report out/no/a.json", 4, missing},
           {"llmcheck tiny.gguf --dump out/no/a", 4, missing},
           {"llmcheck tiny.gguf --dump tiny.gguf", 2, "--dump: found an input file"},
           {"llmquant tiny.gguf out/no/a Q8_0 --allow-requantize", 4, missing},
           {"llmsynth out/no/a", 4, missing}})
    tools.shell(words).must_refuse(exit_code, {part});
  CHECK(tools.written() == 0);
}

TEST_CASE("a verdict is printed even when its report cannot be written", "[tools][streams]") {
  const Tools tools;
  std::filesystem::create_symlink("/dev/full", tools.path("out/full.json"));
  tools.shell(kVerdict + "--report out/full.json --report out/a.html")
      .must_end(4, {"full.json: cannot write: No space left on device"}, {"PASS"});
  CHECK(std::filesystem::exists(tools.path("out/a.html")));

  tools.shell(kVerdict + "--report out/b.html >&-").must_end(4);
  CHECK(std::filesystem::exists(tools.path("out/b.html")));

  std::filesystem::create_symlink("/dev/full", tools.path("out/full.npz"));
  tools.shell("llmrun tiny.gguf -p the -n 2 --receipt out/full.json --dump-layers out/d.npz")
      .must_end(4);
  CHECK(std::filesystem::exists(tools.path("out/d.npz")));
}

TEST_CASE("/save refuses the model's file", "[tools][streams]") {
  const Tools tools;
  const std::string before = tools.read("tiny.gguf");
  const Finished run =
      tools.shell("echo /save tiny.gguf | llmrun tiny.gguf -i --chat-template zephyr");
  CHECK_THAT(run.err, Contains("/save: found an input file"));
  CHECK(tools.read("tiny.gguf") == before);
}

TEST_CASE("options of llama.cpp get a sentence", "[tools][streams]") {
  const Tools tools;
  for (const std::string option : {"-mu a/b", "-ctk q8_0", "-st", "--nowordwrap", "-mli",
                                   "--in-prefix a", "--simple-io", "-cml", "-sp", "-rea off"}) {
    const std::string name = option.substr(0, option.find(' '));
    tools.shell("llmrun tiny.gguf -p a -n 1 " + option)
        .must_refuse(2, {"llmrun: error: " + name + ": unknown here; "});
  }
  for (const std::string option :
       {"-ngl 99", "--n-gpu-layers 99", "--mlock", "-fa", "-fa on", "-fa 0", "-sm row", "--jinja",
        "-cb", "--metrics", "--slots", "-no-cnv", "-lv 1", "--log-disable", "--numa distribute"}) {
    const Finished run = tools.shell("llmrun tiny.gguf -p a -n 1 " + option);
    run.must_end(0);
    CHECK_THAT(run.err, Contains("without effect: " + option.substr(0, option.find(' ')) + " ("));
  }
  CHECK_THAT(tools.shell("llmrun tiny.gguf -st -p a").err, Contains("--chat with -p asks"));
  for (const std::string command :
       {"llmgguf show tiny.gguf", "llmtok tiny.gguf -p a",
        "llmquant tiny.gguf /dev/null F32 --dry-run --allow-requantize"}) {
    const Finished run = tools.shell(command + " -ngl 99 -fa --no-mmap");
    run.must_end(0);
    for (const char* part : {"without effect: -ngl (", "), -fa (", "), --no-mmap ("})
      CHECK_THAT(run.err, Contains(part));
  }
}

TEST_CASE("every tool prints its pages and colours its errors when told to", "[tools][streams]") {
  const Tools tools;
  for (const std::string tool : {"llmbench", "llmcheck", "llmgguf", "llmload", "llmquant", "llmrun",
                                 "llmserve", "llmsynth", "llmtok"}) {
    CAPTURE(tool);
    const auto run = [&](const std::string& words) { return tools.shell(tool + " " + words); };
    CHECK_THAT(run("--help").out, Contains("\nUsage: " + tool));
    CHECK_THAT(run("--version").out, Catch::Matchers::Matches(tool + " [0-9.]+\n"));
    CHECK(run("--help-markdown").out.starts_with("## " + tool + "\n"));
    for (const std::string shell : {"bash", "zsh", "fish"}) {
      CHECK_THAT(run("--completion " + shell).out, Contains(tool) && Contains("color"));
    }
    CHECK(run("--zzz --color always").err.starts_with(tool + ": error: "));  // not yet read
    if (tool == "llmcheck") continue;                                        // below
    const std::map<std::string, std::string> arguments = {
        {"llmgguf", "show /none"}, {"llmquant", "/none out/a Q8_0"}, {"llmtok", "/none -p a"}};
    const auto own = arguments.find(tool);
    const std::string failing = own == arguments.end() ? "/none/a" : own->second;
    CHECK(run(failing + " --color always").err.starts_with(tool + ": \x1b[31m\x1b[1merror"));
  }
}

TEST_CASE("-q silences the warnings of every tool that has some", "[tools][streams]") {
  const Tools tools;
  TinyGguf model = TinyGguf::llama();
  model.set_pieces({{265, "he"}});  // a second time
  tools.write("odd.gguf", model.bytes());
  const std::string bench = "llmbench tiny.gguf -n 0 -r 1 --no-load --no-peaks ";
  tools.shell(bench + "-p 2 -o json > out/old.json").must_end(0);
  for (const std::string& words : std::vector<std::string>{
           "llmgguf verify odd.gguf", "llmtok odd.gguf -p the", "llmrun odd.gguf -p the -n 1",
           "llmcheck odd.gguf --dump out/d.npz",
           "llmquant tiny.gguf out/q.gguf Q4_K_M --allow-requantize --force",
           bench + "-p 3 --compare out/old.json",
           "llmload odd.gguf --lengths 1:2:2 --mode real --rate 1000 --requests 1"}) {
    CAPTURE(words);
    CHECK_THAT(tools.shell(words).err, Contains(": warning: "));
    CHECK(tools.shell(words + " -q").err.empty());
  }
}

TEST_CASE("--color overrides the terminal's say", "[tools][streams]") {
  const Tools tools;
  const auto err = [&](const std::string& words) { return tools.shell(words).err; };
  CHECK(err("llmrun /none").starts_with("llmrun: error: /none: "));
  const std::string red = "llmrun: \x1b[31m\x1b[1merror\x1b[m: ";
  CHECK(err("llmrun /none --color always").starts_with(red));
  CHECK(err("llmrun /none --color never").starts_with("llmrun: error: "));
  CHECK(err("llmrun tiny.gguf -p a -n 0 -c 99 --color always")
            .starts_with("llmrun: \x1b[33m\x1b[1mwarning\x1b[m: "));
  CHECK_THAT(tools.shell(kVerdict + "--color always").out, Contains("\x1b["));
  CHECK_THAT(tools.shell(kVerdict).out, !Contains("\x1b["));
}

/// What bash offers for the last word of a command line, one offer a line.
std::string bash_offers(const std::string& tool, const std::string& line) {
  const ToolFolder folder;
  const Finished result = folder
                              .shell("source <(" + tool + " --completion bash) && COMP_WORDS=(" +
                                     line + ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _" +
                                     tool + " && printf '%s\\n' \"${COMPREPLY[@]}\"")
                              .must_end(0);
  CHECK(result.err.empty());
  return result.out;
}

TEST_CASE("bash offers options, their words, verbs, types and files", "[tools][completion]") {
  CHECK(bash_offers("llmgguf", "llmgguf ver") == "verify\n");
  CHECK(bash_offers("llmgguf", "llmgguf show ''") == "tiny.gguf\n");
  CHECK(bash_offers("llmgguf", "llmgguf --json ha") == "hash\n");
  CHECK(bash_offers("llmgguf", "llmgguf --vocab") == "--vocab-only\n");
  CHECK(bash_offers("llmquant", "llmquant a b Q5_K_") == "Q5_K_S\nQ5_K_M\n");
  CHECK(bash_offers("llmquant", "llmquant --tensor-type x=Q8_0 t") == "tiny.gguf\n");
  CHECK(bash_offers("llmrun", "llmrun --kv ''") == "f16\nf32\nq8\nq8_0\n");
  CHECK(bash_offers("llmrun", "llmrun -m t") == "tiny.gguf\n");
  CHECK(bash_offers("llmrun", "llmrun -n ''") == "\n");  // a number
}

bool has(const std::string& program) {
  if (run_shell("command -v " + program).exit_code == 0) return true;
  WARN("skipped: no " << program << " here");
  return false;
}

TEST_CASE("fish offers the same", "[tools][completion]") {
  if (!has("fish")) return;
  const auto offers = [](const std::string& tool, const std::string& line) {
    const ScratchDirectory home;
    const Finished result = run_shell("HOME='" + home.path() + "' fish -c \"'" + tool_path(tool) +
                                      "' --completion fish | source; complete -C '" + line + "'\"");
    CHECK(result.err.empty());
    return result.out;
  };
  CHECK_THAT(offers("llmgguf", "llmgguf ver"), Contains("verify"));
  CHECK_THAT(offers("llmgguf", "llmgguf verify "), !Contains("verify\t"));
  CHECK_THAT(offers("llmquant", "llmquant a b Q5_K_"), Contains("Q5_K_M") && Contains("Q5_K_S"));
  CHECK_THAT(offers("llmrun", "llmrun --kv "), Contains("f16") && Contains("f32"));
  CHECK_THAT(offers("llmrun", "llmrun --no-ca"), Contains("--no-cache\trecompute"));
}

TEST_CASE("zsh reads its scripts", "[tools][completion]") {
  if (!has("zsh")) return;
  for (const std::string tool : {"llmrun", "llmcheck", "llmquant", "llmgguf", "llmbench"}) {
    CAPTURE(tool);
    const Finished result =
        run_shell("zsh -f -c \"autoload -U compinit; compinit -u -D; source <('" + tool_path(tool) +
                  "' --completion zsh)\"")
            .must_end(0);
    CHECK(result.err.empty());
  }
}

}  // namespace

}  // namespace llm::test
