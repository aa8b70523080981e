// Answers of a given structure: what is asked for is what comes, for one and among many, with
// speculation and in receipts.

#include <atomic>
#include <thread>

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

/// Properties that are not in the order of their names.
constexpr const char* kSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 3, "maximum": 99}, "friend": {"enum": ["dog", "cat", null]}},
        "required": ["name", "age", "friend"]})";

std::string format_of(const std::string& schema) {
  return R"({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": )" +
         schema + "}}";
}

/// A body as a text, which keeps the order of names.
std::string body_of(const std::string& more, std::size_t seed) {
  return fmt::format(
      R"({{"prompt": "Once upon a time", "max_tokens": 120, "temperature": 1.5, "seed": {}, {}}})",
      seed, more);
}

void check_person(const Json& choice) {
  CAPTURE(json_text(choice));
  REQUIRE(choice["finish_reason"] == "stop");
  const std::string text = choice["text"];
  REQUIRE(text.starts_with("{\"name\": \""));  // in the schema's order
  const Json person = test::parse_json(text);
  REQUIRE(person.size() == 3);
  REQUIRE_FALSE(person["name"].get<std::string>().empty());
  REQUIRE((person["age"] >= 3 && person["age"] <= 99));
  REQUIRE((person["friend"].is_null() || person["friend"] == "dog" || person["friend"] == "cat"));
}

/// The answers to `bodies`, all asked at once.
std::vector<Json> ask_at_once(const Server& server, const std::vector<std::string>& bodies) {
  std::vector<Reply> replies(bodies.size());
  at_once(bodies.size(),
          [&](std::size_t i) { replies[i] = server.ask(post_text("/v1/completions", bodies[i])); });
  std::vector<Json> answers;
  for (const Reply& reply : replies) answers.push_back(reply.json()["choices"]);
  return answers;
}

}  // namespace

TEST_CASE("answers keep to their schema at a high temperature", "[llmserve][structure]") {
  Server server = serve_fable();
  for (std::size_t seed = 0; seed < 10; ++seed) {
    const std::string body = body_of("\"response_format\": " + format_of(kSchema), seed);
    check_person(ask_at_once(server, {body})[0][0]);
  }
}

TEST_CASE("answers of a structure are the same among others, and with speculation",
          "[llmserve][structure]") {
  std::vector<std::string> bodies;
  for (std::size_t i = 0; i < 24; ++i) {
    const std::vector<std::string> ways = {"\"response_format\": " + format_of(kSchema),
                                           R"("response_format": {"type": "json_object"})",
                                           R"("regex": "((yes|no), ){10}ok")",
                                           R"("grammar": "root ::= (\"a\" | \"bc\" ){5} [0-9]+")",
                                           R"("logit_bias": {"5": 1})",
                                           R"("response_format": {"type": "text"}, "logprobs": 2)"};
    bodies.push_back(body_of(ways[i % ways.size()], i));
  }
  std::vector<Json> alone;
  Server plain = serve_fable();
  for (const std::string& body : bodies) alone.push_back(ask_at_once(plain, {body})[0]);
  check_person(alone[0][0]);
  REQUIRE(alone[2][0]["text"].get<std::string>().ends_with("ok"));
  REQUIRE(ask_at_once(plain, bodies) == alone);
  Server narrow = serve_fable({"--speculate", "ngram", "--parallel", "3", "--chunk", "32"});
  REQUIRE(ask_at_once(narrow, bodies) == alone);
  REQUIRE(narrow.metric("accepted_tokens_total") > 0);
}

TEST_CASE("llmrun writes what llmserve answers, and its receipt can be checked",
          "[llmserve][llmrun][structure]") {
  Server server = serve_fable();
  const ToolFolder folder;
  const std::string body =
      body_of("\"receipt\": true, \"response_format\": " + format_of(kSchema), 4);
  const Json choice = ask_at_once(server, {body})[0][0];
  folder.write("s.json", kSchema);
  const Finished run =
      folder
          .shell("llmrun " + kFable +
                 " -q -t 1 -p 'Once upon a time' -n 120 -s 4 --temp 1.5 --top-k 0 --top-p 1 "
                 "--min-p 0 --json-schema-file s.json --receipt r.json")
          .must_end(0);
  REQUIRE(choice["text"] == run.out);
  test::replay(choice["receipt"]);
  Json own = test::parse_json(folder.read("r.json"));
  test::replay(own);
  // A wrong seed is found although most rows leave few tokens.
  own["options"]["seed"] = 5;
  REQUIRE_THAT(test::replay(own, 1).out, Contains("seed 4 would give its tokens"));
  own["options"]["seed"] = 4;
  own["options"]["grammar"]["text"] = R"({"type": "object"})";
  test::replay(own, 1);
  own["options"]["grammar"] = nullptr;
  test::replay(own, 3);
  own["options"].erase("grammar");
  test::replay(own, 1);
}

TEST_CASE("bad input 102: a short request does not wait for a long compilation",
          "[llmserve][structure]") {
  Server server = serve_fable();
  std::string dots;
  for (int i = 0; i < 14'000; ++i) dots += ".*";
  std::atomic<bool> has_ended = false;
  std::thread asking([&] {
    const std::string body = body_of(fmt::format(R"("regex": "{}")", dots), 1);
    server.ask(post_text("/v1/completions", body)).must_name("regex");
    has_ended = true;
  });
  bool was_first = false;
  for (int i = 0; i < 3 && !has_ended; ++i) {
    server.ask(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 1})")).must_be(200);
    was_first = was_first || (i == 2 && !has_ended);
  }
  CHECK(was_first);
  asking.join();
}

TEST_CASE("what cannot be enforced is refused, and the field named", "[llmserve][structure]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\"response_format\": " + format_of(R"({"properties": {"a": {"not": {}}}})"),
       "response_format.json_schema.schema/properties/a/not"},
      {"\"response_format\": " + format_of(R"({"type": "array", "uniqueItems": true})"),
       "response_format.json_schema.schema/uniqueItems"},
      {"\"response_format\": " + format_of("3"), "response_format.json_schema.schema"},
      {R"("grammar": "root ::= x")", "grammar"},
      {R"("grammar": "root ::= [")", "grammar"},
      {R"("grammar": "root ::= root")", "grammar"},  // found while drawing: no text goes on
      {R"("grammar": "root ::= \"a\" x\nx ::= x")", "grammar"},
      {R"("regex": "(")", "regex"},
      {R"("regex": "a", "grammar": "root ::= \"a\"")", "regex"},
      {R"("regex": "a", "response_format": {"type": "json_object"})", "regex"},
      {R"("regex": "a", "ignore_eos": true)", "ignore_eos"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
       "response_format.json_schema.schema"},
  };
  for (const auto& [more, param] : cases) {
    std::string body = body_of(more, 1);
    server.ask(post_text("/v1/completions", body)).must_name(param);
    body.replace(1, std::string(R"("prompt": "Once upon a time")").size(),
                 R"("messages": [{"role": "user", "content": "a"}])");
    server.ask(post_text("/v1/chat/completions", body)).must_name(param);
  }
}

TEST_CASE("a chat's reply keeps to its schema", "[llmserve][structure]") {
  Server server = serve_fable({"--chat-template", "zephyr"});
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Who?"}], "temperature": 1.5, "seed": 2, "stream": true,
      "response_format": )" +
      format_of(kSchema) + "}";
  const auto parts = parts_of(server.ask(post_text("/v1/chat/completions", body)).body);
  check_person({{"text", joined(parts, "/choices/0/delta/content")},
                {"finish_reason", joined(parts, "/choices/0/finish_reason")}});
}

}  // namespace llm::test
