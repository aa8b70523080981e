#include "engine/forward/forward.h"

#include <utility>
#include <variant>

#include "quant/formats/dequantize.h"

namespace llm {

Forward::Forward(const Model& model, Pass pass, NextTokenInput next_token, Attention attention,
                 DeltaNet delta_net, ShortConv short_conv, FeedForwards feed_forwards,
                 LayerInputs layer_inputs)
    : n_layers_(model.config().n_layers),
      pass_(std::move(pass)),
      next_token_(std::move(next_token)),
      attention_(std::move(attention)),
      delta_net_(std::move(delta_net)),
      short_conv_(std::move(short_conv)),
      feed_forwards_(std::move(feed_forwards)),
      layer_inputs_(std::move(layer_inputs)) {}

Result<Forward> Forward::create(const Model& model, std::size_t max_batch, std::size_t context,
                                KvType kv) {
  const PassSizes sizes{max_batch, context, kv};
  LLM_TRY(Pass pass, Pass::create(model, sizes));
  LLM_TRY(NextTokenInput next_token, NextTokenInput::create(model, sizes));
  LLM_TRY(Attention attention, Attention::create(model, sizes));
  LLM_TRY(DeltaNet delta_net, DeltaNet::create(model, sizes));
  LLM_TRY(ShortConv short_conv, ShortConv::create(model, sizes));
  LLM_TRY(FeedForwards feed_forwards, FeedForwards::create(model, sizes));
  LLM_TRY(LayerInputs layer_inputs, LayerInputs::create(model, sizes));
  Forward f(model, std::move(pass), std::move(next_token), std::move(attention),
            std::move(delta_net), std::move(short_conv), std::move(feed_forwards),
            std::move(layer_inputs));
  const std::size_t row = row_bytes(model.weights().token_embd.type(), model.config().d_model);
  for (int i = 0; i < model.threads(); ++i) {
    LLM_TRY(auto bytes, AlignedBuffer<std::byte>::allocate(row, "workspace"));
    f.embedding_rows_.push_back(std::move(bytes));
  }
  return f;
}

void Forward::run(std::span<const PassSegment> segments, std::span<float> rows, ProbeSink* probe) {
  pass_.plan(segments, rows, probe);
  attention_.plan(segments);
  delta_net_.plan(segments);
  short_conv_.plan(segments);
  pass_.run([&](PassWorker& at) {
    embed(at);
    next_token_.run(at);
    layer_inputs_.prepare(at);
    for (std::size_t layer = 0; layer < n_layers_; ++layer) {
      std::visit([&](const auto& mixer) { run_mixer(at, layer, mixer); },
                 at.config().layers[layer].mixer);
      feed_forwards_.run(at, layer);
      layer_inputs_.run(at, layer);
    }
    output_.run(at);
  });
}

void Forward::embed(PassWorker& at) {
  const PackedMatrix& table = at.weights().token_embd;
  const std::span<std::byte> bytes = embedding_rows_[at.id()].span();
  at.run_tasks(at.rows().size(), [&](std::size_t t) {
    attention_.set_angles(t, at.rows()[t].position);
    table.extract_row(static_cast<std::size_t>(at.rows()[t].token), bytes);
    contract::dequantize_row(table.type(), bytes, at.residual(t));
    if (const float scale = at.config().embedding_scale; scale != 1.0F)
      for (float& x : at.residual(t)) x *= scale;
    at.lap(PassOp::kEmbed);
  });
  at.tap_outside("embd", at.residual(0).data(), table.n_cols(), 0);
}

}  // namespace llm
