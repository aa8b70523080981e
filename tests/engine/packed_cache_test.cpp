// A packed cache gives the bits of the model file that it was made of, or it is not used.

#include "engine/model/packed_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/xxh3.h"
#include "engine/engine.h"
#include "tests/engine/manifest_support.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

std::string hash_of(const std::shared_ptr<const Model>& model) {
  auto sequence = require_ok(open_sequence(model));
  Sha256 hash;
  for (const auto& ids : {std::vector<TokenId>{1, 5, 130, 262, 7}, std::vector<TokenId>{9}})
    hash.update(std::as_bytes(require_ok(sequence->evaluate(ids, LogitRows::kAll))));
  return hash.hex();
}

std::string xxh3(std::string_view text) { return xxh3_hex(std::as_bytes(std::span(text))); }

/// The model uses no cache and says why: a warning for each of `words`, which it has. It gives the
/// right bits all the same.
void require_without(const std::shared_ptr<const Model>& model, Words words,
                     const std::string& right_hash) {
  CAPTURE(fmt::format("{}", fmt::join(model->warnings(), " | ")));
  REQUIRE(model->packed_cache().empty());
  REQUIRE(model->warnings().size() == words.size());
  for (std::size_t i = 0; i < words.size(); ++i)
    require_words(model->warnings()[i], {words.begin()[i]});
  REQUIRE(hash_of(model) == right_hash);
}

/// A model and a directory for its cache.
class Cached {
 public:
  explicit Cached(const TinyGguf& gguf = TinyGguf::llama({.n_layers = 2})) {
    model_ = models_.write("model.gguf", gguf.bytes());
    plain_ = hash_of(load({}));
  }

  std::shared_ptr<const Model> load(LoadOptions options) const {
    options.threads = 2;
    return require_ok(Model::load(model_, options));
  }
  std::shared_ptr<const Model> load() const { return load({.packed_cache = caches_.path()}); }

  /// Loads with the cache as it is now: it must be refused with those words in one warning, made
  /// anew, and serve the next time; the model is the right one all the while.
  void refused(const std::string& words) const {
    const std::string right = hash_of(load({}));
    const auto model = load();
    require_without(model, {words}, right);
    require_words(model->warnings()[0], {"packed cache: " + path(), "; packing again"});
    used(right);
  }

  /// The cache serves, without a word, and gives the model's bits.
  void used(const std::string& right_hash) const {
    const auto model = load();
    CAPTURE(fmt::format("{}", fmt::join(model->warnings(), " | ")));
    REQUIRE(model->packed_cache() == path());
    REQUIRE(model->warnings().empty());
    REQUIRE(hash_of(model) == right_hash);
    REQUIRE(caches_.count() == 1);
  }

  std::string path() const { return packed_cache_path(caches_.path(), model_); }
  std::string name() const { return std::filesystem::path(path()).filename().string(); }
  std::string content() const { return caches_.read(name()); }
  void write(std::string_view content) const { caches_.write(name(), content); }

  /// The head is text up to its first zero.
  std::string head() const { return content().substr(0, content().find('\0')); }
  /// Replaces a text of the head, and makes the head's hash right again.
  void forge(const std::string& from, const std::string& to) const {
    const std::string whole = content();
    std::string text = head();
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    text.resize(text.rfind("end "));
    text += "end " + xxh3(text) + "\n";
    const std::size_t begin = std::size_t{2} << 20;
    text.resize(begin);
    write(text + whole.substr(begin));
  }

  const std::string& plain() const { return plain_; }
  const std::string& model() const { return model_; }
  const ScratchDirectory& models() const { return models_; }
  const ScratchDirectory& caches() const { return caches_; }

 private:
  ScratchDirectory models_;
  ScratchDirectory caches_;
  std::string model_;
  std::string plain_;
};

constexpr std::size_t kPanels = std::size_t{2} << 20;

}  // namespace

TEST_CASE("a second start maps what the first one packed", "[packed_cache]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  const bool tied = GENERATE(false, true);
  const Cached cached(
      TinyGguf::llama({.n_layers = 2, .tied_output = tied, .architecture = architecture}));
  const auto first = cached.load();
  REQUIRE(first->packed_cache().empty());
  REQUIRE(first->warnings().empty());
  REQUIRE(hash_of(first) == cached.plain());
  const auto second = cached.load();
  REQUIRE(second->packed_cache() == cached.path());
  REQUIRE(second->warnings().empty());
  REQUIRE(second->weights_in_memory());
  REQUIRE(hash_of(second) == cached.plain());
  REQUIRE(second->weight_bytes() == first->weight_bytes());
  // By the definition, in f32, deferred: the same file serves.
  REQUIRE(cached.load({.compute = Compute::kF32, .packed_cache = cached.caches().path()})
              ->packed_cache() == cached.path());
  REQUIRE(cached.load({.defer_packing = true, .packed_cache = cached.caches().path()})
              ->packed_cache() == cached.path());
  // A mapping follows its inode: what happens to the name does not matter.
  std::filesystem::remove(cached.path());
  REQUIRE(hash_of(second) == cached.plain());
}

TEST_CASE("a damaged cache is rejected, whichever byte is wrong", "[packed_cache]") {
  const Cached cached;
  cached.load();
  const std::string whole = cached.content();
  const std::size_t head = cached.head().size();
  const auto damaged = [&](std::size_t at, const std::string& words) {
    std::string content = whole;
    content[at] = static_cast<char>(content[at] ^ 0x10);
    cached.write(content);
    CAPTURE(at);
    cached.refused(words);
  };
  for (std::size_t at = 0; at < 11; ++at) damaged(at, "found no packed cache");
  for (std::size_t at = 11; at < head; at += kSanitized ? 97 : 29)
    damaged(at, "head: found different bytes from those written");
  for (std::size_t at = kPanels; at < whole.size(); at += kSanitized ? 4999 : 1499)
    damaged(at, "chunk 0: found different bytes from those written");
  damaged(whole.size() - 1, "chunk 0: ");
  // Between head and panels nothing is read.
  std::string content = whole;
  content[kPanels - 1] = 'x';
  cached.write(content);
  cached.used(cached.plain());
}

TEST_CASE("a cache with a wrong length is rejected", "[packed_cache]") {
  const Cached cached;
  cached.load();
  const std::string whole = cached.content();
  const std::size_t head = cached.head().size();
  for (const std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{11}}) {
    cached.write(whole.substr(0, size));
    cached.refused(size < 11 ? "found no packed cache" : "head: ");
  }
  cached.write(whole.substr(0, head - 1));
  cached.refused("head: ");
  for (const std::size_t size : {head, kPanels - 1, kPanels, whole.size() - 1}) {
    cached.write(whole.substr(0, size));
    cached.refused(fmt::format("found {} bytes, need {}", size, whole.size()));
  }
  cached.write(whole + 'x');
  cached.refused(fmt::format("found {} bytes, need {}", whole.size() + 1, whole.size()));
}

TEST_CASE("a cache of a different version or model is rejected by name", "[packed_cache]") {
  const Cached cached;
  cached.load();
  const auto forged = [&](const std::string& from, const std::string& to,
                          const std::string& words) {
    cached.forge(from, to);
    CAPTURE(from, to);
    cached.refused(words);
  };
  forged("llm-packed 1", "llm-packed 2", "llm-packed: found llm-packed 2, need llm-packed 1");
  forged("\nlayout ", "\nlayout 0", "layout: found layout 0");
  forged("\ncontract 1", "\ncontract 2", "contract: found contract 2, need contract 1");
  for (const char* word : {"size ", "modified ", "changed ", "inode "})
    forged(word, std::string(word) + "1", "source: found source size ");
  forged("\nmetadata ", "\nmetadata 0", "metadata: found metadata 0");
  forged("\nsamples ", "\nsamples 0", "samples: found samples 0");
  forged("plain token_embd", "heads token_embd", "need matrix 0 Q8_0 32x272 plain token_embd");
  forged("Q8_0 32x272", "Q8_0 272x32", "matrix: found matrix 0 Q8_0 272x32");
  forged("matrix 0 ", "matrix 64 ", "matrix: found matrix 64 Q8_0");
  forged("blk.1.attn_q", "blk.0.attn_q", "blk.1.attn_q");
  forged("\nbytes ", "\nbytes 1", "bytes: found bytes 1");
  forged("\nchunk ", "\nchunk 0", "chunk 0: found different bytes");
  forged(cached.head().substr(cached.head().find("chunk "), 23), "",
         "chunk 0: found different bytes");
  cached.write("GGUF");
  cached.refused("found no packed cache, need a file that --packed-cache made");
}

TEST_CASE("a directory in a cache's place is neither read nor replaced", "[packed_cache]") {
  const Cached cached;
  std::filesystem::create_directory(cached.path());
  for (int i = 0; i < 2; ++i) {
    require_without(cached.load(),
                    {"is a directory, need a file; packing again", "; continuing without it"},
                    cached.plain());
  }
}

TEST_CASE("a pipe or a link in a cache's place is neither opened nor replaced", "[packed_cache]") {
  const Cached cached;
  const bool is_pipe = GENERATE(true, false);
  CAPTURE(is_pipe);
  cached.load();
  const std::string elsewhere = cached.models() / "elsewhere";
  std::filesystem::rename(cached.path(), elsewhere);
  if (is_pipe) {
    REQUIRE(::mkfifo(cached.path().c_str(), 0600) == 0);
  } else {
    std::filesystem::create_symlink(elsewhere, cached.path());
  }
  const std::string before = cached.models().read("elsewhere");
  require_without(
      cached.load(),
      {is_pipe ? "not a regular file; packing again" : "is a symbolic link, need the file itself",
       "not a regular file; only regular files are replaced"},
      cached.plain());
  REQUIRE(std::filesystem::symlink_status(cached.path()).type() ==
          (is_pipe ? std::filesystem::file_type::fifo : std::filesystem::file_type::symlink));
  REQUIRE(cached.models().read("elsewhere") == before);
}

TEST_CASE("a cache that others can write to is refused", "[packed_cache]") {
  const Cached cached;
  cached.load();
  for (const mode_t mode : {0664, 0646, 0666}) {
    REQUIRE(::chmod(cached.path().c_str(), mode) == 0);
    cached.refused(
        fmt::format("found mode {:04o}, need one that only the owner can write to", mode));
  }
  const mode_t before = ::umask(0);
  std::filesystem::remove(cached.path());
  cached.load();
  ::umask(before);
  cached.used(cached.plain());  // whatever the umask
  if (::geteuid() == 0) {
    REQUIRE(::chown(cached.path().c_str(), 12345, 0) == 0);
    cached.refused("found owner 12345, need this user (0) or root");
  }
}

TEST_CASE("a cache that is overwritten in use ends the requests that use it", "[packed_cache]") {
  const Cached cached;
  cached.load();
  const auto model = cached.load();
  REQUIRE(model->packed_cache() == cached.path());
  auto sequence = require_ok(open_sequence(model));
  const std::vector<TokenId> ids = {1, 5};
  REQUIRE(sequence->evaluate(ids, LogitRows::kAll).ok());
  // Another file in its place is none of its business.
  cached.caches().write("other", cached.content());
  std::filesystem::rename(cached.caches() / "other", cached.path());
  REQUIRE(sequence->evaluate(ids, LogitRows::kAll).ok());

  const auto mapped_now = cached.load();
  auto later = require_ok(open_sequence(mapped_now));
  overwrite(cached.path(), kPanels + 8, '\x55');
  must_fail(later->evaluate(ids, LogitRows::kAll), ErrorCode::kIntegrity,
            {cached.path(), "packed cache changed while it was read"});
  REQUIRE(sequence->evaluate(ids, LogitRows::kAll).ok());
}

TEST_CASE("a cache of a model that has changed is refused", "[packed_cache]") {
  TinyGguf gguf = TinyGguf::llama({.n_layers = 2});
  const Cached cached(gguf);
  cached.load();
  SECTION("replaced by one of equal size and time") {
    const auto time = std::filesystem::last_write_time(cached.model());
    cached.models().write("new", TinyGguf::llama({.n_layers = 2, .seed = 2}).bytes());
    std::filesystem::last_write_time(cached.models() / "new", time);
    std::filesystem::rename(cached.models() / "new", cached.model());
    cached.refused("source: found source size ");
  }
  SECTION("overwritten in place, the time set back") {
    const auto time = std::filesystem::last_write_time(cached.model());
    const std::size_t at = gguf.header_bytes() + gguf.default_offset("blk.1.ffn_up.weight") + 5;
    overwrite(cached.model(), at, '\3');
    std::filesystem::last_write_time(cached.model(), time);
    cached.refused("source: found source size ");
  }
  SECTION("touched") {
    std::filesystem::last_write_time(cached.model(), std::filesystem::file_time_type::clock::now());
    cached.refused("source: found source size ");
  }
  REQUIRE(hash_of(cached.load()) == hash_of(cached.load({})));
}

TEST_CASE("different metadata and weights are found even if the timestamps are equal",
          "[packed_cache]") {
  // No file system forges a stamp, so the cache is given the other file's.
  const Cached cached;
  cached.load();
  const std::string old = cached.head();
  const auto source_line = [](const std::string& head) {
    const std::size_t at = head.find("source ");
    return head.substr(at, head.find('\n', at) - at);
  };
  TinyGguf other = TinyGguf::llama({.n_layers = 2});
  std::string words;
  SECTION("metadata") {
    other.set_f32("llama.attention.layer_norm_rms_epsilon", 2e-5F);
    words = "metadata: found metadata ";
  }
  SECTION("weights") {
    for (TinyGguf::Tensor& tensor : other.tensors)
      if (tensor.name == "blk.0.ffn_gate.weight") tensor.data[tensor.data.size() / 2] ^= 1;
    words = "samples: found samples ";
  }
  const std::string content = cached.content();
  cached.models().write("model.gguf", other.bytes());
  cached.refused("source: ");
  const std::string stamp = source_line(cached.head());
  cached.write(content);
  cached.forge(source_line(old), stamp);
  cached.refused(words);
}

TEST_CASE("each path has a cache of its own", "[packed_cache]") {
  const Cached cached;
  cached.load();
  const std::string other =
      cached.models().write("other.gguf", TinyGguf::llama({.seed = 5}).bytes());
  const LoadOptions options{.packed_cache = cached.caches().path()};
  REQUIRE(Model::load(other, options).ok());
  REQUIRE(cached.caches().count() == 2);
  REQUIRE((*Model::load(other, options))->packed_cache() ==
          packed_cache_path(cached.caches().path(), other));
  // By another name for the same path it is the same file.
  std::filesystem::create_symlink(cached.model(), cached.models() / "link.gguf");
  const auto linked = Model::load(cached.models() / "link.gguf", options);
  REQUIRE((*linked)->packed_cache() == cached.path());
  // The name of a cache is not longer than a file system takes.
  const std::string longest = std::string(200, 'm') + ".gguf";
  const std::string long_path = cached.models().write(longest, TinyGguf::llama().bytes());
  REQUIRE(Model::load(long_path, options).ok());
  REQUIRE_FALSE((*Model::load(long_path, options))->packed_cache().empty());
}

TEST_CASE("a directory is made; if this fails, the model runs without a cache", "[packed_cache]") {
  const Cached cached;
  const std::string fresh = cached.caches() / "a/b";
  REQUIRE(cached.load({.packed_cache = fresh})->warnings().empty());
  REQUIRE_FALSE(cached.load({.packed_cache = fresh})->packed_cache().empty());
  for (const std::string& directory : {cached.model(), std::string("/proc/none")}) {
    const auto model = cached.load({.packed_cache = directory});
    require_without(model, {"packed cache: " + directory}, cached.plain());
    require_words(model->warnings()[0], {"; continuing without it"});
  }
}

TEST_CASE("with a manifest, a cache must have the weights of the file", "[packed_cache]") {
  const Cached cached;
  // Two panels of the embedding exchanged, and every hash of the cache right.
  cached.load();
  std::string content = cached.content();
  const std::size_t panel = 16 * row_bytes(WeightType::kQ8_0, 32);
  std::swap_ranges(content.begin() + kPanels, content.begin() + kPanels + panel,
                   content.begin() + kPanels + panel);
  const std::string chunk = xxh3(std::string_view(content).substr(kPanels));
  cached.write(content);
  cached.forge(cached.head().substr(cached.head().find("chunk "), 22), "chunk " + chunk);
  // Only whoever asks for the file's own bytes pays for reading them.
  REQUIRE(cached.load()->packed_cache() == cached.path());

  cached.models().write("model.gguf.manifest", tree_of(cached.model()).text());
  const LoadOptions options{.manifest = "", .packed_cache = cached.caches().path()};
  require_without(cached.load(options), {"token_embd.weight: found different weights in the cache"},
                  cached.plain());
  REQUIRE(cached.load(options)->packed_cache() == cached.path());
  REQUIRE(hash_of(cached.load(options)) == cached.plain());
}

TEST_CASE("the layout of packed weights is what caches were made with", "[packed_cache]") {
  // A change of quant/kernels/packed_layout.h changes this line, and so makes caches stale.
  const Cached cached;
  cached.load();
  REQUIRE_THAT(cached.head(), Contains("llm-packed 1\nlayout 19c6e2b17b182602\ncontract 1\n"));
}

}  // namespace llm::test
