// Embeddings from a GenerationService: each is that of the text alone, and of docs/numerics.md's
// words.

#include "engine/generation/embedding.h"

#include <future>

#include "tests/engine/serve_support.h"
#include "tests/support/nonfinite_models.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

constexpr std::size_t kContext = 1024;

GenerationRequest embedding_request(Ids prompt, EmbeddingOptions options) {
  GenerationRequest request{.prompt = std::move(prompt), .options = {}};
  request.options.max_tokens = 0;
  request.embedding = options;
  return request;
}

Ids random_ids(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  Ids ids(n);
  for (TokenId& id : ids) id = static_cast<TokenId>(3 + random() % 1000);
  return ids;
}

/// Of a text by itself, in one call, in plain loops.
std::vector<float> by_words(const std::shared_ptr<const Model>& model, const Ids& ids,
                            EmbeddingOptions options) {
  const auto sequence = require_ok(open_sequence(model, {.context = kContext}));
  Segment segment{sequence.get(), ids, LogitRows::kAll, true};
  REQUIRE(sequence->executor().evaluate({&segment, 1}).ok());
  const std::size_t width = model->config().d_model;
  const std::size_t n = options.dimensions == 0 ? width : options.dimensions;
  std::vector<double> pooled(n, 0.0);
  for (std::size_t d = 0; d < n; ++d) {
    const std::size_t first = options.pooling == Pooling::kMean ? 0 : ids.size() - 1;
    for (std::size_t t = first; t < ids.size(); ++t)
      pooled[d] += static_cast<double>(segment.logits[t * width + d]);
  }
  double squares = 0;
  for (const double x : pooled) squares += x * x;
  std::vector<float> out;
  for (const double x : pooled) out.push_back(static_cast<float>(x / std::sqrt(squares)));
  return out;
}

/// Submits all of them at once.
std::vector<GenerationOutput> serve(GenerationService& service,
                                    const std::vector<GenerationRequest>& requests) {
  std::vector<GenerationOutput> texts;
  for (auto listeners = submit(service, requests); Listener & listener : listeners)
    texts.push_back(require_ok(listener.wait()));
  return texts;
}

}  // namespace

TEST_CASE("embeddings among texts are those of each text alone, and disturb none", "[serve]") {
  const auto model = embedded(2);
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < effort<std::size_t>(30, 9); ++i) {
    const Ids prompt =
        random_ids(i % 4 == 0 ? 240 + i : 1 + 7 * i % 40, static_cast<std::uint32_t>(50 + i % 9));
    if (i % 3 > 0) {
      requests.push_back(
          embedding_request(prompt, {.pooling = i % 3 == 1 ? Pooling::kMean : Pooling::kLast,
                                     .dimensions = i % 5 == 0 ? 48U : 0U}));
      continue;
    }
    requests.push_back(text_request(prompt, 25, i));
    requests.back().hash_logits = true;
  }
  std::vector<GenerationOutput> alone;
  for (const GenerationRequest& request : requests)
    alone.push_back(serve(*start(model, {.context = kContext, .kv_pages = 60}), {request})[0]);
  for (const std::size_t kv_pages : {60, 4}) {
    for (const std::size_t step_tokens : {32, 512}) {
      CAPTURE(kv_pages, step_tokens);
      const auto service = start(model, {.step_tokens = step_tokens,
                                         .parallel = 16,
                                         .queue = 100,
                                         .context = kContext,
                                         .kv_pages = kv_pages});
      const auto texts = serve(*service, requests);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        REQUIRE(texts[i].result.ids == alone[i].result.ids);
        REQUIRE(texts[i].logits_sha256 == alone[i].logits_sha256);
        REQUIRE(same_bits(texts[i].embedding, alone[i].embedding));
        if (!requests[i].embedding) continue;
        REQUIRE(texts[i].result.ids.empty());
        REQUIRE(same_bits(texts[i].embedding,
                          by_words(model, requests[i].prompt, *requests[i].embedding)));
      }
      REQUIRE(service->figures().kv_pages_in_use == 0);
    }
  }
}

TEST_CASE("an embedding that loses its pages on the way has every row once", "[serve]") {
  const auto model = embedded();
  const GenerationRequest older = text_request(random_ids(250, 1), 270);  // takes two of its pages
  const Ids ids = random_ids(700, 2);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const auto service = start(model, few_steps(kContext, 4));
    const auto texts = serve(*service, {older, embedding_request(ids, {.pooling = pooling})});
    REQUIRE(same_bits(texts[1].embedding, by_words(model, ids, {.pooling = pooling})));
    const ServiceFigures figures = service->figures();
    CHECK(figures.preemptions == 1);
    CHECK(figures.evaluated_tokens > 250 + 269 + 700);
  }
}

TEST_CASE("only the last row may begin where another text has been", "[serve]") {
  const auto model = embedded();
  const Ids ids = random_ids(600, 3);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const auto service = start(model, {.step_tokens = 64, .context = kContext, .kv_pages = 60});
    const GenerationRequest request = embedding_request(ids, {.pooling = pooling});
    const auto texts = serve(*service, {request, request});
    CHECK(same_bits(texts[0].embedding, by_words(model, ids, {.pooling = pooling})));
    CHECK(same_bits(texts[1].embedding, texts[0].embedding));
    const ServiceFigures figures = service->figures();
    CHECK(figures.kv_pages_shared == (pooling == Pooling::kMean ? 0 : 3));
    CHECK(figures.evaluated_tokens <= (pooling == Pooling::kMean ? 1200 : 600 + 64));
  }
}

TEST_CASE("an embedding is pooled, cut and made of length 1", "[serve]") {
  Embedding mean({.pooling = Pooling::kMean, .dimensions = 2});
  for (const auto& row : {std::array{1.0F, 2.0F, 9.0F}, std::array{2.0F, 2.0F, -9.0F}})
    mean.add(row);
  CHECK(mean.result() == std::vector<float>{0.6F, 0.8F});
  CHECK(mean.first_position(7) == 0);
  Embedding last({.pooling = Pooling::kLast});
  last.add(std::array{-3.0F, 0.0F});
  CHECK(last.result() == std::vector<float>{-1, 0});
  CHECK(last.first_position(7) == 6);
  Embedding zero({});
  zero.add(std::array{0.0F, 0.0F});
  CHECK(zero.result() == std::vector<float>{0, 0});
}

TEST_CASE("rows that are no numbers make no embedding", "[serve]") {
  auto broken = TinyGguf::llama();
  make_token_overflow(broken, 40);
  const auto model = loaded(broken);
  const auto service = start(model, few_steps(kContext));
  auto listeners = submit(*service, {embedding_request({1, 50, 40}, {.pooling = Pooling::kMean})});
  must_fail(listeners[0].wait(), ErrorCode::kNonFinite, {"result_norm", "position 2"});
}

TEST_CASE("a file says how its embeddings are pooled", "[serve]") {
  const auto found = [](std::uint32_t type) {
    auto file = TinyGguf::llama();
    file.set_u32("llama.pooling_type", type);
    return pooling_of(loaded(file)->config());
  };
  CHECK(require_ok(found(0)) == Pooling::kLast);
  CHECK(require_ok(found(1)) == Pooling::kMean);
  CHECK(require_ok(found(3)) == Pooling::kLast);
  must_fail(found(2), ErrorCode::kUsage, {"llama.pooling_type", "2 (cls)"});
  must_fail(found(4), ErrorCode::kUsage, {"4 (rank)"});
  must_fail(found(77), ErrorCode::kUsage, {"found 77,"});
}

}  // namespace llm::test
