// Every fault of docs/doctor.md, planted into small files: named by the right check where it is,
// and mended where metadata can mend it. tests/public_models/doctor.py does the same with real
// files.

#include "validate/gguf_lint/doctor.h"

#include "engine/model/model_file.h"
#include "tests/support/json.h"
#include "tests/validate/doctor_faults.h"

namespace llm::test {
namespace {

Examination examined(const ScratchDirectory& folder, const TinyGguf& model,
                     const std::string& fix = "") {
  const std::string path = folder.write("m.gguf", model.bytes());
  return require_ok(examine(path, {.threads = 2, .fix = fix}));
}

std::string told(const Examination& examination) { return doctor_text("FILE", examination); }

/// The first finding above a note, which must be `check`'s.
FileFinding must_find(const Examination& examination, std::string_view check,
                      std::string_view where) {
  INFO(told(examination));
  REQUIRE_FALSE(examination.healthy());
  const auto found = std::ranges::find_if(examination.findings, [&](const FileFinding& finding) {
    return finding.severity != Severity::kNote && finding.check == check && finding.where == where;
  });
  REQUIRE(found != examination.findings.end());
  CHECK_FALSE(found->what.empty());
  CHECK_FALSE(found->why.empty());
  CHECK_FALSE(found->remedy.empty());
  return *found;
}

TEST_CASE("a file without a fault has no finding above a note", "[doctor]") {
  const ScratchDirectory folder;
  for (const std::string& architecture : TinyGguf::architectures()) {
    const Examination found = examined(folder, of_architecture(architecture));
    INFO(architecture << '\n' << told(found));
    CHECK(found.healthy());
  }
  CHECK(told(examined(folder, chat_model())) ==
        "FILE: nothing wrong: 0 errors, 0 warnings, 0 notes\n");
  CHECK(told(examined(folder, digits_one_by_one())) ==
        "FILE: nothing wrong: 0 errors, 0 warnings, 0 notes\n");
  for (const char* name : {"fable-3m-f16.gguf", "fable-3m-q4_k_m.gguf"}) {
    const auto found = require_ok(examine(fmt::format("{}/models/{}", LLM_SOURCE_DIR, name), {}));
    INFO(told(found));
    CHECK(found.findings.empty());
  }
}

TEST_CASE("each fault is named, and mended where metadata can mend it", "[doctor]") {
  const ScratchDirectory folder;
  std::vector<Fault> faults = faults_of_texts();
  for (Fault& fault : faults_of_weights()) faults.push_back(std::move(fault));
  for (const Fault& fault : faults) {
    CAPTURE(fault.name);
    const TinyGguf model = fault.make();
    const std::string out = folder / fmt::format("{}.gguf", fault.name);
    const Examination found = examined(folder, model, out);
    const FileFinding finding = must_find(found, fault.check, fault.where);
    INFO(told(found));
    CHECK(finding.mend.empty() != fault.is_mended);
    const auto above = [](const FileFinding& f) { return f.severity != Severity::kNote; };
    CHECK(std::ranges::count_if(found.findings, above) == 1);
    REQUIRE(std::filesystem::exists(out) == fault.is_mended);
    if (!fault.is_mended) continue;
    const Examination again = require_ok(examine(out, {}));
    INFO(told(again));
    CHECK(again.healthy());
    // Weights stay as they are.
    require_tensors(out, model);
  }
}

TEST_CASE("a base model without a template, and BOS by a variable, are notes", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf base = chat_model();
  base.remove("tokenizer.chat_template");
  base.remove("tokenizer.ggml.eot_token_id");
  // Engines strip one of two BOS.
  TinyGguf with_bos = chat_model();
  with_bos.set_string(kTemplate, fmt::format("{{{{ bos_token }}}}{}", kChatMl));
  for (const auto& [model, check] : {std::pair(base, "chat"), std::pair(with_bos, "bos")}) {
    const Examination found = examined(folder, model);
    INFO(told(found));
    CHECK(found.healthy());
    REQUIRE(found.findings.size() == 1);
    CHECK(found.findings[0].check == check);
    CHECK((check == std::string("bos") || found.findings[0].where == kTemplate));
  }
}

TEST_CASE("an id is mended by a control token, not by what else is spelled so", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf model = of_architecture("gemma3");
  // As in Gemma: "</s>" is a tag of HTML, "<eos>" ends texts.
  auto pieces = TinyGguf::pieces();
  pieces[1] = "<bos>";
  pieces[2] = "<eos>";
  auto kinds = TinyGguf::kinds();
  pieces[270] = "</s>";
  pieces[271] = "<s>";
  kinds[270] = kinds[271] = 4;
  model.set_strings("tokenizer.ggml.tokens", pieces);
  model.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
  model.set_u32("tokenizer.ggml.eos_token_id", 999);
  model.set_u32("tokenizer.ggml.bos_token_id", 2);
  const Examination found = examined(folder, model);
  CHECK(must_find(found, "special-ids", "tokenizer.ggml.eos_token_id").mend ==
        "tokenizer.ggml.eos_token_id = 2");
  CHECK(must_find(found, "bos", "tokenizer.ggml.bos_token_id").mend ==
        "tokenizer.ggml.bos_token_id = 1");
}

TEST_CASE("several faults are all named, and mended together", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf model = chat_model();
  model.set_u32("llama.block_count", 7);
  model.set_u32("tokenizer.ggml.bos_token_id", 5000);
  model.remove("tokenizer.ggml.eot_token_id");
  model.trailing = "x";
  const std::string out = folder / "out.gguf";
  const Examination found = examined(folder, model, out);
  must_find(found, "shapes", "llama.block_count");
  must_find(found, "special-ids", "tokenizer.ggml.bos_token_id");
  must_find(found, "chat", "tokenizer.ggml.eot_token_id");
  must_find(found, "file", "file");
  CHECK(found.findings.front().severity == Severity::kError);
  CHECK(found.findings.back().severity == Severity::kWarning);
  CHECK(require_ok(examine(out, {})).findings.empty());
  CHECK(require_ok(open_model_file(out)).warnings.empty());
}

TEST_CASE("a check sees what an earlier one has mended", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf model = chat_model();
  model.set_u32("tokenizer.ggml.bos_token_id", 2);
  model.set_string(kTemplate, fmt::format("<s>{}", kChatMl));  // doubled once BOS is right
  const Examination found = examined(folder, model);
  must_find(found, "bos", "tokenizer.ggml.bos_token_id");
  must_find(found, "bos", "tokenizer.ggml.add_bos_token");
}

TEST_CASE("an incomplete file is a finding, and what is no GGUF an error", "[doctor]") {
  const ScratchDirectory folder;
  const auto bytes = chat_model().bytes();
  const auto cut = [&](std::size_t n) {
    return folder.write("cut.gguf", std::span(bytes).first(n));
  };
  const auto short_of_data = require_ok(examine(cut(bytes.size() - 5000), {}));
  const FileFinding finding = must_find(short_of_data, "file", short_of_data.findings[0].where);
  CHECK_THAT(finding.what, Contains("bytes missing"));
  CHECK_THAT(finding.remedy, Contains("download it again"));
  CHECK(require_ok(examine(cut(5000), {})).findings.size() == 1);
  CHECK(require_ok(examine(cut(10), {})).findings.size() == 1);
  must_fail(examine(cut(3), {}), ErrorCode::kMalformed);
  must_fail(examine(folder.write("text", std::string_view("a text, no model")), {}),
            ErrorCode::kMalformed);
  must_fail(examine(folder / "absent", {}), ErrorCode::kIo);
}

TEST_CASE("of what is no model only the tensors are examined", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf model = chat_model();
  model.set_string("general.type", "adapter");
  model.remove("tokenizer.ggml.tokens");
  model.remove("llama.block_count");
  CHECK(examined(folder, model).healthy());
  model.tensor(kDown).data.replace(144 * 3, 2, encoded(std::uint16_t{0x7E00}));
  must_find(examined(folder, model), "blocks", kDown);
}

TEST_CASE("damaged files are findings or errors, and nothing worse", "[doctor]") {
  const ScratchDirectory folder;
  std::mt19937 random(7);
  std::size_t n_found = 0;
  for (const TinyGguf& model : {chat_model(), of_architecture("qwen3moe")}) {
    const auto whole = model.bytes();
    const std::size_t header = model.header_bytes();
    for (int run = 0; run < 200; ++run) {
      auto bytes = whole;
      for (int n = 0; n < 3; ++n) bytes[random() % header] = static_cast<std::byte>(random());
      const auto found = examine(folder.write("m.gguf", bytes), {.threads = 1});
      n_found += found.ok() && !found->healthy() ? 1 : 0;
    }
  }
  CHECK(n_found > 200);
}

TEST_CASE("the file that is read is never written", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf model = chat_model();
  model.trailing = "x";
  const std::string path = folder.write("m.gguf", model.bytes());
  std::filesystem::create_symlink(path, folder / "link");
  const std::string before = folder.read("m.gguf");
  must_fail(examine(path, {.fix = path}), ErrorCode::kUsage, {"--fix"});
  must_fail(examine(path, {.fix = folder / "link"}), ErrorCode::kUsage, {"--fix"});
  CHECK(folder.read("m.gguf") == before);
}

TEST_CASE("JSON has every finding", "[doctor]") {
  const ScratchDirectory folder;
  TinyGguf model = chat_model();
  model.set_u32("llama.vocab_size", 1);
  const auto json = test::parse_json(doctor_json("F", examined(folder, model)));
  CHECK(json["schema_version"] == 1);
  CHECK(json["healthy"] == false);
  REQUIRE(json["findings"].size() == 1);
  for (const auto& [key, value] : {std::pair("severity", "error"), std::pair("check", "shapes"),
                                   std::pair("mend", "llama.vocab_size = 272")})
    CHECK(json["findings"][0][key] == value);
}

}  // namespace
}  // namespace llm::test
