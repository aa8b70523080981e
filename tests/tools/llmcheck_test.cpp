// llmcheck as a user runs it: exit codes, words and files.

#include "engine/forward/taps.h"
#include "engine/model/model_file.h"
#include "tests/support/json.h"
#include "tests/support/nonfinite_models.h"
#include "tests/tools/tool_test.h"
#include "validate/reference/npz/npz.h"

namespace llm::test {
namespace {

namespace fs = std::filesystem;

const std::string kModel = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";
const std::string kNpz = LLM_SOURCE_DIR "/tests/validate/reference/npz/";

class Workplace : public ScratchDirectory {
 public:
  /// Runs llmcheck in the source directory; returns the exit code.
  int llmcheck(const std::string& arguments) {
    const Finished run =
        run_shell("cd '" LLM_SOURCE_DIR "' && '" + tool_path("llmcheck") + "' " + arguments);
    out = run.out;
    err = run.err;
    return run.exit_code;
  }

  std::string out;
  std::string err;
};

/// The embedded model with one bit of one weight flipped: the top mantissa bit, half the weight.
std::string with_flipped_bit(std::size_t layer) {
  auto file = require_ok(llm::open_model_file(kModel));
  const auto whole = file.file.bytes();
  const auto tensor = file.tensors.layers[layer].ffn_gate.data;
  std::string bytes(reinterpret_cast<const char*>(whole.data()), whole.size());
  bytes[static_cast<std::size_t>(tensor.data() - whole.data()) + 2001] ^= 0x02;
  return bytes;
}

}  // namespace

TEST_CASE("a reference alone finds its model, and the frozen transformers run passes",
          "[llmcheck]") {
  Workplace w;
  const int code = w.llmcheck("--layer-diff tests/validate/reference/npz/embedded_hf.npz");
  CAPTURE(w.out, w.err);
  REQUIRE(code == 0);
  CHECK_THAT(w.out, Contains("models/fable-3m-f16.gguf") && Contains("PASS  f32-bits") &&
                        Contains("PASS  f32-run") && Contains("PASS  int8-ops") &&
                        Contains("int8-price") && Contains("hf by from_hf.py") &&
                        Contains("63 taps") && Contains("next: "));
  CHECK(w.out.starts_with("PASS"));
  CHECK(w.llmcheck("--layer-diff tests/validate/reference/npz/embedded_hf.npz --compute f32 -v") ==
        0);
  CHECK_THAT(w.out, Contains("PASS: 63 taps") && !Contains("int8-"));
}

TEST_CASE("one flipped bit of a weight is found, with op and tensor", "[llmcheck]") {
  Workplace w;
  const auto layer = GENERATE(values<std::size_t>({0, 2}));
  REQUIRE(w.llmcheck(kModel + " --compute f32 --dump '" + w / "own.npz" + "'") == 0);
  w.write("bad.gguf", with_flipped_bit(layer));
  const int code =
      w.llmcheck("'" + w / "bad.gguf" + "' --layer-diff '" + w / "own.npz" +
                 "' --compute f32 --report '" + w / "r.json" + "' --report '" + w / "r.md" +
                 "' --report '" + w / "r.html" + "' --report '" + w / "r.junit.xml" + "'");
  CAPTURE(w.err);
  REQUIRE(code == 1);
  const std::string tap = "L00" + std::to_string(layer) + "/gate";
  const std::string tensor = "blk." + std::to_string(layer) + ".ffn_gate.weight";
  CHECK_THAT(w.out, Contains("the first is " + tap) && Contains(tensor) &&
                        Contains("the model files differ"));
  const auto json = test::parse_json(read_file(w / "r.json"));
  CHECK(json["schema_version"] == 1);
  CHECK(json["verdict"] == "FAIL");
  // The engine itself is sound: it computes the damaged file as the definition does.
  CHECK(json["layer_diffs"][0]["name"] == "f32-bits");
  CHECK(json["layer_diffs"][0]["verdict"] == "PASS");
  CHECK(json["layer_diffs"][1]["name"] == "f32-ops");
  CHECK(json["layer_diffs"][1]["first_failing"] == tap);
  CHECK(json["layer_diffs"][1]["rows"].size() == 63);
  CHECK_THAT(read_file(w / "r.md"), Contains("# llmcheck: FAIL") && Contains(tensor));
  CHECK_THAT(read_file(w / "r.junit.xml"), Contains("<failure") && Contains(tap));
  const std::string html = read_file(w / "r.html");
  CHECK_THAT(html,
             Contains("<svg") && Contains(tensor) && !Contains("<script") && !Contains("http"));
}

TEST_CASE("one corrupted nibble of one Q4_K block is found, with tensor and row", "[llmcheck]") {
  Workplace w;
  const std::string model = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";
  REQUIRE(w.llmcheck(model + " --compute f32 --dump '" + w / "own.npz" + "'") == 0);
  auto file = require_ok(llm::open_model_file(model));
  const auto& tensor = file.tensors.layers[1].ffn_up;
  REQUIRE(tensor.type == llm::WeightType::kQ4_K);
  const std::size_t row = 5;
  std::string bytes = read_file(model);
  // 16 bytes of scales, then codes, two to a byte.
  const auto at = static_cast<std::size_t>(tensor.data.data() - file.file.bytes().data()) +
                  row * llm::row_bytes(tensor.type, tensor.n_cols) + 16;
  bytes[at] = static_cast<char>(bytes[at] ^ 0x07);
  w.write("bad.gguf", bytes);
  REQUIRE(w.llmcheck("'" + w / "bad.gguf" + "' --layer-diff '" + w / "own.npz" +
                     "' --compute f32") == 1);
  CHECK_THAT(w.out, Contains("the first is L001/up") && Contains("locate: 1 op has an error") &&
                        Contains("blk.1.ffn_up.weight (Q4_K)") && Contains("only feature 5 of"));
}

TEST_CASE("a dump of one's own passes; tighter limits fail it", "[llmcheck]") {
  Workplace w;
  REQUIRE(w.llmcheck(kModel + " --compute f32 --dump '" + w / "own.npz" + "'") == 0);
  CHECK(w.llmcheck(kModel + " --compute f32 --layer-diff '" + w / "own.npz" + "'") == 0);
  w.write("tight.json",
          R"({"format": "llmcheck-limits/1", "limits": [{"probe": "*", "metric": "nmse",
                 "limit": 1e-30, "source": "none"}]})");
  CHECK(w.llmcheck(kModel + " --compute int8 --tol '" + w / "tight.json" + "' --layer-diff '" +
                   w / "own.npz" + "'") == 1);
  CHECK_THAT(w.out, Contains("FAIL  int8-run") && Contains("the limits given"));
  REQUIRE(w.llmcheck(kModel + " --compute int8 --dump '" + w / "int8.npz" + "'") == 0);
  CHECK(w.llmcheck(kModel + " --layer-diff '" + w / "int8.npz" + "'") == 0);
  CHECK_THAT(w.out, Contains("PASS  int8-ops") && !Contains("f32-"));
  CHECK(w.llmcheck(kModel + " --compute f32 --layer-diff '" + w / "int8.npz" + "'") == 2);
  CHECK_THAT(w.err, Contains("the reference computed in int8"));
  w.write("bad.json", R"({"format": "llmcheck-limits/1", "limits": [{"probe": "*",
                                 "metric": "nmse", "limit": -1, "source": ""}]})");
  CHECK(w.llmcheck(kModel + " --tol '" + w / "bad.json" + "' --layer-diff '" + w / "own.npz" +
                   "'") == 3);
  CHECK_THAT(w.err, Contains("limits[0] limit"));
}

TEST_CASE("a reference whose model is nowhere says which hash was looked for", "[llmcheck]") {
  Workplace w;
  w.write("gone.gguf", with_flipped_bit(1));
  REQUIRE(w.llmcheck("'" + w / "gone.gguf" + "' -p Hi --dump '" + w / "own.npz" + "'") == 0);
  REQUIRE(w.llmcheck("--layer-diff '" + w / "own.npz" + "' --compute int8") == 0);
  fs::remove(w / "gone.gguf");
  CHECK(w.llmcheck("--layer-diff '" + w / "own.npz" + "'") == 4);
  CHECK_THAT(w.err, Contains("model_sha256") && Contains("no .gguf with SHA-256"));
}

TEST_CASE("a reference that says nothing about the mode asked for is no PASS", "[llmcheck]") {
  Workplace w;
  REQUIRE(w.llmcheck(kModel + " -p Hi --compute f32 --dump '" + w / "own.npz" + "'") == 0);
  auto dump = require_ok(llm::NpzReader::open(w / "own.npz"));
  auto writer = require_ok(llm::NpzWriter::create(w / "logits.npz"));
  for (const std::string& key : dump.keys()) {
    if (key.starts_with("s0") && !key.ends_with("logits")) continue;
    auto array = require_ok(dump.read(key));
    if (key == "__meta__") {
      std::string text(reinterpret_cast<const char*>(array.data.data()), array.data.size());
      std::string absent = "\"taps_absent\":{\"embd\":\"x\",\"result_norm\":\"x\",";
      for (const llm::Tap& tap : llm::layer_taps())
        absent += "\"" + std::string(tap.name) + "\":\"x\",";
      const std::string old = "\"taps_absent\":{";
      text.replace(text.find(old), old.size(), absent);
      const auto bytes = std::as_bytes(std::span(text));
      array.data.assign(bytes.begin(), bytes.end());
      array.shape = {text.size()};
    }
    REQUIRE(writer.add(key, array).ok());
  }
  REQUIRE(writer.finish().ok());
  const std::string reference = " --layer-diff '" + w / "logits.npz" + "'";
  CHECK(w.llmcheck(kModel + reference) == 0);
  CHECK_THAT(w.out, Contains("PASS  f32-run") && Contains("(1 of 63 taps compared)"));
  CHECK(w.llmcheck(kModel + reference + " --compute int8") == 3);
  CHECK(w.out.empty());
  CHECK_THAT(w.err, Contains("logits.npz: taps: found no op with its input and output"));
  CHECK(w.llmcheck(kModel + " --stages '" + w / "logits.npz" + "' --compute int8") == 9);
  CHECK_THAT(w.out, Contains("PASS  stage 5, logits") && Contains("PASS  stage 6, text") &&
                        Contains("UNDECIDED stages that the reference judges") &&
                        Contains("2 of 6, need 3") && Contains("the taps of all layers"));
}

TEST_CASE("NaN in the logits that divergence is measured from fails and names the tensor",
          "[llmcheck]") {
  Workplace w;
  REQUIRE(w.llmcheck(kModel + " -p Hi --compute f32 --dump '" + w / "own.npz" + "'") == 0);
  auto dump = llm::NpzReader::open(w / "own.npz");
  auto writer = llm::NpzWriter::create(w / "nan.npz");
  REQUIRE((dump.ok() && writer.ok()));
  for (const std::string& key : dump->keys()) {
    auto array = require_ok(dump->read(key));
    if (key.ends_with("G/logits")) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const std::size_t at = array.shape[1] + 7;  // position 1, token 7
      std::memcpy(array.data.data() + at * sizeof nan, &nan, sizeof nan);
    }
    REQUIRE(writer->add(key, array).ok());
  }
  REQUIRE(writer->finish().ok());
  CHECK(w.llmcheck(kModel + " --kld '" + w / "nan.npz" + "'") == 1);
  CHECK_THAT(w.out, Contains("FAIL") && Contains("G/logits: found nan at position 1, token 7"));
  CHECK_THAT(w.out, !Contains("KL divergence"));
}

TEST_CASE("a model replaced after its hash was taken is not judged under it", "[llmcheck]") {
  Workplace w;
  w.write("m.gguf", read_file(kModel));
  w.write("other.gguf", read_file(kModel) + "x");  // the same weights, another hash
  w.write("limits.json",
          R"({"format": "llmcheck-limits/1", "limits": [{"probe": "*", "metric": "nmse",
                 "limit": 1, "source": "none"}]})");
  REQUIRE(w.llmcheck("'" + w / "m.gguf" + "' -p Hi --compute f32 --dump '" + w / "own.npz'") == 0);
  // The limits are read between hash and model: opening the FIFO waits for that moment.
  const Finished run =
      run_shell("cd '" +
                w / "' && mkfifo wait || exit 99; '" LLM_BIN_DIR
                    "/llmcheck' m.gguf --layer-diff own.npz --compute f32 --tol wait & "
                    "exec 3> wait; mv other.gguf m.gguf; cat limits.json >&3; exec 3>&-; wait $!")
          .must_end(8, {"m.gguf: SHA-256: found ", "replaced"});
  CHECK(run.out.empty());
}

TEST_CASE("every path of this CPU equals the definition on the embedded model", "[llmcheck]") {
  Workplace w;
  CHECK(w.llmcheck(kModel + " --self --report '" + w / "r.json" + "'") == 0);
  const auto json = test::parse_json(read_file(w / "r.json"));
  CHECK(json["checks"].size() >= 2 * 12);
  for (const auto& check : json["checks"]) {
    CAPTURE(json_text(check));
    CHECK(check["verdict"] == "PASS");
  }
}

TEST_CASE("a model whose logits overflow fails by name; --fail-fast stops there", "[llmcheck]") {
  Workplace w;
  llm::test::TinyGguf model = llm::test::TinyGguf::llama();
  llm::test::make_huge(model, "blk.0.ffn_down.weight");
  const auto bytes = model.bytes();
  w.write("huge.gguf", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const std::string self = "'" + w / "huge.gguf" + "' -t 1 --self -p abc";
  REQUIRE(w.llmcheck(self) == 1);
  CHECK_THAT(w.out, Contains("FAIL  int8") && Contains("FAIL  f32"));
  REQUIRE(w.llmcheck(self + " --fail-fast") == 1);
  CHECK_THAT(w.out, Contains("FAIL  int8") && !Contains("FAIL  f32") &&
                        Contains("what comes after the first part that fails"));
}

TEST_CASE("bad references give exit code and words", "[llmcheck][bad_input]") {
  Workplace w;
  const auto [name, code, words] = GENERATE(table<std::string, int, std::string>({
      {"bzip2.npz", 6, "method 12 (bzip2)"},
      {"lzma.npz", 6, "method 14 (lzma)"},
      {"bomb.npz", 5, "expands"},
      {"duplicate.npz", 3, "duplicate member"},
      {"empty.npz", 3, "__meta__"},
      {"savez.npz", 3, "__meta__"},
      {"traversal.npz", 3, "__meta__"},
      {"none.npz", 4, "No such file"},
      {"../npz_test.cpp", 3, "end of central directory"},
  }));
  CAPTURE(name);
  CHECK(w.llmcheck(kModel + " --layer-diff " + kNpz + name) == code);
  CHECK(w.out.empty());
  CHECK_THAT(w.err, Contains("llmcheck: error: ") && Contains(words));
}

TEST_CASE("usage is refused before any work", "[llmcheck]") {
  Workplace w;
  CHECK(w.llmcheck("") == 2);
  CHECK(w.llmcheck("--self") == 2);
  CHECK(w.llmcheck(kModel + " --self --report r.pdf") == 2);
  CHECK_THAT(w.err, Contains("--report") && Contains(".junit.xml"));
  CHECK(w.llmcheck(kModel + " --self --isa sse9") == 2);
  REQUIRE(w.llmcheck(kModel + " -p Hi --compute f32 --dump '" + w / "own.npz" + "'") == 0);
  CHECK(w.llmcheck(kModel + " --compute f32 --report /nonexistent/r.json --layer-diff '" +
                   w / "own.npz" + "'") == 4);
}

}  // namespace llm::test
