// Models in several parts: every tool takes them for the whole file, and contradictions are named.

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// A folder with a tiny model, tiny.gguf, and its three parts, m-0000i-of-00003.gguf.
class Parts : public ToolFolder {
 public:
  Parts() {
    write("tiny.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
    for (std::uint64_t i = 0; i < 3; ++i) names.push_back(split_path("m", i, 3));
    const auto made = shell("llmgguf split tiny.gguf m --parts 3").must_end(0);
    std::string report;
    for (const std::string& name : names) {
      const std::string bytes = read(name);
      report += fmt::format("{}: {} bytes, SHA-256 {}\n", name, bytes.size(),
                            sha256_hex(std::as_bytes(std::span(bytes))));
    }
    REQUIRE(made.out == report);
  }

  Finished verify(std::size_t part, int code, Words words) const {
    return shell("llmgguf verify " + names[part]).must_end(code, words);
  }
  /// Writes over what is `skip` bytes behind the beginning of the first `text` of a part.
  void patch(std::size_t part, std::string_view text, std::size_t skip, std::string_view by) const {
    std::string bytes = read(names[part]);
    const std::size_t at = bytes.find(text) + skip;
    REQUIRE(at + by.size() <= bytes.size());
    write(names[part], bytes.replace(at, by.size(), by));
  }
  /// Overwrites the number of `key` in a part; UINT16 but for the last of the keys.
  void set(std::size_t part, std::string_view key, std::uint16_t value) const {
    patch(part, key, key.size() + 4, encoded(value));
  }
  std::string logits_hash(const std::string& model) const {
    return shell("llmrun -p 'a tiny prompt' -n 8 --temp 0 --ignore-eos --logits-hash -q -t 1 " +
                 model)
        .must_end(0)
        .err;
  }

  std::vector<std::string> names;
};

}  // namespace

TEST_CASE("a split model is the whole model, whichever part is named", "[llmgguf][split]") {
  const Parts parts;
  const std::string expected = parts.logits_hash("tiny.gguf");
  std::string all;
  for (const std::string& name : parts.names) {
    CHECK(parts.logits_hash(name) == expected);
    parts.shell("llmgguf verify --strict " + name).must_end(0);
    parts.shell("llmgguf diff tiny.gguf " + name).must_end(0);
    all += parts.read(name);
  }
  // The hash is that of the parts' bytes, one after the other.
  const std::string sha256 = sha256_hex(std::as_bytes(std::span(all)));
  CHECK(parts.shell("llmgguf hash " + parts.names[1]).out.starts_with(sha256));
  parts.shell("llmcheck -t 1 --ppl tiny.gguf -v " + parts.names[2]).must_end(0, {}, {sha256});
  // Other tools read it too.
  const std::string options = " Q8_0 1 --allow-requantize -q && ";
  parts
      .shell("llmquant " + parts.names[0] + " a" + options + "llmquant tiny.gguf b" + options +
             "cmp a b")
      .must_end(0);
  parts.shell("llmtok -p a " + parts.names[1]).must_end(0);
  parts.shell("llmbench -p 4 -n 0 -r 1 -t 1 --no-peaks " + parts.names[1]).must_end(0);
}

TEST_CASE("split and merge give the same bytes again", "[llmgguf][split]") {
  const Parts parts;
  parts.shell("llmgguf merge m-00003-of-00003.gguf merged && cmp merged tiny.gguf").must_end(0);
  // By size: no part has more tensors than fit, and a tensor that is larger has one of its own.
  const auto by_size = parts.shell("llmgguf split tiny.gguf s --max-size 10K").must_end(0);
  parts.shell("llmgguf merge s-00001-* merged")
      .must_end(2, {"merged: OUT: found a file that exists"});
  parts.shell("llmgguf merge s-00001-* merged --force && cmp merged tiny.gguf").must_end(0);
  parts.shell("llmgguf split tiny.gguf s --max-size 10k").must_end(2, {"found a file that exists"});
  std::istringstream lines(by_size.out);
  for (std::string name; std::getline(lines, name);) {
    name.resize(name.find(':'));
    const std::string bytes = parts.read(name);
    const auto part = require_ok(GgufFile::parse(std::as_bytes(std::span(bytes))));
    std::uint64_t data = 0;
    for (const GgufTensor& tensor : part.tensors()) data += tensor.n_bytes;
    CHECK((data <= 10'000 || part.tensors().size() == 1));
  }
}

TEST_CASE("parts that contradict each other are refused by name", "[llmgguf][split]") {
  const Parts parts;
  const auto& names = parts.names;
  const auto refused = [&](int code, Words words) {
    for (std::size_t part = 0; part < 3; ++part)
      if (std::filesystem::exists(parts.path(names[part]))) parts.verify(part, code, words);
  };
  SECTION("12 a missing part") {
    std::filesystem::remove(parts.path(names[1]));
    refused(6, {"split.count", "found 3 parts, missing part 2: " + names[1]});
  }
  SECTION("a part under another name") {
    parts.shell("cp " + names[0] + " alone.gguf; llmgguf verify alone.gguf")
        .must_end(6, {"NAME-00001-of-00003.gguf"});
  }
  SECTION("a number that is not the name's") {
    parts.write(names[1], parts.read(names[2]));
    refused(3, {names[1], "split.no", "found 2, need 1"});
  }
  SECTION("a part of another split") {
    parts.set(2, "split.count", 4);
    parts.verify(0, 3, {names[2], "found 4, need 3"});
  }
  SECTION("fewer tensors than promised") {
    parts.set(0, "split.tensors.count", 7);
    refused(3, {names[0], "split.tensors.count", "found 7, need 21"});
  }
  SECTION("a tensor twice") {
    const std::string second = parts.read(names[1]);
    const std::string third = parts.read(names[2]);
    const auto of_second = require_ok(GgufFile::parse(std::as_bytes(std::span(second))));
    const auto of_third = require_ok(GgufFile::parse(std::as_bytes(std::span(third))));
    for (const GgufTensor& a : of_third.tensors()) {
      for (const GgufTensor& b : of_second.tensors()) {
        if (a.name.size() != b.name.size()) continue;
        parts.patch(2, a.name, 0, b.name);
        return refused(3, {names[2], "duplicate name", b.name});
      }
    }
    FAIL("no two names of the same length");
  }
  SECTION("a key that only a later part has") {
    parts.patch(1, "split.tensors.count", 0, "other");
    refused(3, {names[1], "other.tensors.count", "first part does not have"});
  }
  SECTION("a part cut short") {
    std::filesystem::resize_file(parts.path(names[2]), 900);
    parts.verify(0, 3, {names[2]});
  }
  SECTION("a scale that is no number, in the last part") {
    std::string bytes = parts.read(names[2]);
    const auto part = require_ok(GgufFile::parse(std::as_bytes(std::span(bytes))));
    const std::size_t at = part.data_offset() + part.tensors().back().offset;
    parts.write(names[2], bytes.replace(at, 4, encoded(std::uint32_t{0x7FC07C00})));
    const std::string place = fmt::format("byte {}", at);
    refused(7, {names[2], place});
    parts.shell("llmrun " + names[0]).must_end(7, {names[2], place});
  }
}

TEST_CASE("split and merge refuse what would destroy or mean nothing", "[llmgguf][split]") {
  const Parts parts;
  const std::string before = parts.read(parts.names[0]);
  for (const std::string words :
       {"merge m-00002-of-00003.gguf m-00001-of-00003.gguf",
        "split m-00001-of-00003.gguf m --parts 3", "split tiny.gguf n",
        "split tiny.gguf n --parts 99", "split tiny.gguf n --max-size 0",
        "split tiny.gguf n --max-size 2X", "split tiny.gguf n --max-size 99999999G",
        "split tiny.gguf n --parts 2 --max-size 1M", "split tiny.gguf"})
    parts.shell("llmgguf " + words).must_end(2);
  CHECK(parts.read(parts.names[0]) == before);
}

TEST_CASE("parts by the gguf package are read", "[llmgguf][split]") {
  const char* python = std::getenv("LLM_PYTHON");
  if (python == nullptr) {
    std::cerr << "SKIPPED: parts by the gguf package (LLM_PYTHON is not set)\n";
    return;
  }
  const Parts parts;
  // Copies the model; the package writes metadata into the first part.
  parts.write("make_parts.py", R"(
import sys, gguf
reader = gguf.GGUFReader(sys.argv[1])
writer = gguf.GGUFWriter(sys.argv[2], "llama", split_max_tensors=8)
for name, field in reader.fields.items():
    if name.startswith("GGUF.") or name == "general.architecture":
        continue
    value = field.contents()
    sub = field.types[1] if len(field.types) > 1 else None
    writer.add_key_value(name, value, field.types[0], sub_type=sub)
for t in reader.tensors:
    writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
)");
  parts.shell(fmt::format("'{}' make_parts.py tiny.gguf py.gguf", python)).must_end(0);
  CHECK(parts.logits_hash("py-00001-of-00003.gguf") == parts.logits_hash("tiny.gguf"));
  parts.shell("llmgguf verify py-00003-of-00003.gguf").must_end(0);
}

}  // namespace llm::test
