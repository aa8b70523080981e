// Embeddings by /v1/embeddings and /api/embed.

#include "tests/tools/llmserve_process.h"
#include "tools/llmserve/api/embeddings.h"

namespace llm::test {
namespace {

using Values = std::vector<float>;

Reply embed(const Server& server, Json body) { return server.post("/v1/embeddings", body); }

/// The only embedding of an answer.
Values values_of(const Reply& reply) {
  const Json data = reply.must_be(200).json()["data"];
  REQUIRE(data.size() == 1);
  return data[0]["embedding"].get<Values>();
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
  const Json one = embed(server, {{"input", text}, {"user", "u"}, {"dimensions", nullptr}}).json();
  REQUIRE(one["object"] == "list");
  REQUIRE(one["model"] == "fable-3m-q4_k_m");
  REQUIRE(one["usage"] == Json{{"prompt_tokens", ids.size()}, {"total_tokens", ids.size()}});
  REQUIRE(one["data"][0]["object"] == "embedding");
  const Values values = one["data"][0]["embedding"].get<Values>();
  REQUIRE(values.size() == 256);
  CHECK(std::abs(length_of(values) - 1) < 1e-6);
  CHECK(values_of(embed(server, {{"input", ids}})) == values);
  CHECK(values_of(embed(server, {{"input", {ids}}, {"encoding_format", "float"}})) == values);

  const Json several = embed(server, {{"input", {"The sea", text, "The sea"}}}).json();
  REQUIRE(several["data"].size() == 3);
  for (int i = 0; i < 3; ++i) REQUIRE(several["data"][i]["index"] == i);
  CHECK(several["data"][1]["embedding"] == one["data"][0]["embedding"]);
  CHECK(several["data"][0]["embedding"] == several["data"][2]["embedding"]);
  CHECK(several["data"][0]["embedding"] != several["data"][1]["embedding"]);

  const Reply packed = embed(server, {{"input", text}, {"encoding_format", "base64"}});
  CHECK(packed.json()["data"][0]["embedding"] == base64_of(values));

  // Leading values, of length 1 anew.
  const Values cut = values_of(embed(server, {{"input", text}, {"dimensions", 5}}));
  REQUIRE(cut.size() == 5);
  const double length = length_of(Values(values.begin(), values.begin() + 5));
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(std::abs(static_cast<double>(cut[i]) - static_cast<double>(values[i]) / length) < 1e-6);
  CHECK(values_of(embed(server, {{"input", text}, {"dimensions", 256}})) == values);
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
  const std::vector<std::pair<Json, std::string>> cases = {
      {Json::object(), "input"},
      {{{"input", Json::array()}}, "input"},
      {{{"input", 7}}, "input"},
      {{{"input", {"a", 7}}}, "input[1]"},
      {{{"input", {1, "a"}}}, "input[1]"},
      {{{"input", {{1}, {272}}}}, "input[1][0]"},
      {{{"input", {{1}, Json::array()}}}, "input[1]"},
      {{{"input", Json(5, "a")}}, "input"},
      {{{"input", "a"}, {"dimensions", 0}}, "dimensions"},
      {{{"input", "a"}, {"dimensions", 33}}, "dimensions"},
      {{{"input", "a"}, {"encoding_format", "hex"}}, "encoding_format"},
      {{{"input", "a"}, {"dimension", 7}}, "dimension"},
  };
  for (const auto& [body, field] : cases) embed(server, body).must_name(field);
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
  file.set<std::uint8_t>("tokenizer.ggml.add_eos_token", GgufType::kBool, 1);
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
  const Json answer = ollama({{"input", {text, "ab"}}, {"model", "eos:latest"}}).json();
  CHECK(answer["model"] == "eos");
  CHECK(answer["embeddings"][0].get<Values>() == values_of(embed(server, {{"input", cut}})));
  CHECK(answer["embeddings"][1].get<Values>() == values);
  CHECK(answer["prompt_eval_count"] == 20 + whole.size());
  const Json options = {{"num_ctx", 4}};
  CHECK(
      ollama({{"input", "ab"}, {"options", options}, {"keep_alive", "5m"}}).json()["embeddings"] ==
      Json{values});
  server.post("/api/embed", {{"input", text}, {"truncate", false}}).must_be(400, {"input: found"});
}

}  // namespace llm::test
