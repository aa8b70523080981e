// The table of tensor roles, and what walks it.

#include "engine/model/tensor_roles.h"

#include <set>
#include <string>
#include <vector>

#include "engine/model/model_file.h"
#include "engine/model/tensor_name.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/tiny_gguf.h"

namespace llm {
namespace {

using test::TinyGguf;

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
  TinyGguf file = TinyGguf::llama({.n_layers = 2});
  file.tensors.push_back({.name = "rope_freqs.weight",
                          .dims = {4},
                          .type = 0,
                          .data = test::encoded(1.0F) + test::encoded(2.0F) + test::encoded(3.0F) +
                                  test::encoded(4.0F)});
  const test::ScratchDirectory folder;
  const auto model = open_model_file(folder.write("m.gguf", file.bytes()));
  if (!model.ok()) FAIL(model.error().to_string());
  const auto weights = load_weights(*model, 2, {});
  if (!weights.ok()) FAIL(weights.error().to_string());
  std::set<std::string> bound;
  for (const auto& [role, layer] : roles_of_model(2)) {
    if (need_of(*model->config.architecture, *role) == Need::kAbsent) continue;
    const TensorView& view = role->view.of(model->tensors, layer);
    CAPTURE(view.name);
    REQUIRE(view.name == tensor_name(role->name, layer));
    bound.insert(view.name);
    if (role->is_matrix()) {
      const PackedMatrix& packed = role->matrix.of(*weights, layer);
      REQUIRE(packed.n_rows() == view.n_rows);
      REQUIRE(packed.n_cols() == view.n_cols);
      std::vector<std::byte> row(row_bytes(view.type, view.n_cols));
      packed.extract_row(view.n_rows - 1, row);
      CHECK(std::ranges::equal(row, view.data.last(row.size())));
    } else {
      const auto& values = role->vector.of(*weights, layer);
      CHECK(std::ranges::equal(std::as_bytes(values.span()), view.data));
    }
  }
  CHECK(bound.size() == file.tensors.size());
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
  const auto model = open_model_bytes(bytes);
  REQUIRE(model.ok());
  HyperParameters config = model->config;
  const Architecture needy{.name = "needy", .roles = std::span(differences).last(1)};
  config.architecture = &needy;
  std::vector<std::string> warnings;
  const auto missing = bind_tensors(model->gguf, config, false, warnings);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().field == "tensor \"rope_freqs.weight\"");
  const Architecture without{.name = "without", .roles = std::span(differences).first(1)};
  config.architecture = &without;
  const auto refused = bind_tensors(model->gguf, config, false, warnings);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(refused.error().field == "tensor \"output.weight\"");
}

TEST_CASE("docs/gguf.md names every tensor that is read", "[roles]") {
  const std::string page = test::read_file(LLM_SOURCE_DIR "/docs/gguf.md");
  constexpr std::string_view kSuffix = ".weight";  // which the page says once, except of rope_freqs
  for (const TensorRole& role : kTensorRoles) {
    std::string name(role.name);
    if (name.ends_with(kSuffix) && name != "rope_freqs.weight")
      name.resize(name.size() - kSuffix.size());
    CAPTURE(name);
    CHECK(page.find("`" + name + "`") != std::string::npos);
  }
}

}  // namespace llm
