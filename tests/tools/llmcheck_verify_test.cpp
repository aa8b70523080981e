// llmcheck --verify as a user runs it.

#include "base/sha256.h"
#include "tests/tools/llmcheck_process.h"
#include "tests/tools/oracle_process.h"

namespace llm::test {
namespace {

const std::string kReferences = LLM_SOURCE_DIR "/validate/outputs/verify/";
const std::string kF16Reference = kReferences + "fable-3m-f16.json";
const std::string kQ4Reference = kReferences + "fable-3m-q4_k_m.json";

class Workplace : public ToolFolder {
 public:
  /// Runs llmcheck and keeps its report.
  Finished llmcheck(const std::string& arguments) {
    const Finished run =
        shell("rm -f report.json; llmcheck " + arguments + " --report report.json");
    const std::string text = read("report.json");
    report = text.empty() ? Json() : test::parse_json(text);
    return run;
  }

  Finished verify(const std::string& model, const std::string& file, const std::string& more = "") {
    return llmcheck(model + " --verify " + file + " --verify-quick " + more);
  }

  /// The verdict of the check whose name ends so.
  std::string verdict(const std::string& name) const {
    for (const auto& check : report["checks"])
      if (check["name"].get<std::string>().ends_with(name)) return check["verdict"];
    return "none";
  }

  Json report;
};

OrderedJson reference(const std::string& path = kF16Reference) {
  return test::parse_ordered_json(read_file(path));
}

const std::string kF32 = "f32 logits equal the reference's";
const std::string kLockstep = "first difference in both top 5";
const std::string kForced = "given the reference's tokens, its choices";
const std::string kOutside = "choices in both top 5";

}  // namespace

// Two prompts of each; `./dev check-quality` asks all.
TEST_CASE("the embedded models hold their own frozen references", "[llmcheck][verify]") {
  Workplace w;
  const auto [model, file] = GENERATE(
      table<std::string, std::string>({{kFableF16, kF16Reference}, {kFable, kQ4Reference}}));
  w.shell("ln -s " LLM_SOURCE_DIR "/models").must_end(0);
  w.verify("", file, "--report r.html --report r.junit.xml")
      .must_end(0, {}, {std::filesystem::path(model).filename().string(), "from this file"});
  CHECK(w.report["checks"].size() == 5);
  const Json passed = {{"verdict", "PASS"}};
  must_match(w.report["figures"][0], {{"name", "verify"}, {"rows", {passed, passed}}});
  must_match(w.report, passed);
  // The engine in f32 gives the oracle's logits to rounding noise; quantized activations cost more.
  const auto& errors = w.report["figures"][1]["rows"];
  CHECK(errors[0]["NMSE"] < 1e-11);
  CHECK(errors[1]["NMSE"] > errors[0]["NMSE"]);
  // Limits are measured on the model, and near its errors.
  for (const auto& error : {errors[0], errors[1]}) {
    CHECK(error["NMSE"].get<double>() < error["limit"].get<double>());
    CHECK(error["limit"].get<double>() < 1000 * error["NMSE"].get<double>());
  }
  CHECK_THAT(w.read("r.html"), Contains("<td>instruct-1"));
  CHECK_THAT(w.read("r.junit.xml"), Contains("tests=\"5\" failures=\"0\""));
}

TEST_CASE("another quantization needs to be meant", "[llmcheck][verify]") {
  Workplace w;
  w.verify(kFable, kF16Reference)
      .must_end(8, {"fable-3m-f16.json: model_sha256: found 4c781e64", "--verify-quantized"});
  w.verify(kFable, kF16Reference, "--verify-quantized")
      .must_end(0, {}, {"a different file of \"Fable 3M\""});
  CHECK(w.verdict(kOutside) == "PASS");
  CHECK(w.verdict(kF32) == "none");
  // The option takes nothing from a reference that is of this very file.
  w.verify(kFableF16, kF16Reference, "--verify-quantized").must_end(0);
  CHECK(w.verdict(kF32) == "PASS");
}

TEST_CASE("a wrong token in the reference is found, with prompt, step and both choices",
          "[llmcheck][verify]") {
  Workplace w;
  OrderedJson json = reference();
  OrderedJson& prompt = json["prompts"][0];
  prompt["tokens"][5] = 1234;  // no story goes on so
  prompt["top_ids"][5][0] = 1234;
  w.write("planted.json", json_text(json));
  w.verify(kFableF16, "planted.json", "--report r.junit.xml")
      .must_end(1, {}, {"1 differ outside: base-1"});
  CHECK(w.report["verdict"] == "FAIL");
  CHECK(w.verdict(kLockstep) == "FAIL");
  CHECK(w.verdict(kForced) == "FAIL");
  must_match(w.report["figures"][0]["rows"],
             R"([{"verdict": "FAIL", "agreed": 5, "diverges": 6, "rank here": ">5",
                  "rank there": ">5"}, {"verdict": "PASS"}])"_j);
  CHECK_THAT(w.read("r.junit.xml"), Contains("<failure"));
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
  w.write("planted.json", json_text(json));
  w.verify(kFableF16, "planted.json").must_end(1);
  CHECK(w.verdict(kLockstep) == "PASS");  // each knows the other's choice
  CHECK(w.verdict(kForced) == "FAIL");
}

TEST_CASE("damaged weights fail", "[llmcheck][verify]") {
  Workplace w;
  SECTION("one bit: the logits tell") {
    const std::string bytes = damaged_model(2, 2001, 2002, 0x02);
    w.write("bad.gguf", bytes);
    w.verify("bad.gguf", kF16Reference).must_end(8);
    OrderedJson json = reference();
    json["model_sha256"] = sha256_hex(std::as_bytes(std::span(bytes)));
    w.write("own.json", json_text(json));
    w.verify("bad.gguf", "own.json").must_end(1);
    CHECK(w.verdict(kF32) == "FAIL");
  }
  SECTION("a tensor's signs: the choices tell") {
    w.write("bad.gguf", damaged_model(1, 1, 100000, '\x80'));
    w.verify("bad.gguf", kF16Reference, "--verify-quantized").must_end(1);
    CHECK(w.verdict(kOutside) == "FAIL");
  }
}

TEST_CASE("a prompt that is encoded otherwise fails", "[llmcheck][verify]") {
  Workplace w;
  OrderedJson json = reference();
  json["prompts"][8]["text"] = "Tell a story about a little bear who lost his  hat.\n\n";
  w.write("text.json", json_text(json));
  w.verify(kFableF16, "text.json").must_end(1, {}, {"instruct-1 differs at token "});
  CHECK(w.verdict("prompts give the reference's ids") == "FAIL");
  CHECK(w.verdict(kForced) == "PASS");
}

// What breaks a reference by itself is outputs_test's; here is what its model decides.
TEST_CASE("bad references of --verify give exit code and words", "[llmcheck][verify][bad_input]") {
  Workplace w;
  const OrderedJson json = reference();
  for (const auto& [pointer, value, code, words] :
       std::vector<std::tuple<std::string, std::string, int, std::string>>{
           {"/schema_version", "2", 6, "schema_version: found 2, need 1"},
           {"/tokenizer_hash", R"("00")", 8, "tokenizer_hash: found 00, need b17f"},
           {"/prompts/0/ids/1", "1536", 3,
            "prompts[0].ids[1]: found 1536, need a token id below 1536"}}) {
    w.write("bad.json", json_text(test::with_value(json, pointer, value)));
    w.llmcheck(kFableF16 + " --verify bad.json")
        .must_refuse(code, {"llmcheck: error: ", "bad.json", words});
  }
  w.write("bad.json", "GGUF");
  w.llmcheck(kFableF16 + " --verify bad.json").must_refuse(3, {"bad.json", "JSON: found none"});
}

TEST_CASE("--verify without a file, a model or itself is refused", "[llmcheck][verify]") {
  Workplace w;
  w.llmcheck(kFableF16 + " --verify none.json").must_end(4);
  w.llmcheck(kFableF16 + " --verify-quick").must_end(2);
  w.llmcheck(kFableF16 + " --self --verify-quantized").must_end(2, {"--verify: found none"});
  OrderedJson json = reference();
  json["model_sha256"] = std::string(64, '0');
  w.write("gone.json", json_text(json));
  w.llmcheck("--verify gone.json").must_end(4, {"no .gguf with SHA-256 000"});
}

TEST_CASE("the oracle makes references, the frozen ones byte by byte", "[llmcheck][verify]") {
  Workplace w;
  if (run_shell(fmt::format("'{}' -c 'import numpy, gguf, sentencepiece, tokenizers'", python()))
          .exit_code != 0) {
    std::cerr << "SKIPPED: needs numpy, gguf, sentencepiece and tokenizers; '" << python()
              << "' lacks them (set LLM_PYTHON)\n";
    return;
  }
  const auto make = [&](const std::string& model, int steps) {
    run_shell(
        fmt::format("'{}' '{}/tools/reference_f64/verify_reference.py' '{}' -q --steps {} -o '{}'",
                    python(), LLM_SOURCE_DIR, model, steps, w / "made.json"))
        .must_end(0);
  };
  for (const auto& [model, file] :
       {std::pair{kFableF16, kF16Reference}, std::pair{kFable, kQ4Reference}}) {
    make(model, 32);
    CHECK(w.read("made.json") == read_file(file));
  }
  // Byte-level BPE, one vocabulary that wants BOS and one that does not.
  for (const std::string name : {"llama-bpe", "qwen2"}) {
    const std::string model = LLM_SOURCE_DIR "/tests/golden/architectures/" + name + ".gguf";
    make(model, 2);
    w.llmcheck(model + " --verify made.json")
        .must_end(0, {}, {"prompts give the reference's ids", "19 texts"});
  }
}

}  // namespace llm::test
