#include "tools/llmbench/measurement.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "engine/model/model_file.h"
#include "engine/model/tensor_roles.h"
#include "tools/common/stats.h"
#include "tools/llmquant/recipe.h"

namespace llm {
namespace {

/// The mix that the file names, if its id is one of ours; else the type most of its bytes have.
std::string type_name(const GgufFile& gguf) {
  const auto file_type = gguf.get_unsigned("general.file_type");
  if (file_type.ok()) {
    for (const Recipe& recipe : all_recipes()) {
      if (recipe.file_type == *file_type) return std::string(recipe.name);
    }
  }
  std::map<WeightType, std::uint64_t> bytes;
  for (const GgufTensor& tensor : gguf.tensors()) bytes[tensor.type] += tensor.n_bytes;
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? "none" : std::string(block_traits(most->first).name);
}

std::uint64_t macs(const TensorView& matrix) {
  return std::uint64_t{matrix.n_rows} * matrix.n_cols;
}

std::uint64_t batches(std::uint64_t n_tokens, std::uint64_t batch) {
  return (n_tokens + batch - 1) / batch;
}

/// Tokens evaluated in one repetition. Without a cache token i evaluates depth + i + 1 positions.
std::uint64_t tokens_evaluated(const BenchTest& test) {
  const std::uint64_t n = test.n_tokens;
  if (test.cache) return n;
  return n * test.depth + n * (n + 1) / 2;
}

double median_seconds(const Measurement& measurement) {
  return spread_of(measurement.seconds).median;
}

template <typename T>
std::vector<T> sorted(std::vector<T> values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

Result<BenchModel> describe_model(const std::string& path) {
  LLM_TRY(const ModelFile file, open_model_file(path));
  BenchModel model;
  model.name = file.name;
  model.type = type_name(file.gguf);
  model.file_bytes = file.gguf.file_bytes();
  for (const GgufTensor& tensor : file.gguf.tensors()) model.n_weights += tensor.n_elements;
  for (const auto& [role, layer] : roles_of_model(file.config.n_layers)) {
    if (role->is_matrix() && role->per_layer)
      model.layer_macs +=
          role->share_used(file.config, layer, macs(role->view.of(file.tensors, layer)));
  }
  model.output_macs = macs(file.tensors.output());
  return model;
}

Spread spread_of(std::span<const double> values) {
  return {percentile(values, 0.5), percentile(values, 0), percentile(values, 1)};
}

std::vector<double> figures(const Measurement& measurement) {
  std::vector<double> values;
  for (const double seconds : measurement.seconds) {
    values.push_back(measurement.test.is_latency()
                         ? seconds * 1e3
                         : static_cast<double>(measurement.test.n_tokens) / seconds);
  }
  return values;
}

std::uint64_t weight_passes(const BenchTest& test) {
  if (test.is_latency()) return 0;
  if (test.kind == BenchKind::kPrompt) return batches(test.n_tokens, test.batch);
  if (test.cache) {
    return test.n_tokens / test.step * batches(test.step, test.batch) +
           batches(test.n_tokens % test.step, test.batch);
  }
  std::uint64_t passes = 0;
  for (std::uint64_t i = 1; i <= test.n_tokens; ++i) passes += batches(test.depth + i, test.batch);
  return passes;
}

std::optional<double> gb_per_s(const BenchModel& model, const Measurement& measurement) {
  if (measurement.test.kind == BenchKind::kFirstToken) return std::nullopt;
  const double bytes = measurement.test.kind == BenchKind::kLoad
                           ? static_cast<double>(model.file_bytes)
                           : static_cast<double>(weight_passes(measurement.test)) *
                                 static_cast<double>(model.weight_bytes);
  return bytes / median_seconds(measurement) * 1e-9;
}

std::optional<double> gmac_per_s(const BenchModel& model, const Measurement& measurement) {
  const BenchTest& test = measurement.test;
  if (test.is_latency()) return std::nullopt;
  // Logits: of every generated token, of a prompt's last one.
  const std::uint64_t rows = test.kind == BenchKind::kGenerate ? test.n_tokens : 1;
  const double count =
      static_cast<double>(tokens_evaluated(test)) * static_cast<double>(model.layer_macs) +
      static_cast<double>(rows) * static_cast<double>(model.output_macs);
  return count / median_seconds(measurement) * 1e-9;
}

std::string BenchTest::name() const {
  if (is_latency())
    return fmt::format("{}{}", kind == BenchKind::kLoad ? "load" : "ttft", packed ? "@packed" : "");
  std::string text = fmt::format("{}{}", kind == BenchKind::kPrompt ? "pp" : "tg", n_tokens);
  if (depth > 0) text += fmt::format("@d{}", depth);
  if (step > 1) text += fmt::format("@x{}", step);
  if (!cache) text += "@nocache";
  return text;
}

std::vector<BenchTest> make_plan(const BenchLists& lists) {
  std::vector<BenchTest> plan;
  const auto add = [&plan](const BenchTest& test) {
    if (std::ranges::find(plan, test) == plan.end()) plan.push_back(test);
  };
  for (const int threads : lists.threads) {
    for (const bool packed : {false, true}) {
      if (!lists.load || (packed && !lists.packed)) continue;
      add({.kind = BenchKind::kLoad, .threads = threads, .packed = packed});
      add({.kind = BenchKind::kFirstToken, .n_tokens = 8, .threads = threads, .packed = packed});
    }
    for (const std::size_t batch : lists.batch) {
      for (const std::size_t depth : sorted(lists.depth)) {
        BenchTest test{.depth = depth, .batch = batch, .threads = threads};
        const auto add_lengths = [&](BenchKind kind, const std::vector<std::size_t>& lengths) {
          test.kind = kind;
          for (const std::size_t n : lengths) {
            test.n_tokens = n;
            if (n > 0) add(test);
          }
        };
        add_lengths(BenchKind::kPrompt, lists.prompt);
        add_lengths(BenchKind::kGenerate, lists.generate);
        for (const std::size_t step : lists.steps) {
          test.step = step;
          add_lengths(BenchKind::kGenerate, lists.generate);
        }
        test.step = 1;
        test.cache = false;
        if (lists.no_cache) add_lengths(BenchKind::kGenerate, lists.generate);
      }
    }
  }
  return plan;
}

std::size_t context_needed(const std::vector<BenchTest>& plan) {
  std::size_t most = 0;
  for (const BenchTest& test : plan) most = std::max(most, test.depth + test.n_tokens);
  return most;
}

}  // namespace llm
