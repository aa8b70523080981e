// What a prompt cache gives back is what was computed, to the bit; what it refuses.

#include "engine/prompt_cache.h"

#include "base/sha256.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::size_t kContext = 600;
const std::string kSha256(64, 'a');

Ids token_ids(std::size_t n) {
  Ids ids = {1};
  for (std::size_t i = 1; i < n; ++i) ids.push_back(static_cast<TokenId>(i * 7919 % 272));
  return ids;
}

class Models {
 public:
  /// @param window  of every other layer; 0: none
  explicit Models(std::uint32_t n_layers = 2, std::uint32_t window = 0) {
    const std::string architecture = window > 0 ? "gpt-oss" : "llama";
    TinyGguf tiny = TinyGguf::llama({.n_layers = n_layers, .architecture = architecture});
    if (window > 0) {
      tiny.set_u32("gpt-oss.attention.sliding_window", window);
      tiny.set_u32("gpt-oss.context_length", 1024);
    }
    path_ = directory_.write("tiny.gguf", tiny.bytes());
  }

  std::unique_ptr<Sequence> open(KvType kv = KvType::kF16, Compute compute = Compute::kInt8) const {
    auto model = require_ok(Model::load(path_, {.compute = compute, .threads = 1}));
    return require_ok(open_sequence(model, {.context = kContext, .kv = kv}));
  }

  std::string path(std::string_view name) const { return directory_ / name; }
  const ScratchDirectory& directory() const { return directory_; }

 private:
  ScratchDirectory directory_;
  std::string path_;
};

std::vector<float> logits_of(Sequence& sequence, std::span<const TokenId> tokens) {
  const auto rows = require_ok(sequence.evaluate(tokens, LogitRows::kAll));
  return {rows.begin(), rows.end()};
}

PromptCache open_cache(const std::string& path) { return require_ok(PromptCache::open(path)); }

/// A cache of `n` tokens at `path`.
void write_cache(const std::string& path, Sequence& sequence, std::size_t n,
                 std::string_view note = "") {
  sequence.truncate(0);
  if (n > 0) REQUIRE(sequence.evaluate(token_ids(n), LogitRows::kNone).ok());
  REQUIRE(PromptCache::write(path, sequence, n, cache_identity(sequence, kSha256), note).ok());
}

constexpr std::size_t kHeader = 8 + 4 + 8 + 64;

/// The file of `content` with a header that is right.
std::string with_header(const std::string& content) {
  return "LLMCACHE" + encoded(std::uint32_t{2}) + encoded<std::uint64_t>(kHeader + content.size()) +
         sha256_hex(std::as_bytes(std::span(content))) + content;
}

}  // namespace

TEST_CASE("a restored cache gives the logits of recomputation, wherever it was cut",
          "[prompt_cache]") {
  const KvType kv = GENERATE(KvType::kF16, KvType::kF32, KvType::kQ8);
  const Compute compute = GENERATE(Compute::kInt8, Compute::kF32);
  const Models models;
  const auto writer = models.open(kv, compute);
  const Ids all = token_ids(270);
  const std::vector<float> expected = logits_of(*writer, all);
  const std::size_t n_vocab = writer->n_vocab();
  for (const std::size_t n : {1, 15, 16, 17, 255, 256, 257, 269}) {
    CAPTURE(n);
    write_cache(models.path("cache"), *writer, n);
    const PromptCache cache = open_cache(models.path("cache"));
    REQUIRE(Ids(cache.tokens().begin(), cache.tokens().end()) == token_ids(n));
    REQUIRE(cache.stored() == n);
    const auto reader = models.open(kv, compute);
    REQUIRE(cache.check(cache_identity(*reader, kSha256)).ok());
    REQUIRE(cache.restore(*reader).ok());
    REQUIRE(reader->position() == n);
    REQUIRE(same_bits(logits_of(*reader, std::span(all).subspan(n)),
                      std::span(expected).subspan(n * n_vocab)));
  }
}

TEST_CASE("a cache has what windows reach into, and goes on from there", "[prompt_cache]") {
  const KvType kv = GENERATE(KvType::kF16, KvType::kQ8);
  const std::size_t window = GENERATE(5, 300);
  const Models models(2, static_cast<std::uint32_t>(window));
  const auto open = [&] {
    return require_ok(open_sequence(Model::load(models.path("tiny.gguf")).value(),
                                    {.context = 700, .kv = kv, .batch = 100}));
  };
  const Ids all = token_ids(620);
  const auto writer = open();
  const std::vector<float> expected = logits_of(*writer, all);
  const std::size_t n_vocab = writer->n_vocab();
  std::size_t size_before = 0;
  // From the end of the text on back, into what the writer has given back.
  for (const std::size_t n : {620, 611, 512, 293, 292, 291, 260, 40}) {
    CAPTURE(window, n);
    writer->truncate(0);
    logits_of(*writer, all);
    REQUIRE(PromptCache::write(models.path("cache"), *writer, n, cache_identity(*writer, kSha256))
                .ok());
    const PromptCache cache = open_cache(models.path("cache"));
    REQUIRE(cache.stored() == n);
    const auto& pool = writer->executor().pool();
    const std::size_t rows = 2 * n - KvGroups::first_page(window, KvGroups::kept_from(n)) * 256;
    const std::size_t size = models.directory().read("cache").size() - n * sizeof(TokenId) -
                             rows * 2 * pool.row_bytes(0);
    REQUIRE((size_before == 0 || size == size_before));
    size_before = size;
    const auto reader = open();
    REQUIRE(cache.restore(*reader).ok());
    REQUIRE(reader->position() == n);
    REQUIRE(reader->executor().passes() == 0);
    // Also one position back, as for a prompt that the file has to its end.
    for (const std::size_t back : {0, 1}) {
      reader->truncate(n - back);
      REQUIRE(same_bits(logits_of(*reader, std::span(all).subspan(n - back)),
                        std::span(expected).subspan((n - back) * n_vocab)));
      reader->truncate(0);
      REQUIRE(cache.restore(*reader).ok());
    }
  }
}

TEST_CASE("equal tokens give equal files, whatever split and ISA computed them", "[prompt_cache]") {
  const Models models;
  const auto sequence = models.open();
  write_cache(models.path("a"), *sequence, 40);
  sequence->truncate(0);
  for (const TokenId id : token_ids(40))
    REQUIRE(sequence->evaluate(std::span(&id, 1), LogitRows::kNone).ok());
  REQUIRE(
      PromptCache::write(models.path("b"), *sequence, 40, cache_identity(*sequence, kSha256)).ok());
  REQUIRE(models.directory().read("a") == models.directory().read("b"));
}

TEST_CASE("a note comes back; tokens may come without keys and values", "[prompt_cache]") {
  const Models models;
  const auto sequence = models.open();
  write_cache(models.path("a"), *sequence, 20, "a note");
  REQUIRE(open_cache(models.path("a")).note() == "a note");
  REQUIRE(PromptCache::write(models.path("b"), *sequence, 20, cache_identity(*sequence, kSha256),
                             "", false)
              .ok());
  const PromptCache bare = open_cache(models.path("b"));
  REQUIRE(bare.tokens().size() == 20);
  REQUIRE(bare.stored() == 0);
  const auto reader = models.open();
  REQUIRE(bare.restore(*reader).ok());
  REQUIRE(reader->position() == 0);
}

TEST_CASE("a cache of another model, kv type, compute or contract is refused by name",
          "[prompt_cache]") {
  const Models models;
  const auto writer = models.open();
  write_cache(models.path("cache"), *writer, 5);
  const PromptCache cache = open_cache(models.path("cache"));
  const auto check = [&](const PromptCache& from, const CacheIdentity& identity,
                         const std::string& field) {
    const Error error = must_fail(from.check(identity), ErrorCode::kIntegrity);
    REQUIRE(error.field == field);
    REQUIRE(error.file == models.path("cache"));
  };
  const CacheIdentity ours = cache_identity(*writer, kSha256);
  REQUIRE(cache.check(ours).ok());
  check(cache, {std::string(64, 'b'), ours.kv, ours.compute}, "model");
  check(cache, {kSha256, KvType::kF32, ours.compute}, "--kv");
  check(cache, {kSha256, KvType::kQ8, ours.compute}, "--kv");
  check(cache, {kSha256, ours.kv, Compute::kF32}, "--compute");
  std::string content = models.directory().read("cache").substr(kHeader);
  content[8 + 64] = 2;  // the contract's version, after the model's hash
  models.directory().write("cache", with_header(content));
  check(open_cache(models.path("cache")), ours, "numeric contract");
}

TEST_CASE("a damaged or cut cache is refused, whichever byte it is", "[prompt_cache]") {
  const Models models(1);
  const auto sequence = models.open();
  write_cache(models.path("cache"), *sequence, 3, "note");
  const std::string good = models.directory().read("cache");
  const std::size_t step = effort(std::size_t{1}, std::size_t{13});
  for (std::size_t at = 0; at < good.size(); at += step) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    const Error damaged = must_fail(PromptCache::open(models.directory().write("bad", bad)));
    const bool is_version = at >= 8 && at < 12;
    REQUIRE(damaged.code == (is_version ? ErrorCode::kUnsupported : ErrorCode::kMalformed));
    const Error cut =
        must_fail(PromptCache::open(models.directory().write("bad", good.substr(0, at))),
                  ErrorCode::kMalformed);
    REQUIRE(cut.file == models.path("bad"));
  }
  REQUIRE(PromptCache::open(models.path("tiny.gguf")).error().code == ErrorCode::kMalformed);
  std::string old = good;
  old[8] = 1;  // which had all positions of every layer
  must_fail(PromptCache::open(models.directory().write("bad", old)), ErrorCode::kUnsupported,
            {"version: found 1, need 2"});
  REQUIRE(PromptCache::open(models.path("absent")).error().code == ErrorCode::kIo);
}

TEST_CASE("sizes in a cache are checked even where its hash is right", "[prompt_cache]") {
  const Models models(1);
  const auto sequence = models.open();
  write_cache(models.path("cache"), *sequence, 3);
  const std::string content = models.directory().read("cache").substr(kHeader);
  // model (8 + 64), contract 4, kv (8 + 3), compute (8 + 4), note 8: then the number of tokens.
  constexpr std::size_t kTokens = 72 + 4 + 11 + 12 + 8;
  constexpr std::size_t kStored = kTokens + 8 + 3 * 4;
  struct Case {
    std::size_t at;
    std::string bytes;
    const char* words;
  };
  const auto u64 = encoded<std::uint64_t>;
  const std::vector<Case> cases = {
      {kTokens, u64(UINT64_MAX), "tokens (byte"},
      {kTokens, u64(UINT64_MAX / 4 + 2), "tokens (byte"},
      {kTokens, u64(std::uint64_t{1} << 40), "tokens (byte"},
      {kStored, u64(4), "stored: found 4, need at most 3 tokens"},
      {kTokens - 8, u64(UINT64_MAX), "note (byte"},
      {72 + 4 + 8, "f64", "kv, compute: found unknown names"},
  };
  for (const Case& item : cases) {
    std::string changed = content;
    changed.replace(item.at, item.bytes.size(), item.bytes);
    CAPTURE(item.words);
    must_fail(PromptCache::open(models.directory().write("bad", with_header(changed))),
              ErrorCode::kMalformed, {item.words});
  }
  // These need the model.
  const auto refused = [&](const std::string& changed) {
    const auto reader = models.open();
    const PromptCache cache = open_cache(models.directory().write("bad", with_header(changed)));
    const Error error = must_fail(cache.restore(*reader), ErrorCode::kMalformed);
    REQUIRE(reader->position() == 0);
    return error.message;
  };
  REQUIRE(refused(content.substr(0, content.size() - 1)).find("need") != std::string::npos);
  REQUIRE(refused(content + "x").find("need") != std::string::npos);
  std::string foreign = content;
  foreign.replace(kTokens + 8, 4, std::string("\xFF\xFF\xFF\x7F", 4));
  REQUIRE(refused(foreign) == "found 2147483647, need 0..271");
}

TEST_CASE("a q8 cache whose scale is negative is refused", "[prompt_cache]") {
  const Models models(1);
  const auto sequence = models.open(KvType::kQ8);
  write_cache(models.path("cache"), *sequence, 3);
  std::string content = models.directory().read("cache").substr(kHeader);
  const auto restored = [&] {
    const auto reader = models.open(KvType::kQ8);
    return open_cache(models.directory().write("bad", with_header(content))).restore(*reader);
  };
  REQUIRE(restored().ok());
  // The sign of the last scale, of the values of the last head; then NaN, which is a fault of the
  // text and no damage.
  content.back() = static_cast<char>(content.back() | '\x80');
  const Error error = must_fail(restored(), ErrorCode::kMalformed, {"need no negative scale"});
  REQUIRE(error.field == "keys and values");
  content.replace(content.size() - 4, 4, std::string("\x00\x00\xC0\x7F", 4));
  REQUIRE(restored().ok());
}

TEST_CASE("a cache larger than the context is an error", "[prompt_cache]") {
  const Models models;
  const auto writer = models.open();
  write_cache(models.path("cache"), *writer, 100);
  auto small =
      require_ok(open_sequence(Model::load(models.path("tiny.gguf")).value(), {.context = 64}));
  must_fail(open_cache(models.path("cache")).restore(*small), ErrorCode::kResource);
  REQUIRE(small->position() == 0);
}

}  // namespace llm::test
