// Reference files of --verify: what is read from them, and what is refused.

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "validate/outputs/verify/reference.h"

namespace llm {

namespace {

/// Two prompts, two steps, a top of three.
Json valid() {
  return test::parse_json(R"({
    "schema_version": 1, "format": "llmcheck-verify/1", "producer": "p", "producer_version": "1",
    "oracle": "R0", "model_name": "m",
    "model_sha256": "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "tokenizer_hash": "", "steps": 2, "top_k": 3,
    "prompts": [
      {"id": "a", "kind": "base", "text": "Hi", "ids": [1, 7], "tokens": [4, 5],
       "top_ids": [[4, 2, 3], [5, 4, 6]], "top_logits": [[9.5, 8, 8], [1, -1, -2.25]]},
      {"id": "b", "kind": "instruct", "ids": [1, 8, 9], "tokens": [4, 4],
       "top_ids": [[4, 2, 3], [4, 3, 2]], "top_logits": [[3, 2, 1], [3, 2, 1]]}]})");
}

}  // namespace

TEST_CASE("a reference is read as it stands", "[verify]") {
  const auto read = test::require_ok(parse_verify_reference(json_text(valid())));
  CHECK(read.oracle == "R0");
  CHECK(read.n_steps == 2);
  CHECK(read.top_k == 3);
  CHECK(read.context() == 5);
  REQUIRE(read.prompts.size() == 2);
  CHECK(read.prompts[0].text == "Hi");
  CHECK_FALSE(read.prompts[1].text);
  CHECK(read.prompts[0].ids == std::vector<TokenId>{1, 7});
  CHECK(read.prompts[0].steps[1].ids == std::vector<TokenId>{5, 4, 6});
  CHECK(read.prompts[0].steps[1].logits == std::vector<float>{1, -1, -2.25F});
}

TEST_CASE("what breaks a reference is named", "[verify][bad_input]") {
  struct Case {
    const char* pointer;
    const char* value;  // empty: the member is missing
    const char* words;
  };
  const auto c = GENERATE(
      Case{"/schema_version", "", "schema_version: found none, need an integer"},
      Case{"/schema_version", "\"1\"", "schema_version: found \"1\", need an integer"},
      Case{"/format", "\"llmcheck-quality/1\"", "format: found"},
      Case{"/producer", "", "producer: found none, need a string"},
      Case{"/oracle", "7", "oracle: found 7, need a string"},
      Case{"/model_sha256", "\"00\"", "model_sha256: found \"00\", need 64"},
      Case{"/tokenizer_hash", "", "tokenizer_hash"}, Case{"/steps", "0", "steps: found 0"},
      Case{"/steps", "3", "prompts[0].tokens: found 2 entries, need an array of 3"},
      Case{"/top_k", "1", "top_k: found 1"}, Case{"/top_k", "-3", "top_k: found -3"},
      Case{"/top_k", "4", "prompts[0].top_ids[0]: found 3 entries, need an array of 4"},
      Case{"/prompts", "", "prompts: found none"}, Case{"/prompts", "[]", "prompts: found 0"},
      Case{"/prompts", "{}", "prompts: found an object"},
      Case{"/prompts/1", "5", "prompts[1]: found 5, need an object"},
      Case{"/prompts/1/id", "\"a\"", "prompts[1].id: found \"a\" again"},
      Case{"/prompts/0/kind", "\"chat\"", "prompts[0].kind: found \"chat\""},
      Case{"/prompts/0/text", "null", "prompts[0].text: found null, need a string"},
      Case{"/prompts/0/ids", "[]", "prompts[0].ids: found 0 entries"},
      Case{"/prompts/0/ids/1", "-1", "prompts[0].ids[1]: found -1, need a token id"},
      Case{"/prompts/0/ids/1", "1.5", "prompts[0].ids[1]: found 1.5"},
      Case{"/prompts/0/ids/1", "4294967296", "prompts[0].ids[1]: found 4294967296"},
      Case{"/prompts/0/tokens", "", "prompts[0].tokens: found none"},
      Case{"/prompts/0/tokens/1", "4", "prompts[0].tokens[1]: found 4, need 5, the first"},
      Case{"/prompts/0/top_ids/1", "[5, 4]", "prompts[0].top_ids[1]: found 2 entries"},
      Case{"/prompts/0/top_ids/1/2", "5", "prompts[0].top_ids[1]: found an id twice"},
      Case{"/prompts/0/top_logits", "", "prompts[0].top_logits: found none"},
      Case{"/prompts/0/top_logits/1/0", "null", "prompts[0].top_logits[1]: found null"},
      Case{"/prompts/0/top_logits/1/0", "1e300", "top_logits[1]: found 1e+300, need numbers"},
      Case{"/prompts/0/top_logits/1/2", "0", "prompts[0].top_logits[1]: found 0 after -1"});
  CAPTURE(c.pointer, c.value);
  test::must_fail(parse_verify_reference(json_text(test::with_value(valid(), c.pointer, c.value))),
                  ErrorCode::kMalformed, {c.words});
}

TEST_CASE("another version is unsupported; no JSON is malformed", "[verify][bad_input]") {
  test::must_fail(
      parse_verify_reference(json_text(test::with_value(valid(), "/schema_version", "2"))),
      ErrorCode::kUnsupported);
  const std::string text = json_text(valid());
  for (std::size_t n = 0; n < text.size(); ++n) {
    test::must_fail(parse_verify_reference(text.substr(0, n)), ErrorCode::kMalformed);
  }
  CHECK_FALSE(parse_verify_reference("[]").ok());
  CHECK_FALSE(parse_verify_reference(text + text).ok());
}

TEST_CASE("ids must be in the vocabulary", "[verify][bad_input]") {
  const auto read = test::require_ok(parse_verify_reference(json_text(valid())));
  CHECK(check_ids(read, 10).ok());
  CHECK_THAT(check_ids(read, 9).error().to_string(), Contains("prompts[1].ids[2]: found 9"));
  CHECK_THAT(check_ids(read, 8).error().to_string(), Contains("prompts[1].ids[1]: found 8"));
  CHECK_THAT(check_ids(read, 7).error().to_string(), Contains("prompts[0].ids[1]: found 7"));
  auto top =
      *parse_verify_reference(json_text(test::with_value(valid(), "/prompts/0/top_ids/1/2", "12")));
  CHECK_THAT(check_ids(top, 10).error().to_string(),
             Contains("prompts[0].top_ids[1][2]: found 12"));
}

TEST_CASE("quick keeps a base and an instruct prompt", "[verify]") {
  const auto prompt = [](const char* id, const char* kind) {
    return VerifyPrompt{.id = id, .kind = kind, .text = {}, .ids = {1}, .steps = {}};
  };
  VerifyReference reference;
  reference.prompts = {prompt("b1", "base"), prompt("b2", "base"), prompt("i1", "instruct"),
                       prompt("i2", "instruct")};
  keep_quick_prompts(reference);
  REQUIRE(reference.prompts.size() == 2);
  CHECK(reference.prompts[0].id == "b1");
  CHECK(reference.prompts[1].id == "i1");
  reference.prompts = {prompt("b1", "base"), prompt("b2", "base"), prompt("b3", "base")};
  keep_quick_prompts(reference);
  REQUIRE(reference.prompts.size() == 2);
  CHECK(reference.prompts[1].id == "b2");
  reference.prompts.resize(1);
  keep_quick_prompts(reference);
  CHECK(reference.prompts.size() == 1);
}

}  // namespace llm
