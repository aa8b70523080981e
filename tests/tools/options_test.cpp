#include "tools/common/options.h"

#include <fmt/ranges.h>

#include "tests/support/test.h"
#include "tools/common/option_pages.h"
#include "tools/common/progress.h"
#include "tools/common/stats.h"

namespace llm {
namespace {

/// One of each kind of option.
struct Fixture {
  std::string model;
  std::string prompt_word;
  float temp = 0.8F;
  std::int64_t n = -1;
  int threads = 4;
  std::string text;
  std::vector<std::string> stop;
  bool echo = false;
  bool interactive = false;
  int verbose = 0;
  int kv = 16;
  OptionTable table{"tool", "Do things"};

  Fixture() {
    table.positional("MODEL", &model, true, "a file");
    table.positional("PROMPT", &prompt_word, false, "a text");
    table.group("First");
    table.real("temp,temperature", "T", &temp, 0, 100, "heat");
    table.integer("n,n-predict", "N", &n, -1, 1000, "how many");
    table.integer("t,threads", "N", &threads, 0, 256, "threads");
    table.group("Second");
    table.text("p,prompt", "TEXT", &text, "the prompt");
    table.texts("r,stop", "TEXT", &stop, "where to stop");
    table.flag("echo", &echo, "repeat it");
    table.flag("i,interactive", &interactive, "chat");
    table.count("v", &verbose, "more");
    table.choice("kv", "TYPE", &kv, {{"f16", 16}, {"f32", 32}}, "cache").from_env("TOOL_TEST_KV");
  }

  Status parse(const std::vector<std::string>& args) {
    std::vector<const char*> pointers;
    for (const std::string& arg : args) pointers.push_back(arg.c_str());
    return table.parse(pointers);
  }

  /// The error's text, "" for success.
  std::string error_of(const std::vector<std::string>& args) {
    const Status status = parse(args);
    if (status.ok()) return "";
    REQUIRE(status.error().code == ErrorCode::kUsage);
    return status.error().to_string();
  }
};

}  // namespace

TEST_CASE("values follow a name in every usual way", "[options]") {
  using Args = std::vector<std::string>;
  // What is typed, and what is understood: MODEL, PROMPT, temp, n, text, stop, flags.
  const auto [args, understood] = GENERATE(values<std::pair<Args, std::string>>({
      {{"m", "--temp", "0.5", "-n", "7"}, "m||0.5|7||[]|"},
      {{"m", "--temp=0.5", "-n7"}, "m||0.5|7||[]|"},
      {{"-temp", "0.5", "m", "-n=7"}, "m||0.5|7||[]|"},
      {{"-temp=0.5", "m", "--n-predict=7"}, "m||0.5|7||[]|"},
      {{"--temperature", ".5", "-n", "7", "--", "m"}, "m||0.5|7||[]|"},
      // Short flags may be joined, with a value after the last.
      {{"m", "-ivvn", "3"}, "m||0.8|3||[]|ivv"},
      {{"m", "-ivpsome text"}, "m||0.8|-1|some text|[]|iv"},
      // A repeated option's last value wins, a list keeps all.
      {{"m", "-n", "1", "-n", "2", "-r", "a", "--stop", "b,c"}, R"(m||0.8|2||["a", "b,c"]|)"},
      // A dash alone and everything after -- are positional.
      {{"m", "-"}, "m|-|0.8|-1||[]|"},
      {{"--", "--temp", "-x"}, "--temp|-x|0.8|-1||[]|"},
  }));
  Fixture f;
  REQUIRE(f.error_of(args).empty());
  REQUIRE(fmt::format("{}|{}|{}|{}|{}|{}|{}{}", f.model, f.prompt_word, f.temp, f.n, f.text, f.stop,
                      f.interactive ? "i" : "", std::string(f.verbose, 'v')) == understood);
  REQUIRE(f.table.given("temp") == (f.temp == 0.5F));
  REQUIRE(f.table.given("temperature") == f.table.given("temp"));
  REQUIRE(!f.table.given("kv"));
}

TEST_CASE("options of other programs get a sentence, however they are written", "[options]") {
  Fixture f;
  f.table.foreign("pi,no-echo,j", "there is none; leave it out");
  f.table.foreign("echo", "never shown");
  const std::string typed = GENERATE("-pi", "--pi", "-pi=3", "--no-echo", "-no-echo", "-j");
  const std::string name = typed.substr(0, typed.find('='));
  REQUIRE(f.error_of({"m", typed, "99"}) == name + ": unknown here; there is none; leave it out");
  REQUIRE(f.error_of({"m", "--echo", "-p", "-pi"}).empty());
  REQUIRE(f.text == "-pi");
  REQUIRE(f.table.foreign_advice("echo") == nullptr);
}

TEST_CASE("every error of a command line is found", "[options]") {
  Fixture f;
  f.table.foreign("pi", "leave it out");
  // After an unknown option it is not known whether a word is its value: no other error is made up.
  REQUIRE_FALSE(
      f.error_of({"m", "--temp", "x", "-pi", "8", "--nope=1", "a", "b", "-n", "y"}).empty());
  std::vector<std::string> fields;
  for (const Error& error : f.table.further_errors()) fields.push_back(error.field);
  CHECK(fields == std::vector<std::string>{"--nope", "--temp", "-n"});
  REQUIRE(f.error_of({"m", "a", "b", "-n", "7"}) != "");
  CHECK((f.n == 7 && f.table.further_errors().empty()));
  REQUIRE(f.error_of({"m"}).empty());
  CHECK(f.table.further_errors().empty());
}

TEST_CASE("options of other programs that change nothing are taken", "[options]") {
  using Operand = OptionTable::Operand;
  Fixture f;
  f.table.without_effect("ngl,gpu-layers", Operand::kWord, "no GPU");
  f.table.without_effect("fa", Operand::kSwitch, "always");
  f.table.without_effect("mlock,jinja,g", Operand::kNone, "in memory");
  f.table.without_effect("temp", Operand::kNone, "never said");
  const auto typed = [&] {
    std::string names;
    for (const auto& option : f.table.given_without_effect()) names += option.name + " ";
    return names;
  };
  REQUIRE(f.error_of({"-ngl", "99", "m", "-fa", "on", "--mlock", "-n", "7"}).empty());
  CHECK((f.model == "m" && f.n == 7));
  CHECK(typed() == "-ngl -fa --mlock ");
  CHECK(f.table.given_without_effect()[0].why == "no GPU");
  REQUIRE(f.error_of({"--gpu-layers=99", "-fa", "m2", "-g", "--jinja"}).empty());
  CHECK(f.model == "m2");
  CHECK(typed() == "--gpu-layers -fa -g --jinja ");
  REQUIRE(f.error_of({"m3", "--temp", "0.5", "-fa"}).empty());
  CHECK((f.model == "m3" && f.temp == 0.5F));
  CHECK(typed() == "-fa ");
  REQUIRE(f.error_of({"m", "-p", "-ngl"}).empty());
  CHECK((f.text == "-ngl" && typed().empty()));
}

TEST_CASE("a value is taken as it is", "[options]") {
  const std::string value =
      GENERATE(as<std::string>(), "-temp", "--kv", "-", "a\nb", "a,b", "", "=");
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"-p", value}, {"--prompt=" + value}, {"-p=" + value}, {"-prompt", value, "-i"}}) {
    Fixture f;
    auto all = args;
    all.insert(all.begin(), "m");
    REQUIRE(f.error_of(all).empty());
    REQUIRE(f.text == value);
  }
}

TEST_CASE("arguments of any length are taken", "[options]") {
  const std::string large(1 << 20, 'a');
  Fixture f;
  REQUIRE(f.error_of({"m", large}).empty());
  REQUIRE(f.prompt_word == large);
  REQUIRE(f.error_of({"m", "--prompt=" + large}).empty());
  REQUIRE(f.text == large);
  REQUIRE(f.error_of({"m", "--" + large}).size() < 200);
  REQUIRE(f.error_of({"m", "--temp", large}).size() < 200);
}

TEST_CASE("an option in place of a positional argument leaves the words to the others",
          "[options]") {
  Fixture f;
  f.table.text("m,model", "FILE", &f.model, "the same as MODEL").in_place_of("MODEL");
  REQUIRE(f.error_of({"once", "-m", "file"}).empty());
  REQUIRE(f.model == "file");
  REQUIRE(f.prompt_word == "once");
  REQUIRE(f.error_of({"-m", "file"}).empty());
  REQUIRE(f.error_of({"a", "-m", "file", "b"})
              .find("found 2 arguments without a dash, need at "
                    "most 1") != std::string::npos);
  REQUIRE(f.error_of({"a", "b"}).empty());
  REQUIRE(f.model == "a");
  REQUIRE(f.error_of({}).find("MODEL: found nothing") != std::string::npos);
}

TEST_CASE("errors name the option as typed, what was found and what is needed", "[options]") {
  using Case = std::pair<std::vector<std::string>, std::string>;
  const auto [args, expected] = GENERATE(values<Case>({
      {{"m", "--temp", "nan"}, R"(--temp: found "nan", need 0..100)"},
      {{"m", "-temp", "inf"}, R"(-temp: found "inf", need 0..100)"},
      {{"m", "--temperature=101"}, R"(--temperature: found "101", need 0..100)"},
      {{"m", "--temp", "-0.1"}, R"(--temp: found "-0.1", need 0..100)"},
      {{"m", "--temp", "1,5"}, R"(--temp: found "1,5", need 0..100)"},
      {{"m", "--temp", ""}, R"(--temp: found "", need 0..100)"},
      {{"m", "--temp", " 1"}, R"(--temp: found " 1", need 0..100)"},
      {{"m", "-n", "-5"}, R"(-n: found "-5", need an integer in -1..1000)"},
      {{"m", "-n", "5.0"}, R"(-n: found "5.0", need an integer in -1..1000)"},
      {{"m", "-n-5"}, R"(-n: found "-5", need an integer in -1..1000)"},
      {{"m", "-n5x"}, R"(-n: found "5x", need an integer in -1..1000)"},
      {{"m", "-t", "99999999999999999999"},
       R"(-t: found "99999999999999999999", need an integer in 0..256)"},
      {{"m", "--kv", "f8"}, R"(--kv: found "f8", need f16 or f32)"},
      {{"m", "-n"}, "-n: found no value, need N"},
      {{"m", "--prompt"}, "--prompt: found no value, need TEXT"},
      {{"m", "--echo=yes"}, R"(--echo: found "=yes", need no value)"},
      {{"m", "-echo="}, R"(-echo: found "=", need no value)"},
      {{"m", "-i=1"}, "-i: unknown option; tool --help lists them"},
      {{"m", "--tmp", "1"}, "--tmp: unknown option; did you mean --temp?"},
      {{"m", "--ehco"}, "--ehco: unknown option; did you mean --echo?"},
      {{"m", "--inter"}, "--inter: unknown option; did you mean --interactive?"},
      {{"m", "--zzzzz"}, "--zzzzz: unknown option; tool --help lists them"},
      {{"m", "--t", "1"}, "--t: unknown option; tool --help lists them"},
      {{"m", "-x"}, "-x: unknown option; tool --help lists them"},
      {{"m", "-vx", "--zzz"}, "-vx: unknown option; tool --help lists them"},
      {{"m", "-v-"}, "-v-: unknown option; tool --help lists them"},
      {{"m", "---temp", "1"}, "---temp: unknown option; did you mean --temp?"},
      {{"m", "--temp.", "1"}, "--temp.: unknown option; did you mean --temp?"},
      {{}, "MODEL: found nothing, need a file; tool --help shows the usage"},
      {{"a", "b", "c"},
       R"("c": found 3 arguments without a dash, need at most 2; put a text with spaces in quotes)"},
  }));
  Fixture f;
  REQUIRE(f.error_of(args) == expected);
}

TEST_CASE("a variable stands in for an absent option and is checked like it", "[options]") {
  Fixture f;
  setenv("TOOL_TEST_KV", "f32", 1);
  REQUIRE(f.error_of({"m"}).empty());
  REQUIRE(f.kv == 32);
  REQUIRE(f.error_of({"m", "--kv", "f16"}).empty());
  REQUIRE(f.kv == 16);
  setenv("TOOL_TEST_KV", "f8", 1);
  REQUIRE(f.error_of({"m"}) == R"($TOOL_TEST_KV: found "f8", need f16 or f32)");
  setenv("TOOL_TEST_KV", "", 1);
  REQUIRE(f.error_of({"m"}).empty());
  unsetenv("TOOL_TEST_KV");
}

/// roff writes a dash as \-.
/// fish names options without their dashes: " -s n -l n-predict".
std::string with_dashes(std::string text) {
  for (const auto& [from, to] : {std::pair{" -s ", " -"}, std::pair{" -l ", " --"}}) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      text.replace(at, 4, to);
    }
  }
  return text;
}

TEST_CASE("every page shows every option", "[options]") {
  Fixture f;
  const std::string text = GENERATE_COPY(
      help_page(f.table), markdown_page(f.table), completion(f.table, Shell::kBash),
      completion(f.table, Shell::kZsh), with_dashes(completion(f.table, Shell::kFish)));
  for (const Option& option : f.table.options()) {
    for (const std::string& name : option.names) {
      CAPTURE(text, name);
      REQUIRE(text.find(OptionTable::dashed(name)) != std::string::npos);
    }
  }
}

TEST_CASE("the help tells rule, default and variable within 100 columns", "[options]") {
  Fixture f;
  f.table.flag("long", &f.echo, std::string(40, 'w') + " " + std::string(40, 'x') + " end");
  const std::string text = help_page(f.table);
  REQUIRE(text.find("heat (0..100; default: 0.8)") != std::string::npos);
  REQUIRE(text.find("cache (f16 or f32; default: environment variable ") != std::string::npos);
  REQUIRE(markdown_page(f.table).find("environment variable TOOL_TEST_KV, else f16 |") !=
          std::string::npos);
  REQUIRE(text.find("Usage: tool MODEL [PROMPT] [options]") != std::string::npos);
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end - begin <= 100);
    begin = end + 1;
  }
}

TEST_CASE("percentiles interpolate between neighbours", "[stats]") {
  const std::vector<double> values = {4, 1, 3, 2};
  REQUIRE(percentile(values, 0) == 1);
  REQUIRE(percentile(values, 0.5) == 2.5);
  REQUIRE(percentile(values, 1) == 4);
  REQUIRE(percentile(std::vector<double>{7}, 0.99) == 7);
  REQUIRE(percentile({}, 0.5) == 0);
}

TEST_CASE("peak memory counts what was touched", "[stats]") {
  const std::vector<char> touched(64 << 20, 1);
  REQUIRE(peak_rss_bytes() >= touched.size());
}

TEST_CASE("a progress line has share, rate and time left", "[progress]") {
  REQUIRE(ProgressBar::line("pack", 25, 100, 2, "tokens") ==
          "pack [######..................]  25%, 12.5 tokens/s, 6 s left");
  REQUIRE(ProgressBar::line("pack", 1, 1000, 1, "") ==
          "pack [........................]   0%, 16:39 min left");
  REQUIRE(ProgressBar::line("pack", 0, 10, 0, "x") == "pack [........................]   0%");
  REQUIRE(ProgressBar::line("hash", 500'000'000, 1'000'000'000, 2, "B") ==
          "hash [############............]  50%, 250.0 MB/s, 2 s left");
}

TEST_CASE("a progress line fits its terminal", "[progress]") {
  const auto line = [](std::size_t columns) {
    return ProgressBar::line("check weights", 25, 100, 2, "tokens", columns);
  };
  CHECK(line(46) == "check weights  25%, 12.5 tokens/s, 6 s left");
  CHECK(line(30) == "check weights  25%, 6 s left");
  CHECK(line(20) == "check  25%, 6 s left");
  for (std::size_t columns = 0; columns < 120; ++columns) {
    CHECK(line(columns).size() <= columns);
    CHECK(ProgressBar::line("check weights", 7, 0, 2, "", columns).size() <= columns);
  }
  // A stage may be a tensor's name.
  CHECK(ProgressBar::line("a\x1b[2J", 0, 10, 0, "") == "a\\x1b[2J [........................]   0%");
}

}  // namespace llm
