#include <signal.h>
#include <unistd.h>

#include <regex>

#include "engine/gguf/gguf_writer.h"
#include "engine/gguf/importance_matrix.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/half.h"
#include "quant/formats/quantize/quantize_row.h"
#include "tests/tools/open_gguf.h"
#include "tests/tools/tool_test.h"

namespace llm::test {
namespace {

constexpr std::uint64_t kColumns = 512;
constexpr std::uint64_t kRows = 37;

void add_tensor(TinyGguf& model, const std::string& name, std::vector<std::uint64_t> dims,
                WeightType type, std::string data) {
  model.tensors.push_back({.name = name,
                           .dims = std::move(dims),
                           .type = static_cast<std::uint32_t>(type),
                           .data = std::move(data)});
}
void add_matrix(TinyGguf& model, const std::string& name, std::size_t n_cols) {
  add_tensor(model, name, {n_cols, kRows}, WeightType::kF16,
             random_weights(WeightType::kF16, kRows, n_cols, 0.1f, model.tensors.size() + 1));
}

/// Metadata of a Llama with two layers, and matrices large enough for K-quants. It does not run,
/// since not all of its tensors are there.
TinyGguf float_model() {
  TinyGguf model = TinyGguf::llama();
  model.tensors.clear();
  model.set_u32("llama.block_count", 2);
  model.set_u32("llama.embedding_length", kColumns);
  model.set_u32("llama.vocab_size", kRows);
  std::vector<std::string> pieces = TinyGguf::pieces();
  pieces.resize(kRows);
  model.set_strings("tokenizer.ggml.tokens", pieces);
  add_matrix(model, "token_embd.weight", kColumns);
  add_matrix(model, "output.weight", kColumns);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    add_matrix(model, layer + "attn_q.weight", kColumns);
    add_matrix(model, layer + "ffn_down.weight", 320);
    add_tensor(model, layer + "attn_norm.weight", {kColumns}, WeightType::kF32,
               random_weights(WeightType::kF32, 1, kColumns, 1.0f, 5));
  }
  return model;
}

/// A folder with a model, in.gguf, that llmquant makes out.gguf of.
class Fixture : public ToolFolder {
 public:
  explicit Fixture(const TinyGguf& model = float_model()) {
    std::filesystem::remove(path("tiny.gguf"));
    write("in.gguf", model.bytes());
  }
  Finished run(const std::string& arguments) const {
    return shell("llmquant in.gguf out.gguf --force " + arguments);
  }
  OpenGguf source() const { return OpenGguf(path("in.gguf")); }
  OpenGguf result() const { return OpenGguf(path("out.gguf")); }
  /// The types that tensors of the result must have.
  void must_have(const std::map<std::string, WeightType>& types) const {
    for (const auto& [name, type] : types) {
      CAPTURE(name);
      CHECK(result().type(name + ".weight") == type);
    }
  }
};

TEST_CASE("llmquant writes the recipe's types and keeps everything else", "[tools][llmquant]") {
  const Fixture quant;
  // a fallback
  quant.run("Q4_K_M").must_end(0, {"blk.0.ffn_down.weight", "Q5_0"}, {"bits per weight", "NMSE"});

  const OpenGguf before = quant.source();
  const OpenGguf after = quant.result();
  REQUIRE(after->tensors().size() == before->tensors().size());
  quant.must_have({{"token_embd", WeightType::kQ4_K},
                   {"output", WeightType::kQ6_K},
                   {"blk.0.attn_norm", WeightType::kF32},
                   {"blk.0.ffn_down", WeightType::kQ5_0},    // 320 is no multiple of 256
                   {"blk.1.ffn_down", WeightType::kQ8_0}});  // Q6_K, fallen back
  CHECK(*after->get_unsigned("general.file_type") == 15);
  CHECK(*after->get_unsigned("general.quantization_version") == 2);
  for (const GgufEntry& entry : before->entries()) {
    if (entry.key == "general.file_type") continue;
    const GgufValue* value = after->find(entry.key);
    CAPTURE(entry.key);
    REQUIRE(value != nullptr);
    REQUIRE(std::equal(value->bytes.begin(), value->bytes.end(), entry.value.bytes.begin(),
                       entry.value.bytes.end()));
  }
}

TEST_CASE("llmquant stores what quantize_row makes of every row", "[tools][llmquant]") {
  TinyGguf model = float_model();
  add_matrix(model, "blk.0.ffn_up.weight", 65536);  // more than one chunk of rows
  const Fixture quant(model);
  quant.run("Q5_K_S 3").must_end(0);
  const OpenGguf before = quant.source();
  const OpenGguf after = quant.result();
  for (const GgufTensor& tensor : after->tensors()) {
    const GgufTensor& source = *before->find_tensor(tensor.name);
    std::vector<float> weights(tensor.n_elements);
    contract::dequantize_row(source.type, before->tensor_data(source), weights);
    std::vector<std::byte> expected(tensor.n_bytes);
    quantize_row(tensor.type, weights, expected);
    const auto data = after->tensor_data(tensor);
    CAPTURE(tensor.name);
    REQUIRE(std::equal(data.begin(), data.end(), expected.begin(), expected.end()));
  }
}

TEST_CASE("llmquant gives equal files and tables for any thread count", "[tools][llmquant]") {
  const Fixture quant;
  const Finished one = quant.run("Q3_K_M 1");
  const std::string first = quant.read("out.gguf");
  REQUIRE(!first.empty());
  for (const char* threads : {"2", "3", "7"}) {
    const Finished more = quant.run(std::string("Q3_K_M ") + threads);
    CHECK(quant.read("out.gguf") == first);
    CHECK(more.out == one.out);
  }
}

TEST_CASE("llmquant obeys --pure and --tensor-type", "[tools][llmquant]") {
  const Fixture quant;
  quant.run("Q4_K_M --pure").must_end(0);
  quant.must_have({{"output", WeightType::kQ4_K}});
  quant.run("Q4_0 --tensor-type attn_q=q8_0 --tensor-type '^blk\\.1\\.=Q5_1'").must_end(0);
  quant.must_have({{"blk.0.attn_q", WeightType::kQ8_0},
                   {"blk.1.attn_q", WeightType::kQ8_0},  // the first match counts
                   {"blk.1.ffn_down", WeightType::kQ5_1},
                   {"blk.0.ffn_down", WeightType::kQ4_0},
                   {"blk.1.attn_norm", WeightType::kF32}});
}

TEST_CASE("llmquant has the overrides of llama-quantize", "[tools][llmquant]") {
  const Fixture quant;
  quant.run("Q4_0 --leave-output-tensor --token-embedding-type Q5_1").must_end(0);
  quant.must_have({{"output", WeightType::kF16}, {"token_embd", WeightType::kQ5_1}});
  quant.run("Q4_0 --output-tensor-type Q5_0 --tensor-type attn_q=Q4_1 --tensor-type weight=Q8_0")
      .must_end(0);
  quant.must_have({{"output", WeightType::kQ5_0}, {"token_embd", WeightType::kQ8_0}});
  TinyGguf model = float_model();
  model.remove_tensor("output.weight");
  const Fixture tied(model);
  tied.run("Q4_0 --output-tensor-type Q5_0").must_end(0);
  tied.must_have({{"token_embd", WeightType::kQ5_0}});
}

TEST_CASE("pruned layers are left out and the others numbered anew", "[tools][llmquant]") {
  TinyGguf model = float_model();
  model.set_array<std::int32_t>("llama.per_layer", GgufType::kInt32, {7, 8});
  model.set_array<std::int32_t>("other.per_layer", GgufType::kInt32, {7, 8});
  const Fixture quant(model);
  quant.run("Q8_0 --prune-layers 0").must_end(0);
  const OpenGguf before = quant.source();
  const OpenGguf after = quant.result();
  CHECK(*after->get_unsigned("llama.block_count") == 1);
  CHECK(after->find("llama.per_layer")->count == 1);
  CHECK((*after->get_ints("llama.per_layer"))[0] == 8);
  CHECK(after->find("other.per_layer")->count == 2);
  CHECK(after->find_tensor("blk.1.attn_q.weight") == nullptr);
  const auto kept = before->tensor_data(*before->find_tensor("blk.1.attn_norm.weight"));
  const auto made = after->tensor_data(*after->find_tensor("blk.0.attn_norm.weight"));
  CHECK(std::ranges::equal(kept, made));
}

TEST_CASE("a file that exists is replaced only with --force", "[tools][llmquant]") {
  const Fixture quant;
  quant.write("out.gguf", "old");
  quant.shell("llmquant in.gguf out.gguf Q8_0")
      .must_end(2, {"OUT: found a file that exists", "--force"});
  CHECK(quant.read("out.gguf") == "old");
  quant.run("Q8_0").must_end(0);
}

/// Importances of the matrices of float_model(), in which column j of 64 counts j + 1.
ImportanceMatrix importances() {
  ImportanceMatrix matrix;
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const auto& [name, n_cols] :
         {std::pair("attn_q.weight", kColumns), std::pair("ffn_down.weight", std::uint64_t{320})}) {
      Importance entry{layer + name, std::vector<float>(n_cols), {4}};
      for (std::size_t j = 0; j < n_cols; ++j) entry.sums[j] = static_cast<float>(j % 64 + 1);
      matrix.entries.push_back(std::move(entry));
    }
  }
  matrix.n_chunks = 2;
  matrix.texts = {"text.txt"};
  return matrix;
}

TEST_CASE("llmquant --imatrix weights the errors", "[tools][llmquant]") {
  const Fixture quant;
  quant.write("m.gguf", require_ok(importances().gguf_bytes()));
  const Finished one = quant.run("Q3_K_M 1 --imatrix m.gguf").must_end(0, {}, {"noise"});
  const std::string first = quant.read("out.gguf");
  CHECK(*quant.result()->get_string("quantize.imatrix.dataset") == "text.txt");
  CHECK(*quant.result()->get_unsigned("quantize.imatrix.entries_count") == 4);
  CHECK(quant.run("Q3_K_M 3 --imatrix m.gguf").out == one.out);
  CHECK(quant.read("out.gguf") == first);
  // The tensor's bytes are those of its rows with the importances of their columns.
  const OpenGguf before = quant.source();
  const OpenGguf after = quant.result();
  const GgufTensor& source = *before->find_tensor("blk.0.attn_q.weight");
  const GgufTensor& tensor = *after->find_tensor("blk.0.attn_q.weight");
  std::vector<float> weights(tensor.n_elements);
  contract::dequantize_row(source.type, before->tensor_data(source), weights);
  std::vector<float> importance(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i)
    importance[i] = static_cast<float>(i % kColumns % 64 + 1) / 4;
  std::vector<std::byte> expected(tensor.n_bytes);
  quantize_row(tensor.type, weights, expected, importance);
  REQUIRE(std::ranges::equal(after->tensor_data(tensor), expected));
  quantize_row(tensor.type, weights, expected);
  REQUIRE_FALSE(std::ranges::equal(after->tensor_data(tensor), expected));
  quant.run("IQ2_XS --imatrix m.gguf").must_end(0);
  quant.must_have({{"blk.1.attn_q", WeightType::kIQ2_XS}, {"token_embd", WeightType::kQ2_K}});
}

TEST_CASE("what is wrong with importances is named", "[tools][llmquant]") {
  const Fixture quant;
  const auto refused = [&](const ImportanceMatrix& matrix, int exit_code, Words words) {
    quant.write("m.gguf", require_ok(matrix.gguf_bytes()));
    quant.run("Q4_K_M --imatrix m.gguf").must_end(exit_code, words);
    CHECK(!std::filesystem::exists(quant.path("out.gguf")));
  };
  ImportanceMatrix matrix = importances();
  matrix.entries[0].sums.resize(256);
  refused(matrix, 3, {"m.gguf: blk.0.attn_q.weight", "256 sums and 1 counts", "512 columns"});
  matrix = importances();
  matrix.entries[1].sums[7] = std::numeric_limits<float>::quiet_NaN();
  refused(matrix, 7, {"m.gguf: blk.0.ffn_down.weight", "found nan in matrix 0, column 7"});
  matrix.entries[1].sums[7] = -1;
  refused(matrix, 7, {"found -1 in matrix 0, column 7"});
  matrix = importances();
  matrix.entries[2].counts = {0};
  refused(matrix, 3, {"blk.1.attn_q.weight", "found the count 0 of matrix 0"});
  quant.run("Q4_K_M --imatrix m.gguf --allow-unweighted").must_end(0);
  std::filesystem::remove(quant.path("out.gguf"));
  matrix = importances();
  matrix.entries.pop_back();
  refused(matrix, 3, {"m.gguf: blk.1.ffn_down.weight", "--allow-unweighted"});
  quant.run("Q4_K_M --imatrix m.gguf --allow-unweighted").must_end(0);
}

TEST_CASE("AUTO chooses types for a size or a noise", "[tools][llmquant]") {
  const Fixture quant;
  std::uintmax_t before = 0;
  for (const std::uintmax_t size : {70000, 90000, 120000}) {
    const auto arguments = "AUTO --target-size " + std::to_string(size) + "B";
    const Finished one = quant.run(arguments + " --dry-run 1").must_end(0);
    CHECK_THAT(one.out, Contains("noise") && Contains("* "));
    quant.run(arguments + " 3").must_end(0);
    const auto made = std::filesystem::file_size(quant.path("out.gguf"));
    CHECK(made <= size);
    CHECK(made > size * 8 / 10);
    CHECK(made > before);
    before = made;
    CHECK(quant.run(arguments + " --dry-run 3").out == one.out);
  }
  quant.run("AUTO --target-noise 0.005").must_end(0);
  const auto coarse = std::filesystem::file_size(quant.path("out.gguf"));
  quant.run("AUTO --target-noise 0.0005 --tensor-type attn_q=Q4_0").must_end(0);
  CHECK(std::filesystem::file_size(quant.path("out.gguf")) > coarse);
  quant.must_have({{"blk.0.attn_q", WeightType::kQ4_0}});
  quant.run("AUTO").must_end(2, {"--target-size"});
  quant.run("Q4_0 --target-size 1GB").must_end(2, {"AUTO"});
  quant.run("AUTO --target-size 1GB --target-noise 0.1").must_end(2, {"with 2 of"});
  quant.run("AUTO --target-size 1000B").must_end(2, {"need at least"});
  quant.run("AUTO --target-noise 2").must_end(2, {"need a number in (0, 1)"});
}

TEST_CASE("a dry run shows the plan and writes nothing", "[tools][llmquant]") {
  const Fixture quant;
  const Finished result = quant.run("Q6_K --dry-run").must_end(0);
  CHECK_THAT(result.out, Contains("bits per weight") && !Contains("NMSE"));
  CHECK(quant.count() == 1);
}

TEST_CASE("conversion between float types is exact where it can be", "[tools][llmquant]") {
  const Fixture quant;
  quant.run("F32").must_end(0);
  quant.shell("llmquant out.gguf back.gguf F16").must_end(0, {}, {"NMSE 0.000e+00"});
}

TEST_CASE("llmquant refuses to quantize twice unless told", "[tools][llmquant]") {
  const Fixture quant;
  quant.run("Q8_0").must_end(0);
  quant.shell("llmquant out.gguf again.gguf Q4_0")
      .must_end(6, {"token_embd.weight", "Q8_0", "--allow-requantize"});
  CHECK(!std::filesystem::exists(quant.path("again.gguf")));
  quant.shell("llmquant out.gguf again.gguf Q4_0 --allow-requantize --force").must_end(0);
  // Tensors that keep their type are copied, which is no second quantization.
  quant.shell("llmquant out.gguf again.gguf Q8_0 --force && cmp out.gguf again.gguf").must_end(0);
}

TEST_CASE("hyper-parameters that llmrun refuses are refused, or warned of", "[tools][llmquant]") {
  const auto [key, value, exit_code,
              words] = GENERATE(table<const char*, std::uint32_t, int, const char*>({
      {"llama.attention.head_count_kv", 3, 3,
       "llama.attention.head_count_kv (byte ): found 3, need a divisor of "
       "llama.attention.head_count = 4"},
      {"llama.attention.head_count", 0, 3, "found 0, need 1 to embedding_length 512"},
      {"llama.block_count", 3, 3, "found 3, need 2: the blocks present"},
      {"llama.attention.value_length", 64, 0, "found 64, need the head dim 128; the result does"},
  }));
  TinyGguf model = float_model();
  model.set_u32(key, value);
  const Fixture files(model);
  const Finished run = files.run("Q8_0").must_end(exit_code);
  // The offset is another in each file.
  const std::string err = std::regex_replace(run.err, std::regex("byte [0-9]+"), "byte ");
  REQUIRE_THAT(err, Contains(words));
  REQUIRE(files.count() == (exit_code == 0 ? 2 : 1));
  if (exit_code != 0) files.shell("llmrun in.gguf -n 1").must_end(exit_code);
  TinyGguf other = float_model();
  other.set_string("general.architecture", "mamba");
  Fixture(other).run("Q8_0").must_end(0, {"general.architecture", "found \"mamba\""});
}

TEST_CASE("NaN, Inf and weights out of range are errors of the model", "[tools][llmquant]") {
  TinyGguf model = float_model();
  const std::uint16_t bad = GENERATE(as<std::uint16_t>{}, 0x7E00, 0x7C00);
  std::memcpy(model.tensor("blk.1.attn_q.weight").data.data() + 2 * (kColumns * 36 + 7), &bad, 2);
  const Fixture quant(model);
  quant.run("Q4_K_M").must_end(7, {"in.gguf", "blk.1.attn_q.weight", "row 36, column 7"});
  CHECK(quant.count() == 1);
}

TEST_CASE("weights too large for f16 scales are refused", "[tools][llmquant]") {
  TinyGguf model = float_model();
  TinyGguf::Tensor& tensor = model.tensor("blk.0.attn_q.weight");
  tensor.type = static_cast<std::uint32_t>(WeightType::kF32);
  tensor.data = random_weights(WeightType::kF32, kRows, kColumns, 0.1f, 3);
  const float huge = 3e9f;
  std::memcpy(tensor.data.data() + 4 * (kColumns * 5), &huge, 4);
  const Fixture quant(model);
  quant.run(GENERATE("Q4_0", "Q4_K_M", "F16")).must_end(7, {"blk.0.attn_q.weight", "row 5"});
}

TEST_CASE("llmquant names what is wrong with its arguments", "[tools][llmquant]") {
  const Fixture quant;
  quant.write("text", std::string(100, 'x'));
  for (const auto& [arguments, exit_code, word] :
       std::vector<std::tuple<std::string, int, std::string>>{
           {"in.gguf out.gguf Q9_K", 2, "Q4_K_M"},
           {"in.gguf out.gguf q4_km", 2, "did you mean Q4_K_M?"},
           {"in.gguf out.gguf Q8_0 --output-tensor-type Q9", 2,
            "--output-tensor-type: found \"Q9\""},
           {"in.gguf out.gguf Q8_0 --prune-layers 2", 2, "need layers 0..1"},
           {"in.gguf out.gguf Q8_0 --prune-layers 0,1", 2, "found all layers"},
           {"in.gguf out.gguf IQ2_XS", 2, "--allow-unweighted"},
           {"in.gguf out.gguf Q4_K_M --imatrix no", 4, "no: "},
           {"in.gguf out.gguf Q4_K_M --imatrix text", 3, "text: number of entries"},
           {"in.gguf out.gguf Q4_K_M --imatrix in.gguf", 3, "*.in_sum2"},
           {"in.gguf out.gguf Q8_0 0", 2, "THREADS"},
           {"in.gguf out.gguf Q8_0 x", 2, "THREADS"},
           {"in.gguf out.gguf Q8_0 --tensor-type attn_q", 2, "REGEX=TYPE"},
           {"in.gguf out.gguf Q8_0 --tensor-type '(=Q4_0'", 2, "regular expression"},
           {"in.gguf out.gguf Q8_0 --tensor-type attn_q=Q8_K", 2, "Q8_K"},
           {"in.gguf out.gguf Q8_0 --tensor-type nothing=Q4_0", 2, "nothing=Q4_0"},
           {"no out.gguf Q8_0", 4, "no: "},
           {"text out.gguf Q8_0", 3, "text: "}}) {
    quant.shell("llmquant " + arguments).must_end(exit_code, {word});
    CHECK(quant.count() == 2);
  }
}

TEST_CASE("a part of a split model is refused", "[tools][llmquant]") {
  TinyGguf model = float_model();
  model.set<std::uint16_t>("split.count", GgufType::kUint16, 3);
  const Fixture quant(model);
  quant.run("Q8_0").must_end(6, {"split.count"});
}

TEST_CASE("a failed write leaves the old file", "[tools][llmquant]") {
  const Fixture quant;
  quant.write("out.gguf", "old");
  // A file size limit is a disk that fills up in the middle of the file.
  quant.shell("trap '' XFSZ; ulimit -f 16; exec llmquant in.gguf out.gguf Q8_0 --force")
      .must_end(4);
  CHECK(quant.read("out.gguf") == "old");
  CHECK(quant.count() == 2);
  quant.shell("llmquant in.gguf /dev/full Q8_0").must_end(4, {"/dev/full"});
}

/// Makes a lone matrix no Llama, which would need metadata.
constexpr const char* kOtherArchitecture = "matrix";

/// A GGUF of one F16 matrix of zeros, sparse on disk.
std::string write_sparse_model(const Fixture& quant, std::uint64_t n_rows) {
  GgufWriter writer;
  writer.add_string("general.architecture", kOtherArchitecture);
  const std::uint64_t dims[] = {65536, n_rows};
  writer.add_tensor("blk.0.attn_q.weight", WeightType::kF16, dims);
  const auto header = require_ok(writer.header());
  const std::string path = quant.write("sparse.gguf", header);
  std::filesystem::resize_file(path, header.size() + 2 * dims[0] * dims[1]);
  return path;
}

/// Whether the process has a file open that has no name yet in that folder, or a temporary one.
bool writes_in(const Process& process, const std::string& folder) {
  std::error_code gone;
  const auto descriptors = "/proc/" + std::to_string(process.pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(descriptors, gone)) {
    const std::string name = std::filesystem::read_symlink(entry, gone).string();
    if (name.starts_with(folder) &&
        (name.ends_with("(deleted)") || name.find(".tmp.") != name.npos))
      return true;
  }
  return false;
}

TEST_CASE("an interrupted run leaves the old file and no other", "[tools][llmquant]") {
  const Fixture quant;
  quant.write("out.gguf", "old");
  // 2^31 weights are seconds of work, so the signals come in the middle of it.
  const std::string large = write_sparse_model(quant, 32768);
  const std::size_t files = quant.count();
  const auto [signal, times, exit_code] =
      GENERATE(table<int, int, int>({{SIGINT, 1, 130},
                                     {SIGINT, 2, 130},
                                     {SIGTERM, 1, 143},
                                     {SIGHUP, 1, 129},
                                     {SIGQUIT, 1, 128 + SIGQUIT},
                                     {SIGUSR1, 1, 128 + SIGUSR1},
                                     {SIGABRT, 1, 128 + SIGABRT},
                                     {SIGKILL, 1, 128 + SIGKILL}}));
  CAPTURE(signal, times);
  Process process({tool_path("llmquant"), large, quant.path("out.gguf"), "Q6_K", "1", "--force"});
  while (!writes_in(process, quant.path())) {
    REQUIRE(process.is_running());
    ::usleep(1000);
  }
  for (int i = 0; i < times; ++i) process.send(signal);
  const Finished result = process.wait().must_end(exit_code);
  if (times == 1 && (signal == SIGINT || signal == SIGHUP || signal == SIGTERM)) {
    CHECK_THAT(result.err, Contains("interrupted: " + quant.path("out.gguf") + " was not written"));
  }
  CHECK(quant.read("out.gguf") == "old");
  CHECK(quant.count() == files);
}

TEST_CASE("a source is never destroyed", "[tools][llmquant]") {
  const Fixture quant;
  const std::string before = quant.read("in.gguf");
  std::filesystem::create_symlink("in.gguf", quant.path("soft"));
  std::filesystem::create_hard_link(quant.path("in.gguf"), quant.path("hard"));
  for (const std::string out : {"in.gguf", "./in.gguf", "soft", "hard"}) {
    quant.shell("llmquant in.gguf " + out + " Q8_0")
        .must_end(2, {out + ": OUT: found an input file", "--in-place"});
    CHECK(quant.read("in.gguf") == before);
  }
  quant.shell("rm soft hard; llmquant in.gguf out.gguf Q8_0").must_end(0);
  quant.shell("llmquant in.gguf out.gguf Q8_0")
      .must_end(2, {"out.gguf: OUT: found a file that exists", "--force"});
  quant.shell("llmquant in.gguf in.gguf Q8_0 --in-place && cmp in.gguf out.gguf").must_end(0);
  CHECK(quant.count() == 2);
}

TEST_CASE("no part of a split source is destroyed", "[tools][llmquant]") {
  const Fixture quant;
  quant.shell("llmgguf split in.gguf part --parts 2").must_end(0);
  const std::string first = "part-00001-of-00002.gguf ";
  const std::string second = "part-00002-of-00002.gguf ";
  const auto before = quant.read("part-00002-of-00002.gguf");
  for (const std::string& out : {first, second}) {
    for (const std::string flag : {"-q", "--in-place"}) {
      quant.shell("llmquant " + first + out + "Q8_0 " + flag)
          .must_end(2, {"OUT: found an input file"});
    }
  }
  CHECK(quant.read("part-00002-of-00002.gguf") == before);
}

TEST_CASE("memory does not grow with the model", "[tools][llmquant]") {
  const Fixture quant;
  write_sparse_model(quant, 2048);  // 256 MiB
  const Finished result = quant.shell("exec llmquant sparse.gguf out.gguf Q4_0 2").must_end(0);
  if (!test::kSanitized) CHECK(result.peak_rss_kib < 128 * 1024);  // shadow memory counts
}

TEST_CASE("llmquant's memory does not grow with the length of a row", "[tools][llmquant]") {
  // Two rows of 2^25 weights, all of them a hole in the file.
  constexpr std::uint64_t kWide = std::uint64_t{1} << 25;
  TinyGguf model;
  model.set_string("general.architecture", kOtherArchitecture);
  add_tensor(model, "blk.0.ffn_up.weight", {kWide, 2}, WeightType::kF16, "");
  model.final_padding = false;
  const ScratchDirectory folder;
  const std::string in = folder.write("wide.gguf", model.bytes());
  std::filesystem::resize_file(in, std::filesystem::file_size(in) + 2 * kWide * 2);
  const Finished result =
      run_tool("llmquant", {in, folder.path("out.gguf"), "Q8_0", "2"}).must_end(0);
  if (!kSanitized) CHECK(result.peak_rss_kib < 64 * 1024);
  const OpenGguf out(folder.path("out.gguf"));
  CHECK(out->find_tensor("blk.0.ffn_up.weight")->n_bytes == 2 * kWide / 32 * 34);
}

}  // namespace
}  // namespace llm::test
