// Rows 61 to 64 of docs/bad_input.md as llmrun's users meet them.

#include "tests/support/nonfinite_models.h"
#include "tests/tools/llmrun_process.h"

namespace llm::test {
namespace {

const std::string kBadRun = "bad.gguf -p 'a tiny hen' -n 4 --temp 0 -q ";

}  // namespace

TEST_CASE_METHOD(Llmrun, "bad input 61: llmrun names tensor and block") {
  TinyGguf model = TinyGguf::llama();
  const std::uint16_t infinite = 0x7C00;
  std::memcpy(model.tensor("blk.0.attn_v.weight").data.data() + 34 * 3, &infinite,
              sizeof(infinite));
  write("bad.gguf", model.bytes());
  llmrun(kBadRun).must_refuse(7, {"llmrun: error: ", "bad.gguf: blk.0.attn_v.weight (byte ",
                                  "found NaN or Inf in Q8_0 block 3 (row 3), need finite values"});
}

TEST_CASE_METHOD(Llmrun, "bad input 62, 63: llmrun names layer, operation and position") {
  // A prompt asks for logits of its last token only: the logits' own fault is at that position.
  const auto [tensor, words] = GENERATE(table<const char*, const char*>({
      {"blk.0.ffn_up.weight", "blk.0.up: found NaN or Inf at token position 0, need finite"},
      {"output.weight", "logits: found NaN or Inf at token position "},
  }));
  TinyGguf model = TinyGguf::llama();
  test::make_huge(model, tensor);
  write("bad.gguf", model.bytes());
  for (const char* extra : {"", "--compute f32", "--no-cache", "--isa scalar -b 2", "--json",
                            "--logits-hash", "-i", "--dump-layers dump.npz"}) {
    const bool chat = std::string_view(extra) == "-i";
    const Finished run = chat ? shell("echo hi | llmrun bad.gguf -q -i --chat-template zephyr")
                              : llmrun(kBadRun + extra);
    run.must_end(7, {"llmrun: error: ", words, "the weights are corrupt or too large for f32"});
    CAPTURE(extra);
    REQUIRE(run.out.find_first_not_of("> \n") == std::string::npos);  // no token was drawn
  }
  REQUIRE_FALSE(std::filesystem::exists(path("dump.npz")));
}

TEST_CASE_METHOD(Llmrun, "bad input 62: what was written before the fault stays") {
  // All logits are 0 but the guilty token's: it is drawn once its logit is positive, which it is at
  // some position with one sign of its weights or the other.
  int faults = 0;
  for (const float sign : {1.0F, -1.0F}) {
    constexpr TokenId kGuilty = 269;  // "n"
    TinyGguf model = TinyGguf::llama();
    test::make_token_overflow(model, kGuilty);
    TinyGguf::Tensor& output = model.tensor("output.weight");
    test::fill_f32(output, 0);
    for (std::size_t i = 0; i < 32; ++i) {
      const float value = sign * 0.1F * static_cast<float>(i % 3 + 1);
      std::memcpy(output.data.data() + (kGuilty * 32 + i) * sizeof(float), &value, sizeof(value));
    }
    write("bad.gguf", model.bytes());
    const Finished run = llmrun("bad.gguf -p 'the hat' -n 8 --temp 0 --ignore-eos -q");
    CAPTURE(sign, run.out);
    if (!contains(run.err, "error")) continue;
    ++faults;
    run.must_end(7, {"blk.0.q: found NaN or Inf at token position "});
    REQUIRE(run.out.ends_with(model.pieces()[kGuilty]));
  }
  REQUIRE(faults > 0);
}

}  // namespace llm::test
