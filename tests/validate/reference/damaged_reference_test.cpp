// References that someone damaged, one array at a time: each is refused by name or fails, none
// crashes, and none passes.

#include "tests/support/tiny_gguf.h"
#include "tests/validate/reference/transformers_run.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/reference/npz/npz.h"

namespace llm::test {
namespace {

template <typename T>
std::vector<std::byte> as_array_bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> floats(const NpyArray& array) { return require_ok(array.as_f32()); }

/// What a damage does to one array; false drops it.
using Damage = std::function<bool(NpyArray&)>;

/// A small model and a run of it, which passes as its own reference.
class Damaged {
 public:
  Damaged() {
    const std::string path = folder_.write("m.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
    model_ = require_ok(Model::load(path, {.compute = Compute::kF32, .threads = 1}));
    const std::vector<TokenId> tokens = {1, 70, 71, 72, 260};
    const std::int64_t steps[] = {0, 4, 5};
    REQUIRE(recorded(model_, KvType::kF32, tokens, steps).write(folder_ / "clean.npz").ok());
  }

  const HyperParameters& config() const { return model_->config(); }

  /// Rewrites the clean reference, changed, and judges the model by it: an error, "PASS" or "FAIL".
  std::string verdict(const std::function<bool(const std::string& key, NpyArray&)>& change,
                      ComputeMode mode = {Compute::kF32, KvType::kF32}) {
    const auto reader = require_ok(NpzReader::open(folder_ / "clean.npz"));
    auto writer = require_ok(NpzWriter::create(folder_ / "changed.npz"));
    for (const std::string& key : reader.keys()) {
      NpyArray array = require_ok(reader.read(key));
      if (change(key, array)) REQUIRE(writer.add(key, array).ok());
    }
    REQUIRE(writer.finish().ok());
    const auto dump = Dump::load(folder_ / "changed.npz");
    if (!dump.ok()) return said(dump.error());
    const auto model = require_ok(model_->with_compute(mode.compute));
    const auto sections = check_layers(model, mode, *dump, {});
    if (!sections.ok()) return said(sections.error());
    const bool passed = std::ranges::all_of(*sections, &DiffSection::passed);
    return passed ? "PASS" : "FAIL";
  }
  std::string verdict_of(const std::string& key, const Damage& damage,
                         ComputeMode mode = {Compute::kF32, KvType::kF32}) {
    return verdict([&](const std::string& at, NpyArray& a) { return at != key || damage(a); },
                   mode);
  }
  /// The same with another text as metadata, and what else `change` makes of an array.
  std::string verdict_with_text(const std::function<void(std::string&)>& rewrite,
                                const std::function<bool(const std::string& key)>& keeps,
                                ComputeMode mode = {Compute::kF32, KvType::kF32}) {
    return verdict(
        [&](const std::string& key, NpyArray& a) {
          if (key == "__meta__") {
            std::string text(reinterpret_cast<const char*>(a.data.data()), a.data.size());
            rewrite(text);
            a.data = as_array_bytes(std::vector<char>(text.begin(), text.end()));
            a.shape = {text.size()};
          }
          return keeps(key);
        },
        mode);
  }
  /// The same with texts of the metadata replaced by others.
  std::string verdict_with_meta(
      const std::vector<std::pair<std::string, std::string>>& replacements) {
    const auto rewrite = [&](std::string& text) {
      for (const auto& [from, to] : replacements) {
        const auto at = text.find(from);
        REQUIRE(at != std::string::npos);
        text.replace(at, from.size(), to);
      }
    };
    return verdict_with_text(rewrite, [](const std::string&) { return true; });
  }

 private:
  static std::string said(const Error& error) {
    return std::to_string(static_cast<int>(error.code)) + " " + error.to_string();
  }

  ScratchDirectory folder_;
  std::shared_ptr<const Model> model_;
};

/// Other numbers of rows or features, filled with zeros.
Damage shaped(std::vector<std::uint64_t> shape) {
  return [shape](NpyArray& a) {
    a.shape = shape;
    std::size_t count = 1;
    for (const auto n : shape) count *= static_cast<std::size_t>(n);
    a.data.assign(count * npy_type_size(a.type), std::byte{});
    return true;
  };
}

Damage filled(float value) {
  return [value](NpyArray& a) {
    a.data = as_array_bytes(std::vector<float>(a.data.size() / 4, value));
    return true;
  };
}

template <typename T>
Damage retyped(NpyType type, double factor) {
  return [=](NpyArray& a) {
    std::vector<T> values;
    for (const float v : floats(a))
      values.push_back(static_cast<T>(static_cast<double>(v) * factor));
    a.type = type;
    a.data = as_array_bytes(values);
    return true;
  };
}

std::string key_of(std::size_t step, int layer, std::string_view tap) {
  return "s000" + std::to_string(step) + "/" + tap_label(layer, tap);
}

}  // namespace

TEST_CASE("every tap of another shape or type is refused, naming key and both shapes",
          "[damaged]") {
  Damaged bench;
  REQUIRE(bench.verdict([](const auto&, auto&) { return true; }) == "PASS");
  for (const auto& [tap, layer] : taps_of_model(effort(2, 1))) {
    const std::uint64_t width = tap->width.of(bench.config(), layer);
    const std::string label = tap_label(layer, tap->name);
    CAPTURE(label);
    const std::string need = "need [5, " + std::to_string(width) + "]";
    for (const std::uint64_t found : {std::uint64_t{1}, width - 1, width + 1, width * 1000}) {
      const std::string said = bench.verdict([&](const std::string& key, NpyArray& a) {
        return !key.ends_with("/" + label) || shaped({a.shape[0], found})(a);
      });
      CAPTURE(found);
      CHECK_THAT(said, Contains("3 ") && Contains(label) && Contains(need) &&
                           Contains("found shape [5, " + std::to_string(found) + "]"));
    }
    const std::string key = key_of(0, layer, tap->name);
    const std::vector<std::vector<std::uint64_t>> shapes = {
        {width, 4}, {3, width}, {5, width}, {0, width}, {4, 0}, {4 * width}, {4, width, 1}, {}};
    for (const auto& shape : shapes) {
      CAPTURE(shape);
      CHECK_THAT(bench.verdict_of(key, shaped(shape)), Contains("3 ") && Contains(key));
    }
    CHECK_THAT(bench.verdict_of(key, retyped<std::int32_t>(NpyType::kI32, 1)),
               Contains("3 ") && Contains(key));
  }
}

TEST_CASE("values of a reference that are none, or huge, or rounded, fail", "[damaged]") {
  Damaged bench;
  const ComputeMode int8{Compute::kInt8, KvType::kF16};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [tap, layer] : taps_of_model(effort(2, 1))) {
    const std::string key = key_of(0, layer, tap->name);
    CAPTURE(key);
    CHECK(bench.verdict_of(key, retyped<double>(NpyType::kF64, 1)) == "PASS");
    CHECK(bench.verdict_of(key, filled(kNan)) == "FAIL");
    CHECK(bench.verdict_of(key, filled(kNan), int8) == "FAIL");
    CHECK(bench.verdict_of(key, filled(-kInf)) == "FAIL");
    CHECK(bench.verdict_of(key, filled(1e38F)) == "FAIL");
    CHECK(bench.verdict_of(key, filled(0)) == "FAIL");
    CHECK(bench.verdict_of(key, retyped<double>(NpyType::kF64, 1e300)) == "FAIL");
    CHECK_THAT(bench.verdict_of(key, filled(1e38F), int8), Contains("FAIL") || Contains("PASS"));
    CHECK_THAT(bench.verdict_of(key, [](NpyArray&) { return false; }),
               Contains(tap->name == "logits" ? "3 G/logits: found none" : "FAIL"));
  }
}

TEST_CASE("a reference without logits is refused, whatever it declares", "[damaged]") {
  Damaged bench;
  std::string all = R"("taps_absent":{"probs":"never")";
  for (const Tap& tap : kTaps) all += ",\"" + std::string(tap.name) + R"(":"forgotten")";
  const auto declare_absent = [&](std::string& text) {
    const auto begin = text.find("\"taps_absent\"");
    text.replace(begin, text.find('}', begin) - begin, all);
  };
  // Of the taps those alone whose key ends so.
  const auto verdict = [&](std::string_view kept, ComputeMode mode) {
    const auto keeps = [&](const std::string& key) {
      return !key.starts_with("s0") || (!kept.empty() && key.ends_with(kept));
    };
    return bench.verdict_with_text(declare_absent, keeps, mode);
  };
  for (const ComputeMode mode :
       {ComputeMode{Compute::kF32, KvType::kF32}, ComputeMode{Compute::kInt8, KvType::kF16}}) {
    CHECK_THAT(verdict("", mode), Contains("3 G/logits: found none, need at least the logits") &&
                                      Contains("forgotten"));
    CHECK_THAT(verdict("/G/result_norm", mode), Contains("3 G/logits"));
    CHECK(verdict("/G/logits", mode) == "PASS");
  }
}

TEST_CASE("metadata, tokens and steps that cannot be are refused or fail", "[damaged]") {
  Damaged bench;
  const auto tokens = [&](std::vector<std::int64_t> ids) {
    return bench.verdict([&](const std::string& key, NpyArray& a) {
      const bool changed = key == "tokens" || key == "positions" || key == "step_ptr";
      if (!changed) return true;
      std::vector<std::int64_t> values = ids;
      for (std::size_t i = 0; i < ids.size() && key == "positions"; ++i)
        values[i] = static_cast<std::int64_t>(i);
      if (key == "step_ptr") values = {0, 4, static_cast<std::int64_t>(ids.size())};
      a = {NpyType::kI64, {values.size()}, as_array_bytes(values)};
      return true;
    });
  };
  CHECK(tokens({1, 70, 71, 72, 260}) == "PASS");
  CHECK_THAT(tokens({1, 70, 71, 72, 272}), Contains("3 tokens: found 272 at index 4"));
  CHECK_THAT(tokens({1, 70, 71, 72, -1}), Contains("3 ") && Contains("tokens"));
  CHECK_THAT(tokens(std::vector<std::int64_t>(65, 1)),
             Contains("3 tokens: found 65, need at most 64, the model's context"));
  CHECK_THAT(tokens({1, 70, 71, 72}), Contains("3 ") && Contains("step_ptr"));
  for (const std::string head_dim : {"0", "1", "3", "7", "16777216"}) {
    for (const std::string rope_dim : {"0", "1", "9", "16777216"}) {
      std::vector<std::pair<std::string, std::string>> others = {
          {R"("head_dim":8)", R"("head_dim":)" + head_dim},
          {R"("rope_dim":8)", R"("rope_dim":)" + rope_dim}};
      CAPTURE(head_dim, rope_dim);
      // 0 says nothing about heads.
      const bool silent = head_dim + rope_dim == "00";
      CHECK(bench.verdict_with_meta(others) == (silent ? "PASS" : "FAIL"));
      others.emplace_back("\"interleaved\"", "\"half\"");
      CHECK(bench.verdict_with_meta(others) == "FAIL");
    }
  }
  CHECK(bench.verdict_with_meta({{"\"interleaved\"", "\"half\""}}) == "FAIL");
  CHECK(bench.verdict_with_meta({{"\"n_layers\":2", "\"n_layers\":3"}}) == "FAIL");
  CHECK_THAT(bench.verdict_with_meta({{"\"n_layers\":2", "\"n_layers\":16777216"}}),
             Contains("3 "));
}

}  // namespace llm::test
