// Adapters through the tools: llmrun --lora, llmgguf merge-lora.

#include "base/sha256.h"
#include "engine/gguf/gguf_split.h"
#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

class LlmrunAdapter : public Llmrun {
 public:
  LlmrunAdapter() {
    write("m.gguf", gguf_.bytes());
    for (std::uint64_t seed : {1, 2}) {
      const TinyGguf adapter = tiny_adapter(*model_, {.seed = seed});
      write(fmt::format("{}.gguf", seed), adapter.bytes());
    }
  }

  /// The hash of all logits of a run.
  std::string hash(const std::string& options) {
    const Finished run = llmrun(
                             "m.gguf -p 'a tiny hen' --ignore-eos -n 8 --temp 0 -q "
                             "--logits-hash " +
                             options)
                             .must_end(0);
    return run.err;
  }

  TinyGguf gguf_ = with_chatml_markers();
  std::shared_ptr<const Model> model_ = loaded(gguf_);
};

}  // namespace

TEST_CASE_METHOD(LlmrunAdapter, "--lora takes files and scales, and llama.cpp's spelling") {
  const std::string plain = hash("");
  const std::string one = hash("--lora 1.gguf");
  REQUIRE(one != plain);
  REQUIRE(hash("--lora 1.gguf:1") == one);
  REQUIRE(hash("--lora-scaled 1.gguf:1.0") == one);
  REQUIRE(hash("--lora 1.gguf:0") == plain);
  REQUIRE(hash("--lora 1.gguf:0.5") != one);
  REQUIRE(hash("--lora 2.gguf") != one);
  const std::string both = hash("--lora 1.gguf --lora 2.gguf:-1");
  REQUIRE(both != one);
  REQUIRE(hash("--lora 1.gguf --lora 2.gguf:-1 --speculate ngram") == both);
  REQUIRE(hash("--lora 1.gguf --lora 2.gguf:-1 --no-cache") == both);
  const Json json = json_of("m.gguf -p a -n 1 --json -q --lora 1.gguf --lora 2.gguf:0.5");
  REQUIRE(json["stats"]["adapters"][1] == Json{{"file", "2.gguf"}, {"scale", 0.5}});
  write("1:2.gguf", tiny_adapter(*model_).bytes());
  REQUIRE(hash("--lora 1:2.gguf") == one);
}

TEST_CASE_METHOD(LlmrunAdapter, "a KV cache on disk is of the adapters") {
  const std::string text =
      "-p 'Once upon a time there was a tiny hen who lived in a house' -n 4 "
      "--temp 0 --ignore-eos -q --cache-dir kv ";
  const auto run = [&](const std::string& options) {
    return llmrun("m.gguf " + text + options).must_end(0).out;
  };
  const std::string plain = run("");
  const std::string one = run("--lora 1.gguf");
  REQUIRE(run("--lora 1.gguf") == one);
  REQUIRE(run("") == plain);
  REQUIRE(llmrun("m.gguf " + text + "--lora 1.gguf --no-cache").exit_code == 2);
}

TEST_CASE_METHOD(LlmrunAdapter, "a saved session is continued with its adapters alone") {
  const std::string chat = "m.gguf -i --chat-template chatml -n 4 -q --session s.json ";
  llmrun(chat + "--lora 1.gguf:0.5 <<< hello").must_end(0);
  llmrun(chat + "--lora 1.gguf:0.5 <<< hello").must_end(0);
  llmrun(chat + "<<< hello")
      .must_end(8,
                {"--lora: found a conversation with the adapters", " at 0.5, need one with none"});
  llmrun(chat + "--lora 1.gguf <<< hello").must_end(8, {" at 0.5, need one with ", " at 1"});
}

TEST_CASE_METHOD(LlmrunAdapter, "what does not go with an adapter is refused by name") {
  llmrun("m.gguf -p a --lora 1.gguf --receipt r.json")
      .must_end(2, {"--receipt: found with --lora"});
  llmrun("m.gguf -p a --lora 1.gguf --dump-layers d.npz")
      .must_end(2, {"--dump-layers: found with --lora"});
  llmrun("m.gguf -p a --lora 1.gguf:inf").must_end(2, {"--lora: found \"1.gguf:inf\""});
  llmrun("m.gguf -p a --lora none.gguf").must_end(4, {"none.gguf"});
  llmrun("m.gguf -p a --lora m.gguf").must_end(6, {"m.gguf: general.type", "need \"adapter\""});
  // An adapter as the model.
  llmrun("1.gguf -p a").must_end(3);
}

TEST_CASE_METHOD(LlmrunAdapter, "merge-lora adds the updates to the tensors of the model") {
  shell("llmquant m.gguf f32.gguf F32 --allow-requantize -q && llmquant f32.gguf f16.gguf F16 -q")
      .must_end(0);
  const auto run = shell("llmgguf merge-lora f32.gguf 1.gguf:0.5 out.gguf").must_end(0);
  const std::string bytes = read("out.gguf");
  REQUIRE(run.out == fmt::format("out.gguf: {} bytes, SHA-256 {}\n", bytes.size(),
                                 sha256_hex(std::as_bytes(std::span(bytes)))));
  const auto open = [&](const std::string& name) { return require_ok(open_gguf_file(path(name))); };
  const OpenGguf base = open("f32.gguf");
  const OpenGguf out = open("out.gguf");
  const OpenGguf adapter = open("1.gguf");
  std::size_t n_changed = 0;
  for (const GgufTensor& tensor : base.gguf.tensors()) {
    const GgufArray<float> before(base.gguf.tensor_data(tensor));
    const GgufArray<float> after(out.gguf.tensor_data(*out.gguf.find_tensor(tensor.name)));
    const GgufTensor* a_of = adapter.gguf.find_tensor(std::string(tensor.name) + ".lora_a");
    if (a_of == nullptr) {
      for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(after[i] == before[i]);
      continue;
    }
    ++n_changed;
    const GgufArray<float> a(adapter.gguf.tensor_data(*a_of));
    const GgufArray<float> b(
        adapter.gguf.tensor_data(*adapter.gguf.find_tensor(std::string(tensor.name) + ".lora_b")));
    const std::size_t cols = tensor.dims[0];
    for (std::size_t i = 0; i < before.size(); ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < 4; ++j)
        sum += double{b[i / cols * 4 + j]} * double{a[j * cols + i % cols]};
      REQUIRE(after[i] == static_cast<float>(double{before[i]} + 6 * 0.5 / 4 * sum));
    }
  }
  REQUIRE(n_changed == 8);
  // Rounded to the type of the tensor, once.
  shell(
      "llmgguf merge-lora f16.gguf 1.gguf out16.gguf && llmgguf merge-lora f32.gguf 1.gguf "
      "all.gguf")
      .must_end(0);
  REQUIRE(shell("llmgguf show out16.gguf --json").out.find("\"F16\"") != std::string::npos);
  shell("llmrun out16.gguf -p a -n 2 -q").must_end(0);
  shell("llmquant all.gguf q4.gguf Q4_0 -q && llmrun q4.gguf -p a -n 2 -q").must_end(0);
}

TEST_CASE_METHOD(LlmrunAdapter, "merge-lora refuses what it cannot do exactly") {
  const std::string merge = "llmgguf merge-lora m.gguf 1.gguf out.gguf ";
  shell(merge).must_end(6, {"m.gguf: tensor \"blk.0.attn_output.weight\"", "need F32, F16 or BF16",
                            "use llmquant then", "--dequantize"});
  shell(merge + "--dequantize").must_end(0);
  shell(merge + "--dequantize").must_end(2, {"out.gguf: OUT: found a file that exists", "--force"});
  shell(merge + "--dequantize --force && llmrun out.gguf -p a -n 2 -q").must_end(0);
  shell("llmgguf merge-lora m.gguf 1.gguf 1.gguf --dequantize --force")
      .must_end(2, {"found an input file (1.gguf)"});
  shell("llmgguf merge-lora m.gguf 1.gguf").must_end(2, {"OUT: found nothing"});
  TinyGguf other = tiny_adapter(*model_);
  other.set_string("general.architecture", "qwen2");
  write("other.gguf", other.bytes());
  shell("llmgguf merge-lora m.gguf other.gguf x.gguf")
      .must_end(3, {"other.gguf: general.architecture", "found \"qwen2\", need \"llama\""});
  TinyGguf wide = tiny_adapter(*model_);
  wide.tensor("blk.0.attn_q.weight.lora_b").dims[1] = 16;
  write("wide.gguf", wide.bytes());
  shell("llmgguf merge-lora m.gguf wide.gguf x.gguf --dequantize")
      .must_end(3, {"found 16 rows, need 32"});
  REQUIRE(!std::filesystem::exists(path("x.gguf")));
}

}  // namespace llm::test
