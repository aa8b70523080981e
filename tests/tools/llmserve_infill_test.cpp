// Text between two texts, by /v1/completions and /infill.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
TEST_CASE("the text of a gap is asked for by the vocabulary's tokens", "[llmserve]") {
  TinyGguf model = TinyGguf::llama();
  auto pieces = TinyGguf::pieces();
  // The last seven pieces, which nothing is merged from.
  const std::vector<std::string> texts = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                          "<|fim_pad|>",    "<|repo_name|>",  "<|file_sep|>"};
  const auto first = static_cast<int>(pieces.size() - texts.size());
  std::ranges::copy(texts, pieces.end() - static_cast<std::ptrdiff_t>(texts.size()));
  model.set_strings("tokenizer.ggml.tokens", pieces);
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
  const Json body = {
      {"prompt", "ab"}, {"suffix", "ba"}, {"max_tokens", 8}, {"temperature", 0}, {"receipt", true}};
  const Json choice = server.choice(body);
  REQUIRE(choice["receipt"]["prompt_ids"] == joined({{1}, core}));

  // The same gap by llama-server's path: the prompt was written behind the prefix.
  Json infill = {{"input_prefix", "a"}, {"input_suffix", "ba"}, {"prompt", "b"},
                 {"n_predict", 8},      {"temperature", 0},     {"cache_prompt", true}};
  const Json gap = server.post("/infill", infill).json();
  REQUIRE(gap["content"] == choice["text"]);
  REQUIRE(gap["tokens_evaluated"] == core.size() + 1);
  REQUIRE(gap["stop"] == true);
  REQUIRE(gap["stop_type"] == (choice["finish_reason"] == "length" ? "limit" : "eos"));
  infill["stream"] = true;
  std::string text;
  const auto events = events_of(server.post("/infill", infill).body);
  for (const std::string& event : events) {
    const Json piece = test::parse_json(event);
    text += piece["content"].get<std::string>();
    REQUIRE(piece["stop"] == (&event == &events.back()));
  }
  REQUIRE(text == choice["text"]);

  // Other files stand before it; those that find no room are left out, the first ones first.
  const auto file = [&](const std::string& name, const std::string& content) {
    return joined({{first + 5}, inside(name + "\n" + content)});
  };
  infill.update({{"stream", false}, {"n_predict", 1}});
  const auto evaluated = [&](const Json& extra) {
    infill["input_extra"] = extra;
    const Json answer = server.post("/infill", infill).must_be(200).json();
    return answer["tokens_evaluated"].get<std::size_t>();
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
  infill.erase("input_extra");

  // What ends a text of such a model.
  const Json ended =
      server.choice({{"prompt", "ab"}, {"logit_bias", {{std::to_string(first + 5), 100}}}});
  REQUIRE(ended["finish_reason"] == "stop");
  REQUIRE(ended["text"] == "");

  const auto refused = [&](const std::string& path, const Json& more, const std::string& param) {
    Json changed = path == "/infill" ? infill : body;
    changed.update(more);
    server.post(path, changed).must_name(param);
  };
  refused("/v1/completions", {{"echo", true}}, "echo");
  refused("/v1/completions", {{"prompt", {1, 5}}}, "suffix");
  refused("/v1/completions", {{"suffix", 5}}, "suffix");
  refused("/v1/completions", {{"suffix", std::string(300, 'a')}}, "prompt");
  refused("/infill", {{"n", 2}}, "n");
  refused("/infill", {{"receipt", true}}, "receipt");
  refused("/infill", {{"n_predict", -3}}, "n_predict");
  refused("/infill", {{"input_extra", Json::array({Json{{"text", 1}}})}}, "input_extra[0].text");
  refused("/infill", {{"input_extra", "a"}}, "input_extra");
  refused("/infill", {{"bogus_penalty", 1}}, "bogus_penalty");
  refused("/infill", {{"input_prefix", std::string(300, 'a')}}, "input_prefix");

  const TinyModel tiny;
  Server without = tiny.serve();
  const std::string words = "no tokens for a text's prefix, suffix and middle";
  without.post("/v1/completions", body).must_name("suffix", {words});
  without.post("/infill", infill).must_name("input_prefix", {words});
}

}  // namespace llm::test
