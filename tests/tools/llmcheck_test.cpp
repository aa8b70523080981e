// llmcheck as a user runs it: exit codes, words and files.

#include "base/xxh3.h"
#include "engine/forward/activation_points.h"
#include "tests/support/nonfinite_models.h"
#include "tests/tools/llmcheck_process.h"
#include "validate/reference/npz/npz.h"

namespace llm::test {
namespace {

const std::string kNpz = LLM_SOURCE_DIR "/tests/validate/reference/npz/";

/// One bit of one weight is flipped: the top mantissa bit, half the weight.
std::string with_flipped_bit(std::size_t layer) { return damaged_model(layer, 2001, 2002, 0x02); }

/// Limits of one NMSE for all taps.
std::string limits(const std::string& nmse) {
  return R"({"format": "llmcheck-limits/1", "limits": [{"probe": "*", "metric": "nmse", "limit": )" +
         nmse + R"(, "source": ""}]})";
}

/// Copies the arrays of a dump, changed; those that `change` returns false for are left out.
void copy_dump(const std::string& from, const std::string& to,
               const std::function<bool(const std::string&, NpyArray&)>& change) {
  auto dump = require_ok(NpzReader::open(from));
  auto writer = require_ok(NpzWriter::create(to));
  for (const std::string& key : dump.keys()) {
    auto array = require_ok(dump.read(key));
    if (change(key, array)) REQUIRE(writer.add(key, array).ok());
  }
  REQUIRE(writer.finish().ok());
}

}  // namespace

TEST_CASE("a reference alone finds its model, and the frozen transformers run passes",
          "[llmcheck]") {
  const LlmcheckFolder w;
  const std::string run = "cd '" LLM_SOURCE_DIR "'; llmcheck --layer-diff '" + kNpz;
  const Finished found =
      w.shell(run + "embedded_hf.npz'")
          .must_end(0, {},
                    {"models/fable-3m-f16.gguf", "PASS  f32-bits", "PASS  f32-run",
                     "PASS  int8-ops", "int8-price", "hf by from_hf.py", "63 taps", "next: "});
  CHECK(found.out.starts_with("PASS"));
  const Finished f32 = w.shell(run + "embedded_hf.npz' --compute f32 -v");
  CHECK_THAT(f32.must_end(0, {}, {"PASS: 63 taps"}).out, !Contains("int8-"));
}

TEST_CASE("one flipped bit of a weight is found, with op and tensor", "[llmcheck]") {
  const LlmcheckFolder w;
  const auto layer = GENERATE(values<std::size_t>({0, 2}));
  const std::string tap = fmt::format("L00{}/gate", layer);
  const std::string tensor = fmt::format("blk.{}.ffn_gate.weight", layer);
  w.llmcheck(kFableF16 + " --compute f32 --dump own.npz").must_end(0);
  w.write("bad.gguf", with_flipped_bit(layer));
  const auto json =
      w.report("bad.gguf --layer-diff own.npz --compute f32 --report r.html --report r.junit.xml",
               1, {"the first is " + tap, tensor, "the model files differ"});
  // The engine itself is sound: it computes the damaged file as the definition does.
  must_match(json, Json{{"schema_version", 1}, {"verdict", "FAIL"}});
  const Json& diffs = json["layer_diffs"];
  must_match(diffs[0], "{'name': 'f32-bits', 'verdict': 'PASS'}"_j);
  must_match(diffs[1], Json{{"name", "f32-ops"}, {"first_failing", tap}});
  CHECK(diffs[1]["rows"].size() == 63);
  CHECK_THAT(w.read("r.junit.xml"), Contains("<failure") && Contains(tap));
  CHECK_THAT(w.read("r.html"),
             Contains("<svg") && Contains(tensor) && !Contains("<script") && !Contains("http"));
}

TEST_CASE("one corrupted nibble of one Q4_K block is found, with tensor and row", "[llmcheck]") {
  const LlmcheckFolder w;
  w.llmcheck(kFable + " --compute f32 --dump own.npz").must_end(0);
  auto file = require_ok(open_model_file(kFable));
  const auto& tensor = file.tensors.layers[1].ffn_up;
  REQUIRE(tensor.type == WeightType::kQ4_K);
  const std::size_t row = 5;
  std::string bytes = read_file(kFable);
  // 16 bytes of scales, then codes, two to a byte.
  const auto at = static_cast<std::size_t>(tensor.data.data() - file.file.bytes().data()) +
                  row * row_bytes(tensor.type, tensor.n_cols) + 16;
  bytes[at] = static_cast<char>(bytes[at] ^ 0x07);
  w.write("bad.gguf", bytes);
  w.llmcheck("bad.gguf --layer-diff own.npz --compute f32")
      .must_end(1, {},
                {"the first is L001/up", "locate: 1 op has an error", "blk.1.ffn_up.weight (Q4_K)",
                 "only feature 5 of"});
}

TEST_CASE("a dump of one's own passes; tighter limits fail it", "[llmcheck]") {
  const LlmcheckFolder w;
  const std::string check = kFableF16 + " --layer-diff ";
  w.llmcheck(kFableF16 + " --compute f32 --dump own.npz").must_end(0);
  w.llmcheck(check + "own.npz --compute f32").must_end(0);
  w.write("tight.json", limits("1e-30"));
  w.llmcheck(check + "own.npz --compute int8 --tol tight.json")
      .must_end(1, {}, {"FAIL  int8-run", "the limits given"});
  w.llmcheck(kFableF16 + " --compute int8 --dump int8.npz").must_end(0);
  const Finished int8 = w.llmcheck(check + "int8.npz").must_end(0, {}, {"PASS  int8-ops"});
  CHECK_THAT(int8.out, !Contains("f32-"));
  w.llmcheck(check + "int8.npz --compute f32").must_end(2, {"the reference computed in int8"});
  w.write("bad.json", limits("-1"));
  w.llmcheck(check + "own.npz --tol bad.json").must_end(3, {"limits[0].limit"});
}

TEST_CASE("a reference whose model is nowhere says which hash was looked for", "[llmcheck]") {
  const LlmcheckFolder w;
  w.write("gone.gguf", with_flipped_bit(1));
  w.llmcheck("gone.gguf -p Hi --dump own.npz").must_end(0);
  w.llmcheck("--layer-diff own.npz --compute int8").must_end(0);
  std::filesystem::remove(w / "gone.gguf");
  w.llmcheck("--layer-diff own.npz").must_end(4, {"model_sha256", "no .gguf with SHA-256"});
}

TEST_CASE("a reference that says nothing about the mode asked for is no PASS", "[llmcheck]") {
  const LlmcheckFolder w;
  w.llmcheck(kFableF16 + " -p Hi --compute f32 --dump own.npz").must_end(0);
  copy_dump(w / "own.npz", w / "logits.npz", [](const std::string& key, NpyArray& array) {
    if (key != "__meta__") return !key.starts_with("s0") || key.ends_with("logits");
    std::string text(reinterpret_cast<const char*>(array.data.data()), array.data.size());
    std::string absent = R"("taps_absent":{"embd":"x","result_norm":"x",)";
    for (const Tap& tap : layer_taps()) absent += fmt::format(R"("{}":"x",)", tap.name);
    const std::string old = R"("taps_absent":{)";
    text.replace(text.find(old), old.size(), absent);
    const auto bytes = std::as_bytes(std::span(text));
    array.data.assign(bytes.begin(), bytes.end());
    array.shape = {text.size()};
    return true;
  });
  const std::string check = kFableF16 + " --layer-diff logits.npz";
  w.llmcheck(check).must_end(0, {}, {"PASS  f32-run", "(1 of 63 taps compared)"});
  const Finished int8 =
      w.llmcheck(check + " --compute int8")
          .must_end(3, {"logits.npz: taps: found no operation with its input and output"});
  CHECK(int8.out.empty());
  w.llmcheck(kFableF16 + " --stages logits.npz --compute int8")
      .must_end(9, {},
                {"PASS  stage 5, logits", "PASS  stage 6, text",
                 "UNDECIDED stages that the reference can check", "2 of 6, need 3",
                 "the taps of all layers"});
}

TEST_CASE("NaN in the logits that divergence is measured from fails and names the tensor",
          "[llmcheck]") {
  const LlmcheckFolder w;
  w.llmcheck(kFableF16 + " -p Hi --compute f32 --dump own.npz").must_end(0);
  copy_dump(w / "own.npz", w / "nan.npz", [](const std::string& key, NpyArray& array) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::size_t at = array.shape.back() + 7;  // position 1, token 7
    if (key.ends_with("G/logits"))
      std::memcpy(array.data.data() + at * sizeof nan, &nan, sizeof nan);
    return true;
  });
  const Finished found =
      w.llmcheck(kFableF16 + " --kld nan.npz")
          .must_end(1, {}, {"FAIL", "G/logits: found nan at position 1, token 7"});
  CHECK_THAT(found.out, !Contains("KL divergence"));
}

TEST_CASE("a model replaced after its hash was taken is not judged under it", "[llmcheck]") {
  const LlmcheckFolder w;
  w.write("m.gguf", read_file(kFableF16));
  w.write("other.gguf", read_file(kFableF16) + "x");  // the same weights, another hash
  w.write("limits.json", limits("1"));
  w.llmcheck("m.gguf -p Hi --compute f32 --dump own.npz").must_end(0);
  // The limits are read between hash and model: opening the FIFO waits for that moment.
  w.shell(
       "mkfifo wait || exit 99; llmcheck m.gguf --layer-diff own.npz --compute f32 --tol wait "
       "& exec 3> wait; mv other.gguf m.gguf; cat limits.json >&3; exec 3>&-; wait $!")
      .must_refuse(8, {"m.gguf: SHA-256: found ", "replaced"});
}

TEST_CASE("a model whose logits overflow fails by name; --fail-fast stops there", "[llmcheck]") {
  const LlmcheckFolder w;
  TinyGguf model = TinyGguf::llama();
  make_huge(model, "blk.0.ffn_down.weight");
  w.write("huge.gguf", model.bytes());
  const std::string self = "huge.gguf --self -p abc";
  w.llmcheck(self).must_end(1, {}, {"FAIL  int8", "FAIL  f32"});
  const Finished fast =
      w.llmcheck(self + " --fail-fast")
          .must_end(1, {}, {"FAIL  int8", "what comes after the first part that fails"});
  CHECK_THAT(fast.out, !Contains("FAIL  f32"));
}

TEST_CASE("bad references give exit code and words", "[llmcheck][bad_input]") {
  const LlmcheckFolder w;
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
  w.llmcheck(kFableF16 + " --layer-diff " + kNpz + name)
      .must_refuse(code, {"llmcheck: error: ", words});
}

TEST_CASE("usage is refused before any work", "[llmcheck]") {
  const LlmcheckFolder w;
  w.llmcheck(kFableF16 + " -p Hi --compute f32 --dump own.npz").must_end(0);
  w.must_refuse({{"", 2, ""},
                 {"--self", 2, ""},
                 {kFableF16 + " --self --report r.pdf", 2, ".junit.xml"},
                 {kFableF16 + " --self --isa sse9", 2, "--isa"},
                 {kFableF16 + " --compute f32 --report /nonexistent/r.json --layer-diff own.npz", 4,
                  "/nonexistent/r.json"}});
}

TEST_CASE("--isa and --threads choose how the model is computed", "[llmcheck][options]") {
  const LlmcheckFolder folder;
  folder.write("text", "a tiny text of some letters");
  const std::string run = "tiny.gguf --ppl text --isa scalar --threads 3";
  folder.llmcheck(run + " -vv").must_end(0, {"tiny.gguf: computed with scalar by 3 threads"});
  const Json facts = folder.report(run)["facts"];
  CHECK(facts["isa"] == "scalar");
  CHECK(facts["threads"] == "3");
}

TEST_CASE("--ppl-window cuts the text, and --compute changes the likelihoods",
          "[llmcheck][options]") {
  const LlmcheckFolder folder;
  folder.write("text", "a tiny text of some letters");
  const auto table = [&](const std::string& more) {
    return folder.report("tiny.gguf --ppl text " + more)["figures"][0];
  };
  const Json whole = table("");
  const Json cut = table("--ppl-window 4");
  CHECK_THAT(whole["title"], Contains("windows of 64"));
  CHECK_THAT(cut["title"], Contains("windows of 4"));
  CHECK(whole["rows"][0]["tokens"] == cut["rows"][0]["tokens"]);
  CHECK(whole["rows"][0]["nll"] != cut["rows"][0]["nll"]);
  CHECK(table("--compute int8")["rows"][0]["nll"] == whole["rows"][0]["nll"]);
  CHECK(table("--compute f32")["rows"][0]["nll"] != whole["rows"][0]["nll"]);
}

TEST_CASE("--prompt is what --dump records", "[llmcheck][options]") {
  const LlmcheckFolder folder;
  const auto kld_positions = [&](const std::string& prompt) {
    folder.llmcheck("tiny.gguf --dump d.npz -p " + prompt).must_end(0);
    return folder.report("tiny.gguf --kld d.npz")["figures"][0]["rows"][0]["positions"].get<int>();
  };
  CHECK(kld_positions("abcdefg") == kld_positions("abc") + 4);
}

namespace {

std::string xxh3(std::string_view text) { return xxh3_hex(std::as_bytes(std::span(text))); }

/// Exchanges the first two panels of a packed cache, whose hashes all become those of that.
void exchange_panels(const std::string& path, std::size_t panel_bytes) {
  const std::string whole = read_file(path);
  std::string panels = whole.substr(std::size_t{2} << 20);
  std::swap_ranges(panels.begin(), panels.begin() + static_cast<std::ptrdiff_t>(panel_bytes),
                   panels.begin() + static_cast<std::ptrdiff_t>(panel_bytes));
  std::string head = whole.substr(0, whole.find("chunk "));
  head += "chunk " + xxh3(panels) + "\n";
  head += "end " + xxh3(head) + "\n";
  head.resize(std::size_t{2} << 20);
  std::ofstream(path, std::ios::binary) << head << panels;
}

}  // namespace

TEST_CASE("--self checks the weights of a packed cache, which it makes", "[llmcheck]") {
  const LlmcheckFolder folder;
  const std::string run = "tiny.gguf --self --fail-fast --packed-cache cache --report r.json";
  folder.shell("llmrun tiny.gguf -n 1 --packed-cache cache").must_end(0);
  const auto files = std::filesystem::directory_iterator(folder.path("cache"));
  const std::string file = begin(files)->path().string();
  exchange_panels(file, 16 * 34);  // token_embd: Q8_0, 32 columns
  folder.llmcheck(run).must_end(
      1, {},
      {"FAIL", "packed weights give back the file's bytes", "token_embd.weight (Q8_0), row 0"});
  // One that is refused is made anew, and one that cannot be made is no fault of the weights.
  std::filesystem::resize_file(file, 10);
  folder.llmcheck(run).must_end(0, {"packed cache: ", "; packing again"});
  // --self is asked beside another question.
  folder.llmcheck("tiny.gguf -p ab --compute f32 --dump own.npz").must_end(0);
  const std::string diff = "tiny.gguf --layer-diff own.npz ";
  CHECK_THAT(folder.llmcheck(diff).must_end(0).out, !Contains("kernel"));
  folder.llmcheck(diff + "--self --packed-cache tiny.gguf")
      .must_end(0, {}, {"weights of a packed cache: packed cache: tiny.gguf/tiny-", "kernel"});
}

}  // namespace llm::test
