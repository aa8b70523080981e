// What llmcheck measures, as a user runs it.

#include "tests/tools/llmcheck_process.h"

namespace llm::test {
namespace {

const std::string kHeldout = LLM_SOURCE_DIR "/models/heldout.txt";

}  // namespace

TEST_CASE("perplexity is a figure without a verdict, and says the same whatever the path",
          "[llmcheck][quality]") {
  const LlmcheckFolder w;
  const std::string arguments = kFableF16 + " --ppl " + kHeldout + " --ppl-sample 8 ";
  const auto json = w.report(arguments);
  CHECK(json["verdict"].is_null());
  const auto row = json["figures"][0]["rows"][0];
  CHECK(row["model"] == "fable-3m-f16");
  // How to run it again, and where it ran.
  const auto facts = json["facts"];
  require_words(facts["command"],
                {"llmcheck -t 1 " + kFableF16 + " --ppl ", " --ppl-sample 8 --report "});
  CHECK_THAT(facts["date"], Catch::Matchers::Matches("20..-..-.. ..:..:.. UTC"));
  CHECK(facts["threads"] == "1");
  for (const char* fact : {"llmcheck", "CPU", "isa", "sha256"}) CHECK(facts.contains(fact));
  CHECK_THAT(w.out, !Contains("--ppl-sample"));  // a terminal shows what is not known
  CHECK(row["tokens"] == 8 * 32);
  const double nll = row["nll"];
  CHECK(row["perplexity"].get<double>() == Approx(std::exp(nll)));
  // A trained model, but with little context: far below the vocabulary's log(1536) = 7.3.
  CHECK((nll > 0.3 && nll < 6));
  CHECK(w.report(arguments + "-t 2 --isa scalar")["figures"][0]["rows"][0]["nll"] == nll);
  CHECK(w.report(arguments + "--seed 2")["figures"][0]["rows"][0]["nll"] != nll);
}

TEST_CASE("a quantized model is compared with its source token by token", "[llmcheck][quality]") {
  const LlmcheckFolder w;
  const auto json = w.report(kFable + " --ppl " + kHeldout + " --ppl-sample 20 --against " +
                             kFableF16 + " --also " + kFableF16 + " --kld " + kFableF16);
  const auto rows = json["figures"][0]["rows"];
  // Against itself nothing differs at all.
  must_match(rows, {"{'model': 'fable-3m-f16', 'd nll': '-'}"_j, Json::object(),
                    "{'d nll': 0.0, 'KL mean': 0.0, 'same top %': 100.0}"_j});
  CHECK(rows[1]["d nll"].get<double>() ==
        Approx(rows[1]["nll"].get<double>() - rows[0]["nll"].get<double>()).margin(1e-9));
  CHECK((rows[1]["KL mean"] > 1e-4 && rows[1]["KL mean"] < 0.5));
  CHECK((rows[1]["same top %"] > 70.0 && rows[1]["same top %"] < 100.0));
  CHECK(json["figures"][1]["rows"][0]["mean"] == rows[1]["KL mean"]);
}

TEST_CASE("an importance matrix of a text is written", "[llmcheck][quality]") {
  const LlmcheckFolder w;
  w.write("text", "Once upon a time there was a cat. The cat sat in the sun, and it was happy.");
  const std::string arguments = kFableF16 + " --imatrix m.gguf --text text --ppl-window 8";
  const auto row = w.report(arguments)["figures"][0]["rows"][0];
  CHECK(row["matrices"] == 4 * 7 + 1);
  CHECK(row["tokens in each"] == 8);
  const std::string first = w.read("m.gguf");
  CHECK(first.starts_with("GGUF"));
  w.report(arguments + " -t 2 --isa scalar");
  CHECK(w.read("m.gguf") == first);
  w.shell("llmcheck " + kFableF16 + " --imatrix m.gguf").must_end(2, {"--imatrix", "--text"});
  w.shell("llmcheck " + kFableF16 + " --text text").must_end(2, {"--imatrix", "--text"});
  w.shell("llmcheck " + kFableF16 + " --imatrix text --text text").must_end(2, {"--imatrix"});
}

TEST_CASE("documents score their own ends", "[llmcheck][quality]") {
  const LlmcheckFolder w;
  const auto sum = [&](const std::string& text) {
    w.write("text", text);
    const auto row = w.report(kFableF16 + " --ppl text --ppl-documents")["figures"][0]["rows"][0];
    return row["nll"].get<double>() * row["tokens"].get<double>();
  };
  CHECK(sum("\n\nLily sat.\n\nLily ran.\n\n\n\nLily sat.\n") ==
        Approx(sum("Lily sat.") + sum("Lily sat.\n\nLily ran.")));
}

TEST_CASE("a dump's logits are a reference for divergence", "[llmcheck][quality]") {
  const LlmcheckFolder w;
  w.llmcheck(kFableF16 + " --dump own.npz").must_end(0);
  const std::string kld = " --kld own.npz";
  CHECK(w.report(kFableF16 + kld)["figures"][0]["rows"][0]["max"] == 0.0);
  CHECK(w.report(kFable + kld)["figures"][0]["rows"][0]["mean"] > 0.0);
}

TEST_CASE("a loss fails, and one that the text cannot decide exits with a code of its own",
          "[llmcheck][quality]") {
  const LlmcheckFolder w;
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += fmt::format("a tiny text of {} letters, number {}\n\n\n", i, i * i);
  w.write("text", text);
  const std::string run = "tiny.gguf --quality text --baseline .";
  w.llmcheck(run + " --update-baseline test").must_end(0);
  const auto json = [&](int expected) { return w.report(run + " --report r.junit.xml", expected); };
  const auto same = json(0);
  CHECK_THAT(same["checks"].back()["detail"],
             Contains("no loss") && Contains("+0.000 % (+0.000 to +0.000) after 32 of 40"));

  const auto frozen = test::parse_json(w.read("documents.json"));
  const auto change = [&](auto nll_of) {
    auto changed = frozen;
    for (std::size_t i = 0; i < changed["documents"].size(); ++i) {
      auto& document = changed["documents"][i];
      document[0] =
          nll_of(i, document[0].template get<double>(), document[1].template get<double>());
    }
    w.write("documents.json", json_text(changed));
  };
  // The baseline was 4 % better.
  change([](std::size_t, double nll, double tokens) { return nll - std::log(1.04) * tokens; });
  const auto worse = json(1);
  CHECK(worse["verdict"] == "FAIL");
  CHECK_THAT(worse["checks"].back()["detail"], Contains("a loss above 0.2 %: perplexity +4.000 %"));
  // It was better on one half of the documents and worse on the other.
  change([](std::size_t i, double nll, double tokens) {
    return nll + (i % 2 == 0 ? 0.05 : -0.05) * tokens;
  });
  const auto open = json(9);
  CHECK(open["verdict"] == "UNDECIDED");
  CHECK(open["checks"].back()["verdict"] == "UNDECIDED");
  CHECK_THAT(open["checks"].back()["detail"], Contains("after 40 of 40 documents"));
  CHECK_THAT(w.out, Contains("UNDECIDED  nothing failed") && Contains("more documents"));
  CHECK_THAT(w.read("r.junit.xml"),
             Contains("errors=\"1\"") && Contains("<error message=\"UNDECIDED"));
  // Frozen from another text, or another list of documents.
  w.write("text", text + "one more\n");
  w.llmcheck(run).must_end(8, {"text_sha256"});
}

TEST_CASE("a text begins with BOS only where the file wants it", "[llmcheck][quality]") {
  const LlmcheckFolder w;
  std::string text;
  for (int i = 0; i < 24; ++i) text += fmt::format("a tiny text of number {}\n\n\n", i * i);
  w.write("text", text);
  const auto figures = [&](auto change, const std::string& arguments) {
    for (const std::uint32_t seed : {1, 2}) {
      auto model = TinyGguf::llama({.seed = seed});
      change(model);
      w.write(fmt::format("{}.gguf", seed), model.bytes());
    }
    auto found = w.report("1.gguf --kld 2.gguf --ppl text" + arguments)["figures"];
    found[0]["rows"][0].erase("MB");  // the key is a part of the file
    return found;
  };
  const std::string kAddBos = "tokenizer.ggml.add_bos_token";
  const auto as_made = [](auto&) {};
  const auto unsaid = [&](auto& model) { model.remove(kAddBos); };
  const auto unwanted = [&](auto& model) { model.set_bool(kAddBos, 0); };
  const auto absent = [](auto& model) { model.set_u32("tokenizer.ggml.bos_token_id", 0xFFFFFFFF); };
  struct Way {
    std::string arguments;
    double unscored;  ///< tokens that have nothing before them without BOS
  };
  for (const auto& [arguments, unscored] : {Way{" --quality text", 1}, Way{" --ppl-documents", 24},
                                            Way{" --ppl-sample 20 --ppl-window 4", 0}}) {
    const auto with = figures(as_made, arguments);
    const auto without = figures(absent, arguments);
    CHECK(figures(unsaid, arguments) == with);  // SentencePiece's default
    CHECK(figures(unwanted, arguments) == without);
    for (std::size_t i = 0; i < with.size(); ++i) CHECK(with[i]["rows"] != without[i]["rows"]);
    CHECK(with[0]["rows"][0]["tokens"].template get<double>() - unscored ==
          without[0]["rows"][0]["tokens"].template get<double>());
    CHECK(with[1]["rows"][0]["positions"].template get<double>() - unscored ==
          without[1]["rows"][0]["positions"].template get<double>());
  }
  // GPT-2's pre-tokenizer wants no BOS, Llama 3's does.
  const auto tokens_of = [&](const char* pre) {
    const auto change = [&](auto& model) {
      model.make_byte_bpe();
      model.set_string("tokenizer.ggml.pre", pre);
      model.set_u32("tokenizer.ggml.bos_token_id", 257);
      model.remove(kAddBos);
    };
    return figures(change, "")[0]["rows"][0]["tokens"].template get<double>();
  };
  CHECK(tokens_of("llama-bpe") == tokens_of("gpt-2") + 1);
}

TEST_CASE("scoring without a text, or of too little, is refused", "[llmcheck][quality]") {
  const LlmcheckFolder w;
  w.write("empty.txt", "");
  w.must_refuse(
      {{kFableF16 + " --against " + kFableF16, 2, "--against"},
       {kFableF16 + " --kld " + kFableF16, 2, "--kld"},
       {"--ppl " + kHeldout, 2, "MODEL"},
       {kFableF16 + " --ppl " + kHeldout + " --baseline x", 2, "--baseline"},
       {kFableF16 + " --quality " + kHeldout + " --update-baseline why", 2, "--update-baseline"},
       {kFableF16 + " --ppl " + kHeldout + " --ppl-sample 2 --ppl-documents", 2, "--ppl-"},
       {kFableF16 + " --ppl none.txt", 4, "none.txt"},
       {kFableF16 + " --ppl empty.txt", 2, "empty.txt: "}});
}

}  // namespace llm::test
