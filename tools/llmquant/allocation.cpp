#include "tools/llmquant/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/thread_team.h"
#include "quant/formats/dequantize.h"
#include "quant/formats/finite.h"
#include "tools/llmquant/convert.h"

namespace llm {
namespace {

constexpr std::size_t kSampled = 256;
constexpr std::size_t kMostChunks = 128;

constexpr std::string_view kOutput = "output.weight";
constexpr std::string_view kEmbedding = "token_embd.weight";
/// Nothing after the output matrix makes its noise smaller. Of 1, 3 and 4, four gave the least KL
/// divergence (docs/quantization.md).
constexpr double kOutputShare = 4;

/// The sample of a tensor: chunks at equal distances, the weights of each and their importances.
struct Sample {
  std::vector<float> weights;
  std::vector<float> importance;  ///< empty: all the same
};

Sample sample_of(const GgufFile& gguf, const TensorPlan& item) {
  const GgufTensor& tensor = *item.tensor;
  const std::size_t n_chunks = static_cast<std::size_t>(tensor.n_elements) / kSampled;
  const std::size_t n = std::clamp<std::size_t>(n_chunks, 1, kMostChunks);
  const std::size_t size = std::min<std::size_t>(kSampled, tensor.n_elements);
  Sample sample{std::vector<float>(n * size), {}};
  if (!item.importance.empty()) sample.importance.resize(n * size);
  const auto data = gguf.tensor_data(tensor);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t first = i * n_chunks / n * kSampled;
    const auto bytes = data.subspan(row_bytes(tensor.type, first), row_bytes(tensor.type, size));
    contract::dequantize_row(tensor.type, bytes, std::span(sample.weights).subspan(i * size, size));
    if (!item.importance.empty())
      item.copy_importance(first, std::span(sample.importance).subspan(i * size, size));
  }
  return sample;
}

double noise_of(WeightType type, const Sample& sample) {
  std::vector<std::byte> target(row_bytes(type, sample.weights.size()));
  std::vector<float> back(sample.weights.size());
  return quantize_and_compare(type, sample.weights, sample.importance, target, back).noise();
}

/// How much noise a byte saves on the way from one choice to the next.
double slope(const TypeChoice& from, const TypeChoice& to) {
  return (from.noise - to.noise) / static_cast<double>(to.bytes - from.bytes);
}

/// The lower convex hull of the choices as points of bytes and noise.
std::vector<TypeChoice> convex(std::vector<TypeChoice> all) {
  std::ranges::sort(all, [](const TypeChoice& a, const TypeChoice& b) {
    return std::pair(a.bytes, a.noise) < std::pair(b.bytes, b.noise);
  });
  std::vector<TypeChoice> hull;
  for (const TypeChoice& next : all) {
    if (!hull.empty() && !(next.noise < hull.back().noise)) continue;
    while (hull.size() >= 2 &&
           slope(hull.back(), next) >= slope(hull[hull.size() - 2], hull.back()))
      hull.pop_back();
    hull.push_back(next);
  }
  return hull;
}

}  // namespace

Result<std::vector<TensorChoices>> measure_choices(
    const GgufFile& gguf, std::span<const TensorPlan> plan, std::span<const WeightType> types,
    int n_threads, const std::function<bool(std::size_t, std::size_t)>& progress) {
  std::vector<TensorChoices> tensors;
  const std::string_view output = model_shape(gguf).tied_output ? kEmbedding : kOutput;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].is_free) continue;
    const double share = plan[i].name == output ? kOutputShare : 1;
    tensors.push_back({i, share * static_cast<double>(plan[i].tensor->n_elements), {}});
  }
  for (std::size_t done = 0; done < tensors.size(); ++done) {
    if (!progress(done, tensors.size())) break;
    const TensorPlan& item = plan[tensors[done].tensor];
    const Sample sample = sample_of(gguf, item);
    if (first_nonfinite_block(WeightType::kF32, std::as_bytes(std::span(sample.weights))))
      return Error{ErrorCode::kNonFinite, std::string(item.tensor->name),
                   "found NaN or Inf, need finite weights"};
    std::vector<TypeChoice> choices;
    for (const WeightType type : types) {
      if (item.tensor->dims[0] % block_traits(type).block_weights != 0) continue;
      if (item.importance.empty() && requires_importance(type, item.tensor->name)) continue;
      TensorPlan as = item;
      as.set_target(type);
      choices.push_back({type, as.bytes, 0});
    }
    // Rows of no type's blocks keep what the plan says.
    if (choices.empty()) choices.push_back({item.target, item.bytes, 0});
    run_parallel(n_threads, [&](Worker worker) {
      worker.take_tasks(choices.size(), [&](std::size_t c) {
        choices[c].noise = noise_of(choices[c].type, sample);
      });
    });
    tensors[done].choices = convex(std::move(choices));
  }
  return tensors;
}

void choose_types(std::span<TensorChoices> tensors,
                  const std::function<bool(std::uint64_t, double)>& goes_on) {
  std::uint64_t bytes = 0;
  double noise = 0;
  for (TensorChoices& tensor : tensors) {
    tensor.chosen = 0;
    bytes += tensor.choices[0].bytes;
    noise += tensor.weight * tensor.choices[0].noise;
  }
  std::vector<TensorChoices*> open;
  for (TensorChoices& tensor : tensors) open.push_back(&tensor);
  const auto gain = [](const TensorChoices* tensor) {
    return tensor->weight *
           slope(tensor->choices[tensor->chosen], tensor->choices[tensor->chosen + 1]);
  };
  while (true) {
    std::erase_if(open, [](auto* tensor) { return tensor->chosen + 1 == tensor->choices.size(); });
    const auto best = std::ranges::max_element(open, {}, gain);
    if (best == open.end()) return;
    TensorChoices& tensor = **best;
    const TypeChoice& from = tensor.choices[tensor.chosen];
    const TypeChoice& to = tensor.choices[tensor.chosen + 1];
    const std::uint64_t next_bytes = bytes - from.bytes + to.bytes;
    const double next_noise = noise - tensor.weight * (from.noise - to.noise);
    if (!goes_on(next_bytes, next_noise)) {
      // A smaller tensor may still fit.
      open.erase(best);
      continue;
    }
    bytes = next_bytes;
    noise = next_noise;
    ++tensor.chosen;
  }
}

Result<std::uint64_t> parse_size(const std::string& text, std::uint64_t n_weights) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  const Unit units[] = {{"bpw", static_cast<double>(n_weights) / 8},
                        {"KiB", 0x1p10},
                        {"MiB", 0x1p20},
                        {"GiB", 0x1p30},
                        {"kB", 1e3},
                        {"MB", 1e6},
                        {"GB", 1e9},
                        {"B", 1}};
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  const auto found = std::ranges::find(units, unit, &Unit::name);
  if (error != std::errc() || found == std::end(units) || !(number > 0) || number > 1e18)
    return Error{ErrorCode::kUsage, "--target-size",
                 fmt::format("found \"{}\", need a size such as 4.5GiB, 900MB or 4.5bpw (bits for "
                             "each weight)",
                             text)};
  return static_cast<std::uint64_t>(number * found->bytes);
}

std::string choice_table(std::span<const TensorPlan> plan, std::span<const TensorChoices> tensors) {
  std::string text = fmt::format("{:<32}  {:<8} {:>9}  {:>10}\n", "tensor", "type", "MiB", "noise");
  for (const TensorChoices& tensor : tensors) {
    for (std::size_t c = 0; c < tensor.choices.size(); ++c) {
      const TypeChoice& choice = tensor.choices[c];
      text += fmt::format("{:<32}  {:<7}{} {:>9.3f}  {:>10.3e}\n", plan[tensor.tensor].name,
                          block_traits(choice.type).name, c == tensor.chosen ? '*' : ' ',
                          static_cast<double>(choice.bytes) / (1 << 20), choice.noise);
    }
  }
  return text;
}

}  // namespace llm
