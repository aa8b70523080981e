// The table of tensor roles, and what walks it.

#include "engine/model/tensor_roles.h"

#include "engine/model/missing_architectures.h"
#include "engine/model/model_file.h"
#include "engine/model/tensor_name.h"
#include "engine/model/weights.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {
namespace {

/// A row of a table of one's own.
struct Row {
  std::string_view name;
  bool per_layer;
};

}  // namespace

TEST_CASE("rows of a layer are repeated, those around them are not", "[roles]") {
  const Row table[] = {{"a", false}, {"b", true}, {"c", true}, {"d", false}, {"e", false}};
  std::string order;
  for (const auto& [row, layer] : in_every_layer(std::span<const Row>(table), 2))
    order += tensor_name(row->name, layer) + ' ';
  CHECK(order == "a blk.0.b blk.0.c blk.1.b blk.1.c d e ");
}

TEST_CASE("no two roles share a name or a member", "[roles]") {
  ModelTensors tensors;
  tensors.layers.resize(2);
  std::set<std::string> names;
  std::set<const TensorView*> members;
  for (const auto& [role, layer] : roles_of_model(2)) {
    CAPTURE(role->name);
    CHECK(names.insert(tensor_name(role->name, layer)).second);
    CHECK(members.insert(&role->view.of(tensors, layer)).second);
    CHECK(role->matrix.exists() != role->vector.exists());
  }
}

TEST_CASE("a tensor's name tells its layer", "[roles]") {
  CHECK(layer_of_tensor(tensor_name("attn_q.weight", 31)) == 31);
  for (const char* name :
       {"output.weight", "blk.", "blk.x.q", "blk.7", "blk.-1.q", "blk.99999999999999999999.q"}) {
    CAPTURE(name);
    CHECK_FALSE(layer_of_tensor(name).has_value());
  }
}

TEST_CASE("every role is bound to its own tensor, and packed from it", "[roles]") {
  const std::string architecture = GENERATE(from_range(TinyGguf::architectures()));
  CAPTURE(architecture);
  TinyGguf file = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  std::string divisors;
  const std::size_t divided_dims = architecture == "qwen3" ? 24 : 8;
  for (std::size_t i = 0; i < divided_dims / 2; ++i)
    divisors += encoded(1.0F + static_cast<float>(i));
  const std::string divisors_name = name_in_file(*find_architecture(architecture),
                                                 *find_role("rope_freqs.weight"), kOutsideLayers);
  file.set_u32(architecture + ".rope.scaling.original_context_length", 16);
  file.remove_tensor(divisors_name);
  file.tensors.push_back(
      {.name = divisors_name, .dims = {divided_dims / 2}, .type = 0, .data = divisors});
  const ScratchDirectory folder;
  auto opened = require_ok(open_model_file(folder.write("m.gguf", file.bytes())));
  const auto model = std::make_shared<const ModelFile>(std::move(opened));
  std::vector<std::string> warnings;
  const bool defer = GENERATE(false, true);
  CAPTURE(defer);
  const auto weights = require_ok(load_weights(model, {.threads = 2, .defer = defer}, warnings));
  const bool has_gates = find_architecture(architecture)->output_gate == OutputGate::kSigmoid;
  const bool halves = find_architecture(architecture)->rope_pairs == RopePairs::kHalves;
  std::set<std::string> bound;
  for (const auto& [role, layer] : roles_of_model(model->config.n_layers)) {
    if (need_of(model->config, *role, layer) == Need::kAbsent) continue;
    const TensorView& view = role->view.of(model->tensors, layer);
    CAPTURE(view.name);
    const bool has_heads = layer != kOutsideLayers &&
                           model->config.layers[static_cast<std::size_t>(layer)].attention();
    const std::size_t rope_dims =
        has_heads ? model->config.rope_of(static_cast<std::size_t>(layer)).dims : divided_dims;
    // In layers without attn_v, as every other of gemma4, values are made of keys' products.
    const bool is_of_keys =
        role->name == "attn_v.weight" && architecture == "gemma4" && layer % 2 == 1;
    REQUIRE(view.name == (is_of_keys ? tensor_name("attn_k.weight", layer)
                                     : name_in_file(model->config, *role, layer)));
    bound.insert(view.name);
    const bool is_gate = has_gates && role->name == "attn_q_gate.weight";
    const bool is_alpha = role->name == "ssm_alpha.weight";
    const bool is_qk = role->order == RowOrder::kRopeHeads;
    const std::size_t n = role->is_matrix() ? view.n_rows : view.n_rows * view.n_cols;
    const std::size_t size = role->is_matrix() ? row_bytes(view.type, view.n_cols) : sizeof(float);
    std::vector<std::byte> row(size);
    if (role->is_matrix()) {
      REQUIRE(role->matrix.of(weights, layer).n_rows() == view.n_rows);
      REQUIRE(role->matrix.of(weights, layer).n_cols() == view.n_cols);
    } else {
      REQUIRE(role->vector.of(weights, layer).size() == n);
    }
    for (std::size_t r = 0; r < n; ++r) {
      // Of each head, neighbours in memory are halves in the file.
      const std::size_t dim = r % rope_dims;
      std::size_t in_file =
          halves && is_qk ? r - dim + dim / 2 + (dim % 2 == 1 ? rope_dims / 2 : 0) : r;
      // A head of the gate after each head of q.
      if (is_gate || (role->name == "attn_q.weight" && has_gates))
        in_file += r / rope_dims * rope_dims + (is_gate ? rope_dims : 0);
      // Of two key heads two rows of beta, then two of alpha.
      if (architecture == "qwen3next" && (role->name == "ssm_beta.weight" || is_alpha))
        in_file += r / 2 * 2 + (is_alpha ? 2 : 0);
      CAPTURE(r);
      if (role->is_matrix()) {
        role->matrix.of(weights, layer).extract_row(r, row);
      } else {
        std::ranges::copy(std::as_bytes(role->vector.of(weights, layer).span().subspan(r, 1)),
                          row.begin());
      }
      CHECK(std::ranges::equal(row, view.data.subspan(in_file * size, size)));
    }
  }
  CHECK(bound.size() == file.tensors.size());
}

TEST_CASE("of heads that are rotated in part, the rest stays where the file has it", "[roles]") {
  TinyGguf file = TinyGguf::llama({.architecture = "qwen2"});
  file.set_u32("qwen2.rope.dimension_count", 4);
  const auto bytes = file.bytes();
  const auto model = require_ok(open_model_bytes(bytes));
  std::string order;
  for (std::size_t r = 8; r < 16; ++r)
    order += std::to_string(file_row(model.config, *find_role("attn_q.weight"), 0, r)) + ' ';
  CHECK(order == "8 10 9 11 12 13 14 15 ");
  CHECK(file_row(model.config, *find_role("attn_v.weight"), 0, 9) == 9);
}

TEST_CASE("an architecture's rows say what the table does not", "[roles]") {
  const RoleNeed differences[] = {{"output.weight", Need::kAbsent},
                                  {"rope_freqs.weight", Need::kRequired}};
  const Architecture other{.name = "other", .roles = differences};
  CHECK(need_of(other, *find_role("output.weight")) == Need::kAbsent);
  CHECK(need_of(other, *find_role("rope_freqs.weight")) == Need::kRequired);
  CHECK(need_of(other, *find_role("attn_q.weight")) == Need::kRequired);
  CHECK(need_of(*find_architecture("llama"), *find_role("output.weight")) == Need::kOptional);
  CHECK(other.key("block_count") == "other.block_count");

  const auto bytes = TinyGguf::llama().bytes();
  const auto model = require_ok(open_model_bytes(bytes));
  HyperParameters config = model.config;
  const Architecture needy{.name = "needy", .roles = std::span(differences).last(1)};
  config.architecture = &needy;
  std::vector<std::string> warnings;
  const Error missing = must_fail(bind_tensors(model.gguf, config, false, warnings));
  CHECK(missing.field == "tensor \"rope_freqs.weight\"");
  const Architecture without{.name = "without", .roles = std::span(differences).first(1)};
  config.architecture = &without;
  const Error refused =
      must_fail(bind_tensors(model.gguf, config, false, warnings), ErrorCode::kUnsupported);
  CHECK(refused.field == "tensor \"output.weight\"");
}

TEST_CASE("sizes of experts that contradict each other are refused", "[roles]") {
  struct Case {
    const char* key;
    std::uint32_t value;
    ErrorCode code;
    const char* field;
  };
  const Case cases[] = {
      {"expert_used_count", 6, ErrorCode::kMalformed, "qwen3moe.expert_used_count"},
      {"expert_used_count", 0, ErrorCode::kMalformed, "qwen3moe.expert_used_count"},
      {"expert_count", 0, ErrorCode::kMalformed, "qwen3moe.expert_count"},
      {"expert_count", 4, ErrorCode::kMalformed, "tensor \"blk.0.ffn_gate_inp.weight\""},
      {"expert_feed_forward_length", 264, ErrorCode::kUnsupported,
       "qwen3moe.expert_feed_forward_length"},
      {"expert_shared_count", 1, ErrorCode::kUnsupported, "qwen3moe.expert_shared_count"},
      {"expert_gating_func", 2, ErrorCode::kUnsupported, "qwen3moe.expert_gating_func"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.key, c.value);
    TinyGguf file = TinyGguf::llama({.architecture = "qwen3moe"});
    file.set_u32(std::string("qwen3moe.") + c.key, c.value);
    const auto bytes = file.bytes();
    CHECK(must_fail(open_model_bytes(bytes), c.code).field == c.field);
  }
  // The experts' tensor as one of another number of them.
  TinyGguf file = TinyGguf::llama({.architecture = "qwen3moe"});
  file.tensor("blk.0.ffn_up_exps.weight").dims = {32, 128, 10};
  const auto bytes = file.bytes();
  const Error wrong =
      must_fail(open_model_bytes(bytes), {"need [32, 256, 5] (columns, rows, experts)"});
  CHECK(wrong.field == "tensor \"blk.0.ffn_up_exps.weight\"");
}

TEST_CASE("a shared expert is as wide as its key says, or as so many experts", "[roles]") {
  const auto with = [](const char* architecture, const char* key, std::uint32_t value) {
    TinyGguf file = TinyGguf::llama({.architecture = architecture});
    file.set_u32(fmt::format("{}.{}", architecture, key), value);
    return file.bytes();
  };
  const auto fails = [&](const char* architecture, const char* key, std::uint32_t value,
                         ErrorCode code) {
    const auto bytes = with(architecture, key, value);
    return must_fail(open_model_bytes(bytes), code).field;
  };
  constexpr auto kMalformed = ErrorCode::kMalformed;
  CHECK(fails("dots1", "expert_shared_count", 2, kMalformed) ==
        "tensor \"blk.1.ffn_gate_shexp.weight\"");
  CHECK(fails("dots1", "expert_shared_count", 1U << 24, kMalformed) == "dots1.expert_shared_count");
  CHECK(fails("dots1", "expert_shared_count", 0, ErrorCode::kUnsupported) ==
        "tensor \"blk.1.ffn_gate_shexp.weight\"");
  CHECK(fails("hunyuan-moe", "expert_shared_feed_forward_length", 48, kMalformed) ==
        "tensor \"blk.0.ffn_gate_shexp.weight\"");
  CHECK(fails("qwen2moe", "expert_shared_feed_forward_length", 0, kMalformed) ==
        "qwen2moe.expert_shared_feed_forward_length");
  CHECK(fails("ernie4_5-moe", "interleave_moe_layer_step", 2, ErrorCode::kUnsupported) ==
        "ernie4_5-moe.interleave_moe_layer_step");
  const auto same = with("ernie4_5-moe", "interleave_moe_layer_step", 1);
  CHECK(require_ok(open_model_bytes(same)).config.layers[1].d_shared() == 256);
}

TEST_CASE("docs/models.md says what missing architectures would need, and none of them loads",
          "[roles]") {
  const std::string page = read_file(LLM_SOURCE_DIR "/docs/models.md");
  for (const auto& [name, needs] : missing_architectures()) {
    CAPTURE(name);
    CHECK(page.find(fmt::format("| `{}` | {} |", name, needs)) != std::string::npos);
    CHECK(find_architecture(name) == nullptr);
    CHECK(needs_of(name) == needs);
  }
  CHECK(needs_of("llama").empty());
}

TEST_CASE("docs/gguf.md names every tensor that is read", "[roles]") {
  const std::string page = read_file(LLM_SOURCE_DIR "/docs/gguf.md");
  constexpr std::string_view kSuffix = ".weight";  // which the page says once, except of rope_freqs
  for (const Architecture& architecture : all_architectures())
    CHECK(page.find("`" + std::string(architecture.name) + "`") != std::string::npos);
  for (const TensorRole& role : kTensorRoles) {
    std::string name(role.name);
    if (name.ends_with(kSuffix) && name != "rope_freqs.weight")
      name.resize(name.size() - kSuffix.size());
    CAPTURE(name);
    CHECK(page.find("`" + name + "`") != std::string::npos);
  }
}

}  // namespace llm::test
