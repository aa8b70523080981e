// Keys, values and states on disk: what is read back has the bits of computation, whatever happens
// to the files; nothing of another model, type of cache, compute or scope is used.

#include "engine/state/state_store.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "engine/executor.h"
#include "tests/support/effort.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

namespace llm::test {
namespace {

using Ids = std::vector<TokenId>;
constexpr std::size_t kContext = 1400;

std::shared_ptr<const Model> model_of(const std::string& architecture, std::size_t n_layers,
                                      std::uint32_t window, std::uint64_t seed = 1,
                                      Compute compute = Compute::kInt8) {
  TinyGguf tiny = TinyGguf::llama({.n_layers = n_layers,
                                   .seed = seed,
                                   .architecture = architecture,
                                   .unlike_layers = architecture == "llama"});
  tiny.set_u32(architecture + ".context_length", kContext);
  if (window > 0) tiny.set_u32(architecture + ".attention.sliding_window", window);
  return loaded(tiny, {.compute = compute, .threads = 1, .hash_file = true});
}

Ids random_text(std::size_t n, unsigned seed = 1) {
  std::mt19937 random(seed);
  Ids ids(n);
  for (TokenId& id : ids) id = static_cast<TokenId>(3 + random() % 200);
  return ids;
}

/// A process: an executor and its store.
struct Server {
  std::shared_ptr<const Model> model;
  std::string directory;
  KvType kv = KvType::kF16;
  std::size_t kv_pages = 200;
  std::uint64_t most_bytes = UINT64_MAX;
  std::uint64_t most_waiting = 256U << 20;
  std::vector<std::string> told = {};
  std::mutex mutex = {};
  std::shared_ptr<StateStore> store = {};
  std::shared_ptr<Executor> executor = {};

  void start() {
    stop();
    store = require_ok(StateStore::open({.directory = directory,
                                         .most_bytes = most_bytes,
                                         .most_waiting = most_waiting,
                                         .notice = [this](const std::string& text) {
                                           const std::lock_guard lock(mutex);
                                           told.push_back(text);
                                         }}));
    executor = require_ok(Executor::create(
        model,
        {.context = kContext, .kv = kv, .batch = 100, .kv_pages = kv_pages, .store = store}));
  }
  void stop() {
    executor.reset();
    store.reset();
  }

  struct Answer {
    std::size_t n_reused;
    std::size_t n_loaded;
    std::vector<float> row;
  };
  /// The last row of logits of a text.
  Answer ask(const Ids& ids, const std::string& scope = "") {
    const auto sequence =
        require_ok(Executor::open(executor, {.share_prefix = true, .scope = scope}));
    const std::size_t n = sequence->adopt(std::span(ids).first(ids.size() - 1));
    const auto row = require_ok(sequence->evaluate(std::span(ids).subspan(n), LogitRows::kLast));
    return {n, sequence->n_loaded(), {row.begin(), row.end()}};
  }
};

std::vector<float> alone(const std::shared_ptr<const Model>& model, const Ids& ids,
                         KvType kv = KvType::kF16) {
  const auto sequence = require_ok(open_sequence(model, {.context = kContext, .kv = kv}));
  const auto row = require_ok(sequence->evaluate(ids, LogitRows::kLast));
  return {row.begin(), row.end()};
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(directory))
    files.push_back(file.path().string());
  std::ranges::sort(files);
  return files;
}

/// Flips a bit of a file.
void damage(const std::string& path, std::size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 4));
}

/// While it lives, files take 4 KiB, so that writes fail as on a full disk.
class FullDisk {
 public:
  FullDisk() : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {4096, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_{};
  void (*signal_)(int);
};

struct Shape {
  const char* architecture;
  std::size_t n_layers;
  std::uint32_t window;
};
constexpr Shape kShapes[] = {
    {"llama", 2, 0}, {"gemma3", 6, 40}, {"gpt-oss", 2, 300}, {"gemma4", 4, 40}};

/// What clients, operators, disks and other processes do, in any order: every row of logits is the
/// one of a run alone.
void run_schedules(int n_schedules) {
  std::mt19937 random(7);
  const auto draw = [&](std::size_t n) { return random() % n; };
  std::size_t n_loaded = 0;
  std::size_t n_refused = 0;
  std::size_t n_evicted = 0;
  std::size_t n_dropped = 0;
  for (int schedule = 0; schedule < n_schedules; ++schedule) {
    const Shape& shape = kShapes[static_cast<std::size_t>(schedule) % std::size(kShapes)];
    const KvType kv = draw(3) == 0 ? KvType::kQ8 : KvType::kF16;
    const ScratchDirectory folder;
    const auto model = model_of(shape.architecture, shape.n_layers, shape.window);
    const std::size_t least = KvGroups(model->config(), kv).most_pages(kContext, 100);
    std::array<Server, 2> servers;
    for (Server& server : servers) {
      server.model = model;
      server.directory = folder.path("cache");
      server.kv = kv;
      server.kv_pages = least + draw(2) * draw(40);
      server.most_bytes = draw(3) == 0 ? 200'000 : UINT64_MAX;
      server.most_waiting = draw(8) == 0 ? 0 : 256U << 20;
      server.start();
    }
    std::vector<Ids> texts = {random_text(1 + draw(700), static_cast<unsigned>(schedule))};
    for (int step = 0; step < 14; ++step) {
      CAPTURE(schedule, step, shape.architecture, kv_name(kv));
      Server& server = servers[draw(2)];
      switch (draw(8)) {
        case 0:
          server.start();
          break;
        case 1: {
          const auto files = files_in(server.directory);
          if (files.empty()) break;
          const std::string& file = files[draw(files.size())];
          std::error_code gone;
          const std::size_t size = std::filesystem::file_size(file, gone);
          if (gone || size == 0) break;
          if (draw(3) == 0) {
            std::filesystem::resize_file(file, draw(size), gone);
          } else if (draw(3) == 0) {
            std::filesystem::remove(file, gone);
          } else {
            damage(file, draw(size));
          }
          if (draw(2) == 0) server.start();
          break;
        }
        default: {
          Ids text = texts[draw(texts.size())];
          if (draw(3) == 0) text.resize(1 + draw(text.size()));
          if (draw(3) == 0) text[draw(text.size())] = static_cast<TokenId>(3 + draw(200));
          const Ids more =
              random_text(draw(draw(4) == 0 ? 300 : 40), static_cast<unsigned>(random()));
          text.insert(text.end(), more.begin(), more.end());
          if (text.size() > kContext) text.resize(kContext);
          std::optional<FullDisk> full;
          if (draw(6) == 0) full.emplace();
          const auto answer = server.ask(text);
          if (full) server.store->flush();
          REQUIRE(same_bits(answer.row, alone(model, text, kv)));
          n_loaded += answer.n_loaded;
          texts.push_back(std::move(text));
        }
      }
    }
    for (Server& server : servers) {
      server.store->flush();
      n_refused += server.store->figures().refused;
      n_evicted += server.store->figures().evicted;
      n_dropped += server.store->figures().dropped;
      server.stop();
    }
  }
  REQUIRE(n_loaded > 1000);
  REQUIRE(n_refused > 0);
  REQUIRE(n_evicted > 0);
  REQUIRE(n_dropped > 0);
}

}  // namespace

TEST_CASE("store: after a restart a text goes on from where it ended", "[store]") {
  const Shape shape = GENERATE(from_range(std::begin(kShapes), std::end(kShapes)));
  const KvType kv = GENERATE(KvType::kF16, KvType::kF32, KvType::kQ8);
  CAPTURE(shape.architecture, kv_name(kv));
  const ScratchDirectory folder;
  Server server{.model = model_of(shape.architecture, shape.n_layers, shape.window),
                .directory = folder.path("cache"),
                .kv = kv};
  const Ids ids = random_text(1100);
  std::uint64_t n_bytes = 0;
  for (const std::size_t n : {1, 255, 256, 257, 700, 701, 1100}) {
    CAPTURE(n);
    server.start();
    const Ids text(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    const auto first = server.ask(text);
    REQUIRE(same_bits(first.row, alone(server.model, text, kv)));
    n_bytes += server.store->figures().bytes_written;
    server.start();
    const auto again = server.ask(text);
    REQUIRE(again.n_reused == n - 1);
    REQUIRE(again.n_loaded == n - 1);
    REQUIRE(same_bits(again.row, first.row));
    REQUIRE(server.told.empty());
    server.store->flush();
    n_bytes += server.store->figures().bytes_written;
  }
  // Each position is written once.
  std::uint64_t kept = 0;
  for (const std::string& file : files_in(server.directory))
    kept += std::filesystem::file_size(file);
  REQUIRE(kept == server.store->figures().bytes);
  server.stop();
  const std::size_t n_positions = 1100;
  const auto pool = require_ok(KvPool::create(server.model->config(), 1, kv));
  std::uint64_t least = 0;
  for (std::size_t group = 0; group < pool->groups().size(); ++group)
    least += pool->raw_bytes(group, n_positions);
  std::uint64_t in_files = 0;
  for (const std::string& file : files_in(server.directory))
    for (const auto& section : require_ok(read_state_head(file)).sections)
      in_files += section.n_bytes;
  REQUIRE(in_files == least);
}

TEST_CASE("store: no file of a different model, cache, compute mode or scope is used", "[store]") {
  const ScratchDirectory folder;
  const Ids ids = random_text(600);
  Server first{.model = model_of("llama", 2, 0), .directory = folder.path("cache")};
  first.start();
  first.ask(ids);
  REQUIRE(first.ask(ids, "a").n_reused == 0);
  first.stop();
  const auto reused = [&](std::shared_ptr<const Model> model, KvType kv, const std::string& scope) {
    Server other{.model = std::move(model), .directory = first.directory, .kv = kv};
    other.start();
    const auto answer = other.ask(ids, scope);
    REQUIRE(same_bits(answer.row, alone(other.model, ids, kv)));
    return answer.n_reused;
  };
  REQUIRE(reused(model_of("llama", 2, 0, 2), KvType::kF16, "") == 0);
  REQUIRE(reused(model_of("llama", 2, 0, 1, Compute::kF32), KvType::kF16, "") == 0);
  REQUIRE(reused(first.model, KvType::kF32, "") == 0);
  REQUIRE(reused(first.model, KvType::kF16, "b") == 0);
  REQUIRE(reused(first.model, KvType::kF16, "") == 599);
  REQUIRE(reused(first.model, KvType::kF16, "a") == 599);
}

TEST_CASE("store: states are read back at the positions that they are of", "[store]") {
  const KvLayout layout{KvType::kF32, 16};
  const auto pool = [&] {
    return require_ok(KvPool::create(
        KvGroups({{.layout = layout, .n_heads = 2}, {.state_bytes = 100}, {.state_bytes = 60}}), 12,
        KvType::kF32));
  };
  const ScratchDirectory folder;
  const Ids ids = random_text(600);
  {
    const auto store =
        require_ok(StateStore::open({.directory = folder.path("c"), .most_bytes = UINT64_MAX}));
    const auto first = pool();
    SequenceState state(first);
    const std::vector<float> row(2 * 16, 0.5F);
    std::size_t at = 0;
    for (const std::size_t end : {100, 300, 301, 600}) {
      REQUIRE(state.reserve(at, end));
      for (; at < end; ++at) state.store(0, 0, at, row, row);
      std::ranges::fill(state.state(1), static_cast<std::byte>(end));
      std::ranges::fill(state.state(2), static_cast<std::byte>(end + 1));
      if (end == 301) continue;
      state.publish(std::span(ids).first(end), SequenceState::Publish::kAll);
      for (std::size_t i = 0; i * 256 < end; ++i)
        store->save(*first, state.prefix_before(i), i,
                    std::span(ids).subspan(i * 256, std::min<std::size_t>(256, end - i * 256)));
    }
  }
  const auto store =
      require_ok(StateStore::open({.directory = folder.path("c"), .most_bytes = UINT64_MAX}));
  for (const std::size_t n : {99, 100, 256, 299, 300, 301, 599, 600}) {
    CAPTURE(n);
    const auto second = pool();
    store->load(*second, Prefix{}, std::span(ids).first(n), 0);
    SequenceState state(second);
    const std::size_t there = state.adopt(std::span(ids).first(n), 0);
    REQUIRE(there == (n < 100 ? 0 : n < 300 ? 100 : n < 600 ? 300 : 600));
    if (there == 0) continue;
    REQUIRE(std::ranges::count(state.state(1), static_cast<std::byte>(there)) == 100);
    REQUIRE(std::ranges::count(state.state(2), static_cast<std::byte>(there + 1)) == 60);
    REQUIRE(state.key(0, 1, there - 1, 3) == 0.5F);
  }
}

TEST_CASE("store: a damaged file is refused, named once and deleted", "[store]") {
  const ScratchDirectory folder;
  const Ids ids = random_text(500);
  Server server{.model = model_of("llama", 2, 0), .directory = folder.path("cache")};
  const std::vector<float> expected = alone(server.model, ids);
  for (int i = 0; i < 40; ++i) {
    server.start();
    server.ask(ids);
    server.stop();
    const auto files = files_in(server.directory);
    REQUIRE(files.size() == 2);
    const std::string& file = files[static_cast<std::size_t>(i) % 2];
    const std::size_t size = std::filesystem::file_size(file);
    const std::size_t at = static_cast<std::size_t>(i) < 20 ? static_cast<std::size_t>(i) * 63
                                                            : static_cast<std::size_t>(i) * 7919;
    const bool is_cut = i % 5 == 4;
    CAPTURE(i, at % size, is_cut);
    if (is_cut) {
      std::filesystem::resize_file(file, at % size);
    } else {
      damage(file, at % size);
    }
    server.told.clear();
    server.start();
    const auto answer = server.ask(ids);
    REQUIRE(same_bits(answer.row, expected));
    REQUIRE(answer.n_reused < 499);
    REQUIRE(server.told.size() == 1);
    REQUIRE(server.told[0].find(file) != std::string::npos);
    server.store->flush();
    REQUIRE(server.store->figures().refused == 1);
    if (is_cut || at % size >= 12 || at % size < 8) REQUIRE(files_in(server.directory) == files);
    std::filesystem::remove_all(server.directory);
  }
}

TEST_CASE("store: random schedules of servers, edits, restarts, damage and eviction", "[store]") {
  run_schedules(effort(20, 6));
}

TEST_CASE("store: 1,000 random schedules", "[.long]") { run_schedules(1000); }

}  // namespace llm::test
