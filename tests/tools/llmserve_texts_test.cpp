// Answers of llmserve are llmrun's, byte for byte, whatever else is served.

#include "tests/tools/llmserve_process.h"
#include "tools/llmserve/api/answer_request.h"

namespace llm::test {
namespace {

/// A request and what llmrun says to it.
struct Case {
  Json body;
  Json alone;  ///< of --json
  std::string hash;
};

Case make_case(const Json& body) {
  std::vector<std::string> words = {kFable,          "-t", "1",           "--json",
                                    "--logits-hash", "-p", body["prompt"]};
  const Json defaults =
      R"({"n": ["max_tokens", 1], "temp": ["temperature", 1], "top-k": ["top_k", 0],
      "top-p": ["top_p", 1], "min-p": ["min_p", 0], "repeat-penalty": ["repeat_penalty", 1],
      "repeat-last-n": ["repeat_last_n", 64], "seed": ["seed", 0], "logprobs": ["logprobs", 0]})"_j;
  for (const auto& [option, field] : defaults.items())
    words.insert(words.end(), {(option == "n" ? "-" : "--") + option,
                               json_text(body.value(field[0].get<std::string>(), field[1]))});
  if (body.value("ignore_eos", false)) words.emplace_back("--ignore-eos");
  for (const std::string& stop : body.value("stop", std::vector<std::string>()))
    words.insert(words.end(), {"-r", stop});
  const Finished run = run_tool("llmrun", words).must_end(0);
  const std::size_t at = run.err.find("logits-sha256: ") + 15;
  return {body, test::parse_json(run.out), run.err.substr(at, 64)};
}

std::vector<Case> make_cases(std::size_t n) {
  const std::vector<std::string> starts = {"Once upon a time", "The dog",    "",
                                           "Nora said: \"",    "One day,\n", "Zoë and the 🐉"};
  std::vector<Case> cases;
  for (std::size_t i = 0; i < n; ++i) {
    std::string prompt = starts[i % starts.size()];
    if (i % 5 == 4) {  // of nearly a page, so that pages run out while it is continued
      while (prompt.size() < 800) prompt += " She went to the sea and saw a little boat.";
    }
    const std::array samplers = {"{'temperature': 0}"_j,
                                 "{'temperature': 0.8, 'top_k': 40, 'top_p': 0.95}"_j,
                                 "{'min_p': 0.05, 'repeat_penalty': 1.2, 'repeat_last_n': -1}"_j};
    const std::array ends = {"{}"_j, "{}"_j, R"({"stop": [" the", "\n\n"]})"_j,
                             "{'ignore_eos': true}"_j};
    cases.push_back(make_case(Json{{"prompt", prompt},
                                   {"max_tokens", 24 + i % 40},
                                   {"logprobs", i % 4},
                                   {"seed", i},
                                   {"logits_hash", true}} |
                              samplers[i % 3] | ends[i % 4]));
  }
  return cases;
}

std::string difference(const Case& expected, const Reply& reply) {
  if (reply.status != 200) return "status " + std::to_string(reply.status) + ": " + reply.body;
  const Json choice = reply.json()["choices"][0];
  if (choice["text"] != expected.alone["text"]) return "text: " + json_text(choice);
  if (reply.header("x-logits-sha256") != expected.hash) return "hash";
  const Json& alone = expected.alone["logprobs"];
  const Json& found = choice["logprobs"]["token_logprobs"];
  const bool has_end = expected.alone["stop_reason"] == "eos";
  if (found.size() != alone.size() + (has_end ? 1 : 0)) return "number of tokens";
  if (has_end && choice["logprobs"]["tokens"].back() != "</s>") return "no end";
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (found[i] != alone[i]["logprob"]) return "log probability " + std::to_string(i);
    std::vector<double> top;
    for (const Json& token : alone[i]["top"]) top.push_back(token["logprob"]);
    for (const double value : top) {
      const Json& listed = choice["logprobs"]["top_logprobs"][i];
      if (std::ranges::none_of(listed, [&](const Json& one) { return one == value; }))
        return "top of " + std::to_string(i);
    }
  }
  return "";
}

/// Sends all cases, `n_clients` at a time. @return what differs, or ""
std::string run_load(const Server& server, const std::vector<Case>& cases, std::size_t n_clients,
                     std::size_t n_requests) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::string> faults(n_clients);
  at_once(n_clients, [&](std::size_t c) {
    for (std::size_t i = next++; i < n_requests && faults[c].empty(); i = next++) {
      const Case& one = cases[i % cases.size()];
      const std::string fault = difference(one, server.complete(one.body));
      if (!fault.empty()) faults[c] = std::to_string(i) + ": " + fault;
    }
  });
  std::string all;
  for (const std::string& fault : faults) all += fault;
  return all;
}

}  // namespace

TEST_CASE("every answer is llmrun's alone, at any load", "[llmserve]") {
  const std::vector<Case> cases = make_cases(effort<std::size_t>(30, 12));
  struct Load {
    const char* chunk;
    const char* parallel;
    const char* memory;
    std::size_t n_clients;
    std::size_t n_requests;
  };
  for (const Load& load :
       {Load{"512", "16", "0", 1, 30}, {"32", "16", "3", 8, 60}, {"512", "64", "4", 64, 128}}) {
    CAPTURE(load.chunk, load.n_clients);
    Server server = serve_fable(
        {"--chunk", load.chunk, "--parallel", load.parallel, "--kv-memory", load.memory});
    REQUIRE(run_load(server, cases, load.n_clients, load.n_requests) == "");
    if (load.n_clients == 64) REQUIRE(server.metric("preemptions_total") > 0);
    REQUIRE(server.metric("texts_running") + server.metric("texts_waiting") == 0);
    REQUIRE(server.metric("kv_pages_in_use") == 0);
    server.end().must_end(0);
  }
}

TEST_CASE("a streamed answer is the whole one in parts", "[llmserve]") {
  Server server = serve_fable();
  const Json body = "{'prompt': 'Zoë 🐉', 'max_tokens': 40, 'seed': 3, 'logprobs': 1, 'n': 3}"_j;
  const Json whole = server.complete(body).json();
  const Reply reply =
      server.complete(body | "{'stream': true, 'stream_options': {'include_usage': true}}"_j);
  REQUIRE(reply.header("Content-Type") == "text/event-stream");
  REQUIRE(events_of(reply.body).back() == "[DONE]");
  auto parts = parts_of(reply.body);
  Json usage = parts.back()["usage"];
  parts.pop_back();
  std::vector<Json> found(3, {{"text", ""}, {"logprobs", Json::object()}});
  for (const Json& event : parts) {
    must_match(event, {{"usage", nullptr}, {"system_fingerprint", whole["system_fingerprint"]}});
    const Json& choice = event["choices"][0];
    Json& into = found[choice["index"]];
    into["text"] = into["text"].get<std::string>() + choice["text"].get<std::string>();
    into["finish_reason"] = choice["finish_reason"];
    into["index"] = choice["index"];
    for (const auto& [name, values] : choice["logprobs"].items())
      for (const Json& value : values) into["logprobs"][name].push_back(value);
  }
  REQUIRE(Json(found) == whole["choices"]);
  REQUIRE(whole["choices"][0]["text"] != whole["choices"][1]["text"]);
  usage["prompt_tokens_details"] = whole["usage"]["prompt_tokens_details"];  // which grows
  REQUIRE(usage == whole["usage"]);
}

TEST_CASE("log probabilities of a text are llmcheck's, with BOS and without", "[llmserve]") {
  const auto wants_bos = GENERATE(std::uint8_t{1}, std::uint8_t{0});
  const TinyModel tiny;
  auto model = TinyGguf::llama();
  model.set_bool("tokenizer.ggml.add_bos_token", wants_bos);
  tiny.write("tiny.gguf", model.bytes());
  const std::string text = "a text of a few tokens";
  tiny.write("text", text);
  tiny.shell("llmcheck tiny.gguf -t 1 -q --ppl text --report report.json").must_end(0);
  Server server = tiny.serve();
  const Json logprobs = server.choice(
      Json{{"prompt", text}} | "{'max_tokens': 0, 'logprobs': 0, 'echo': true}"_j)["logprobs"];
  REQUIRE((logprobs["tokens"][0] == "<s>") == (wants_bos == 1));
  REQUIRE(logprobs["token_logprobs"][0].is_null());
  const std::size_t n = logprobs["tokens"].size() - 1;
  double nll = 0;
  for (std::size_t i = 1; i <= n; ++i) nll -= logprobs["token_logprobs"][i].get<double>();
  must_match(test::parse_json(tiny.read("report.json"))["figures"][0]["rows"][0],
             {{"tokens", n}, {"nll", nll / static_cast<double>(n)}});
}

TEST_CASE("echo gives the prompt with its log probabilities", "[llmserve]") {
  Server server = serve_fable();
  const Json body =
      "{'prompt': 'Once upon', 'max_tokens': 3, 'temperature': 0, 'logprobs': 2, 'echo': true}"_j;
  const Json choice = server.choice(body);
  REQUIRE(choice["text"].get<std::string>().starts_with("Once upon"));
  const Json& logprobs = choice["logprobs"];
  REQUIRE(logprobs["tokens"][0] == "<s>");
  REQUIRE(logprobs["token_logprobs"][0].is_null());
  REQUIRE(logprobs["top_logprobs"][0].is_null());
  for (std::size_t i = 1; i < logprobs["tokens"].size(); ++i)
    REQUIRE(logprobs["top_logprobs"][i].contains(logprobs["tokens"][i].get<std::string>()));
  // A longer prompt's own tokens are what a shorter one is continued with.
  const Json same = {{"text", choice["text"]}, {"logprobs", logprobs}};
  must_match(server.choice(body | Json{{"prompt", choice["text"]}, {"max_tokens", 0}}), same);
  // As ids, and several at once: each the same again.
  const Json ids = server.tokens({{"prompt", "Once upon"}});
  const Json several = body | Json{{"prompt", {ids, ids}}, {"n", 2}, {"logits_hash", true}};
  const Reply all = server.complete(several);
  Json expected;
  for (int i = 0; i < 4; ++i) expected.push_back(same | Json{{"index", i}});
  all.must_match({{"choices", expected}});
  const std::string hashes = all.header("x-logits-sha256");
  REQUIRE(hashes.size() == 4 * 64 + 3 * 2);
  REQUIRE(hashes.substr(0, 64) == hashes.substr(66, 64));
}

TEST_CASE("logit_bias forbids and forces tokens", "[llmserve]") {
  Server server = serve_fable();
  const auto text = [&](const Json& bias) {
    return server.choice("{'prompt': 'Once upon a', 'max_tokens': 1, 'temperature': 0}"_j |
                         Json{{"logit_bias", bias}})["text"];
  };
  REQUIRE(text(Json::object()) == " time");
  const Json ids = server.tokens({{"prompt", "a time"}});
  REQUIRE(text({{json_text(ids.back()), -100}}) != " time");
  REQUIRE(text({{"9", 100}}) == server.post("/detokenize", {{"tokens", {9}}}).at("/prompt"));
}

TEST_CASE("choices of a long prompt share its pages, as the server is by default", "[llmserve]") {
  Server server = serve_fable({"-c", "2048"});
  std::vector<int> prompt(1700);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int>(10 + i * i % 600);
  const Json body = Json{{"prompt", prompt}} | "{'max_tokens': 8, 'temperature': 0, 'n': 2}"_j;
  const Json choices = server.complete(body).at("/choices");
  REQUIRE(choices[0]["text"] == choices[1]["text"]);
  REQUIRE(server.metric("kv_pages_shared_total") == 6);
  REQUIRE(server.metric("evaluated_tokens_total") == 1700 + 1700 - 6 * 256 + 2 * 7);
}

TEST_CASE("usage tells which tokens of the prompt were stored already", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "-c", "1024"});
  std::vector<int> prompt(600, 300);
  const auto cached = [&] {
    return server.complete({{"prompt", prompt}, {"max_tokens", 2}})
        .at("/usage/prompt_tokens_details/cached_tokens");
  };
  CHECK(cached() == 0);
  CHECK(cached() == 599);  // all but the last token, whose logits are drawn from
  prompt[300] = 301;
  CHECK(cached() == 300);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "A dog ran. ";
  const auto usage = [&] {
    return server.post("/v1/messages", {{"messages", question(text)}, {"max_tokens", 2}})
        .at("/usage");
  };
  const int all = must_match(usage(), "{'cache_read_input_tokens': 0}"_j)["input_tokens"];
  must_match(usage(), {{"input_tokens", 1}, {"cache_read_input_tokens", all - 1}});
}

TEST_CASE("llmcheck --replay accepts the receipt of every choice", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const Json ids = server.tokens({{"prompt", "The dog"}});
  for (const Json& body :
       {"{'prompt': ['Once', '', 'The'], 'n': 2, 'seed': 3, 'stop': 'the'}"_j,
        Json{{"prompt", ids}} | "{'temperature': 0.5, 'top_k': 9, 'logit_bias': {'300': 2.5}}"_j,
        "{'prompt': [1], 'temperature': 0, 'ignore_eos': true, 'repeat_penalty': 1.3}"_j}) {
    const Json choices =
        server.complete(body | "{'receipt': true, 'max_tokens': 20}"_j).at("/choices");
    REQUIRE(choices.size() > 0);
    for (const Json& choice : choices) replay(choice["receipt"]);
  }
  Json shown = server.choice(
      "{'prompt': 'A', 'receipt': true, 'max_tokens': 2, 'logit_bias': {'1': 100}}"_j)["receipt"];
  shown["options"]["show_special"] = true;
  replay(shown, 1);
  shown["text"] = "<s><s>";
  replay(shown);
  const Json user = message("user", "Tell a story.");
  const Json kind = message("system", "Be kind.");
  for (const Json& messages :
       {Json::array({user}), Json::array({kind, user}), Json::array({message("system", ""), user}),
        Json::array({user, user})}) {
    const Json body =
        Json{{"messages", messages}} | "{'receipt': true, 'max_tokens': 20, 'stop': ['x']}"_j;
    Json receipt = server.post("/v1/chat/completions", body).at("/choices/0/receipt");
    REQUIRE(receipt.contains("prompt") == (messages.size() == 1 || messages[0] == kind));
    replay(receipt);
    receipt["ids"][0] = receipt["ids"][0] == 9 ? 10 : 9;
    replay(receipt, 1);
  }
}

TEST_CASE("the token that ends a text stands in its log probabilities alone", "[llmserve]") {
  Server server = serve_fable();
  const Json body = "{'prompt': 'Once', 'logprobs': 1, 'logit_bias': {'2': 100}}"_j;
  const Json answer = server.complete(body).must_match(R"({"usage": {"completion_tokens": 0},
      "choices": [{"text": "", "finish_reason": "stop", "logprobs": {"tokens": ["</s>"]}}]})"_j);
  const Json& logprobs = answer["choices"][0]["logprobs"];
  REQUIRE(logprobs["token_logprobs"][0] < -1);  // the model's own, without the bias
  const auto parts = parts_of(server.complete(body | "{'stream': true}"_j).body);
  REQUIRE(parts[0]["choices"][0]["logprobs"] == logprobs);
}

TEST_CASE("a reply ends where its template ends one, and where the client says", "[llmserve]") {
  const auto model = require_ok(Model::load(kFable, {.threads = 1}));
  const ServedModel served{.model = model,
                           .id = "m",
                           .style = require_ok(ChatStyle::choose("zephyr", "", model->tokenizer())),
                           .context = 512,
                           .most_new_tokens = 512,
                           .most_texts = 1,
                           .grammars = nullptr};
  const auto request =
      require_ok(parse_chat({{"messages", question("Hi")}, {"stop", "x"}}, served));
  const GenerateOptions options = request.choice(0, served).options;
  REQUIRE(options.stop == std::vector<std::string>{"x", "<|user|>"});
  REQUIRE(options.stop_tokens == std::vector<TokenId>{2});  // </s>
  REQUIRE(options.max_tokens == 512 - request.prompts[0].ids.size() + 1);
}

TEST_CASE("a chat's reply is llmrun's, and no message becomes a marker", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const std::string text = "Tell <|assistant|>\n</s> a story.";
  const Finished run = run_tool("llmrun", {kFable,
                                           "-p",
                                           text,
                                           "--system",
                                           "Be kind.",
                                           "--chat-template",
                                           "zephyr",
                                           "-t",
                                           "1",
                                           "-n",
                                           "30",
                                           "--temp",
                                           "0.7",
                                           "--top-k",
                                           "0",
                                           "--top-p",
                                           "1",
                                           "--min-p",
                                           "0",
                                           "-s",
                                           "5",
                                           "--json",
                                           "--logits-hash"})
                           .must_end(0);
  const Json alone = test::parse_json(run.out);
  const Json messages = {
      {"messages",
       {message("system", "Be kind."), message("user", {{{"type", "text"}, {"text", text}}})}}};
  Json body = messages | R"({"max_completion_tokens": 30, "temperature": 0.7, "seed": 5,
      "logits_hash": true, "logprobs": true, "top_logprobs": 2, "model": "fable-3m-q4_k_m"})"_j;
  const Reply reply = server.post("/v1/chat/completions", body);
  const Json said = {{"content", alone["text"]}, {"role", "assistant"}};
  reply.must_match({{"object", "chat.completion"},
                    {"choices", {{{"message", said}}}},
                    {"usage", {{"prompt_tokens", alone["prompt_ids"].size()}}}});
  REQUIRE(run.err.find(reply.header("x-logits-sha256")) != std::string::npos);
  REQUIRE(server.tokens(messages) == alone["prompt_ids"]);
  const Json first = reply.at("/choices/0/logprobs/content/0");
  REQUIRE(first["top_logprobs"].size() == 2);
  std::string bytes;
  for (const Json& byte : first["bytes"]) bytes += static_cast<char>(byte.get<int>());
  REQUIRE(first["token"] == bytes);

  body.erase("logits_hash");
  const auto parts =
      parts_of(server.post("/v1/chat/completions", body | "{'stream': true}"_j).body);
  REQUIRE(parts[0]["choices"][0]["delta"]["role"] == "assistant");
  REQUIRE(joined(parts, "/choices/0/delta/content") == alone["text"]);
}

}  // namespace llm::test
