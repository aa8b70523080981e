// What clients of other servers send unasked, and what is made of it.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

const Json kHello = question("Say hi");
const Json kOnce = "{'prompt': 'Once upon a time', 'max_tokens': 8, 'temperature': 0}"_j;

/// Raises on a system message that is not the first, as Qwen3.5's.
constexpr const char* kFirstOnly =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('first') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
/// Has no system role, and takes turns, as Gemma 2's.
constexpr const char* kTurns =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif "
    "%}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif "
    "%}[{{ m.role }}:{{ m.content }}]{% endfor %}";
/// Says nothing of system messages, as old ones.
constexpr const char* kDrops =
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endif %}"
    "{% endfor %}";

Json conversation(std::initializer_list<std::pair<const char*, const char*>> messages) {
  Json list = Json::array();
  for (const auto& [role, content] : messages) list.push_back(message(role, content));
  return list;
}

}  // namespace

TEST_CASE("fields that ask for nothing here are taken, and told", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "100"});
  const Json usual = Json{{"messages", kHello}} | "{'max_tokens': 2, 'temperature': 0}"_j;
  const auto chat = [&](const Json& more) {
    return server.post("/v1/chat/completions", usual | more).must_be(200);
  };
  const Json plain = chat(Json::object()).at("/choices");
  for (const Json& ignored :
       R"([{"prompt_cache_key": "k"}, {"safety_identifier": "s"}, {"metadata": {"a": "b"}},
           {"verbosity": "low"}, {"client_metadata": {"x": 1}}, {"include": ["x"]},
           {"cache_prompt": true}, {"id_slot": 1}, {"skip_special_tokens": true}, {"user": "me"},
           {"store": true}, {"some_tag_of_a_client": 7}, {"mirostat_tau": 5}])"_j) {
    CAPTURE(ignored);
    CHECK(chat(ignored).header("x-llmserve-ignored") == ignored.begin().key());
    CHECK(chat(ignored).at("/choices") == plain);
  }
  for (const Json& nothing :
       R"([{"function_call": "auto"}, {"continue_final_message": false}, {"extra_body": {}},
           {"add_generation_prompt": true}, {"web_search_options": {}}, {"length_penalty": 1.0},
           {"use_beam_search": false}, {"tfs_z": 1}, {"top_a": 0}, {"priority": 0},
           {"skip_special_tokens": false}, {"typical_p": 1}, {"mirostat": 0},
           {"max_completion_tokens": 2}, {"repetition_penalty": 1}, {"top_k": -1}, {"n_predict": 2},
           {"think": false}, {"unknown": []}, {"enable_thinking": false},
           {"reasoning": {"effort": "low"}}])"_j) {
    CAPTURE(nothing);
    CHECK(chat(nothing).header("x-llmserve-ignored").empty());
    CHECK(chat(nothing).at("/choices") == plain);
  }
  // Other names have the effect of the field's own.
  const auto hot = [&](const Json& more) {
    return chat("{'temperature': 2, 'seed': 7, 'max_tokens': 12}"_j | more).at("/choices");
  };
  const Json penalized = hot("{'repeat_penalty': 90}"_j);
  CHECK(hot("{'repetition_penalty': 90}"_j) == penalized);
  CHECK(hot("{'repeatPenalty': 90}"_j) == penalized);
  CHECK(hot(Json::object()) != penalized);
  CHECK(hot("{'top_k': 1}"_j) == hot("{'temperature': 0}"_j));
  CHECK(hot("{'top_k': -1}"_j) == hot(Json::object()));
  chat("{'max_tokens': 9, 'max_completion_tokens': 3}"_j)
      .must_match("{'usage': {'completion_tokens': 3}}"_j);
  // Names are the clients': none makes a header of its own.
  const Reply odd = chat({{"x\r\nSet-Cookie: a", 1}});
  CHECK(odd.header("x-llmserve-ignored") == "x??Set-Cookie??a");
  CHECK(odd.header("Set-Cookie").empty());
}

TEST_CASE("a bound on the tokens is cut to what fits", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--chat-template", "zephyr", "-c", "100", "--max-tokens", "60"});
  const Json hello = {{"messages", kHello}};
  const std::size_t room = std::min<std::size_t>(60, 100 - server.tokens(hello).size() + 1);
  struct Row {
    const char* path;
    Json body;
    Json answer;
  };
  for (const Row& row : std::vector<Row>{
           {"/v1/chat/completions",
            hello | "{'max_tokens': 32000}"_j,
            {{"usage", {{"completion_tokens", room}}},
             {"choices", {{{"finish_reason", "length"}}}}}},
           {"/v1/messages",
            hello | "{'max_tokens': 64000}"_j,
            {{"usage", {{"output_tokens", room}}}, {"stop_reason", "max_tokens"}}},
           {"/v1/responses",
            "{'input': 'Say hi', 'max_output_tokens': 32000}"_j,
            {{"usage", {{"output_tokens", room}}}, {"status", "incomplete"}}},
           {"/v1/completions", Json{{"prompt", std::vector<int>(90, 3)}, {"max_tokens", 5000}},
            "{'usage': {'completion_tokens': 11}}"_j},
           {"/v1/completions", Json{{"prompt", std::vector<int>(70, 3)}, {"max_tokens", -1}},
            "{'usage': {'completion_tokens': 31}}"_j}})
    server.post(row.path, row.body | "{'ignore_eos': true, 'temperature': 0}"_j)
        .must_match(row.answer);
  server
      .post("/api/chat",
            hello | R"({"stream": false, "options": {"num_predict": 99999, "ignore_eos": true}})"_j)
      .must_match({{"eval_count", room}, {"done_reason", "length"}});
  const Reply too_long =
      server
          .post("/v1/chat/completions",
                {{"messages", question(std::string(500, 'a'))}, {"max_tokens", 1}})
          .must_name("messages");
  CHECK(too_long.json()["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("templates see system messages and tools where they take them", "[llmserve]") {
  const ScratchDirectory directory;
  const Json later = conversation(
      {{"system", "A."}, {"user", "b"}, {"assistant", "c"}, {"system", "D."}, {"user", "e"}});
  const Json leading = conversation({{"system", "A."}, {"developer", "B."}, {"user", "c"}});
  const Json last = conversation({{"system", "A."}, {"user", "b"}, {"system", "C."}});
  struct Seen {
    const char* jinja;
    const char* later;
    const char* leading;
    const char* last;
    const char* tools;  ///< the beginning
  };
  const char* const begun = "[user:A.\n\nb][assistant:c][user:D.\n\ne]";
  for (const Seen& seen : std::vector<Seen>{
           {kFirstOnly, "[system:A.][user:b][assistant:c][user:D.\n\ne]",
            "[system:A.\n\nB.][user:c]", "[system:A.][user:b\n\nC.]", "[system:You can call"},
           {kTurns, begun, "[user:A.\n\nB.\n\nc]", "[user:A.\n\nb\n\nC.]", "[user:You can call"},
           {kDrops, begun, "[user:A.\n\nB.\n\nc]", "[user:A.\n\nb\n\nC.]", "[user:You can call"}}) {
    CAPTURE(seen.jinja);
    Server server = serve_fable({"--chat-template", directory.write("t.jinja", seen.jinja)});
    CHECK_THAT(server.read_as({{"messages", later}}), Contains(seen.later));
    CHECK_THAT(server.read_as({{"messages", leading}}), Contains(seen.leading));
    CHECK_THAT(server.read_as({{"messages", last}}), Contains(seen.last));
    const Json tools = "{'tools': [{'type': 'function', 'function': {'name': 't'}}]}"_j;
    require_words(server.read_as(Json{{"messages", question("List.")}} | tools),
                  {seen.tools, "List.]"});
    const Json messages = conversation({{"user", "b"}, {"system", "C."}});
    server.post("/v1/messages", {{"system", "A."}, {"max_tokens", 2}, {"messages", messages}})
        .must_be(200);
  }
}

TEST_CASE("a reply that has begun goes on where its API says so", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const Json body =
      Json{
          {"messages", conversation({{"user", "Tell me of a dog."}, {"assistant", "Once upon"}})}} |
      "{'max_tokens': 6, 'temperature': 0}"_j;
  const Json fresh = server.post("/v1/chat/completions", body).at("/usage/prompt_tokens");
  const Reply on =
      server.post("/v1/chat/completions",
                  body | "{'continue_final_message': true, 'add_generation_prompt': false}"_j);
  const int n_prompt = on.at("/usage/prompt_tokens");
  CHECK(n_prompt < fresh);
  const Reply other = server.post("/v1/messages", body);
  CHECK(other.at("/content/0/text") == on.at("/choices/0/message/content"));
  CHECK(other.at("/usage/input_tokens").get<int>() +
            other.at("/usage/cache_read_input_tokens").get<int>() ==
        n_prompt);
}

TEST_CASE("the log says once what is left out", "[llmserve]") {
  const TinyModel tiny;
  Server server({tiny.path("tiny.gguf"), "--chat-template", "zephyr", "-c", "200"});
  const Json body = R"({"input": "Say hi", "max_output_tokens": 2, "prompt_cache_key": "k",
      "tools": [{"type": "web_search"}]})"_j;
  for (int i = 0; i < 3; ++i)
    CHECK(server.post("/v1/responses", body).must_be(200).header("x-llmserve-ignored") ==
          "tools[0].web_search, prompt_cache_key");
  const std::string log = server.end().err;
  for (const char* const line : {"/v1/responses: tools[0].web_search: left out",
                                 "/v1/responses: prompt_cache_key: accepted without effect"}) {
    const std::size_t at = log.find(line);
    CAPTURE(log, line);
    REQUIRE(at != std::string::npos);
    CHECK(log.find(line, at + 1) == std::string::npos);
  }
}

TEST_CASE("Ollama's clients find what they ask for", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "-a", "fable"});
  const Json fable = "{'model': 'fable'}"_j;
  const Reply show = server.post("/api/show", fable);
  show.must_match(R"({"capabilities": ["completion", "tools", "embedding"],
      "details": {"format": "gguf", "family": "llama"},
      "model_info": {"general.architecture": "llama"}})"_j);
  CHECK(show.at("/model_info/llama.context_length").get<int>() > 0);
  server.get("/api/ps").must_match("{'models': [{'name': 'fable'}]}"_j);
  server.ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").must_be(200);

  // One text, by the older path and by the newer one.
  const Json vector =
      server.post("/api/embeddings", fable | "{'prompt': 'a hen'}"_j).at("/embedding");
  CHECK(vector == server.post("/api/embed", "{'input': 'a hen'}"_j).at("/embeddings/0"));
  CHECK(vector.size() > 1);

  // Requests that say nothing load the model.
  server.post("/api/chat", fable | "{'messages': []}"_j)
      .must_match("{'done': true, 'done_reason': 'load', 'message': {'content': ''}}"_j);
  server.post("/api/generate", fable).must_match("{'response': ''}"_j);
  server.post("/api/generate", fable | "{'keep_alive': 0}"_j)
      .must_match("{'done_reason': 'unload'}"_j);
  server.post("/api/embed", fable).must_be(200);

  // A prompt as it stands; streamed in as many words.
  const Json options = R"({"options": {"num_predict": 8, "temperature": 0, "mirostat": 0,
      "draft_num_predict": 1, "typical_p": 1}})"_j;
  const Json raw = R"({"prompt": "Once upon a time", "raw": true, "stream": false,
      "truncate": true, "logprobs": false})"_j |
                   options;
  const Json stream = "{'stream': true}"_j;
  const Json text = server.post("/api/generate", raw).at("/response");
  CHECK(text == server.choice(kOnce)["text"]);
  CHECK(joined(parts_of(server.post("/api/generate", raw | stream).body), "/response") == text);

  // Log probabilities, whole and streamed, raw and of a chat.
  const Json logprobs = "{'logprobs': true, 'top_logprobs': 2, 'stream': false}"_j;
  for (const auto& [path, body] :
       {std::pair{"/api/generate", raw | logprobs},
        {"/api/chat", Json{{"messages", kHello}} | options | logprobs}}) {
    const Json all = server.post(path, body).at("/logprobs");
    REQUIRE(all.size() == 8);
    CHECK(all[0]["top_logprobs"].size() == 2);
    CHECK(all[0]["top_logprobs"][0]["logprob"] == all[0]["logprob"]);
    Json streamed = Json::array();
    for (const Json& part : parts_of(server.post(path, body | stream).body))
      for (const Json& token : part.value("logprobs", Json::array())) streamed.push_back(token);
    CHECK(streamed == all);
  }
  server.post("/api/generate", raw | "{'top_logprobs': 2}"_j).must_be(400);

  // Errors are words.
  for (const auto& [body, words] : std::vector<std::pair<Json, std::string>>{
           {"{'model': 'other', 'messages': []}"_j, "other"},
           {"{'messages': 1}"_j, "messages"},
           {Json{{"messages", kHello}} | "{'options': {'mirostat': 2}}"_j, "options.mirostat"},
           {Json{{"messages", kHello}} | "{'options': {'num_predct': 2}}"_j,
            "options.num_predct"}}) {
    const Reply reply = server.post("/api/chat", body);
    CHECK(reply.status >= 400);
    CHECK_THAT(reply.json()["error"].get<std::string>(), Contains(words));
  }
  CHECK(server.get("/api/chat").json()["error"].is_string());
}

TEST_CASE("llama-server's clients find what they ask for", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "-np", "3"});
  const Json body = R"({"prompt": "Once upon a time", "n_predict": 8, "temperature": 0,
      "cache_prompt": true, "id_slot": -1, "samplers": []})"_j;
  const Json content = server.choice(kOnce)["text"];
  server.post("/completion", body)
      .must_match(Json{{"content", content}} |
                  "{'stop': true, 'stop_type': 'limit', 'timings': {'predicted_n': 8}}"_j);
  server.post("/completions", body).must_match({{"content", content}});
  const Json messages = {{"messages", conversation({{"system", "Be short."}, {"user", "Hi"}})}};
  const Json prompt = server.post("/apply-template", messages).at("/prompt");
  CHECK_THAT(prompt.get<std::string>(), Contains("Be short."));
  // What it writes is what a chat sees.
  const Json chat = messages | "{'max_tokens': 8, 'temperature': 0, 'timings_per_token': true}"_j;
  const Reply reply = server.post("/v1/chat/completions", chat);
  CHECK(reply.at("/choices/0/message/content") ==
        server.post("/completion", {{"prompt", prompt}, {"n_predict", 8}, {"temperature", 0}})
            .at("/content"));
  CHECK(reply.at("/timings/predicted_n") == 8);
  const Json idle = "{'is_processing': false}"_j;
  server.get("/slots").must_match(Json::array({idle, idle, idle}));
  server.post("/completion", "{'prompt': 'a', 'n_probs': 21}"_j).must_name("n_probs");
}

TEST_CASE("a stream tells how far the prompt is, as llama-server's does", "[llmserve]") {
  Server server = serve_fable({"--chat-template", "zephyr", "--chunk", "64"});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Once upon a time ";
  const Json more = "{'max_tokens': 4, 'stream': true, 'return_progress': true}"_j;
  const auto check = [&](const std::string& path, const Json& body, const std::string& nothing,
                         const Json& is_nothing) {
    CAPTURE(path);
    for (const bool is_cached : {false, true}) {
      const std::vector<Json> parts = parts_of(server.post(path, body | more).must_be(200).body);
      std::vector<Json> told;
      for (const Json& part : parts) {
        if (!part.contains("prompt_progress")) continue;
        CHECK(part.at(Json::json_pointer(nothing)) == is_nothing);
        told.push_back(part["prompt_progress"]);
      }
      REQUIRE(told.size() >= (is_cached ? 2 : 4));
      CHECK(told[0]["processed"] == told[0]["cache"]);
      CHECK((told[0]["cache"] > 100) == is_cached);  // BOS may be
      CHECK(told.back()["processed"] == told[0]["total"]);
      for (std::size_t i = 1; i < told.size(); ++i) {
        CHECK(told[i]["total"] == told[0]["total"]);
        CHECK(told[i]["processed"] > told[i - 1]["processed"]);
        CHECK(told[i]["time_ms"] > told[i - 1]["time_ms"]);
      }
    }
    CHECK_THAT(server.post(path, body | more | "{'return_progress': false}"_j).body,
               !Contains("prompt_progress"));
    CHECK_THAT(server.post(path, body | more | "{'stream': false}"_j).must_be(200).body,
               !Contains("prompt_progress"));
  };
  check("/v1/chat/completions", {{"messages", question(text)}}, "/choices/0/delta",
        "{'role': 'assistant', 'content': null}"_j);
  check("/v1/completions", {{"prompt", "a" + text}}, "/choices/0/text", "");
  check("/completion", {{"prompt", "b" + text}}, "/content", "");
}

TEST_CASE("penalties of generated tokens have their effect", "[llmserve]") {
  Server server = serve_fable();
  const auto receipt = [&](const Json& more) {
    return server.choice(kOnce | "{'max_tokens': 60, 'receipt': true}"_j | more)["receipt"];
  };
  const Json plain = receipt(Json::object());
  CHECK_FALSE(plain["options"].contains("presence_penalty"));
  CHECK(receipt("{'presence_penalty': 0, 'frequency_penalty': 0}"_j)["ids"] == plain["ids"]);
  const Json less = receipt("{'presence_penalty': 1.5}"_j);
  must_match(less["options"], "{'presence_penalty': 1.5}"_j);
  CHECK(less["ids"] != plain["ids"]);
  const auto distinct = [](const Json& one) {
    return std::set<Json>(one["ids"].begin(), one["ids"].end()).size();
  };
  CHECK(distinct(less) > distinct(plain));
  CHECK(distinct(receipt("{'frequency_penalty': 2}"_j)) > distinct(plain));
  replay(less);
}

TEST_CASE("settings of llama.cpp's other samplers have their effect", "[llmserve]") {
  Server server = serve_fable();
  const auto receipt = [&](const Json& more) {
    return server.choice(
        R"({"prompt": "Once upon a time", "max_tokens": 80, "seed": 4, "receipt": true})"_j |
        more)["receipt"];
  };
  const Json plain = receipt(Json::object());
  for (const Json& more : R"([{"temperature": 0, "dry_multiplier": 5}, {"typical_p": 0.2},
           {"xtc_probability": 1, "xtc_threshold": 0.05},
           {"dynatemp_range": 0.9, "dynatemp_exponent": 2},
           {"min_tokens": 79, "temperature": 0}])"_j) {
    CAPTURE(more);
    const Json one = receipt(more);
    must_match(one["options"], more);
    if (!more.contains("min_tokens")) CHECK(one["ids"] != plain["ids"]);
    replay(one);
  }
  // Four tokens come a second time where a line break or the like stands among them, if at all.
  const auto repeats = [](const Json& ids) {
    std::set<std::vector<int>> known;
    std::size_t n = 0;
    for (auto at = ids.begin(); ids.end() - at >= 4; ++at)
      n += known.insert(std::vector<int>(at, at + 4)).second ? 0 : 1;
    return n;
  };
  const Json greedy = "{'temperature': 0, 'max_tokens': 400, 'ignore_eos': true}"_j;
  CHECK(10 * repeats(receipt(greedy | "{'dry_multiplier': 50}"_j)["ids"]) <
        repeats(receipt(greedy)["ids"]));
  // A text that would end is as long as was asked for at least.
  const Json early = "{'logit_bias': {'2': 100}}"_j;
  CHECK(receipt(early)["ids"].empty());
  CHECK(receipt(early | "{'min_tokens': 7}"_j)["ids"].size() == 7);
}

TEST_CASE("probabilities of tokens, in llama-server's shape", "[llmserve]") {
  Server server = serve_fable();
  const Json body = "{'prompt': 'Once upon a', 'n_predict': 3, 'temperature': 0, 'n_probs': 2}"_j;
  const Json whole = server.post("/completion", body).must_be(200).json();
  const Json& all = whole["completion_probabilities"];
  REQUIRE(all.size() == 3);
  // The same as OpenAI's clients get.
  const Json choice = server.choice(body | "{'max_tokens': 3, 'logprobs': 2, 'n_probs': null}"_j);
  std::string text;
  for (std::size_t i = 0; i < 3; ++i) {
    text += all[i]["token"];
    const Json& top = all[i]["top_logprobs"];
    REQUIRE(top.size() == 2);
    must_match(top[0], {{"id", all[i]["id"]}, {"logprob", all[i]["logprob"]}});
    CHECK(top[1]["logprob"] < all[i]["logprob"]);
    CHECK(all[i]["logprob"] == choice["logprobs"]["token_logprobs"][i]);
  }
  CHECK(text == whole["content"]);
  Json streamed = Json::array();
  for (const Json& part : parts_of(server.post("/completion", body | "{'stream': true}"_j).body))
    for (const Json& one : part.value("completion_probabilities", Json::array()))
      streamed.push_back(one);
  CHECK(streamed == all);
  CHECK_THAT(server.post("/infill", body | "{'n_probs': 0}"_j).body,
             !Contains("completion_probabilities"));
}

TEST_CASE("documents are put in order", "[llmserve]") {
  const Json documents = "['A dog ran.', 'A tiny hen.', 'The sea is blue.']"_j;
  const Json body = {{"query", "A tiny hen."}, {"documents", documents}};
  SECTION("by the cosine of embeddings") {
    Server server = serve_fable({"--pooling", "last"});
    const Json results = server.post("/v1/rerank", body).at("/results");
    REQUIRE(results.size() == 3);
    must_match(results[0], "{'index': 1}"_j);
    CHECK(std::abs(results[0]["relevance_score"].get<double>() - 1) < 1e-6);
    const auto vector = [&](const Json& text) {
      return server.post("/v1/embeddings", {{"input", text}})
          .at("/data/0/embedding")
          .get<std::vector<double>>();
    };
    const auto query = vector("A tiny hen.");
    for (const Json& result : results) {
      const auto other = vector(documents[result["index"].get<std::size_t>()]);
      const double cosine = std::inner_product(query.begin(), query.end(), other.begin(), 0.0);
      CHECK(std::abs(result["relevance_score"].get<double>() - cosine) < 1e-6);
    }
    server.post("/rerank", body | "{'top_n': 1, 'return_documents': true}"_j)
        .must_match("{'results': [{'document': {'text': 'A tiny hen.'}}]}"_j);
  }
  SECTION("but not by a model that was made for neither") {
    Server server = serve_fable({"--chat-template", "zephyr"});
    server.post("/v1/rerank", body).must_name("documents", {"neither"});
    server.post("/v1/rerank", "{'query': 'a'}"_j).must_name("documents");
  }
}

}  // namespace llm::test
