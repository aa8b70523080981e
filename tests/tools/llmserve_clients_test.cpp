// What clients of other servers send unasked, and what is made of it.

#include <numeric>
#include <set>

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

const Json kHello = {{{"role", "user"}, {"content", "Say hi"}}};

/// Raises on a system message that is not the first, as Qwen3.5's.
constexpr const char* kFirstOnly =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('first') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
/// Has no system role, and takes turns, as Gemma 2's.
constexpr const char* kTurns =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif "
    "%}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}";
/// Says nothing of system messages, as old ones.
constexpr const char* kDrops =
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endif %}"
    "{% endfor %}";

std::string repeated(const std::string& words, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += words;
  return text;
}

Json conversation(std::initializer_list<std::pair<const char*, const char*>> messages) {
  Json list = Json::array();
  for (const auto& [role, content] : messages)
    list.push_back({{"role", role}, {"content", content}});
  return list;
}

}  // namespace

TEST_CASE("fields that ask for nothing here are taken, and told", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "100"});
  const auto chat = [&](const Json& more) {
    Json body = {{"messages", kHello}, {"max_tokens", 2}, {"temperature", 0}};
    body.update(more);
    return server.post("/v1/chat/completions", body).must_be(200);
  };
  const Json plain = chat(Json::object()).json()["choices"];
  const auto has_effect = [&](const Json& more) { return chat(more).json()["choices"] != plain; };
  for (const Json& ignored : std::vector<Json>{{{"prompt_cache_key", "k"}},
                                               {{"safety_identifier", "s"}},
                                               {{"metadata", {{"a", "b"}}}},
                                               {{"verbosity", "low"}},
                                               {{"client_metadata", {{"x", 1}}}},
                                               {{"include", {"x"}}},
                                               {{"cache_prompt", true}},
                                               {{"id_slot", 1}},
                                               {{"skip_special_tokens", true}},
                                               {{"user", "me"}},
                                               {{"store", true}},
                                               {{"some_tag_of_a_client", 7}},
                                               {{"mirostat_tau", 5}}}) {
    CAPTURE(ignored);
    CHECK(chat(ignored).header("x-llmserve-ignored") == ignored.begin().key());
    CHECK_FALSE(has_effect(ignored));
  }
  for (const Json& nothing : std::vector<Json>{{{"function_call", "auto"}},
                                               {{"continue_final_message", false}},
                                               {{"add_generation_prompt", true}},
                                               {{"extra_body", Json::object()}},
                                               {{"web_search_options", Json::object()}},
                                               {{"length_penalty", 1.0}},
                                               {{"use_beam_search", false}},
                                               {{"tfs_z", 1}},
                                               {{"top_a", 0}},
                                               {{"priority", 0}},
                                               {{"skip_special_tokens", false}},
                                               {{"typical_p", 1}},
                                               {{"mirostat", 0}},
                                               {{"max_completion_tokens", 2}},
                                               {{"repetition_penalty", 1}},
                                               {{"top_k", -1}},
                                               {{"n_predict", 2}},
                                               {{"think", false}},
                                               {{"unknown", Json::array()}},
                                               {{"enable_thinking", false}},
                                               {{"reasoning", {{"effort", "low"}}}}}) {
    CAPTURE(nothing);
    CHECK(chat(nothing).header("x-llmserve-ignored").empty());
    CHECK_FALSE(has_effect(nothing));
  }
  // Other names have the effect of the field's own.
  const auto same = [&](const Json& one, const Json& other) {
    return chat(one).json()["choices"] == chat(other).json()["choices"];
  };
  const Json hot = {{"temperature", 2}, {"seed", 7}, {"max_tokens", 12}};
  const auto with = [&](Json more) {
    more.update(hot);
    return more;
  };
  CHECK(same(with({{"repeat_penalty", 90}}), with({{"repetition_penalty", 90}})));
  CHECK(same(with({{"repeat_penalty", 90}}), with({{"repeatPenalty", 90}})));
  CHECK_FALSE(same(with({{"repeat_penalty", 90}}), hot));
  CHECK(same(with({{"top_k", 1}}), {{"temperature", 0}, {"max_tokens", 12}}));
  CHECK(same(with({{"top_k", -1}}), hot));
  CHECK(chat({{"max_tokens", 9}, {"max_completion_tokens", 3}})
            .json()["usage"]["completion_tokens"] == 3);
  // Names are the clients': none makes a header of its own.
  const Reply odd = chat({{"x\r\nSet-Cookie: a", 1}});
  CHECK(odd.header("x-llmserve-ignored") == "x??Set-Cookie??a");
  CHECK(odd.header("Set-Cookie").empty());
}

TEST_CASE("a bound on the tokens is cut to what fits", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "100", "--max-tokens", "60"});
  const Json endless = {{"ignore_eos", true}, {"temperature", 0}};
  const auto ask = [&](const char* path, Json body) {
    body.update(endless);
    return server.post(path, body).must_be(200).json();
  };
  const Json messages = kHello;
  const std::size_t n_prompt = server.tokens({{"messages", messages}}).size();
  const std::size_t room = std::min<std::size_t>(60, 100 - n_prompt + 1);
  const Json chat = ask("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 32000}});
  CHECK(chat["usage"]["completion_tokens"] == room);
  CHECK(chat["choices"][0]["finish_reason"] == "length");
  const Json message = ask("/v1/messages", {{"messages", messages}, {"max_tokens", 64000}});
  CHECK(message["usage"]["output_tokens"] == room);
  CHECK(message["stop_reason"] == "max_tokens");
  const Json response = ask("/v1/responses", {{"input", "Say hi"}, {"max_output_tokens", 32000}});
  CHECK(response["usage"]["output_tokens"] == room);
  CHECK(response["status"] == "incomplete");
  const Json ollama =
      server
          .post("/api/chat", {{"messages", messages},
                              {"stream", false},
                              {"options", {{"num_predict", 99999}, {"ignore_eos", true}}}})
          .must_be(200)
          .json();
  CHECK(ollama["eval_count"] == room);
  CHECK(ollama["done_reason"] == "length");
  const Json prompt = std::vector<int>(90, 3);
  CHECK(ask("/v1/completions",
            {{"prompt", prompt}, {"max_tokens", 5000}})["usage"]["completion_tokens"] == 11);
  const Reply too_long = server.post(
      "/v1/chat/completions",
      {{"messages", {{{"role", "user"}, {"content", std::string(500, 'a')}}}}, {"max_tokens", 1}});
  too_long.must_name("messages");
  CHECK(too_long.json()["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("templates see system messages and tools where they take them", "[llmserve]") {
  const ScratchDirectory directory;
  const Json tools = {{{"type", "function"}, {"function", {{"name", "t"}}}}};
  const Json later = conversation(
      {{"system", "A."}, {"user", "b"}, {"assistant", "c"}, {"system", "D."}, {"user", "e"}});
  struct Seen {
    const char* jinja;
    const char* later;
    const char* leading;
    const char* last;
    const char* tools;  ///< the beginning
  };
  for (const Seen& seen : std::vector<Seen>{
           {kFirstOnly, "[system:A.][user:b][assistant:c][user:D.\n\ne]",
            "[system:A.\n\nB.][user:c]", "[system:A.][user:b\n\nC.]", "[system:You can call"},
           {kTurns, "[user:A.\n\nb][assistant:c][user:D.\n\ne]", "[user:A.\n\nB.\n\nc]",
            "[user:A.\n\nb\n\nC.]", "[user:You can call"},
           {kDrops, "[user:A.\n\nb][assistant:c][user:D.\n\ne]", "[user:A.\n\nB.\n\nc]",
            "[user:A.\n\nb\n\nC.]", "[user:You can call"}}) {
    CAPTURE(seen.jinja);
    Server server = serve_fable({"--chat-template", directory.write("t.jinja", seen.jinja)});
    const auto text = [&](const Json& messages, const Json& more = Json::object()) {
      Json body = {{"messages", messages}};
      body.update(more);
      return server.post("/detokenize", {{"tokens", server.tokens(body)}})
          .json()["prompt"]
          .get<std::string>();
    };
    CHECK_THAT(text(later), Contains(seen.later));
    CHECK_THAT(text(conversation({{"system", "A."}, {"developer", "B."}, {"user", "c"}})),
               Contains(seen.leading));
    CHECK_THAT(text(conversation({{"system", "A."}, {"user", "b"}, {"system", "C."}})),
               Contains(seen.last));
    const std::string told = text(conversation({{"user", "List."}}), {{"tools", tools}});
    CHECK_THAT(told, Contains(seen.tools));
    CHECK_THAT(told, Contains("List.]"));
    server
        .post("/v1/messages", {{"system", "A."},
                               {"max_tokens", 2},
                               {"messages", conversation({{"user", "b"}, {"system", "C."}})}})
        .must_be(200);
  }
}

TEST_CASE("a reply that has begun goes on where its API says so", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const Json begun = conversation({{"user", "Tell me of a dog."}, {"assistant", "Once upon"}});
  const auto chat = [&](const Json& more) {
    Json body = {{"messages", begun}, {"max_tokens", 6}, {"temperature", 0}};
    body.update(more);
    return server.post("/v1/chat/completions", body).must_be(200).json();
  };
  const Json anew = chat(Json::object());
  const Json on = chat({{"continue_final_message", true}, {"add_generation_prompt", false}});
  CHECK(on["usage"]["prompt_tokens"] < anew["usage"]["prompt_tokens"]);
  const Json message =
      server.post("/v1/messages", {{"messages", begun}, {"max_tokens", 6}, {"temperature", 0}})
          .must_be(200)
          .json();
  CHECK(message["content"][0]["text"] == on["choices"][0]["message"]["content"]);
  CHECK(message["usage"]["input_tokens"].get<int>() +
            message["usage"]["cache_read_input_tokens"].get<int>() ==
        on["usage"]["prompt_tokens"].get<int>());
}

TEST_CASE("the log says once what is left out", "[llmserve]") {
  const TinyModel tiny;
  Server server({tiny.path("tiny.gguf"), "--chat-template", "zephyr", "-c", "200"});
  const Json body = {{"input", "Say hi"},
                     {"max_output_tokens", 2},
                     {"prompt_cache_key", "k"},
                     {"tools", {{{"type", "web_search"}}}}};
  for (int i = 0; i < 3; ++i) {
    const Reply reply = server.post("/v1/responses", body).must_be(200);
    CHECK(reply.header("x-llmserve-ignored") == "tools[0].web_search, prompt_cache_key");
  }
  const std::string log = server.end().err;
  for (const char* const line : {"/v1/responses: tools[0].web_search: left out",
                                 "/v1/responses: prompt_cache_key: taken without effect"}) {
    const std::size_t at = log.find(line);
    CAPTURE(log, line);
    REQUIRE(at != std::string::npos);
    CHECK(log.find(line, at + 1) == std::string::npos);
  }
}

TEST_CASE("Ollama's clients find what they ask for", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "-a", "fable"});
  const Json show = server.post("/api/show", {{"model", "fable"}}).must_be(200).json();
  const std::string architecture = show["model_info"]["general.architecture"];
  CHECK(show["model_info"][architecture + ".context_length"].get<int>() > 0);
  CHECK(show["details"]["format"] == "gguf");
  CHECK(show["details"]["family"] == architecture);
  CHECK(show["capabilities"][0] == "completion");
  CHECK(show["capabilities"][1] == "tools");
  const Json running = server.get("/api/ps").must_be(200).json()["models"];
  REQUIRE(running.size() == 1);
  CHECK(running[0]["name"] == "fable");
  CHECK(server.ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200);

  // One text, by the older path and by the newer one.
  const Json vector =
      server.post("/api/embeddings", {{"model", "fable"}, {"prompt", "a hen"}}).must_be(200).json();
  CHECK(vector["embedding"] ==
        server.post("/api/embed", {{"input", "a hen"}}).json()["embeddings"][0]);
  CHECK(vector["embedding"].size() > 1);

  // Requests that say nothing load the model.
  const Json loaded = server.post("/api/chat", {{"model", "fable"}, {"messages", Json::array()}})
                          .must_be(200)
                          .json();
  CHECK(loaded["done"] == true);
  CHECK(loaded["done_reason"] == "load");
  CHECK(loaded["message"]["content"] == "");
  CHECK(server.post("/api/generate", {{"model", "fable"}}).must_be(200).json()["response"] == "");
  CHECK(
      server.post("/api/generate", {{"model", "fable"}, {"keep_alive", 0}}).json()["done_reason"] ==
      "unload");
  server.post("/api/embed", {{"model", "fable"}}).must_be(200);

  // A prompt as it stands; streamed in as many words.
  const Json options = {{"num_predict", 8},
                        {"temperature", 0},
                        {"mirostat", 0},
                        {"draft_num_predict", 1},
                        {"typical_p", 1}};
  Json raw = {{"prompt", "Once upon a time"},
              {"raw", true},
              {"stream", false},
              {"truncate", true},
              {"logprobs", false},
              {"options", options}};
  const std::string text = server.post("/api/generate", raw).must_be(200).json()["response"];
  CHECK(text ==
        server.complete({{"prompt", "Once upon a time"}, {"max_tokens", 8}, {"temperature", 0}})
            .json()["choices"][0]["text"]);
  raw["stream"] = true;
  std::string pieces;
  std::istringstream lines(server.post("/api/generate", raw).body);
  for (std::string line; std::getline(lines, line);)
    pieces += test::parse_json(line)["response"].get<std::string>();
  CHECK(pieces == text);

  // Log probabilities, whole and streamed, raw and of a chat.
  raw.update({{"logprobs", true}, {"top_logprobs", 2}});
  const Json chat = {
      {"messages", kHello}, {"logprobs", true}, {"top_logprobs", 2}, {"options", options}};
  for (auto [path, body] : {std::pair{"/api/generate", raw}, {"/api/chat", chat}}) {
    body["stream"] = false;
    const Json all = server.post(path, body).must_be(200).json()["logprobs"];
    REQUIRE(all.size() == 8);
    CHECK(all[0]["top_logprobs"].size() == 2);
    CHECK(all[0]["top_logprobs"][0]["logprob"] == all[0]["logprob"]);
    body["stream"] = true;
    Json streamed = Json::array();
    std::istringstream parts(server.post(path, body).body);
    for (std::string line; std::getline(parts, line);)
      for (const Json& token : test::parse_json(line).value("logprobs", Json::array()))
        streamed.push_back(token);
    CHECK(streamed == all);
  }
  raw["logprobs"] = false;
  server.post("/api/generate", raw).must_be(400);

  // Errors are words.
  for (const auto& [body, words] : std::vector<std::pair<Json, std::string>>{
           {{{"model", "other"}, {"messages", Json::array()}}, "other"},
           {{{"messages", 1}}, "messages"},
           {{{"messages", kHello}, {"options", {{"mirostat", 2}}}}, "options.mirostat"},
           {{{"messages", kHello}, {"options", {{"num_predct", 2}}}}, "options.num_predct"}}) {
    const Reply reply = server.post("/api/chat", body);
    REQUIRE(reply.status >= 400);
    const Json error = reply.json()["error"];
    CAPTURE(error);
    REQUIRE(error.is_string());
    CHECK_THAT(error.get<std::string>(), Contains(words));
  }
  CHECK(server.get("/api/chat").json()["error"].is_string());
}

TEST_CASE("llama-server's clients find what they ask for", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "-np", "3"});
  const Json body = {{"prompt", "Once upon a time"}, {"n_predict", 8}, {"temperature", 0},
                     {"cache_prompt", true},         {"id_slot", -1},  {"samplers", Json::array()}};
  const Json answer = server.post("/completion", body).must_be(200).json();
  CHECK(answer["content"] ==
        server.complete({{"prompt", "Once upon a time"}, {"max_tokens", 8}, {"temperature", 0}})
            .json()["choices"][0]["text"]);
  CHECK(answer["stop"] == true);
  CHECK(answer["stop_type"] == "limit");
  CHECK(answer["timings"]["predicted_n"] == 8);
  CHECK(server.post("/completions", body).json()["content"] == answer["content"]);
  const Json messages = conversation({{"system", "Be short."}, {"user", "Hi"}});
  const std::string prompt =
      server.post("/apply-template", {{"messages", messages}}).must_be(200).json()["prompt"];
  CHECK_THAT(prompt, Contains("Be short."));
  // What it writes is what a chat sees.
  const Json chat = {{"messages", messages}, {"max_tokens", 8}, {"temperature", 0}};
  CHECK(server.post("/v1/chat/completions", chat).json()["choices"][0]["message"]["content"] ==
        server.post("/completion", {{"prompt", prompt}, {"n_predict", 8}, {"temperature", 0}})
            .json()["content"]);
  const Json slots = server.get("/slots").must_be(200).json();
  CHECK(slots.size() == 3);
  CHECK(slots[0]["is_processing"] == false);
  Json timed = chat;
  timed["timings_per_token"] = true;
  CHECK(server.post("/v1/chat/completions", timed).json()["timings"]["predicted_n"] == 8);
  server.post("/completion", {{"prompt", "a"}, {"n_probs", 21}}).must_name("n_probs");
}

TEST_CASE("usage tells which tokens of the prompt were stored already", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "-c", "1024"});
  // All but the last token, whose logits are drawn from.
  const Json prompt = std::vector<int>(600, 300);
  const auto cached = [&] {
    return server.complete({{"prompt", prompt}, {"max_tokens", 2}})
        .must_be(200)
        .json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int>();
  };
  CHECK(cached() == 0);
  CHECK(cached() == 599);
  Json other = std::vector<int>(600, 300);
  other[300] = 301;
  CHECK(server.complete({{"prompt", other}, {"max_tokens", 2}})
            .json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 300);
  const Json messages = {{{"role", "user"}, {"content", repeated("A dog ran. ", 100)}}};
  const auto message = [&] {
    return server.post("/v1/messages", {{"messages", messages}, {"max_tokens", 2}})
        .must_be(200)
        .json()["usage"];
  };
  const Json first = message();
  const Json second = message();
  CHECK(first["cache_read_input_tokens"] == 0);
  CHECK(second["input_tokens"] == 1);
  CHECK(second["cache_read_input_tokens"].get<int>() + second["input_tokens"].get<int>() ==
        first["input_tokens"].get<int>());
}

TEST_CASE("penalties of generated tokens have their effect", "[llmserve]") {
  Server server = serve_fable();
  const auto ids = [&](const Json& more) {
    Json body = {
        {"prompt", "Once upon a time"}, {"max_tokens", 60}, {"temperature", 0}, {"receipt", true}};
    body.update(more);
    return server.choice(body)["receipt"];
  };
  const Json plain = ids(Json::object());
  CHECK_FALSE(plain["options"].contains("presence_penalty"));
  CHECK(ids({{"presence_penalty", 0}, {"frequency_penalty", 0}})["ids"] == plain["ids"]);
  const Json less = ids({{"presence_penalty", 1.5}});
  CHECK(less["options"]["presence_penalty"] == 1.5);
  CHECK(less["ids"] != plain["ids"]);
  const auto distinct = [](const Json& receipt) {
    return std::set<Json>(receipt["ids"].begin(), receipt["ids"].end()).size();
  };
  CHECK(distinct(less) > distinct(plain));
  CHECK(distinct(ids({{"frequency_penalty", 2}})) > distinct(plain));
  const TinyModel folder;
  folder.write("r.json", json_text(less));
  folder.shell("llmcheck '" + std::string(kFable) + "' --replay r.json -t 1").must_end(0);
}

TEST_CASE("settings of llama.cpp's other samplers have their effect", "[llmserve]") {
  Server server = serve_fable();
  const auto receipt = [&](const Json& more) {
    Json body = {
        {"prompt", "Once upon a time"}, {"max_tokens", 80}, {"seed", 4}, {"receipt", true}};
    body.update(more);
    return server.choice(body)["receipt"];
  };
  const Json plain = receipt(Json::object());
  const TinyModel folder;
  for (const Json& more : std::vector<Json>{{{"temperature", 0}, {"dry_multiplier", 5}},
                                            {{"typical_p", 0.2}},
                                            {{"xtc_probability", 1}, {"xtc_threshold", 0.05}},
                                            {{"dynatemp_range", 0.9}, {"dynatemp_exponent", 2}},
                                            {{"min_tokens", 79}, {"temperature", 0}}}) {
    CAPTURE(more);
    const Json one = receipt(more);
    for (const auto& [name, value] : more.items()) CHECK(one["options"][name] == value);
    if (!more.contains("min_tokens")) CHECK(one["ids"] != plain["ids"]);
    folder.write("r.json", json_text(one));
    folder.shell("llmcheck '" + std::string(kFable) + "' --replay r.json -t 1").must_end(0);
  }
  // Four tokens come a second time where a line break or the like stands among them, if at all.
  const auto repeats = [](const Json& ids) {
    std::set<std::vector<int>> known;
    std::size_t n = 0;
    for (auto at = ids.begin(); ids.end() - at >= 4; ++at)
      n += known.insert(std::vector<int>(at, at + 4)).second ? 0 : 1;
    return n;
  };
  const Json greedy = {{"temperature", 0}, {"max_tokens", 400}, {"ignore_eos", true}};
  Json dry = greedy;
  dry["dry_multiplier"] = 50;
  CHECK(10 * repeats(receipt(dry)["ids"]) < repeats(receipt(greedy)["ids"]));
  // A text that would end is as long as was asked for at least.
  const Json early = {{"logit_bias", {{"2", 100}}}};
  Json longer = early;
  longer["min_tokens"] = 7;
  CHECK(receipt(early)["ids"].empty());
  CHECK(receipt(longer)["ids"].size() == 7);
}

TEST_CASE("probabilities of tokens, in llama-server's shape", "[llmserve]") {
  Server server = serve_fable();
  Json body = {{"prompt", "Once upon a"}, {"n_predict", 3}, {"temperature", 0}, {"n_probs", 2}};
  const Json whole = server.post("/completion", body).must_be(200).json();
  const Json& all = whole["completion_probabilities"];
  REQUIRE(all.size() == 3);
  std::string text;
  for (const Json& one : all) {
    text += one["token"];
    REQUIRE(one["top_logprobs"].size() == 2);
    CHECK(one["top_logprobs"][0]["id"] == one["id"]);
    CHECK(one["top_logprobs"][0]["logprob"] == one["logprob"]);
    CHECK(one["top_logprobs"][1]["logprob"] < one["logprob"]);
  }
  CHECK(text == whole["content"]);
  // The same as OpenAI's clients get.
  const Json choice = server.choice(
      {{"prompt", "Once upon a"}, {"max_tokens", 3}, {"temperature", 0}, {"logprobs", 2}});
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(all[i]["logprob"] == choice["logprobs"]["token_logprobs"][i]);
  body["stream"] = true;
  Json streamed = Json::array();
  for (const std::string& part : events_of(server.post("/completion", body).body))
    for (const Json& one : parse_json(part).value("completion_probabilities", Json::array()))
      streamed.push_back(one);
  CHECK(streamed == all);
  body["n_probs"] = 0;
  CHECK_FALSE(server.post("/infill", body).body.find("completion_probabilities") !=
              std::string::npos);
}

TEST_CASE("documents are put in order", "[llmserve]") {
  const std::vector<std::string> documents = {"A dog ran.", "A tiny hen.", "The sea is blue."};
  const Json body = {{"query", "A tiny hen."}, {"documents", documents}};
  SECTION("by the cosine of embeddings") {
    Server server = serve_fable({"--pooling", "last"});
    const Json results = server.post("/v1/rerank", body).must_be(200).json()["results"];
    REQUIRE(results.size() == 3);
    CHECK(results[0]["index"] == 1);
    CHECK(std::abs(results[0]["relevance_score"].get<double>() - 1) < 1e-6);
    const auto vector = [&](const std::string& text) {
      return server.post("/v1/embeddings", {{"input", text}})
          .json()["data"][0]["embedding"]
          .get<std::vector<double>>();
    };
    const auto query = vector("A tiny hen.");
    for (const Json& result : results) {
      const auto other = vector(documents[result["index"].get<std::size_t>()]);
      const double cosine = std::inner_product(query.begin(), query.end(), other.begin(), 0.0);
      CHECK(std::abs(result["relevance_score"].get<double>() - cosine) < 1e-6);
    }
    Json first = body;
    first.update({{"top_n", 1}, {"return_documents", true}});
    const Json one = server.post("/rerank", first).must_be(200).json()["results"];
    REQUIRE(one.size() == 1);
    CHECK(one[0]["document"]["text"] == "A tiny hen.");
  }
  SECTION("but not by a model that was made for neither") {
    Server server = serve_fable({"--chat-template", "zephyr"});
    server.post("/v1/rerank", body).must_name("documents", {"neither"});
    server.post("/v1/rerank", {{"query", "a"}}).must_name("documents");
  }
}

}  // namespace llm::test
