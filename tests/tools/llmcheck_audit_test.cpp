// Receipts with a hash of their rows through the tools: made by llmrun or llmcheck, opened,
// audited.

#include "tests/support/json.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

/// A folder with a model, a receipt r.json of it with a hash of its rows, and an opening o.bin.
class AuditFolder : public ToolFolder {
 public:
  explicit AuditFolder(const std::string& arguments = "-n 30 -s 7 --ignore-eos -p 'a tiny hat'") {
    write("tiny.gguf", TinyGguf::llama({.n_layers = 2}).bytes());
    run("llmrun", "tiny.gguf -q --receipt r.json --receipt-rows " + arguments).must_end(0);
    run("llmcheck", "--audit r.json --challenge abc --make-opening o.bin").must_end(0, {}, {});
  }

  /// @param arguments  words of bash
  Finished run(const std::string& tool, const std::string& arguments) const {
    return shell(tool + " -t 2 " + arguments);
  }
  Finished audit(const std::string& arguments = "--challenge abc") const {
    return run("llmcheck", "--audit r.json --opening o.bin " + arguments);
  }
  OrderedJson receipt() const { return test::parse_ordered_json(read("r.json")); }
};

}  // namespace

TEST_CASE("what was opened for a challenge passes", "[llmcheck][audit]") {
  const AuditFolder folder(
      GENERATE("-n 30 -s 7 --ignore-eos -p 'a tiny hat'", "-n 0 -p 'a tiny hat'", "-n 1 -p a",
               "-c 40 -s 4 -p 'the hat' --ignore-eos",
               "-n 400 -s 2 -p 'the hat' --temp 3 --top-k 0 --top-p 1 --min-p 0",
               "-n 60 -s 3 -p 'the hat' -r a -r n -r e -r h --ignore-eos",
               "-n 20 -s 3 --kv q8 --chat-template zephyr --system 'Be kind' -p hi --ignore-eos"));
  folder.audit().must_end(0, {},
                          {"PASS  receipt: rows opened", "PASS  receipt: rows computed",
                           "PASS  receipt: tokens", "PASS  receipt: text and end"});
  folder.audit("--challenge abc --isa scalar").must_end(0);
  // A replay finds the same hash.
  folder.run("llmcheck", "--replay r.json --commit again.json").must_end(0);
  CHECK(folder.read("again.json") == folder.read("r.json"));
}

TEST_CASE("an audit that fails says so, by its exit code too", "[llmcheck][audit]") {
  const AuditFolder folder;
  const OrderedJson receipt = folder.receipt();
  struct Changed {
    const char* pointer;
    std::string value;  ///< "": removed
    int code;
    const char* words;
  };
  for (const auto& [pointer, value, code, words] : std::vector<Changed>{
           {"/ids/17", receipt["ids"][17] == 40 ? "41" : "40", 1, "it is not of ids[17], 4"},
           {"/text", R"("other")", 1, "the tokens' text"},
           {"/options/seed", "8", 1, "seed 7 would draw"},
           {"/rows_sha256", '"' + std::string(64, 'a') + '"', 8, "o.bin: root: found "},
           {"/rows_sha256", "\"abc\"", 3, "r.json: rows_sha256: found \"abc\""},
           {"/rows_sha256", "", 6, "r.json: rows_sha256: found none"},
           {"/contract_version", "99", 8, "contract_version: found 99"},
       }) {
    folder.write("r.json", json_text(test::with_value(receipt, pointer, value)));
    const Words printed = {words};
    folder.audit().must_end(code, code == 1 ? Words{} : printed, code == 1 ? printed : Words{});
  }
  folder.write("r.json", json_text(test::with_value(receipt, "/ids/17", "40")));
  folder.run("llmcheck", "--audit r.json --challenge abc --make-opening p.bin")
      .must_end(8, {"r.json: rows_sha256: found"});
  folder.run("llmcheck", "--replay r.json --commit p.json").must_end(1);
  CHECK(!std::filesystem::exists(folder / "p.json"));
  CHECK(!std::filesystem::exists(folder / "p.bin"));
}

TEST_CASE("an opening that is not one is refused", "[llmcheck][audit]") {
  const AuditFolder folder;
  const std::string opening = folder.read("o.bin");
  folder.audit("--challenge abd").must_end(8, {"o.bin: challenge: found "});
  folder.audit("--challenge abc --audit-rows 691").must_end(8, {"o.bin: rows: found \"690\""});
  folder.write("o.bin", opening.substr(0, opening.size() - 1));
  folder.audit().must_end(3, {"o.bin: size: found ", "need "});
  folder.write("o.bin", "x");
  folder.audit().must_end(3, {"o.bin: size: found 1 bytes"});
  folder.write("o.bin", "x" + opening);
  folder.audit().must_end(3, {"o.bin: format: found no line"});
  folder.write("other.gguf", TinyGguf::llama({.seed = 2}).bytes());
  folder.write("o.bin", opening);
  folder.audit("other.gguf --challenge abc").must_end(8, {"other.gguf: SHA-256: found "});
}

TEST_CASE("options of audits that say nothing are refused", "[llmcheck][audit]") {
  const AuditFolder folder;
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"--audit r.json --opening o.bin", "--challenge: found none"},
           {"--audit r.json --challenge a", "--opening: found"},
           {"--audit r.json --challenge a --opening o.bin --make-opening p.bin", "--opening"},
           {"--audit r.json --replay r.json --challenge a --opening o.bin", "--audit: found with"},
           {"--opening o.bin", "--audit: found none"},
           {"tiny.gguf --commit c.json", "--commit: found without --replay"},
           {"--audit r.json --challenge a --make-opening r.json", "--make-opening"},
       }) {
    folder.run("llmcheck", arguments).must_end(2, {words});
  }
  folder.run("llmrun", "tiny.gguf -p a --receipt-rows")
      .must_end(2, {"--receipt-rows: found without"});
}

}  // namespace llm::test
