// Models in several parts: every tool takes them for the whole file, and contradictions are named.

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "tests/tools/bad_input_support.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// A tiny model and its three parts, NAME-0000i-of-00003.gguf.
class Parts {
 public:
  Parts() {
    whole = directory.write("whole.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
    const auto made =
        run_tool("llmgguf", {"split", whole, directory / "m", "--parts", "3"}).must_end(0);
    for (std::uint64_t i = 0; i < 3; ++i) paths.push_back(split_path(directory / "m", i, 3));
    REQUIRE(made.out == paths[0] + "\n" + paths[1] + "\n" + paths[2] + "\n");
  }

  /// Overwrites the number of `key` in a part; UINT16 but for the last of the keys.
  void set(std::size_t part, std::string_view key, std::uint16_t value) const {
    std::string bytes = read_file(paths[part]);
    const std::size_t at = bytes.find(key) + key.size() + 4;
    REQUIRE(at < bytes.size());
    bytes.replace(at, 2, encoded(value));
    write(part, bytes);
  }
  void write(std::size_t part, const std::string& bytes) const {
    std::ofstream(paths[part], std::ios::binary | std::ios::trunc) << bytes;
  }

  ScratchDirectory directory;
  std::string whole;
  std::vector<std::string> paths;
};

std::string logits_hash(const std::string& model) {
  const auto run = run_tool("llmrun", {model, "-p", "a tiny prompt", "-n", "8", "--temp", "0",
                                       "--ignore-eos", "--logits-hash", "-q", "-t", "1"})
                       .must_end(0);
  return run.err;
}

}  // namespace

TEST_CASE("a split model is the whole model, whichever part is named", "[llmgguf][split]") {
  const Parts parts;
  const std::string expected = logits_hash(parts.whole);
  std::string all;
  for (const std::string& path : parts.paths) {
    CHECK(logits_hash(path) == expected);
    run_tool("llmgguf", {"verify", path, "--strict"}).must_end(0);
    run_tool("llmgguf", {"diff", path, parts.whole}).must_end(0);
    all += read_file(path);
  }
  // The hash is that of the parts' bytes, one after the other.
  const std::string sha256 = sha256_hex(std::as_bytes(std::span(all)));
  CHECK(run_tool("llmgguf", {"hash", parts.paths[1]}).out.starts_with(sha256));
  const auto check = run_tool("llmcheck", {parts.paths[2], "-t", "1", "--ppl", parts.whole, "-v"});
  CHECK_THAT(check.out, Contains(sha256));
  // Other tools read it too.
  const auto quantize = [&](const std::string& from, const std::string& name) {
    run_tool("llmquant", {from, parts.directory / name, "Q8_0", "--allow-requantize", "1"})
        .must_end(0);
    return read_file(parts.directory / name);
  };
  CHECK(quantize(parts.paths[0], "a") == quantize(parts.whole, "b"));
  run_tool("llmtok", {parts.paths[1], "-p", "a"}).must_end(0);
  run_tool("llmbench", {parts.paths[1], "-p", "4", "-n", "0", "-r", "1", "-t", "1"}).must_end(0);
}

TEST_CASE("split and merge give the same bytes again", "[llmgguf][split]") {
  const Parts parts;
  const std::string merged = parts.directory / "merged.gguf";
  run_tool("llmgguf", {"merge", parts.paths[2], merged}).must_end(0);
  CHECK(read_file(merged) == read_file(parts.whole));
  // By size: no part has more tensors than fit, and a tensor that is larger has one of its own.
  const auto by_size =
      run_tool("llmgguf", {"split", parts.whole, parts.directory / "s", "--max-size", "10K"})
          .must_end(0);
  const std::string first = by_size.out.substr(0, by_size.out.find('\n'));
  run_tool("llmgguf", {"merge", first, merged}).must_end(0);
  CHECK(read_file(merged) == read_file(parts.whole));
  for (std::size_t at = 0; at < by_size.out.size(); at = by_size.out.find('\n', at) + 1) {
    const std::string path = by_size.out.substr(at, by_size.out.find('\n', at) - at);
    const std::string bytes = read_file(path);
    const auto part = require_ok(GgufFile::parse(std::as_bytes(std::span(bytes))));
    std::uint64_t data = 0;
    for (const GgufTensor& tensor : part.tensors()) data += tensor.n_bytes;
    CHECK((data <= 10'000 || part.tensors().size() == 1));
  }
}

TEST_CASE("parts that contradict each other are refused by name", "[llmgguf][split]") {
  const Parts parts;
  const auto refused = [&](int code, const std::vector<std::string>& words) {
    for (const std::string& path : parts.paths) {
      if (!std::ifstream(path)) continue;
      const auto run = run_tool("llmgguf", {"verify", path}).must_end(code);
      CAPTURE(path);
      for (const std::string& word : words) CHECK_THAT(run.err, Contains(word));
    }
  };
  SECTION("12 a missing part") {
    std::remove(parts.paths[1].c_str());
    refused(6, {"split.count", "found 3 parts, missing part 2: " + parts.paths[1]});
  }
  SECTION("a part under another name") {
    const std::string path = parts.directory.write("alone.gguf", read_file(parts.paths[0]));
    run_tool("llmgguf", {"verify", path}).must_end(6, {"NAME-00001-of-00003.gguf"});
  }
  SECTION("a number that is not the name's") {
    parts.write(1, read_file(parts.paths[2]));
    refused(3, {parts.paths[1], "split.no", "found 2, need 1"});
  }
  SECTION("a part of another split") {
    parts.set(2, "split.count", 4);
    run_tool("llmgguf", {"verify", parts.paths[0]})
        .must_end(3, {parts.paths[2], "found 4, need 3"});
  }
  SECTION("fewer tensors than promised") {
    parts.set(0, "split.tensors.count", 7);
    refused(3, {parts.paths[0], "split.tensors.count", "found 7, need 21"});
  }
  SECTION("a tensor twice") {
    std::string bytes = read_file(parts.paths[2]);
    const std::string second = read_file(parts.paths[1]);
    const auto of_third = GgufFile::parse(std::as_bytes(std::span(bytes)));
    const auto of_second = GgufFile::parse(std::as_bytes(std::span(second)));
    REQUIRE((of_third.ok() && of_second.ok()));
    for (const GgufTensor& a : of_third->tensors()) {
      for (const GgufTensor& b : of_second->tensors()) {
        if (a.name.size() != b.name.size()) continue;
        bytes.replace(bytes.find(a.name), a.name.size(), b.name);
        parts.write(2, bytes);
        return refused(3, {parts.paths[2], "duplicate name", std::string(b.name)});
      }
    }
    FAIL("no two names of the same length");
  }
  SECTION("a key that only a later part has") {
    std::string bytes = read_file(parts.paths[1]);
    bytes.replace(bytes.find("split.tensors.count"), 5, "other");
    parts.write(1, bytes);
    refused(3, {parts.paths[1], "other.tensors.count", "first part lacks"});
  }
  SECTION("a part cut short") {
    parts.write(2, read_file(parts.paths[2]).substr(0, 900));
    run_tool("llmgguf", {"verify", parts.paths[0]}).must_end(3, {parts.paths[2]});
  }
  SECTION("a scale that is no number, in the last part") {
    std::string bytes = read_file(parts.paths[2]);
    const auto part = require_ok(GgufFile::parse(std::as_bytes(std::span(bytes))));
    const GgufTensor& tensor = part.tensors().back();
    const std::size_t at = part.data_offset() + tensor.offset;
    bytes.replace(at, 4, encoded(std::uint32_t{0x7FC07C00}));
    parts.write(2, bytes);
    refused(7, {parts.paths[2], "byte " + std::to_string(at)});
    CHECK_THAT(run_tool("llmrun", {parts.paths[0]}).err,
               Contains(parts.paths[2]) && Contains("byte " + std::to_string(at)));
  }
}

TEST_CASE("split and merge refuse what would destroy or mean nothing", "[llmgguf][split]") {
  const Parts parts;
  const std::string before = read_file(parts.paths[0]);
  run_tool("llmgguf", {"merge", parts.paths[1], parts.paths[0]}).must_end(2);
  run_tool("llmgguf", {"split", parts.paths[0], parts.directory / "m", "--parts", "3"}).must_end(2);
  CHECK(read_file(parts.paths[0]) == before);
  for (const std::vector<std::string>& options : {std::vector<std::string>{},
                                                  {"--parts", "99"},
                                                  {"--max-size", "0"},
                                                  {"--max-size", "2X"},
                                                  {"--max-size", "99999999G"},
                                                  {"--parts", "2", "--max-size", "1M"}}) {
    std::vector<std::string> arguments = {"split", parts.whole, parts.directory / "n"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    run_tool("llmgguf", arguments).must_end(2);
  }
  run_tool("llmgguf", {"split", parts.whole}).must_end(2);
}

TEST_CASE("parts by the gguf package are read", "[llmgguf][split]") {
  const char* python = std::getenv("LLM_PYTHON");
  if (python == nullptr) {
    std::cerr << "SKIPPED: parts by the gguf package (LLM_PYTHON is not set)\n";
    return;
  }
  const Parts parts;
  // Copies the model; the package writes metadata into the first part.
  const std::string script = parts.directory.write("make_parts.py", R"(
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
  run_shell(std::string("'") + python + "' " + script + " '" + parts.whole + "' '" +
            parts.directory / "py.gguf" + "'")
      .must_end(0);
  const std::string first = split_path(parts.directory / "py", 0, 3);
  CHECK(logits_hash(first) == logits_hash(parts.whole));
  run_tool("llmgguf", {"verify", split_path(parts.directory / "py", 2, 3)}).must_end(0);
}

}  // namespace llm::test
