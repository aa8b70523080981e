// Embeddings by /v1/embeddings and /api/embed.

#include "tests/tools/llmserve_process.h"
#include "tools/llmserve/api/embeddings.h"

namespace llm::test {
namespace {

using Values = std::vector<float>;

Reply embed(const Server& server, Json body) { return server.post("/v1/embeddings", body); }

/// The only embedding of an answer.
Values values_of(const Reply& reply) {
  REQUIRE(reply.at("/data").size() == 1);
  return reply.at("/data/0/embedding").get<Values>();
}

double length_of(const Values& values) {
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("embeddings have OpenAI's shape, and one value for one text", "[llmserve]") {
  Server server = serve_fable();
  const std::string text = "Once upon a time there was a dog.";
  const Json ids = server.tokens({{"prompt", text}});
  const Json input = {{"input", text}};
  const Reply one = embed(server, input | "{'user': 'u', 'dimensions': null}"_j);
  one.must_match({{"object", "list"},
                  {"model", "fable-3m-q4_k_m"},
                  {"usage", {{"prompt_tokens", ids.size()}, {"total_tokens", ids.size()}}},
                  {"data", {{{"object", "embedding"}}}}});
  const Values values = values_of(one);
  REQUIRE(values.size() == 256);
  CHECK(std::abs(length_of(values) - 1) < 1e-6);
  CHECK(values_of(embed(server, {{"input", ids}})) == values);
  CHECK(values_of(embed(server, {{"input", {ids}}, {"encoding_format", "float"}})) == values);

  const Json several = embed(server, {{"input", {"The sea", text, "The sea"}}}).at("/data");
  must_match(several, "[{'index': 0}, {'index': 1}, {'index': 2}]"_j);
  CHECK(several[1]["embedding"].get<Values>() == values);
  CHECK(several[0]["embedding"] == several[2]["embedding"]);
  CHECK(several[0]["embedding"] != several[1]["embedding"]);
  CHECK(embed(server, input | "{'encoding_format': 'base64'}"_j).at("/data/0/embedding") ==
        base64_of(values));

  // Leading values, of length 1 anew.
  const Values cut = values_of(embed(server, input | "{'dimensions': 5}"_j));
  REQUIRE(cut.size() == 5);
  const double length = length_of(Values(values.begin(), values.begin() + 5));
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(std::abs(static_cast<double>(cut[i]) - static_cast<double>(values[i]) / length) < 1e-6);
  CHECK(values_of(embed(server, input | "{'dimensions': 256}"_j)) == values);
}

TEST_CASE("base64 is RFC 4648's", "[llmserve]") {
  // Python: base64.b64encode(struct.pack("<3f", 1, -2.5, 0.1)), of one, two and three values
  CHECK(base64_of({}) == "");
  CHECK(base64_of(Values{1}) == "AACAPw==");
  CHECK(base64_of(Values{1, -2.5F}) == "AACAPwAAIMA=");
  CHECK(base64_of(Values{1, -2.5F, 0.1F}) == "AACAPwAAIMDNzMw9");
}

TEST_CASE("what is no request for embeddings is refused by field", "[llmserve]") {
  const TinyModel tiny;
  Server server = tiny.serve({"--parallel", "2", "--queue", "2", "-c", "20"});
  for (const auto& [body, field] : std::vector<std::pair<Json, std::string>>{
           {"{}"_j, "input"},
           {"{'input': []}"_j, "input"},
           {"{'input': 7}"_j, "input"},
           {"{'input': ['a', 7]}"_j, "input[1]"},
           {"{'input': [1, 'a']}"_j, "input[1]"},
           {"{'input': [[1], [272]]}"_j, "input[1][0]"},
           {"{'input': [[1], []]}"_j, "input[1]"},
           {"{'input': ['a', 'a', 'a', 'a', 'a']}"_j, "input"},
           {"{'input': 'a', 'dimensions': 0}"_j, "dimensions"},
           {"{'input': 'a', 'dimensions': 33}"_j, "dimensions"},
           {"{'input': 'a', 'encoding_format': 'hex'}"_j, "encoding_format"},
           {"{'input': 'a', 'dimension': 7}"_j, "dimension"}})
    embed(server, body).must_name(field);
  Server large = tiny.serve({"--queue", "200000"});  // 32 values each
  embed(large, {{"input", Json((1 << 17) + 1, Json{1})}}).must_name("input");
  embed(server, {{"input", "a"}, {"model", "other"}}).must_be(404);
  CHECK(values_of(embed(server, {{"input", Json(20, 5)}})).size() == 32);
  const Reply longer = embed(server, {{"input", Json(21, 5)}}).must_name("input");
  CHECK(longer.json()["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("embeddings are pooled as the file or --pooling says", "[llmserve]") {
  const ScratchDirectory directory;
  const auto with_type = [&](std::uint32_t type) {
    TinyGguf file = TinyGguf::llama();
    file.set_u32("llama.pooling_type", type);
    return directory.write(fmt::format("{}.gguf", type), file.bytes());
  };
  const auto ask = [&](const std::string& path, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {path, "-q"});
    return embed(Server(options), {{"input", {1, 50, 60, 70}}});
  };
  const Values last = values_of(ask(with_type(0)));
  const Values mean = values_of(ask(with_type(1)));
  CHECK(last != mean);
  CHECK(values_of(ask(with_type(3))) == last);
  CHECK(values_of(ask(with_type(1), {"--pooling", "last"})) == last);
  CHECK(values_of(ask(with_type(0), {"--pooling", "mean"})) == mean);
  ask(with_type(4)).must_be(400, {"found 4 (rank), need", "--pooling"});
  CHECK(values_of(ask(with_type(4), {"--pooling", "mean"})) == mean);
}

TEST_CASE("a text that is embedded gets BOS and EOS as the file says", "[llmserve]") {
  const ScratchDirectory directory;
  TinyGguf file = TinyGguf::llama();
  file.set_bool("tokenizer.ggml.add_eos_token", 1);
  Server server({directory.write("eos.gguf", file.bytes()), "-q", "-c", "20"});
  const std::vector<int> ids = server.tokens({{"prompt", "ab"}});
  std::vector<int> whole = ids;
  whole.push_back(2);
  const Values values = values_of(embed(server, {{"input", "ab"}}));
  CHECK(values == values_of(embed(server, {{"input", whole}})));
  CHECK(values != values_of(embed(server, {{"input", ids}})));

  // What is too long is cut for Ollama's clients, and still ends so.
  const std::string text(50, 'a');
  const auto ollama = [&](const Json& body) { return server.post("/api/embed", body); };
  const std::vector<int> all = server.tokens({{"prompt", text}});
  std::vector<int> cut(all.begin(), all.begin() + 19);
  cut.push_back(2);
  ollama({{"input", {text, "ab"}}, {"model", "eos:latest"}})
      .must_match({{"model", "eos"},
                   {"embeddings", {values_of(embed(server, {{"input", cut}})), values}},
                   {"prompt_eval_count", 20 + whole.size()}});
  ollama("{'input': 'ab', 'options': {'num_ctx': 4}, 'keep_alive': '5m'}"_j)
      .must_match({{"embeddings", {values}}});
  ollama({{"input", text}, {"truncate", false}}).must_be(400, {"input: found"});
}

}  // namespace llm::test
