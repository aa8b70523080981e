// Requests in the shapes that agents send, each of which begins as one before it: nothing that is
// stored is computed twice, and every turn has the logits of a run alone.

#include "tests/engine/serve_support.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

constexpr std::size_t kTraceContext = 4096;

struct Shape {
  const char* architecture;
  std::size_t n_layers;
  std::uint32_t window;
};
constexpr Shape kShapes[] = {
    {"llama", 2, 0}, {"gemma3", 6, 40}, {"gpt-oss", 2, 128}, {"qwen35", 4, 0}, {"gemma4", 4, 40}};

std::shared_ptr<const Model> model_of(const Shape& shape) {
  TinyGguf tiny = TinyGguf::llama({.n_layers = shape.n_layers, .architecture = shape.architecture});
  const std::string prefix = shape.architecture;
  tiny.set_u32(prefix + ".context_length", kTraceContext);
  if (shape.window > 0) tiny.set_u32(prefix + ".attention.sliding_window", shape.window);
  return loaded(tiny, {.threads = 1, .hash_file = true});
}

/// A conversation as its client sends it: parts that it appends, and replies.
class Talk {
 public:
  Talk(unsigned seed, std::size_t n_system) : random_(seed) { add(n_system); }

  void add(std::size_t n) {
    Ids& part = parts_.emplace_back(n);
    for (TokenId& id : part) id = static_cast<TokenId>(3 + random_() % 200);
  }
  void add(Ids reply) { parts_.push_back(std::move(reply)); }
  Ids& part(std::size_t i) { return parts_[i]; }

  Ids prompt() const {
    Ids all;
    for (const Ids& part : parts_) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  std::vector<std::size_t> message_ends() const {
    std::vector<std::size_t> ends;
    for (std::size_t end = 0; const Ids& part : parts_) ends.push_back(end += part.size());
    return ends;
  }

 private:
  std::mt19937 random_;
  std::vector<Ids> parts_;
};

class Trace {
 public:
  explicit Trace(const Shape& shape) : model_(model_of(shape)) {
    restart();
    alone_ = require_ok(open_sequence(model_, {.context = kTraceContext}));
  }

  /// What is in memory is lost.
  void restart() {
    end_service();
    const auto store =
        require_ok(StateStore::open({.directory = folder_.path("kv"), .most_bytes = UINT64_MAX}));
    const SchedulerOptions options{.step_tokens = 256, .context = kTraceContext, .kv_pages = 400};
    service_ = require_ok(
        GenerationService::start(require_ok(Executor::create(model_, {.context = kTraceContext,
                                                                      .batch = options.step_tokens,
                                                                      .kv_pages = options.kv_pages,
                                                                      .store = store})),
                                 options));
  }

  /// One turn: `n` tokens are appended and answered by n_reply, whose logits are those of a run
  /// alone. @param n_kept  of the reply, its end, by the client
  void turn(Talk& talk, std::size_t n, std::size_t n_reply = 12, std::size_t n_kept = SIZE_MAX) {
    talk.add(n);
    const Ids prompt = talk.prompt();
    GenerationRequest request = text_request(prompt, n_reply, prompt.size());
    request.options.message_ends = talk.message_ends();
    request.hash_drawn = true;
    Listener listener;
    submit(*service_, {listener.job(request)});
    const GenerationOutput text = require_ok(listener.wait());
    Ids all = prompt;
    all.insert(all.end(), text.result.ids.begin(), text.result.ids.end());
    require_alone(all, prompt.size(), text.drawn_logits_sha256);
    std::size_t n_known = 0;
    for (const Ids& before : sent_)
      n_known = std::max<std::size_t>(n_known,
                                      std::ranges::mismatch(before, prompt).in1 - before.begin());
    n_new_ += all.size() - n_known;
    n_asked_ += prompt.size();
    n_cached_ += text.cached_tokens;
    Ids reply = text.result.ids;
    reply.erase(reply.begin(),
                reply.end() - static_cast<std::ptrdiff_t>(std::min(n_kept, n_reply)));
    talk.add(std::move(reply));
    sent_.push_back(std::move(all));
  }

  /// All that was computed begins behind what a request or reply before it had.
  void require_nothing_twice() {
    end_service();
    CAPTURE(n_evaluated_, n_new_, n_asked_, n_cached_);
    REQUIRE(n_evaluated_ <= n_new_ + sent_.size());
    REQUIRE(n_new_ < n_asked_ / 3);
    // What the texts say of their prompts adds up to what was computed.
    REQUIRE(n_evaluated_ == n_asked_ - n_cached_ + n_generated_);
  }

 private:
  void end_service() {
    if (service_ == nullptr) return;
    n_evaluated_ += service_->figures().evaluated_tokens;
    n_generated_ += service_->figures().generated_tokens;
    service_.reset();
  }
  void require_alone(const Ids& all, std::size_t n_prompt, const std::string& hash) {
    LogitsHash expected(alone_->n_vocab(), n_prompt - 1, n_prompt - 1);
    alone_->truncate(0);
    const auto ids = std::span(all);
    REQUIRE(alone_->evaluate(ids.first(n_prompt - 1), LogitRows::kNone).ok());
    expected.add(require_ok(alone_->evaluate(ids.subspan(n_prompt - 1), LogitRows::kAll)));
    REQUIRE(hash == expected.drawn());
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<Sequence> alone_;
  std::vector<Ids> sent_;  ///< with their replies
  std::size_t n_new_ = 0;  ///< tokens behind the longest start that was sent before
  std::size_t n_asked_ = 0;
  std::size_t n_cached_ = 0;
  std::size_t n_evaluated_ = 0;
  std::size_t n_generated_ = 0;
  ScratchDirectory folder_;
};

constexpr std::size_t kSystem = 600;  // two pages and a part of one

/// How a client goes on, on each shape of model.
void replay(const std::function<void(Trace&)>& trace) {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.architecture);
    Trace on_shape(shape);
    trace(on_shape);
    on_shape.require_nothing_twice();
  }
}

}  // namespace

TEST_CASE("trace: a conversation that grows", "[traces]") {
  replay([](Trace& trace) {
    Talk talk(1, kSystem);
    for (int i = 0; i < 12; ++i) trace.turn(talk, 16 + i % 5);
  });
}

TEST_CASE("trace: results of tools, short and long", "[traces]") {
  replay([](Trace& trace) {
    Talk talk(2, kSystem);
    for (const std::size_t n : {20, 200, 3, 700, 40, 255, 256, 257, 1}) trace.turn(talk, n);
  });
}

TEST_CASE("trace: thoughts are left out of what is sent again", "[traces]") {
  replay([](Trace& trace) {
    Talk talk(3, kSystem);
    for (int i = 0; i < 8; ++i) trace.turn(talk, 30, 40, 9);
  });
}

TEST_CASE("trace: two agents in turn", "[traces]") {
  replay([](Trace& trace) {
    Talk first(4, kSystem);
    Talk second(5, kSystem);
    for (int i = 0; i < 6; ++i) {
      trace.turn(first, 30 + 7 * i);
      trace.turn(second, 50);
    }
  });
}

TEST_CASE("trace: a restart in the middle", "[traces]") {
  replay([](Trace& trace) {
    Talk first(7, kSystem);
    Talk second(8, 300);
    for (int i = 0; i < 6; ++i) {
      if (i % 2 == 1) trace.restart();
      trace.turn(first, 30);
      trace.turn(second, 40, 20, 5);
    }
  });
}

TEST_CASE("trace: an early message is edited, and the old one comes back", "[traces]") {
  replay([](Trace& trace) {
    Talk talk(6, kSystem);
    for (int i = 0; i < 6; ++i) trace.turn(talk, 60);
    Talk edited = talk;
    edited.part(5)[7] += 1;
    trace.turn(edited, 60);
    trace.turn(talk, 60);
    trace.turn(edited, 60);
    trace.turn(talk, 60);
  });
}

TEST_CASE("trace: messages of a first request are edited, and what follows them left out",
          "[traces]") {
  replay([](Trace& trace) {
    Talk talk(9, kSystem);
    for (int i = 0; i < 5; ++i) talk.add(100 + 30 * static_cast<std::size_t>(i));
    const Talk first = talk;
    trace.turn(talk, 80);
    for (std::size_t i = 4; i > 1; --i) {
      Talk edited = first;
      edited.part(i)[0] += 1;
      for (int j = 0; j < 4; ++j) trace.turn(edited, 20);
      if (i == 3) trace.restart();
    }
  });
}

TEST_CASE("states: tokens on trial are taken back, and few are computed again", "[states]") {
  const auto model = model_of({"qwen35", 4, 0});
  std::mt19937 random(3);
  Ids ids(600);
  for (TokenId& id : ids) id = static_cast<TokenId>(3 + random() % 200);
  const auto alone = require_ok(open_sequence(model, {.context = kTraceContext}));
  const auto rows = require_ok(alone->evaluate(ids, LogitRows::kAll));
  const std::vector<float> expected(rows.begin(), rows.end());
  const std::size_t n_vocab = alone->n_vocab();
  const std::size_t kv_pages = GENERATE(0, 7);  // 7: none is free for a copy
  const auto sequence = require_ok(
      open_sequence(model, {.context = kTraceContext, .batch = 64, .kv_pages = kv_pages}));
  std::size_t n_recomputed = 0;
  const auto evaluate = [&](std::size_t n) {
    const std::size_t at = sequence->position();
    n_recomputed += at - sequence->reusable(at);
    const auto found =
        require_ok(sequence->evaluate(std::span(ids).subspan(at, n), LogitRows::kAll));
    REQUIRE(std::ranges::equal(found, std::span(expected).subspan(at * n_vocab, n * n_vocab)));
  };
  evaluate(100);
  std::size_t most = 0;
  while (sequence->position() + 12 < ids.size()) {
    const std::size_t at = sequence->position();
    const std::size_t n = 2 + random() % 10;
    evaluate(n);
    const std::size_t n_kept = 1 + random() % n;
    sequence->truncate(at + n_kept);
    most += n_kept < n ? n_kept - 1 : 0;
    if (kv_pages == 0) REQUIRE(n_recomputed <= most);
  }
  if (kv_pages > 0) REQUIRE(n_recomputed > 10 * most);
}

}  // namespace llm::test
