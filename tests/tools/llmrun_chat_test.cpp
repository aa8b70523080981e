// llmrun -i over pipes: a chat without end, its commands, sessions and lines of JSON.

#include <map>
#include <sstream>

#include "base/sha256.h"
#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

/// A chat on the tiny model; its replies are three tokens of nonsense.
const std::string kChat =
    "tiny.gguf -i --chat-template zephyr -t 1 -n 3 --ignore-eos -s 1 --temp 0 ";

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

std::vector<std::string> messages(int n) {
  std::vector<std::string> result;
  for (int i = 0; i < n; ++i) result.push_back(fmt::format("message {}", i));
  return result;
}

class Chats : public Llmrun {
 public:
  /// Runs `kChat options` with these lines as its input.
  Finished chat(const std::string& options, const std::vector<std::string>& lines) {
    std::string input;
    for (const std::string& line : lines) input += line + '\n';
    write("input", input);
    return llmrun(kChat + options + " < input");
  }

  /// The replies of -i --json to these messages.
  std::vector<Json> replies(const std::string& options, const std::vector<std::string>& messages) {
    std::vector<std::string> lines;
    for (const std::string& message : messages) lines.push_back(json_text(Json(message)));
    return json_lines(chat("--json " + options, lines).must_end(0).out);
  }
};

}  // namespace

TEST_CASE_METHOD(Chats, "a chat goes on when its context is full, and says so once") {
  const Finished run = chat("-c 150 --system Be -v", messages(30)).must_end(0);
  REQUIRE(count_of(run.err, "| peak RSS") == 30);  // a reply each
  REQUIRE(count_of(run.err, "warning: context full (150 tokens): the ") == 1);
  REQUIRE(count_of(run.err, "info: context full (150 tokens): the ") > 5);
  REQUIRE(!contains(run.err, "error"));
}

TEST_CASE_METHOD(Chats, "a message longer than the context is rejected and the chat continues") {
  const std::string large(300, 'x');
  const Finished run = chat("-c 150 -v", {"one", large, "two"})
                           .must_end(0, {"llmrun: error: message: found ",
                                         "need at most 150 (the context); raise -c, shorten the "
                                         "message or use --context-shift"});
  REQUIRE(count_of(run.err, "| peak RSS") == 2);
  // As if it had never been.
  REQUIRE(run.out == chat("-c 150", {"one", "two"}).out);
}

TEST_CASE_METHOD(Chats, "with --context-shift a long message loses its front") {
  const Finished run =
      chat("-c 150 -v --context-shift", {"one", std::string(300, 'x')})
          .must_end(0, {"warning: prompt: the first ",
                        "tokens are dropped, so that the rest fits into 150 (-c)"});
  REQUIRE(!contains(run.err, "--context-shift"));
  REQUIRE(count_of(run.err, "| peak RSS") == 2);
}

TEST_CASE_METHOD(Chats, "a reply longer than the context ends with a warning, or goes on") {
  const Finished ended = chat("-c 150 -n 500", {"one", "two"}).must_end(0);
  REQUIRE(count_of(ended.err, "warning: context full: message and reply have 150 tokens") == 2);
  const auto shifted = replies("-c 150 -n 500 --context-shift", {"one", "two"});
  REQUIRE(shifted[0]["ids"].size() == 500);
  REQUIRE(shifted[1]["ids"].size() == 500);
}

TEST_CASE_METHOD(
    Chats, "a line above 64 MiB, or a conversation above 16, is rejected and the chat continues") {
  // Below that, what the template prints is too long.
  for (const auto& [bytes, words] : std::vector<std::pair<const char*, const char*>>{
           {"70000000", "message: found 70000000 bytes, need at most 67108864"},
           {"20000000", "chat template: line 1: found a text of more than 16 MiB, need less"}}) {
    const Finished run = shell(fmt::format(
        "(head -c {} /dev/zero | tr '\\0' x; echo; echo two) | llmrun {} -c 200 -v", bytes, kChat));
    REQUIRE(count_of(run.must_end(0, {words}).err, "| peak RSS") == 1);
  }
}

TEST_CASE_METHOD(Chats, "commands do what /help lists") {
  for (const auto& [lines, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"one", "two", "/stats"}, "2 turns, "},
           {{"one", "two", "/clear", "/stats"}, "0 turns, 0 tokens of 2000"},
           {{"/system", "/system Be kind", "/system"}, "no system message\nBe kind\n"},
           {{"/system a", "/system \"\"", "/system"}, "an empty system message\n"},
           {{"/nope"}, "\"/nope\": no such command; the commands are /help /exit /clear "},
           {{"/save"}, "/save needs FILE\n"},
           {{"/clear all"}, "/clear takes nothing after it\n"},
           {{"/regenerate"}, "conversation: found no message"},
           {{"one", "/regenerate", "/stats"}, "1 turns, "}})
    chat("-c 2000 -v", lines).must_end(0, {words});
  chat("-c 2000", {"/help"})
      .must_end(0, {"\n/help, /? ", "\n/exit, /bye ", "\n/clear ", "\n/system [TEXT] ",
                    "\n/save FILE ", "\n/load FILE ", "\n/regenerate ", "\n/stats ",
                    "\n/edit TEXT ", "\n/undo ", "\n/branch [NAME] ", "\n/read FILE ",
                    "\n/glob PATTERN ", "\n/set NAME VALUE ", "\n/show "});
  REQUIRE(count_of(chat("-c 2000 -v", {"one", "/exit", "two"}).err, "| peak RSS") == 1);
}

TEST_CASE_METHOD(Chats, "/undo, /edit and /branch give what a chat without them gives") {
  const auto last = [&](const std::vector<std::string>& lines) {
    const std::string out = chat("-c 2000 -n 8", lines).must_end(0).out;
    return out.substr(out.rfind('\n', out.size() - 2) + 1);
  };
  const std::string second = last({"one", "two"});
  REQUIRE(last({"one", "three", "/undo", "two"}) == second);
  REQUIRE(last({"one", "three", "/edit two"}) == second);
  REQUIRE(last({"one", "/branch other", "three", "/branch main", "two"}) == second);
  REQUIRE(last({"one", "/branch other", "two", "/branch main", "three", "/branch other",
                "/regenerate"}) == second);
  REQUIRE(last({"one", "three"}) != second);
  chat("-c 2000", {"one", "/branch other", "two", "/branch"})
      .must_end(0, {"* other: 2 turns\n  main: 1 turns\n"});
  chat("-c 2000", {"/undo", "/edit x"}).must_end(0, {"conversation: found no message"});
}

TEST_CASE_METHOD(Chats, "/read and /glob put files in front of the next message") {
  write("a.txt", "alpha\n");
  write("b.txt", "beta");
  const auto reply = [&](const std::vector<std::string>& lines) {
    return chat("-c 2000 -n 8", lines).must_end(0).out;
  };
  const std::string both = "--- a.txt ---\nalpha\n\n--- b.txt ---\nbeta\n\nSum up";
  const std::string quoted = reply({"\"\"\"", both, "\"\"\"", "next"});
  REQUIRE(reply({"/read a.txt", "/read b.txt", "Sum up", "next"}) == quoted);
  REQUIRE(reply({"/glob [ab].txt", "Sum up", "next"}) == quoted);
  REQUIRE(reply({"Sum up", "next"}) != quoted);
  chat("-c 2000", {"/read none.txt", "/glob none*"})
      .must_end(0, {"none.txt: No such file", "/glob: no file matches none*"});
}

TEST_CASE_METHOD(Chats, "/set changes how replies are drawn, and /show tells it") {
  const auto reply = [&](const std::string& options, const std::vector<std::string>& lines) {
    return chat("-c 2000 -n 8 " + options, lines).must_end(0).out;
  };
  const std::string warm = reply("--temp 2 -s 7", {"one"});
  REQUIRE(reply("", {"/set temp 2", "/set seed 7", "one"}) == warm);
  REQUIRE(reply("", {"/set parameter temperature 2", "/set seed=7", "one"}) == warm);
  REQUIRE(reply("", {"one"}) != warm);
  REQUIRE(reply("", {"/set num_predict 2", "one"}).size() < warm.size());
  chat("-c 2000", {"/set top_k 7", "/show"})
      .must_end(0, {"context 2000 tokens, chat template zephyr", "  top-k              7\n"});
  chat("-c 2000", {"/set temp hot", "/set nothing 1", "/set temp"})
      .must_end(0, {"--temp: found \"hot\", need ", "--nothing"});
}

TEST_CASE_METHOD(Chats, "lines of /stats fit into 80 columns") {
  const std::string stats = chat("-c 2000 -n 20", {"one", "/stats"}).must_end(0).err;
  REQUIRE(contains(stats, "decode "));
  std::istringstream lines(stats);
  for (std::string line; std::getline(lines, line);) REQUIRE(line.size() < 80);
}

TEST_CASE_METHOD(Chats, "/clear and /system change what the model sees") {
  const auto last = [&](const std::string& options, const std::vector<std::string>& lines) {
    const std::string out = chat(options + " -c 2000 -n 8", lines).out;
    return out.substr(out.rfind('\n', out.size() - 2) + 1);
  };
  REQUIRE(last("", {"one", "two"}) != last("", {"two"}));
  REQUIRE(last("", {"one", "/clear", "two"}) == last("", {"two"}));
  REQUIRE(last("", {"/system Be kind", "two"}) == last("--system 'Be kind'", {"two"}));
  REQUIRE(last("--system 'Be kind'", {"two"}) != last("", {"two"}));
}

TEST_CASE_METHOD(Chats, "an empty system message is not the same as none") {
  write("tiny.gguf", test::with_chatml_markers().bytes());
  // As Qwen2.5's: it has a message of its own where there is none.
  write(
      "own.jinja",
      "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are made by somebody far "
      "away.{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
      "{% endfor %}<|im_start|>assistant\n");
  const auto n_tokens = [&](const std::string& options, std::vector<std::string> lines) {
    lines.push_back("/stats");
    const std::string err =
        chat("--chat-template-file own.jinja -c 2000 -n 0 " + options, lines).err;
    return std::stoi(err.substr(err.find(" turns, ") + 8));
  };
  const int none = n_tokens("", {"hi"});
  const int empty = n_tokens("--system \"\"", {"hi"});
  REQUIRE(empty < none - 20);
  REQUIRE(n_tokens("", {"/system \"\"", "hi"}) == empty);
  // A session keeps the difference.
  REQUIRE(n_tokens("--session none", {"hi"}) == none);
  REQUIRE(n_tokens("--session none", {}) == none);
  REQUIRE(n_tokens("--session empty --system \"\"", {"hi"}) == empty);
  REQUIRE(n_tokens("--session empty", {}) == empty);
  chat("--chat-template own.jinja -c 2000 --session none --system \"\"", {}).must_end(2);
}

TEST_CASE_METHOD(Chats, "--chat asks as the file's template has it, and -p says that it could") {
  auto model = test::with_chatml_markers();
  model.set_string("tokenizer.chat_template",
                   "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content "
                   "}}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}");
  write("chatml.gguf", model.bytes());
  const auto ids = [&](const std::string& options) {
    const Finished run = llmrun("chatml.gguf -p hi -c 500 -n 0 --json -v " + options).must_end(0);
    CAPTURE(options);
    const bool told = contains(run.err, "--chat asks it as a question");
    REQUIRE(told == options.empty());
    return test::parse_json(run.out)["prompt_ids"];
  };
  const Json asked = ids("--chat");
  REQUIRE(asked == ids("--chat-template auto"));
  REQUIRE(asked == ids("--chat-template chatml"));
  REQUIRE(asked != ids(""));
  ids("--parse-special");  // who writes the markers knows
  llmrun("tiny.gguf --chat -p hi -n 0").must_end(2, {"found no chat template in the model"});
}

TEST_CASE_METHOD(Chats, "what is one message, and what a command") {
  const auto stats = [&](const std::vector<std::string>& lines) {
    std::vector<std::string> all = lines;
    all.push_back("/stats");
    const std::string err = chat("-c 2000 -n 0", all).err;
    return err.substr(0, err.find(" of 2000"));
  };
  REQUIRE(stats({"two \\", "lines"}) == stats({"\"\"\"", "two ", "lines", "\"\"\""}));
  REQUIRE(stats({"two \\", "lines"}) != stats({"two ", "lines"}));
  REQUIRE(stats({"//xy"}) == stats({"\"\"\"", "/xy", "\"\"\""}));
  REQUIRE(stats({"", "", "hi"}) == stats({"hi"}));  // no message
  REQUIRE(contains(stats({"\"\"\"", "/help", "\"\"\""}), "1 turns"));
  // What the end of the input cuts off counts.
  REQUIRE(contains(chat("-v -c 2000", {"\"\"\"", "one"}).err, "| peak RSS"));
  REQUIRE(contains(chat("-v -c 2000", {"one\\"}).err, "| peak RSS"));
}

TEST_CASE_METHOD(Chats, "-p is the first message") {
  REQUIRE(chat("-c 2000 -p one", {"two"}).out == chat("-c 2000", {"one", "two"}).out);
  REQUIRE(chat("-c 2000 -p /help", {"two"}).out ==
          chat("-c 2000", {"\"\"\"", "/help", "\"\"\"", "two"}).out);
}

TEST_CASE_METHOD(Chats, "a chat in JSON answers line by line and continues after bad lines") {
  const Finished run = chat("--json --logprobs 2 -c 150",
                            {R"({"role": "user", "content": "one"})", "", "\"two\"", "not JSON",
                             "[1]", R"({"content": 1})", R"({"role": "system", "content": "x"})",
                             json_text(Json(std::string(300, 'x'))), "\"/help\""})
                           .must_end(0);
  const auto lines = json_lines(run.out);
  REQUIRE(lines.size() == 8);
  for (const std::size_t i : {0, 1, 7}) {
    must_match(lines[i], R"({"schema_version": 1, "stop_reason": "length", "cropped_tokens": 0,
        "stats": {"decode_tokens": 2}})"_j);
    REQUIRE(lines[i]["ids"].size() == 3);
    REQUIRE(lines[i]["text"].is_string());
    REQUIRE(lines[i]["dropped_turns"].is_number());
    REQUIRE(lines[i]["logprobs"].size() == 3);
  }
  for (const std::size_t i : {2, 3, 4, 5, 6}) REQUIRE(lines[i]["exit_code"] == 2);
  for (const std::size_t i : {2, 3, 4}) REQUIRE(lines[i]["error"].is_string());
  REQUIRE(contains(lines[5]["error"].get<std::string>(), "found role \"system\""));
  REQUIRE(contains(lines[6]["error"].get<std::string>(), "need at most 150 (the context)"));
  REQUIRE(!contains(run.err, "error"));
}

TEST_CASE_METHOD(Chats, "--session goes on as if the chat had never been left") {
  const std::string plain = "-c 150 --temp 1 --system Be";
  const std::string options = plain + " --session session";
  const auto expected = replies(plain, messages(9));
  for (std::size_t i = 0; i < 9; ++i) {
    CAPTURE(i);
    const auto found = replies(options, {messages(9)[i]});
    REQUIRE(found.size() == 1);
    // Nor is anything computed that a chat at one go would not compute.
    must_match(found[0], {{"ids", expected[i]["ids"]},
                          {"dropped_turns", expected[i]["dropped_turns"]},
                          {"stats", {{"prefill_tokens", expected[i]["stats"]["prefill_tokens"]}}}});
  }
  std::size_t dropped = 0;
  for (const Json& reply : expected) dropped += reply["dropped_turns"].get<std::size_t>();
  REQUIRE(contains(chat(options, {"/stats"}).err, fmt::format("; {} turns dropped", dropped)));
}

TEST_CASE_METHOD(Chats, "a session is there after a chat was killed") {
  shell("mkfifo in; llmrun " + kChat +
        "-c 500 --session session < in > out & job=$!\n"
        "exec 3> in; echo one >&3\n"
        // The second reply's first byte comes when the first turn is kept.
        "echo two >&3; until [ \"$(wc -l < out)\" -ge 2 ]; do sleep 0.01; done\n"
        "kill -KILL $job; wait $job")
      .must_end(137);
  const Finished stats = chat("-c 500 --session session", {"/stats"}).must_end(0);
  const bool has_turns = contains(stats.err, "1 turns, ") || contains(stats.err, "2 turns, ");
  REQUIRE(has_turns);
}

TEST_CASE_METHOD(Chats, "bad input 111: a session that another chat has") {
  write("other", "mine\n/save session\ntheirs\n/stats\n");
  const Finished both =
      shell("mkfifo in; llmrun " + kChat +
            "-c 500 --session session < in > out & job=$!\n"
            "exec 3> in; echo one >&3; until [ -s session ]; do sleep 0.01; done\n"
            "llmrun " +
            kChat +
            "-c 500 --session session < other > refused; echo rc $?\n"
            // Nor may /save write over it; that chat goes on.
            "llmrun " +
            kChat +
            "-c 500 < other > /dev/null; echo rc $?\n"
            "echo two >&3; echo \"/save $PWD/session\" >&3; exec 3>&-; wait $job; cat refused")
          .must_end(0);
  CHECK(both.out == "rc 4\nrc 0\n");
  CHECK(count_of(both.err, "session: found another process that writes it, need one at a time") ==
        2);
  CHECK(contains(both.err, "2 turns, "));
  CHECK(contains(both.err, "wrote "));
  CHECK(contains(chat("-c 500 --session session", {"/stats"}).err, "2 turns, "));
}

TEST_CASE_METHOD(Chats, "two chats at once lose no turn") {
  // Each session's writer either keeps all of its turns or is refused.
  const Finished run =
      shell(
          "for k in 1 2 3; do ( for j in $(seq 20); do echo \"m$k-$j\"; done | llmrun " + kChat +
          "-c 2000 --session session -q > /dev/null; echo \"$k $?\" ) & done; wait\n"
          "for k in 1 2 3; do echo \"$k $(grep -a -o \"m$k-[0-9]*\" session | sort -u | wc -l)\"; "
          "done")
          .must_end(0);
  std::map<int, std::vector<int>> said;
  std::istringstream lines(run.out);
  for (int k = 0, number = 0; lines >> k >> number;) said[k].push_back(number);
  REQUIRE(said.size() == 3);
  for (const auto& [k, numbers] : said) {
    CAPTURE(k, run.out);
    REQUIRE(numbers.size() == 2);
    const bool is_kept = numbers[0] == 0 && numbers[1] == 20;
    const bool is_refused = numbers[0] == 4 && numbers[1] == 0;
    CHECK((is_kept || is_refused));
  }
}

TEST_CASE_METHOD(Chats, "/save and /load keep a conversation") {
  const std::string saved =
      chat("-c 500 --system Be", {"one", "\xFF two", "/save " + path("a"), "three"}).out;
  const Finished loaded = chat("-c 500", {"other", "/load " + path("a"), "three"});
  CAPTURE(loaded.err);
  const auto last = [](const std::string& out) {
    return out.substr(out.rfind('\n', out.size() - 2) + 1);
  };
  REQUIRE(last(loaded.out) == last(saved));
  REQUIRE(contains(loaded.err, "2 turns, "));
  REQUIRE(last(chat("-c 500 --no-cache", {"/load " + path("a"), "three"}).out) == last(saved));
  // What is refused leaves the conversation alone.
  chat("-c 500", {"one", "/load " + path("tiny.gguf"), "/load " + path("absent"),
                  "/save /nowhere/a", "/stats"})
      .must_end(0, {"tiny.gguf: found no session", "absent: ", "/nowhere/a: ", "1 turns, "});
}

TEST_CASE_METHOD(Chats, "a session of a different model or template is rejected") {
  write("other.gguf", test::TinyGguf::llama({.seed = 2}).bytes());
  chat("-c 500 --session session", {"one"}).must_end(0);
  const std::string good = read("session");
  write("cut", good.substr(0, good.size() - 3));
  for (const auto& [options, exit_code, words] :
       std::vector<std::tuple<std::string, int, const char*>>{
           {"tiny.gguf --chat-template llama2", 8,
            "session: --chat-template: found a conversation with the template zephyr, need one "
            "with llama2"},
           {"-m other.gguf", 8, "session: model: found SHA-256 "},
           {"tiny.gguf --system You", 2,
            "session: --system: found a different message from that of the conversation"},
           {"tiny.gguf --session tiny.gguf", 3, "tiny.gguf: found no session"},
           {"tiny.gguf --session cut", 3, "cut: found no session"},
           {"tiny.gguf --session /nowhere/session", 4, "/nowhere/session"}}) {
    llmrun("-q -i --chat-template zephyr -c 500 --session session --cache-dir kv " + options)
        .must_end(exit_code, {words});
    CAPTURE(options);
    REQUIRE(read("session") == good);
  }
}

TEST_CASE_METHOD(Chats, "invalid values in a session file are rejected by field, value and rule") {
  chat("-c 500 --session session", {"one"}).must_end(0);
  const Json note = test::parse_json(read("session"));
  const std::string count = "need an integer in 0..";
  // What is put there ("": it is removed), and what is said of it.
  for (const auto& [pointer, value, words] : std::vector<std::array<std::string, 3>>{
           {"/turns/0/reply_ids/1", "1099511627781",
            "turns[0].reply_ids[1]: found 1099511627781, need a token in 0..271"},
           {"/turns/0/reply_ids/0", "272", "found 272, need a token in 0..271"},
           {"/turns/0/reply_ids/0", "-1", "turns[0].reply_ids[0]: found -1, need"},
           {"/turns/0/reply_ids/0", "1.5", "turns[0].reply_ids[0]: found 1.5, need"},
           {"/turns/0/reply_ids", "{}", "turns[0].reply_ids: found an object, need an array"},
           {"/turns", "null", "turns: found null, need an array"},
           {"/turns", "", "turns: found none, need an array"},
           {"/turns/0", "[]", "turns[0]: found an array, need an object"},
           {"/turns/0/message", "5",
            "turns[0].message: found 5, need a string or an array of bytes"},
           {"/turns/0/reply", "[97, 256]", "turns[0].reply[1]: found 256, " + count + "255"},
           {"/turns/0/reply", "[-1]", "turns[0].reply[0]: found -1, " + count + "255"},
           {"/next_draw", "-1", "next_draw: found -1, " + count},
           {"/next_draw", "1.5", "next_draw: found 1.5, " + count},
           {"/next_draw", "18446744073709551616", "next_draw: found 1.84467440737095"},
           {"/forgotten_turns", "-1", "forgotten_turns: found -1, " + count},
           {"/forgotten_turns", "\"1\"", "forgotten_turns: found \"1\", " + count},
           {"/system", "1", "system: found 1, need a string or an array of bytes"},
           {"/chat_template", "1", "chat_template: found 1, need a string"},
           {"/schema_version", "1.0", "schema_version: found 1.0, need an integer in 1.."},
           {"/schema_version", "2", "schema_version: found 2, need 3"},
           {"/model_sha256", "1", "model_sha256: found 1, need a string"}}) {
    const int exit_code = pointer == "/schema_version" && value == "2" ? 6 : 3;
    const std::string file = json_text(test::with_value(note, pointer, value));
    write("session", file);
    chat("-c 500 --session session", {"/stats"}).must_end(exit_code, {"session: ", words});
    CAPTURE(pointer, value);
    REQUIRE(read("session") == file);
  }
}

TEST_CASE_METHOD(Chats, "SIGINT in a chat over a pipe ends it and keeps the session") {
  const Finished run = shell("set -m; mkfifo in pipe; llmrun " + kChat +
                             "-n -1 --context-shift --session session < in > pipe & job=$!\n"
                             "exec 4> in 3< pipe; echo hello >&4\n"
                             "head -c 20 <&3; kill -INT $job; cat <&3; wait $job")
                           .must_end(130);
  REQUIRE(run.out.size() >= 20);
  REQUIRE(contains(chat("--session session", {"/stats"}).err, "1 turns, "));
}

}  // namespace llm::test
