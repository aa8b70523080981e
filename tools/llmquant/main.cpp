// llmquant: converts the weights of a GGUF to other types.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/thread_team.h"
#include "engine/gguf/gguf_split.h"
#include "engine/model/hyper_parameters.h"
#include "tools/common/options.h"
#include "tools/common/progress.h"
#include "tools/common/signals.h"
#include "tools/common/tool.h"
#include "tools/llmquant/allocation.h"
#include "tools/llmquant/convert.h"
#include "tools/llmquant/plan.h"

namespace llm {
namespace {

struct Arguments {
  std::string in;
  std::string out;
  std::string type;
  std::string threads;
  std::string imatrix;
  std::string target_size;
  std::string target_noise;
  PlanOptions plan;
  bool force = false;
  bool dry_run = false;
  bool in_place = false;
};

/// Types are chosen for each matrix by their measured noise.
constexpr Recipe kAuto{"AUTO", WeightType::kQ8_0, 0};
/// The types that are chosen from.
constexpr WeightType kAutoTypes[] = {
    WeightType::kIQ2_XXS, WeightType::kIQ2_S, WeightType::kQ2_K,   WeightType::kIQ3_XXS,
    WeightType::kIQ3_S,   WeightType::kQ3_K,  WeightType::kIQ4_XS, WeightType::kIQ4_NL,
    WeightType::kQ4_K,    WeightType::kQ4_1,  WeightType::kQ5_K,   WeightType::kQ5_0,
    WeightType::kQ5_1,    WeightType::kQ6_K,  WeightType::kQ8_0,   WeightType::kF16};

std::vector<std::string> recipe_words() {
  std::vector<std::string> words;
  for (const Recipe& recipe : all_recipes()) words.emplace_back(recipe.name);
  words.emplace_back(kAuto.name);
  return words;
}

std::string recipe_names() {
  const std::vector<std::string> words = recipe_words();
  return fmt::format("{}", fmt::join(words.begin(), words.end() - 1, ", "));
}

OptionTable make_table(Arguments& arguments) {
  OptionTable table("llmquant", "Quantize the weights of a GGUF model");
  table.positional("IN", &arguments.in, true, "input model, preferably in F32, F16 or BF16").file();
  table.positional("OUT", &arguments.out, true, "output file, written atomically").file();
  table
      .positional("TYPE", &arguments.type, true,
                  "one of " + recipe_names() + "; or AUTO with --target-size or --target-noise")
      .one_of(recipe_words());
  table.positional("THREADS", &arguments.threads, false,
                   "number of threads; default: all CPUs that this process may use");
  table.file("imatrix", "FILE", &arguments.imatrix,
             "importance matrix of llmcheck --imatrix or llama-imatrix: the larger the activations "
             "that a weight is multiplied with, the more its error counts");
  table.flag(
      "allow-unweighted", &arguments.plan.allow_unweighted,
      "if a matrix needs importances and --imatrix has none for it, let all its columns count "
      "the same instead of ending with an error");
  table.text(
      "target-size", "SIZE", &arguments.target_size,
      "with TYPE AUTO: choose a type for each matrix, so that the file has at most SIZE and the "
      "measured noise is as low as possible; SIZE is like 4.5GiB, 900MB or 4.5bpw (bits for "
      "each weight of the model)");
  table.text(
      "target-noise", "NOISE", &arguments.target_noise,
      "with TYPE AUTO: choose a type for each matrix, so that the mean noise is at most NOISE "
      "(such as 0.01) and the file is as small as possible. The noise of a matrix is the mean "
      "squared error of its products with activations, divided by the mean square of the exact "
      "products");
  table.flag("pure", &arguments.plan.pure, "use the same type for all matrices");
  table.flag("leave-output-tensor", &arguments.plan.leave_output, "keep the type of output.weight");
  table.text("output-tensor-type", "TYPE", &arguments.plan.output_type,
             "type for output.weight, or for token_embd.weight in a model without it");
  table.text("token-embedding-type", "TYPE", &arguments.plan.embedding_type,
             "type for token_embd.weight");
  table.texts("tensor-type", "REGEX=TYPE", &arguments.plan.tensor_types,
              "type for the matrices whose names contain a match of REGEX; may be repeated (the "
              "first match counts)");
  table.flag("allow-requantize", &arguments.plan.allow_requantize,
             "also accept quantized matrices as input; the result then has the errors of both "
             "quantizations");
  table.text("prune-layers", "N,N,...", &arguments.plan.pruned_layers,
             "leave these layers out; the others are numbered anew");
  table.flag("force", &arguments.force, "replace OUT if it exists");
  table.flag(
      "in-place", &arguments.in_place,
      "allow OUT to be the same file as IN; the file is replaced when the result is complete");
  table.flag("dry-run", &arguments.dry_run, "print types and sizes, and write nothing");
  table.example("llmquant model-f16.gguf model-q4_k_m.gguf Q4_K_M",
                "quantize with the mix of types that Q4_K_M stands for");
  table.example("llmquant model-f16.gguf /dev/null Q6_K --dry-run",
                "print types and sizes without writing a file");
  table.example("llmquant m.gguf out.gguf Q4_K_M --tensor-type '^output\\.=Q8_0'",
                "use Q8_0 for output.weight");
  table.example(
      "llmquant m.gguf out.gguf AUTO --imatrix m.imatrix.gguf --target-size 4.5GiB --dry-run",
      "print the noise of each matrix in each type, and the types chosen for a file of that size");
  table.example(
      "llmquant m.gguf out.gguf IQ2_M --imatrix m.imatrix.gguf",
      "quantize with an importance matrix, which makes errors smaller for text of the same kind");
  return table;
}

Result<int> thread_count(const std::string& text) {
  constexpr std::int64_t kMost = 1024;
  if (text.empty()) return available_cpus();
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > kMost) {
    return usage_error("THREADS", fmt::format("found \"{}\", need 1..{}", text, kMost));
  }
  return static_cast<int>(*number);
}

Result<double> parse_noise(const std::string& text) {
  double noise = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), noise);
  if (error == std::errc() && rest == text.data() + text.size() && noise > 0 && noise < 1)
    return noise;
  return usage_error("--target-noise", fmt::format("found \"{}\", need a number in (0, 1)", text));
}

void warn_of_fallbacks(const std::vector<TensorPlan>& plan) {
  for (const TensorPlan& item : plan) {
    if (item.target == item.wanted) continue;
    spdlog::warn("{}: rows of {} are not whole blocks of {}; using {}", item.name,
                 item.tensor->dims[0], block_traits(item.wanted).name,
                 block_traits(item.target).name);
  }
}

/// Converts every tensor into `file`. Returns the errors, or fewer than tensors when interrupted.
Result<std::vector<ConversionError>> convert_all(const MappedFile& source, const GgufFile& gguf,
                                                 const std::vector<TensorPlan>& plan,
                                                 const GgufWriter& writer, int n_threads,
                                                 ProgressBar& bar, AtomicFile& file) {
  std::uint64_t total = 0;
  for (const TensorPlan& item : plan) total += item.tensor->n_bytes;
  std::uint64_t done = 0;
  const ByteSink to_file = [&](std::span<const std::byte> bytes) { return file.write(bytes); };
  GgufStream stream(writer, to_file);
  const ConvertHooks hooks{
      .sink = [&](std::span<const std::byte> bytes) { return stream.write(bytes); },
      .done =
          [&](std::span<const std::byte> bytes) {
            source.drop_pages(bytes);
            done += bytes.size();
            bar("quantize", static_cast<std::size_t>(done >> 20),
                static_cast<std::size_t>(total >> 20));
          },
      .interrupted = [] { return GracefulInterrupt::requested(); }};
  LLM_RETURN_IF_ERROR(stream.begin());
  std::vector<ConversionError> errors;
  for (const TensorPlan& item : plan) {
    const auto data = gguf.tensor_data(*item.tensor);
    auto error = convert_tensor(item, data, n_threads, hooks);
    if (!error.ok()) return std::move(error).error();
    if (GracefulInterrupt::requested()) return errors;
    errors.push_back(*error);
  }
  LLM_RETURN_IF_ERROR(stream.finish());
  return errors;
}

/// A file whose hyper-parameters contradict each other or its tensors is refused, as llmrun refuses
/// it. One that is merely not run here (another architecture, a window) has weights all the same.
Status check_model(const GgufFile& gguf) {
  const auto config = read_hyper_parameters(gguf);
  if (config.ok()) return Ok{};
  if (config.error().code != ErrorCode::kUnsupported) return config.error();
  spdlog::warn("{}; the result does not run here either", config.error().to_string());
  return Ok{};
}

/// OUT may be IN only when the user says so, and never one of several parts.
Status check_out(const Arguments& arguments, const MappedFile& source) {
  std::vector<std::string> read;
  for (const MappedFile::Part& part : source.parts()) read.push_back(part.path);
  if (!arguments.imatrix.empty()) read.push_back(arguments.imatrix);
  if (arguments.in_place && source.parts().size() == 1) return Ok{};
  Status checked = check_output("OUT", arguments.out, read);
  if (checked.ok()) return arguments.force ? checked : check_is_new("OUT", arguments.out);
  if (checked.error().code != ErrorCode::kUsage || source.parts().size() > 1) return checked;
  Error error = std::move(checked).error();
  error.hint = "--in-place replaces it when the result is complete";
  return error;
}

/// The types of a plan's free tensors, by --target-size or --target-noise. Returns the table of the
/// choices; an empty one when interrupted.
Result<std::string> choose(const Arguments& arguments, const GgufFile& gguf,
                           const PlanOptions& options, int n_threads, ProgressBar& bar,
                           std::vector<TensorPlan>& plan) {
  LLM_TRY(auto tensors, measure_choices(gguf, plan, kAutoTypes, n_threads,
                                        [&](std::size_t done, std::size_t total) {
                                          bar("measure", done, total);
                                          return !GracefulInterrupt::requested();
                                        }));
  bar.clear();
  if (GracefulInterrupt::requested()) return std::string();
  // What is not chosen: the header, padding, and the other tensors.
  std::uint64_t n_weights = 0;
  std::uint64_t fixed = 0;
  for (const TensorPlan& item : plan) {
    n_weights += item.tensor->n_elements;
    fixed += gguf.alignment() + (item.is_free ? 0 : item.bytes);
  }
  LLM_TRY(const auto header, make_writer(gguf, plan, options, 0).header());
  fixed += header.size();
  std::uint64_t least = fixed;
  double noise = 0;
  double weight = 0;
  for (const TensorChoices& tensor : tensors) {
    least += tensor.choices[0].bytes;
    noise += tensor.weight * tensor.choices[0].noise;
    weight += tensor.weight;
  }
  if (!arguments.target_size.empty()) {
    LLM_TRY(const std::uint64_t size, parse_size(arguments.target_size, n_weights));
    if (size < least)
      return usage_error("--target-size", fmt::format("found {} bytes, need at least {}: every "
                                                      "matrix in its smallest type",
                                                      size, least));
    choose_types(tensors, [&](std::uint64_t bytes, double) { return fixed + bytes <= size; });
  } else {
    LLM_TRY(const double target, parse_noise(arguments.target_noise));
    const double most = target * weight;
    bool is_reached = noise <= most;
    choose_types(tensors, [&](std::uint64_t, double next) {
      return !std::exchange(is_reached, is_reached || next <= most);
    });
  }
  for (const TensorChoices& tensor : tensors) {
    TensorPlan& item = plan[tensor.tensor];
    item.set_target(tensor.choices[tensor.chosen].type);
    item.wanted = item.target;
  }
  return choice_table(plan, tensors);
}

/// general.file_type of a plan: that of the first recipe with the type of most weights.
std::uint32_t file_type_of(const std::vector<TensorPlan>& plan) {
  std::map<WeightType, std::uint64_t> weights;
  for (const TensorPlan& item : plan)
    if (item.is_free) weights[item.target] += item.tensor->n_elements;
  const auto most =
      std::ranges::max_element(weights, {}, [](const auto& type) { return type.second; });
  if (most == weights.end()) return 0;
  const auto recipe = std::ranges::find(all_recipes(), most->first, &Recipe::base);
  return recipe == all_recipes().end() ? 0 : recipe->file_type;
}

Status check_arguments(const Arguments& arguments, const Recipe& recipe) {
  const bool is_auto = &recipe == &kAuto;
  const int targets =
      (arguments.target_size.empty() ? 0 : 1) + (arguments.target_noise.empty() ? 0 : 1);
  if (is_auto != (targets == 1))
    return usage_error("TYPE", fmt::format("found {} with {} of --target-size and --target-noise, "
                                           "need AUTO with one of them, or another TYPE",
                                           recipe.name, targets));
  return Ok{};
}

const Recipe* recipe_called(const std::string& name) {
  return name == "AUTO" || name == "auto" ? &kAuto : find_recipe(name);
}

Result<int> run(const Arguments& arguments, const ToolContext& context) {
  const Recipe* recipe = recipe_called(arguments.type);
  if (recipe == nullptr) {
    return usage_error("TYPE",
                       fmt::format("found \"{}\", need one of {}", arguments.type, recipe_names()),
                       nearest_hint(arguments.type, recipe_words()));
  }
  LLM_RETURN_IF_ERROR(check_arguments(arguments, *recipe));
  LLM_TRY(const int n_threads, thread_count(arguments.threads));
  LLM_TRY(const OpenGguf open, open_gguf_file(arguments.in));
  const MappedFile& source = open.file;
  const GgufFile* gguf = &open.gguf;
  PlanOptions options = arguments.plan;
  options.recipe = recipe;
  options.any_type = recipe == &kAuto;
  std::optional<ImportanceMatrix> importance;
  if (!arguments.imatrix.empty()) {
    LLM_TRY(importance, ImportanceMatrix::open(arguments.imatrix));
    options.importance = &*importance;
    options.importance_file = arguments.imatrix;
  }
  auto plan = make_plan(*gguf, options);
  if (!plan.ok()) {
    const bool about_file = plan.error().code != ErrorCode::kUsage;
    return about_file ? in_file(plan.error(), arguments.in) : plan.error();
  }
  if (Status checked = check_model(*gguf); !checked.ok())
    return in_file(std::move(checked).error(), arguments.in);
  const GracefulInterrupt interrupt;  // before the check of OUT, which makes a file, too
  ProgressBar bar(!context.quiet(), "MiB");
  std::string choices;
  if (options.any_type) {
    auto table = choose(arguments, *gguf, options, n_threads, bar, *plan);
    if (!table.ok()) {
      const bool about_file = table.error().code != ErrorCode::kUsage;
      return about_file ? in_file(table.error(), arguments.in) : table.error();
    }
    if (GracefulInterrupt::requested()) return GracefulInterrupt::exit_code();
    choices = *std::move(table) + "\n";
  }
  warn_of_fallbacks(*plan);
  LLM_RETURN_IF_ERROR(write_stdout(choices));
  if (arguments.dry_run) {
    LLM_RETURN_IF_ERROR(write_stdout(report_table(*plan, {})));
    return 0;
  }

  LLM_RETURN_IF_ERROR(check_out(arguments, source));
  const GgufWriter writer = make_writer(*gguf, *plan, options,
                                        options.any_type ? file_type_of(*plan) : recipe->file_type);
  LLM_TRY(AtomicFile file, AtomicFile::create(arguments.out));
  const auto errors = convert_all(source, *gguf, *plan, writer, n_threads, bar, file);
  if (!errors.ok()) return in_file(errors.error(), arguments.in);
  bar.clear();
  if (GracefulInterrupt::requested()) {
    spdlog::warn("interrupted: {} was not written", arguments.out);
    return GracefulInterrupt::exit_code();
  }
  if (source.changed_since_open()) {
    return in_file(
        Error{ErrorCode::kIntegrity, "", "changed while it was read, need an unchanged file"},
        arguments.in);
  }
  LLM_RETURN_IF_ERROR(file.commit());
  LLM_RETURN_IF_ERROR(write_stdout(report_table(*plan, *errors)));
  return 0;
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) { return llm::run_tool(argc, argv, llm::make_table, llm::run); }
