// Text between two texts, by /v1/completions and /infill.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
TEST_CASE("fill-in-the-middle uses the tokens of the vocabulary", "[llmserve]") {
  TinyGguf model = TinyGguf::llama();
  // The last pieces, which nothing is merged from.
  constexpr int first = 266;
  model.set_pieces({{first, "<|fim_prefix|>"},
                    {first + 1, "<|fim_suffix|>"},
                    {first + 2, "<|fim_middle|>"},
                    {first + 3, "<|fim_pad|>"},
                    {first + 4, "<|repo_name|>"},
                    {first + 5, "<|file_sep|>"}});
  const ScratchDirectory directory;
  Server server({directory.write("fim.gguf", model.bytes()), "-q", "-c", "200"});
  const auto ids = [&](const std::string& text) {
    return server.tokens({{"prompt", text}, {"add_special_tokens", false}}).get<std::vector<int>>();
  };
  // Without the dummy prefix.
  const auto inside = [&](const std::string& text) {
    const std::vector<int> x = ids("x");
    const std::vector<int> all = ids("x" + text);
    return std::vector<int>(all.begin() + static_cast<std::ptrdiff_t>(x.size()), all.end());
  };
  const auto joined = [](const std::vector<std::vector<int>>& parts) {
    std::vector<int> all;
    for (const std::vector<int>& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const std::vector<int> core =
      joined({{first}, ids("ab"), {first + 1}, inside("ba"), {first + 2}});
  const Json body =
      R"({"prompt": "ab", "suffix": "ba", "max_tokens": 8, "temperature": 0, "receipt": true})"_j;
  const Json choice = server.choice(body);
  REQUIRE(choice["receipt"]["prompt_ids"] == joined({{1}, core}));

  // The same gap by llama-server's path: the prompt was written after the prefix.
  const Json infill = R"({"input_prefix": "a", "input_suffix": "ba", "prompt": "b", "n_predict": 8,
      "temperature": 0, "cache_prompt": true})"_j;
  server.post("/infill", infill)
      .must_match({{"content", choice["text"]},
                   {"tokens_evaluated", core.size() + 1},
                   {"stop", true},
                   {"stop_type", choice["finish_reason"] == "length" ? "limit" : "eos"}});
  const auto parts = parts_of(server.post("/infill", infill | "{'stream': true}"_j).body);
  for (const Json& part : parts) REQUIRE(part["stop"] == (&part == &parts.back()));
  REQUIRE(test::joined(parts, "/content") == choice["text"]);

  // Other files stand before it; those that find no room are left out, the first ones first.
  const auto file = [&](const std::string& name, const std::string& content) {
    return joined({{first + 5}, inside(name + "\n" + content)});
  };
  const auto evaluated = [&](const Json& extra) -> std::size_t {
    return server.post("/infill", infill | Json{{"n_predict", 1}, {"input_extra", extra}})
        .at("/tokens_evaluated");
  };
  const std::size_t around =
      1 + core.size() + 1 + inside("myproject\n").size() + file("filename", "").size();
  const Json a = {{"filename", "a"}, {"text", "aba"}};
  const Json b = {{"filename", "b"}, {"text", "bab"}};
  const Json large = {{"filename", "c"}, {"text", std::string(300, 'a')}};
  REQUIRE(evaluated(Json::array({a, b})) ==
          around + file("a", "aba").size() + file("b", "bab").size());
  REQUIRE(evaluated(Json::array({large, b})) == around + file("b", "bab").size());
  REQUIRE(evaluated(Json::array({large})) == core.size() + 1);

  // What ends a text of such a model.
  must_match(server.choice({{"prompt", "ab"}, {"logit_bias", {{std::to_string(first + 5), 100}}}}),
             "{'finish_reason': 'stop', 'text': ''}"_j);

  const std::string long_text(300, 'a');
  for (const auto& [more, param] :
       std::vector<std::pair<Json, std::string>>{{"{'echo': true}"_j, "echo"},
                                                 {"{'prompt': [1, 5]}"_j, "suffix"},
                                                 {"{'suffix': 5}"_j, "suffix"},
                                                 {{{"suffix", long_text}}, "prompt"}})
    server.complete(body | more).must_name(param);
  for (const auto& [more, param] : std::vector<std::pair<Json, std::string>>{
           {"{'n': 2}"_j, "n"},
           {"{'receipt': true}"_j, "receipt"},
           {"{'n_predict': -3}"_j, "n_predict"},
           {"{'input_extra': [{'text': 1}]}"_j, "input_extra[0].text"},
           {"{'input_extra': 'a'}"_j, "input_extra"},
           {"{'bogus_penalty': 1}"_j, "bogus_penalty"},
           {{{"input_prefix", long_text}}, "input_prefix"}})
    server.post("/infill", infill | more).must_name(param);

  const TinyModel tiny;
  Server without = tiny.serve();
  const std::string words = "no tokens for a text's prefix, suffix and middle";
  without.post("/v1/completions", body).must_name("suffix", {words});
  without.post("/infill", infill).must_name("input_prefix", {words});
}

}  // namespace llm::test
