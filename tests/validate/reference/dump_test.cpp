#include "validate/reference/dump/dump.h"

#include "tests/validate/reference/fake_dump.h"

namespace llm::test {
namespace {

std::string meta_json() { return to_json(fake_meta()); }

/// Writes a dump's arrays by hand, so that each can be wrong.
struct RawDump {
  std::string meta = meta_json();
  std::vector<std::int32_t> tokens = {1, 2, 3};
  std::vector<std::int32_t> positions = {0, 1, 2};
  std::vector<std::int64_t> step_ptr = {0, 2, 3};
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> taps;  ///< key, shape; f32 zeros
  bool with_tokens = true;

  /// @return its path
  std::string write(const ScratchDirectory& folder) const {
    const std::string path = folder / "f.npz";
    auto writer = require_ok(NpzWriter::create(path));
    const auto add = [&](const char* key, NpyType type, const auto& values) {
      const std::uint64_t shape[] = {values.size()};
      REQUIRE(writer.add(key, type, shape, std::as_bytes(std::span(values))).ok());
    };
    add("__meta__", NpyType::kU8, meta);
    if (with_tokens) add("tokens", NpyType::kI32, tokens);
    add("positions", NpyType::kI32, positions);
    add("step_ptr", NpyType::kI64, step_ptr);
    for (const auto& [key, shape] : taps) {
      std::uint64_t count = 1;
      for (const auto n : shape) count *= n;
      const std::vector<float> zeros(count);
      REQUIRE(writer.add(key, NpyType::kF32, shape, std::as_bytes(std::span(zeros))).ok());
    }
    REQUIRE(writer.finish().ok());
    return path;
  }
};

}  // namespace

TEST_CASE("a recorded dump survives writing and loading", "[dump]") {
  const FakeModel model;
  const auto dump = require_ok(model.record({3, 1, 2}));
  const ScratchDirectory folder;
  REQUIRE(dump.write(folder / "a").ok());
  const auto loaded = require_ok(Dump::load(folder / "a"));
  CHECK(std::ranges::equal(loaded.tokens(), dump.tokens()));
  CHECK(std::ranges::equal(loaded.positions(), dump.positions()));
  CHECK(loaded.step_ptr().size() == 4);
  CHECK(loaded.n_layers() == FakeModel::kLayers);
  CHECK(loaded.meta().producer == "fake");
  CHECK(loaded.meta().merges_hash == "b1");
  CHECK(loaded.meta().head_dim == 4);
  CHECK(loaded.unknown_keys().empty());
  for (const auto& [tap, layer] : taps_of_model(FakeModel::kLayers)) {
    REQUIRE(loaded.has(layer, tap->name));
    CHECK(loaded.tap(layer, tap->name)->values == dump.tap(layer, tap->name)->values);
  }
  CHECK(loaded.tap(ProbeSink::kGlobal, "logits")->rows == 6);
  REQUIRE(loaded.write(folder / "b").ok());
  CHECK(Dump::load(folder / "b")->tap(1, "q")->values == dump.tap(1, "q")->values);
}

TEST_CASE("docs/dump_format.md lists the taps in the order of the table", "[dump]") {
  const std::string page = read_file(LLM_SOURCE_DIR "/docs/dump_format.md");
  const std::size_t begin = page.find("## Taps");
  REQUIRE(begin != std::string::npos);
  const std::string section = page.substr(begin, page.find("\n## ", begin) - begin);
  // Layers of different parts have taps of one name in different places: the first counts.
  const auto add = [](std::vector<std::string>& names, std::string name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  };
  std::vector<std::string> listed;
  std::istringstream lines(section);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(2, line.find(" |", 2) - 2);
    for (std::size_t at = 0; (at = cell.find('`', at)) != std::string::npos;) {
      const std::size_t end = cell.find('`', at + 1);
      add(listed, cell.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  std::vector<std::string> expected;
  for (const Tap& tap : kTaps) add(expected, (tap.per_layer ? "" : "G/") + std::string(tap.name));
  CHECK(listed == expected);
}

TEST_CASE("a tap that the table does not have is not recorded", "[dump][bad_input]") {
  const auto [layer, name] =
      GENERATE(table<int, std::string>({{0, "novel"}, {0, "logits"}, {ProbeSink::kGlobal, "q"}}));
  Recorder recorder;
  const std::vector<int> tokens = {1};
  std::vector<float> values(4);
  recorder.begin_step(tokens, 0);
  recorder.tap(layer, name, values, 4, 0);
  must_fail(std::move(recorder).finish(fake_meta()), {tap_label(layer, name), "no tap"});
}

TEST_CASE("the split into steps does not show in a tap", "[dump]") {
  const FakeModel model;
  const auto whole = model.record({6});
  const auto split = model.record({1, 2, 3});
  REQUIRE((whole.ok() && split.ok()));
  CHECK(whole->tap(1, "gate")->values == split->tap(1, "gate")->values);
  CHECK(std::ranges::equal(whole->positions(), split->positions()));
}

TEST_CASE("a recorder refuses a pass that is not whole", "[dump]") {
  const std::vector<int> tokens = {5, 6, 7};
  std::vector<float> rows(3 * 4);
  const auto all = std::span(rows);
  const auto refused = [](const std::string& words, const auto& record) {
    Recorder recorder;
    record(recorder);
    must_fail(std::move(recorder).finish(fake_meta()), ErrorCode::kUsage, {words});
  };
  refused("G/logits", [&](Recorder& r) {  // without its first rows
    r.begin_step(tokens, 0);
    r.tap(ProbeSink::kGlobal, "logits", all.first(4), 4, 2);
  });
  refused("2 rows for 3 tokens", [&](Recorder& r) {
    r.begin_step(tokens, 0);
    r.tap(0, "q", all.first(8), 4, 0);
  });
  refused("L000/q", [&](Recorder& r) {  // twice
    r.begin_step(tokens, 0);
    r.tap(0, "q", all, 4, 0);
    r.tap(0, "q", all, 4, 0);
  });
  refused("width", [&](Recorder& r) {
    r.begin_step(tokens, 0);
    r.tap(0, "q", all.first(8), 4, 0);
    r.tap(0, "q", all.first(2), 2, 2);
  });
  refused("1 of 2 steps", [&](Recorder& r) {
    r.begin_step(tokens, 0);
    r.tap(0, "q", all, 4, 0);
    r.begin_step(tokens, 3);
  });
  refused("begin_step", [&](Recorder& r) { r.tap(0, "q", all, 4, 0); });
  refused("nothing was evaluated", [](Recorder&) {});
}

TEST_CASE("a dump that breaks the format is rejected by key", "[dump][bad_input]") {
  const auto refused = [](const std::string& words, auto spoil,
                          ErrorCode code = ErrorCode::kMalformed) {
    RawDump raw;
    raw.taps = {{"s0000/L000/q", {2, 4}}, {"s0001/L000/q", {1, 4}}};
    spoil(raw);
    const ScratchDirectory folder;
    CAPTURE(words);
    must_fail(Dump::load(raw.write(folder)), code, {words, folder / "f.npz"});
  };
  for (const std::string& meta : {std::string("{"), std::string("[1]"), std::string(100000, '[')})
    refused("__meta__", [&](RawDump& raw) { raw.meta = meta; });
  refused(
      "llmcheck-act/2", [](RawDump& raw) { raw.meta = R"({"format": "llmcheck-act/2"})"; },
      ErrorCode::kUnsupported);
  refused("__meta__", [](RawDump& raw) {  // a key of the wrong type
    raw.meta.replace(raw.meta.find("\"eps\":") + 6, 5, "\"x\",\"");
  });
  refused("tokens", [](RawDump& raw) { raw.with_tokens = false; });
  refused("tokens: found -1", [](RawDump& raw) { raw.tokens[1] = -1; });
  refused("positions", [](RawDump& raw) { raw.positions.pop_back(); });
  refused("step_ptr", [](RawDump& raw) { raw.step_ptr = {0, 3, 2}; });
  refused("step_ptr", [](RawDump& raw) { raw.step_ptr = {0, 2, 4}; });
  refused("step_ptr", [](RawDump& raw) { raw.step_ptr = {}; });
  refused("s0002/L000/q", [](RawDump& raw) { raw.taps.push_back({"s0002/L000/q", {1, 4}}); });
}

TEST_CASE("a tap whose shape does not fit its step is rejected", "[dump][bad_input]") {
  RawDump raw;
  const auto shape =
      GENERATE(values<std::vector<std::uint64_t>>({{2, 4}, {1}, {1, 0}, {1, 5}, {1, 2, 2}, {}}));
  raw.taps = {{"s0000/L000/q", {2, 4}}, {"s0001/L000/q", shape}};
  const ScratchDirectory folder;
  const auto dump = require_ok(Dump::load(raw.write(folder)));
  must_fail(dump.tap(0, "q"), ErrorCode::kMalformed, {"s0001/L000/q", "need [1 tokens, 4]"});
}

TEST_CASE("arrays nobody knows are listed, never an error", "[dump]") {
  RawDump raw;
  raw.taps = {{"s0000/L000/q", {2, 4}},   {"s0001/L000/q", {1, 4}}, {"s0000/L000/novel", {2, 4}},
              {"s0000/L99999/q", {2, 4}}, {"s00/L000/q", {2, 4}},   {"hello", {1}},
              {"s0000/L000/probs", {1}}};
  const ScratchDirectory folder;
  const auto dump = require_ok(Dump::load(raw.write(folder)));
  CHECK(dump.unknown_keys() ==
        std::vector<std::string>{"s0000/L000/novel", "s0000/L99999/q", "s00/L000/q", "hello"});
  CHECK(dump.has(0, "q"));
  CHECK(!dump.has(0, "novel"));
}

}  // namespace llm::test
