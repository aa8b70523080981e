// llmcheck --verify as a user runs it.

#include "base/sha256.h"
#include "engine/model/model_file.h"
#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

namespace fs = std::filesystem;

const std::string kF16 = LLM_SOURCE_DIR "/models/fable-3m-f16.gguf";
const std::string kQ4 = LLM_SOURCE_DIR "/models/fable-3m-q4_k_m.gguf";
const std::string kReferences = LLM_SOURCE_DIR "/validate/text/verify/";
const std::string kF16Reference = kReferences + "fable-3m-f16.json";
const std::string kQ4Reference = kReferences + "fable-3m-q4_k_m.json";

class Workplace : public ScratchDirectory {
 public:
  int shell(const std::string& command) {
    const Finished run = run_shell(command);
    out = run.out;
    err = run.err;
    return run.exit_code;
  }

  /// Runs llmcheck in the source directory; returns the exit code, and the report in `report`.
  int llmcheck(const std::string& arguments) {
    const std::string json = *this / "report.json";
    fs::remove(json);
    const int code = shell(fmt::format("cd '{}' && '{}' {} --report '{}'", LLM_SOURCE_DIR,
                                       tool_path("llmcheck"), arguments, json));
    report = fs::exists(json) ? test::parse_ordered_json(read_file(json)) : OrderedJson();
    return code;
  }

  /// The verdict of the check whose name ends so.
  std::string verdict(const std::string& name) const {
    for (const auto& check : report["checks"])
      if (check["name"].get<std::string>().ends_with(name)) return check["verdict"];
    return "none";
  }

  std::string out;
  std::string err;
  OrderedJson report;
};

OrderedJson reference(const std::string& path = kF16Reference) {
  return test::parse_ordered_json(read_file(path));
}

const std::string kF32 = "f32 logits equal the reference's";
const std::string kLockstep = "first difference in both top 5";
const std::string kForced = "fed its tokens, the reference's choices";
const std::string kOutside = "choices in both top 5";

/// The embedded F16 model with `mask` over bytes [first, last) of a tensor's data, every second
/// one.
std::string damaged(std::size_t layer, std::size_t first, std::size_t last, char mask) {
  auto file = require_ok(llm::open_model_file(kF16));
  const auto whole = file.file.bytes();
  const auto tensor = file.tensors.layers[layer].ffn_gate.data;
  std::string bytes(reinterpret_cast<const char*>(whole.data()), whole.size());
  const auto start = static_cast<std::size_t>(tensor.data() - whole.data());
  for (std::size_t i = first; i < std::min(last, tensor.size()); i += 2)
    bytes[start + i] = static_cast<char>(bytes[start + i] ^ mask);
  return bytes;
}

}  // namespace

TEST_CASE("limits of --verify are measured on the model, and near its errors", "[llmcheck]") {
  Workplace w;
  REQUIRE(
      w.llmcheck("models/fable-3m-q4_k_m.gguf --verify validate/text/verify/fable-3m-q4_k_m.json "
                 "--verify-quick") == 0);
  const auto& figures = w.report["figures"];
  const auto table = std::ranges::find_if(
      figures, [](const OrderedJson& figure) { return figure["name"] == "verify-errors"; });
  REQUIRE(table != figures.end());
  const auto& rows = (*table)["rows"];
  for (const std::size_t i : {0U, 1U}) {
    CAPTURE(json_text(rows[i]));
    const double error = rows[i]["NMSE"];
    const double limit = rows[i]["limit"];
    CHECK(error < limit);
    CHECK(limit < 1000 * error);
  }
}

// Two prompts of each; `./dev check-quality` asks all.
TEST_CASE("the embedded models hold their own frozen references", "[llmcheck][verify]") {
  Workplace w;
  const auto [model, file] =
      GENERATE(table<std::string, std::string>({{kF16, kF16Reference}, {kQ4, kQ4Reference}}));
  const int code = w.llmcheck(
      fmt::format("--verify '{}' --verify-quick --report '{}' --report '{}' --report '{}'", file,
                  w / "r.md", w / "r.html", w / "r.junit.xml"));
  CAPTURE(w.out, w.err);
  REQUIRE(code == 0);
  CHECK_THAT(w.out, Contains(fs::path(model).filename()) && Contains("from this file"));
  CHECK(w.report["verdict"] == "PASS");
  CHECK(w.report["checks"].size() == 5);
  const auto& table = w.report["figures"][0];
  CHECK(table["name"] == "verify");
  REQUIRE(table["rows"].size() == 2);
  for (const auto& row : table["rows"]) CHECK(row["verdict"] == "PASS");
  // The engine in f32 gives the oracle's logits to rounding noise; quantized activations cost more.
  const auto& errors = w.report["figures"][1]["rows"];
  CHECK(errors[0]["NMSE"] < 1e-11);
  CHECK(errors[1]["NMSE"] > errors[0]["NMSE"]);
  CHECK_THAT(read_file(w / "r.md"), Contains("| instruct-1 | "));
  CHECK_THAT(read_file(w / "r.html"), Contains("<td>instruct-1"));
  CHECK_THAT(read_file(w / "r.junit.xml"), Contains("tests=\"5\" failures=\"0\""));
}

TEST_CASE("every path of the CPU gives the same table", "[llmcheck][verify]") {
  Workplace w;
  const std::string arguments = fmt::format("'{}' --verify '{}' --verify-quick", kQ4, kQ4Reference);
  REQUIRE(w.llmcheck(arguments) == 0);
  const OrderedJson figures = w.report["figures"];
  REQUIRE(w.llmcheck(arguments + " --isa scalar -t 1") == 0);
  CHECK(w.report["figures"] == figures);
}

TEST_CASE("another quantization needs to be meant", "[llmcheck][verify]") {
  Workplace w;
  const std::string arguments =
      fmt::format("'{}' --verify '{}' --verify-quick", kQ4, kF16Reference);
  CHECK(w.llmcheck(arguments) == 8);
  CHECK_THAT(w.err, Contains("fable-3m-f16.json: model_sha256: found 4c781e64") &&
                        Contains("--verify-quantized"));
  CHECK(w.llmcheck(arguments + " --verify-quantized") == 0);
  CHECK(w.verdict(kOutside) == "PASS");
  CHECK(w.verdict(kF32) == "none");
  CHECK_THAT(w.out, Contains("another file of \"Fable 3M\""));
  // The option takes nothing from a reference that is of this very file.
  CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick --verify-quantized", kF16,
                               kF16Reference)) == 0);
  CHECK(w.verdict(kF32) == "PASS");
}

TEST_CASE("a wrong token in the reference is found, with prompt, step and both choices",
          "[llmcheck][verify]") {
  Workplace w;
  OrderedJson json = reference();
  OrderedJson& prompt = json["prompts"][0];
  prompt["tokens"][5] = 1234;  // no story goes on so
  prompt["top_ids"][5][0] = 1234;
  const std::string file = w.write("planted.json", json_text(json));
  CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick --report '{}'", kF16, file,
                               w / "r.junit.xml")) == 1);
  CHECK(w.report["verdict"] == "FAIL");
  CHECK(w.verdict(kLockstep) == "FAIL");
  CHECK(w.verdict(kForced) == "FAIL");
  const auto row = w.report["figures"][0]["rows"][0];
  CHECK(row["verdict"] == "FAIL");
  CHECK(row["agreed"] == 5);
  CHECK(row["diverges"] == 6);
  CHECK(row["rank here"] == ">5");
  CHECK(row["rank there"] == ">5");
  CHECK(w.report["figures"][0]["rows"][1]["verdict"] == "PASS");
  CHECK_THAT(w.out, Contains("1 differ outside: base-1"));
  CHECK_THAT(read_file(w / "r.junit.xml"), Contains("<failure"));
}

TEST_CASE("a second choice in the first one's place is a miss, not a near tie",
          "[llmcheck][verify]") {
  Workplace w;
  OrderedJson json = reference();
  OrderedJson& prompt = json["prompts"][0];
  const auto margin = [&](std::size_t t) {
    const auto& logits = prompt["top_logits"][t];
    return logits[0].get<double>() - logits[1].get<double>();
  };
  // The last step, so that nothing else depends on it.
  REQUIRE(margin(31) > 0.1);
  std::swap(prompt["top_ids"][31][0], prompt["top_ids"][31][1]);
  prompt["tokens"][31] = prompt["top_ids"][31][0];
  const std::string file = w.write("planted.json", json_text(json));
  CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick", kF16, file)) == 1);
  CHECK(w.verdict(kLockstep) == "PASS");  // each knows the other's choice
  CHECK(w.verdict(kForced) == "FAIL");
}

TEST_CASE("damaged weights fail", "[llmcheck][verify]") {
  Workplace w;
  SECTION("one bit: the logits tell") {
    const std::string model = w.write("bad.gguf", damaged(2, 2001, 2002, 0x02));
    const std::string bytes = read_file(model);
    OrderedJson json = reference();
    CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick", model, kF16Reference)) == 8);
    json["model_sha256"] = llm::sha256_hex(std::as_bytes(std::span(bytes)));
    const std::string file = w.write("own.json", json_text(json));
    CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick", model, file)) == 1);
    CHECK(w.verdict(kF32) == "FAIL");
  }
  SECTION("a tensor's signs: the choices tell") {
    const std::string model = w.write("bad.gguf", damaged(1, 1, 100000, '\x80'));
    CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick --verify-quantized", model,
                                 kF16Reference)) == 1);
    CHECK(w.verdict(kOutside) == "FAIL");
  }
}

TEST_CASE("a prompt that is encoded otherwise fails", "[llmcheck][verify]") {
  Workplace w;
  OrderedJson json = reference();
  json["prompts"][8]["text"] = "Tell a story about a little bear who lost his  hat.\n\n";
  const std::string file = w.write("text.json", json_text(json));
  CHECK(w.llmcheck(fmt::format("'{}' --verify '{}' --verify-quick", kF16, file)) == 1);
  CHECK(w.verdict("prompts give the reference's ids") == "FAIL");
  CHECK_THAT(w.out, Contains("instruct-1 differs at token "));
  CHECK(w.verdict(kForced) == "PASS");
}

TEST_CASE("bad references of --verify give exit code and words", "[llmcheck][verify][bad_input]") {
  Workplace w;
  struct Case {
    const char* patch;  // JSON merge patch of the reference; without braces: the whole file
    int code;
    const char* words;
  };
  const auto c = GENERATE(
      Case{"", 3, "JSON: found none"}, Case{"GGUF", 3, "JSON: found none"},
      Case{R"({"schema_version": 2})", 6, "schema_version: found 2, need 1"},
      Case{R"({"schema_version": null})", 3, "schema_version: found none"},
      Case{R"({"format": "llmcheck-limits/1"})", 3, "format: found"},
      Case{R"({"model_sha256": "abc"})", 3, "model_sha256: found \"abc\""},
      Case{R"({"tokenizer_hash": "00"})", 8, "tokenizer_hash: found 00, need b17f"},
      Case{R"({"steps": 31})", 3, "prompts[0].tokens: found 32 entries"},
      Case{R"({"prompts": []})", 3, "prompts: found 0 entries"},
      Case{R"({"steps": 1, "top_k": 2, "prompts": [{"id": "x", "kind": "base", "ids": [1, 1536],
               "tokens": [3], "top_ids": [[3, 4]], "top_logits": [[1, 0]]}]})",
           3, "prompts[0].ids[1]: found 1536, need a token id below 1536"});
  CAPTURE(c.patch);
  std::string text = c.patch;
  if (text.starts_with("{")) {
    OrderedJson json = reference();
    json.merge_patch(test::parse_ordered_json(text));
    text = json_text(json);
  }
  const std::string file = w.write("bad.json", text);
  CHECK(w.llmcheck(fmt::format("'{}' --verify '{}'", kF16, file)) == c.code);
  CHECK(w.out.empty());
  CHECK_THAT(w.err, Contains("llmcheck: error: ") && Contains("bad.json") && Contains(c.words));
}

TEST_CASE("--verify without a file, a model or itself is refused", "[llmcheck][verify]") {
  Workplace w;
  CHECK(w.llmcheck(fmt::format("'{}' --verify '{}'", kF16, w / "none.json")) == 4);
  CHECK(w.llmcheck(fmt::format("'{}' --verify-quick", kF16)) == 2);
  CHECK(w.llmcheck(fmt::format("'{}' --self --verify-quantized", kF16)) == 2);
  CHECK_THAT(w.err, Contains("--verify: found none"));
  OrderedJson json = reference();
  json["model_sha256"] = std::string(64, '0');
  CHECK(w.llmcheck(fmt::format("--verify '{}'", w.write("gone.json", json_text(json)))) == 4);
  CHECK_THAT(w.err, Contains("no .gguf with SHA-256 000"));
}

TEST_CASE("the oracle makes references, the frozen ones byte by byte", "[llmcheck][verify]") {
  Workplace w;
  const char* set = std::getenv("LLM_PYTHON");
  const std::string python = set != nullptr && *set != '\0' ? set : "python3";
  if (w.shell(fmt::format("'{}' -c 'import numpy, gguf, sentencepiece, tokenizers'", python)) !=
      0) {
    std::cerr << "SKIPPED: needs numpy, gguf, sentencepiece and tokenizers; '" << python
              << "' lacks them (set LLM_PYTHON)\n";
    return;
  }
  const auto make = [&](const std::string& model, int steps) {
    const int code =
        w.shell(fmt::format("'{}' '{}/tools/oracle/verify_reference.py' '{}' -q --steps {} -o '{}'",
                            python, LLM_SOURCE_DIR, model, steps, w / "made.json"));
    CAPTURE(model, w.err);
    REQUIRE(code == 0);
  };
  for (const auto& [model, file] : {std::pair{kF16, kF16Reference}, std::pair{kQ4, kQ4Reference}}) {
    make(model, 32);
    CHECK(read_file(w / "made.json") == read_file(file));
  }
  // Byte-level BPE, one vocabulary that wants BOS and one that does not.
  for (const std::string name : {"llama-bpe", "qwen2"}) {
    const std::string model = LLM_SOURCE_DIR "/tests/golden/architectures/" + name + ".gguf";
    make(model, 2);
    const int code = w.llmcheck(fmt::format("'{}' --verify '{}'", model, w / "made.json"));
    CAPTURE(model, w.out, w.err);
    CHECK(code == 0);
    CHECK_THAT(w.out, Contains("prompts give the reference's ids") && Contains("19 texts"));
  }
}

}  // namespace llm::test
