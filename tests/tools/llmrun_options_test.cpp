// Each option of llmrun that no other test would miss has its effect here.

#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

class LlmrunOptions : public Llmrun {
 public:
  /// The JSON of a run on the tiny model, whose text has no end of its own.
  Json run_json(const std::string& options) {
    return json_of("tiny.gguf -p 'a tiny hen' --ignore-eos --json -q " + options);
  }

  std::string fable(const std::string& options) {
    return llmrun(fmt::format("{} -p 'Once upon a time' --temp 0 -q {}", kFable, options))
        .must_end(0)
        .out;
  }
};

}  // namespace

TEST_CASE_METHOD(LlmrunOptions,
                 "-r ends the text before any of its texts, with -e after replacing") {
  const std::string text = fable("-n 60");
  const std::size_t name = text.find("young");
  const std::size_t paragraph = text.find("\n\n");
  REQUIRE((name < paragraph && paragraph != std::string::npos));
  REQUIRE(fable("-n 60 -r young") == text.substr(0, name));
  REQUIRE(fable("-n 60 -r '\\n\\n'") == text);
  REQUIRE(fable("-n 60 -e -r '\\n\\n'") == text.substr(0, paragraph));
  REQUIRE(fable("-n 60 -r zzz -r $'\\n\\n' -r young") == text.substr(0, name));
  const std::string json = fable("-r young --json");
  REQUIRE(test::parse_json(json)["stop_reason"] == "stop_string");
}

TEST_CASE_METHOD(LlmrunOptions, "--system and --chat-template are what the model sees") {
  const auto ids = [&](const std::string& options) {
    return run_json("-c 500 -n 0 " + options)["prompt_ids"];
  };
  const Json zephyr = ids("--chat-template zephyr");
  REQUIRE(ids("") != zephyr);
  REQUIRE(ids("--chat-template llama2") != zephyr);
  const Json kind = ids("--chat-template zephyr --system kind");
  REQUIRE(kind != zephyr);
  REQUIRE(ids("--chat-template zephyr --system mean") != kind);
  // As written out by hand.
  REQUIRE(run_json("-c 500 -n 0 --parse-special -p $'<|system|>\\nkind</s>\\n<|user|>\\n"
                   "a tiny hen</s>\\n<|assistant|>\\n'")["prompt_ids"] == kind);
}

TEST_CASE_METHOD(LlmrunOptions, "a chat template that is not supported is rejected by line") {
  test::TinyGguf model = test::TinyGguf::llama();
  model.set_string("tokenizer.chat_template", "\n{{ messages | turn\x1b[31m }}\nnot this line");
  write("unknown.gguf", model.bytes());
  const Finished run = llmrun("unknown.gguf --system x -p y")
                           .must_end(3, {"chat template: line 2: found '\\x1b', need an expression",
                                         "--chat-template takes one of chatml, zephyr, llama2, "
                                         "llama3, mistral-nemo, gemma, or a file"});
  REQUIRE(!contains(run.err, "not this line"));
  llmrun("unknown.gguf --chat-template zephyr -c 500 -n 1 -p y").must_end(0);
}

TEST_CASE_METHOD(LlmrunOptions, "--chat-template takes a file, and --chat-date dates it") {
  write("own.jinja", "{{ strftime_now('%d %B') }}: {{ messages[0].content }}");
  const auto ids = [&](const std::string& options) {
    return run_json("-c 500 -n 0 " + options)["prompt_ids"];
  };
  write("spelled.jinja", "03 May: {{ messages[0].content }}");
  REQUIRE(ids("--chat-template own.jinja --chat-date 2026-05-03") ==
          ids("--chat-template spelled.jinja"));
  const std::string asks = "tiny.gguf -p x -n 0 -c 500 --chat-template own.jinja ";
  llmrun(asks).must_end(0, {"the chat template uses today's date, 2"});
  REQUIRE(!contains(llmrun(asks + "-q").must_end(0).err, "date"));
  REQUIRE(!contains(llmrun(asks + "--chat-date 2026-05-03").must_end(0).err, "date"));
  for (const char* wrong : {"2026-02-30", "2026-5-3", "today", "2026-05-03x"}) {
    llmrun(asks + "--chat-date " + wrong)
        .must_end(2, {"--chat-date: found ", "need a date such as"});
  }
  llmrun("tiny.gguf -p x --chat-template none.jinja").must_end(4, {"none.jinja: "});
  write("bad.jinja", "{% if %}");
  llmrun("tiny.gguf -p x --chat-template bad.jinja")
      .must_end(3, {"bad.jinja: chat template: line 1: found '%}', need an expression"});
  write("refuses.jinja", "{{ raise_exception('No ' ~ messages[0].role) }}");
  llmrun("tiny.gguf -p x --system y --chat-template refuses.jinja")
      .must_end(2, {"chat template: line 1: the template says: No system"});
}

TEST_CASE_METHOD(LlmrunOptions,
                 "a chat template whose markers the vocabulary does not have is rejected") {
  for (const auto& [name, marker] :
       std::vector<std::pair<std::string, std::string>>{{"chatml", "<|im_start|>"},
                                                        {"llama3", "<|start_header_id|>"},
                                                        {"mistral-nemo", "[INST]"},
                                                        {"gemma", "<start_of_turn>"}})
    llmrun("tiny.gguf -n 1 -p y --chat-template " + name)
        .must_refuse(2, {"--chat-template: found " + name + ", whose marker " + marker +
                         " is not a token of this vocabulary"});
  // A control or user-defined token is a marker; a piece of text is none.
  for (const auto& [kind, exit_code] : {std::pair(3, 0), std::pair(4, 0), std::pair(1, 2)}) {
    write("marked.gguf", test::with_chatml_markers(kind).bytes());
    llmrun("marked.gguf -n 1 -p y -c 100 --chat-template chatml").must_end(exit_code);
  }
}

TEST_CASE_METHOD(LlmrunOptions, "a text ends with EOS unless --ignore-eos") {
  const auto run = [&](const char* options) {
    return json_of(fmt::format("{} -p 'Once upon a time' --temp 0.4 -s 4 -c 500 --json -q {}",
                               kFable, options));
  };
  const Json ended = run("");
  REQUIRE(ended["stop_reason"] == "eos");
  const Json ignored = run("--ignore-eos");
  REQUIRE(ignored["stop_reason"] == "context_full");
  REQUIRE(ignored["ids"].size() > ended["ids"].size());
}

TEST_CASE_METHOD(LlmrunOptions, "each filter of the sampler is connected") {
  const auto ids = [&](const std::string& options) {
    return run_json("-n 24 -s 3 --temp 2 --top-k 0 --top-p 1 --min-p 0 " + options)["ids"];
  };
  const Json open = ids("");
  const Json greedy = run_json("-n 24 --temp 0")["ids"];
  REQUIRE(open != greedy);
  REQUIRE(ids("--temp 0") == greedy);
  REQUIRE(ids("--top-k 1") == greedy);
  REQUIRE(ids("--top-p 0") == greedy);
  REQUIRE(ids("--min-p 1") == greedy);
  REQUIRE(ids("--temp 1") != open);
  // The order matters where a filter follows the temperature or precedes it.
  REQUIRE(ids("--min-p 0.5 --sampler-order hf") != ids("--min-p 0.5 --sampler-order llamacpp"));
  const auto penalized = [&](const std::string& options) {
    return run_json("-n 24 --temp 0 --repeat-penalty 3 " + options)["ids"];
  };
  REQUIRE(penalized("") != greedy);
  REQUIRE(penalized("--repeat-last-n 0") == greedy);
  REQUIRE(penalized("--repeat-last-n 1") != penalized("--repeat-last-n -1"));
}

TEST_CASE_METHOD(LlmrunOptions, "what changes no result reaches the engine all the same") {
  for (const auto& [options, stats] : std::vector<std::pair<std::string, Json>>{
           {"", "{'context': 64, 'cache': true}"_j},
           {"-t 3 -s 77 -c 50", "{'threads': 3, 'seed': 77, 'context': 50}"_j},
           {"--isa scalar --kv f32", "{'isa': 'scalar', 'kv': 'f32'}"_j},
           {"--compute f32 --no-cache", "{'compute': 'f32', 'cache': false}"_j}})
    must_match(run_json("-n 1 " + options)["stats"], stats);
  const Finished variable = shell("LLM_ISA=scalar llmrun tiny.gguf -p a -n 1 --json -q");
  REQUIRE(test::parse_json(variable.out)["stats"]["isa"] == "scalar");
}

TEST_CASE_METHOD(LlmrunOptions,
                 "--profile divides load, prefill and decode among parts that add up") {
  const Finished run = llmrun("tiny.gguf -p 'a tiny hen' -n 24 --ignore-eos --profile").must_end(0);
  REQUIRE_FALSE(contains(llmrun("tiny.gguf -p 'a tiny hen' -n 4").err, "prefill:"));
  const std::size_t load = run.err.find("load: ");
  const std::size_t prefill = run.err.find("prefill: 1 passes", load);
  const std::size_t decode = run.err.find("decode: 23 passes", prefill);
  REQUIRE(decode != std::string::npos);
  REQUIRE(contains(run.err.substr(load, prefill - load), ", weights "));
  for (const std::string& table :
       {run.err.substr(prefill, decode - prefill), run.err.substr(decode)}) {
    CAPTURE(table);
    double shares = 0, sum = 0;
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t percent = line.find(" %");
      if (percent == std::string::npos) continue;
      const double share = std::stod(line.substr(percent - 6, 6));
      (line.starts_with("sum") ? sum : shares) += share;
    }
    REQUIRE(std::abs(sum - 100) < 0.2);
    REQUIRE(std::abs(shares - 100) < 1);  // each is rounded
    REQUIRE(contains(table, "\nffn_down "));
  }
  // Weights are packed to stay where a text may be longer than a short one, after the first pass.
  REQUIRE_FALSE(contains(run.err, "\npack "));
  const std::string longer = llmrun("tiny.gguf -p 'a tiny hen' -n 65 --ignore-eos --profile").err;
  REQUIRE(longer.find("\npack ") > longer.find("decode: "));
  REQUIRE(contains(longer, "\npack "));
}

TEST_CASE_METHOD(LlmrunOptions, "--strict refuses a file that gives a warning") {
  test::TinyGguf model = test::TinyGguf::llama();
  model.trailing = "bytes nobody knows";
  write("odd.gguf", model.bytes());
  llmrun("odd.gguf -p a -n 1").must_end(0, {"llmrun: warning: "});
  llmrun("odd.gguf -p a -n 1 --strict").must_end(3);
}

TEST_CASE_METHOD(LlmrunOptions, "-q is quiet, -v says more") {
  const std::string run = "tiny.gguf -p a -n 1 -c 100 ";
  REQUIRE(llmrun(run + "-q").err.empty());
  const std::string usual = llmrun(run).err;
  REQUIRE(contains(usual, "llmrun: warning: -c: found 100, the model was trained for 64"));
  REQUIRE(contains(usual, "llmrun: load "));
  REQUIRE(!contains(usual, "llmrun: info: "));
  REQUIRE(contains(llmrun(run + "-v").err, "llmrun: info: tiny: "));
}

}  // namespace llm::test
