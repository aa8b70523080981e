#include "validate/outputs/importance/importance.h"

#include <algorithm>

#include "base/check.h"
#include "engine/forward/activation_points.h"
#include "engine/forward/route.h"
#include "engine/model/tensor_roles.h"
#include "validate/outputs/quality/text_windows.h"

namespace llm {
namespace {

const FfnSpec& ffn_of(const Model& model, int layer) {
  return model.config().layers[static_cast<std::size_t>(layer)].ffns.front();
}

/// The tensor that holds the matrix: a tied output is the embedding.
std::string tensor_of(const Model& model, const TensorRole& role, int layer) {
  const bool is_tied = role.name == "output.weight" && model.weights().own_output.n_rows() == 0;
  return name_in_file(model.config(), is_tied ? *find_role("token_embd.weight") : role, layer);
}

}  // namespace

ImportanceCollector::ImportanceCollector(const Model& model) : model_(model) {
  const TapFlow flow(model.config());
  std::vector<std::string> known;
  for (const auto& [tap, layer] : taps_of_model(flow)) {
    if (tap->op != TapOp::kProduct) continue;
    const TensorRole& role = *find_role(tap->weight);
    const bool is_output = role.name == "output.weight";
    const PackedMatrix& w =
        is_output ? model.weights().output() : role.matrix.of(model.weights(), layer);
    const auto input = input_of(*tap, layer, flow);
    std::string tensor = tensor_of(model, role, layer);
    if (w.n_rows() == 0 || !input || std::ranges::find(known, tensor) != known.end()) continue;
    Product product{.tensor = tensor,
                    .n_cols = w.n_cols(),
                    .input = {input->layer, input->row->name},
                    .router = {},
                    .sums = {},
                    .counts = {}};
    std::size_t n_matrices = 1;
    if (const auto router = input_of(*tap, layer, flow, 1)) {
      product.router = {router->layer, router->row->name};
      ++inputs_[product.router].n_readers;
      n_matrices = ffn_of(model, layer).n_experts;
    }
    ++inputs_[product.input].n_readers;
    product.sums.resize(n_matrices * product.n_cols);
    product.counts.resize(n_matrices);
    products_.emplace(Place{layer, tap->name}, std::move(product));
    known.push_back(std::move(tensor));
  }
}

void ImportanceCollector::begin_step(std::span<const int> /*tokens*/,
                                     std::size_t /*first_position*/) {}

void ImportanceCollector::tap(int layer, std::string_view name, std::span<float> values,
                              std::size_t /*features*/, std::size_t /*first_token*/) {
  const Place place{layer, name};
  if (const auto product = products_.find(place); product != products_.end())
    add(product->second, layer);
  if (const auto input = inputs_.find(place); input != inputs_.end())
    input->second.rows.assign(values.begin(), values.end());
}

void ImportanceCollector::add(Product& product, int layer) {
  const std::size_t n_cols = product.n_cols;
  const auto add_row = [&](std::size_t matrix, std::span<const float> row) {
    double* sums = product.sums.data() + matrix * n_cols;
    for (std::size_t j = 0; j < n_cols; ++j) {
      const double x = static_cast<double>(row[j]);
      sums[j] += x * x;
    }
    product.counts[matrix] += 1;
  };
  const std::span<const float> x = inputs_.at(product.input).rows;
  if (product.router.second.empty()) {
    for (std::size_t at = 0; at < x.size(); at += n_cols) add_row(0, x.subspan(at, n_cols));
  } else {
    const FfnSpec& spec = ffn_of(model_, layer);
    const std::span<const float> logits = inputs_.at(product.router).rows;
    const std::span<const float> bias =
        find_role("exp_probs_b.bias")->vector.of(model_.weights(), layer).span();
    const std::size_t n = logits.size() / spec.n_experts;
    // A row of its own for each chosen expert, or one for all of them.
    const bool is_cut = x.size() == n * spec.n_used * n_cols;
    std::vector<std::uint32_t> chosen(spec.n_used);
    std::vector<float> weights(spec.n_used);
    for (std::size_t t = 0; t < n; ++t) {
      route(spec, logits.subspan(t * spec.n_experts, spec.n_experts), bias, chosen, weights);
      for (std::size_t j = 0; j < chosen.size(); ++j)
        add_row(chosen[j], x.subspan((is_cut ? t * spec.n_used + j : t) * n_cols, n_cols));
    }
    finish_reading(product.router);
  }
  finish_reading(product.input);
}

void ImportanceCollector::finish_reading(const Place& place) {
  Input& input = inputs_.at(place);
  if (++input.n_read < input.n_readers) return;
  input.n_read = 0;
  std::vector<float>().swap(input.rows);
}

std::vector<Importance> ImportanceCollector::finish() const {
  std::vector<Importance> entries;
  for (const auto& [place, product] : products_)
    entries.push_back({product.tensor,
                       {product.sums.begin(), product.sums.end()},
                       {product.counts.begin(), product.counts.end()}});
  std::ranges::sort(entries, {}, &Importance::tensor);
  return entries;
}

Result<ImportanceMatrix> importance_of_text(const std::shared_ptr<const Model>& model,
                                            std::string_view text, const std::string& text_name,
                                            std::size_t window, const ExecutorOptions& options,
                                            const Progress& progress) {
  LLM_TRY(std::vector<TextWindow> windows,
          text_windows(model->tokenizer(), text, {.window = window}));
  if (windows.size() > 1 && windows.back().inputs.size() < window) windows.pop_back();
  ImportanceCollector collector(*model);
  LLM_TRY(const auto session, open_sequence(model, options));
  session->set_probe(&collector);
  LLM_RETURN_IF_ERROR(visit_rows(
      *session, windows, [](std::span<const float>, TokenId) {}, progress));
  session->set_probe(nullptr);
  return ImportanceMatrix{.entries = collector.finish(),
                          .n_chunks = windows.size(),
                          .chunk_tokens = window,
                          .texts = {text_name}};
}

}  // namespace llm
