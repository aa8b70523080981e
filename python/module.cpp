// llmrun._llmrun: what the package's Python stands on.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/cpu_features.h"
#include "python/local_model.h"
#include "tools/hub/hub_model.h"
#include "tools/llmserve/api/prompts.h"
#include "validate/reference/dump/dump.h"
#include "validate/reference/gates/layer_check.h"
#include "validate/selftest/self_check.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace llm {
namespace {

/// An Error on its way to Python, where llmrun.Error has its members.
struct Failure {
  Error error;
};

template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) throw Failure{std::move(result).error()};
  return std::move(result).value();
}

void raise_failure(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Failure& failure) {
    const Error& e = failure.error;
    const nb::object made = nb::module_::import_("llmrun._errors")
                                .attr("error_of")(static_cast<int>(e.code), e.field, e.message,
                                                  e.offset, e.file, e.hint, e.to_string());
    PyErr_SetObject(made.type().ptr(), made.ptr());
  }
}

/// The option of one of a few words. @param names  pairs of a word and what it means
template <typename T>
T word_of(const char* field, const std::string& word,
          const std::vector<std::pair<std::string_view, T>>& names) {
  std::string all;
  for (const auto& [name, value] : names) {
    if (name == word) return value;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  throw Failure{Error{ErrorCode::kUsage, field, "found \"" + word + "\", need one of " + all}};
}

std::optional<Isa> isa_of(const std::optional<std::string>& word) {
  if (!word) return std::nullopt;
  std::vector<std::pair<std::string_view, Isa>> names;
  for (const Isa isa : all_isas()) names.emplace_back(isa_name(isa), isa);
  return word_of("isa", *word, names);
}

std::shared_ptr<LocalModel> open_model(
    const std::string& path, int threads, const std::optional<std::string>& isa,
    const std::string& compute, const std::string& kv, std::size_t context, std::size_t parallel,
    const std::string& chat_template, const std::string& chat_date, const std::string& packed_cache,
    bool strict, const std::optional<nb::callable>& progress) {
  if (threads < 0)
    throw Failure{Error{ErrorCode::kUsage, "threads",
                        "found " + std::to_string(threads) + ", need 0 (all CPUs) or more"}};
  ServeArguments arguments;
  arguments.model = path;
  arguments.threads = threads;
  arguments.isa = isa_of(isa);
  arguments.compute =
      word_of<Compute>("compute", compute, {{"int8", Compute::kInt8}, {"f32", Compute::kF32}});
  arguments.strict = strict;
  arguments.packed_cache = packed_cache;
  arguments.kv = word_of<KvType>(
      "kv", kv, {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8", KvType::kQ8}});
  arguments.scheduler.context = context;
  arguments.scheduler.parallel = parallel;
  arguments.scheduler.step_tokens = std::max(arguments.scheduler.step_tokens, parallel);
  arguments.chat = {.chat_template = chat_template, .date = chat_date};
  // What the callback raises is raised when the model is loaded, which cannot be interrupted.
  std::optional<nb::python_error> raised;
  Progress report;
  if (progress)
    report = [&](std::string_view stage, std::size_t done, std::size_t total) {
      const nb::gil_scoped_acquire acquired;
      try {
        if (!raised) (*progress)(nb::str(stage.data(), stage.size()), done, total);
      } catch (const nb::python_error& error) {
        raised.emplace(error);
      }
    };
  auto model = [&] {
    const nb::gil_scoped_release released;
    return value_of(LocalModel::open(arguments, report));
  }();
  if (raised) throw nb::python_error(*raised);
  return model;
}

std::unique_ptr<LocalAnswer> start(LocalModel& model, const std::string& body,
                                   const std::string& endpoint) {
  using enum LocalModel::Endpoint;
  const auto of = word_of<LocalModel::Endpoint>(
      "endpoint", endpoint,
      {{"completions", kCompletions}, {"chat", kChat}, {"embeddings", kEmbeddings}});
  const nb::gil_scoped_release released;
  return value_of(model.start(body, of));
}

/// Waits as `wait` does, until it says that it has waited, with signals handled as Python's own
/// waits do: Ctrl-C raises KeyboardInterrupt, and the answer is given up.
template <typename Wait>
void wait_with_signals(LocalAnswer& answer, const Wait& wait) {
  constexpr std::chrono::milliseconds kPatience{50};
  while (true) {
    {
      const nb::gil_scoped_release released;
      if (wait(kPatience)) return;
    }
    if (PyErr_CheckSignals() != 0) {
      answer.cancel();
      throw nb::python_error();
    }
  }
}

/// The next part; nothing at the end.
std::optional<std::string> next_part(LocalAnswer& answer) {
  wait_with_signals(answer, [&](auto patience) { return answer.wait_for(patience); });
  return value_of(answer.next());
}

std::string whole(LocalAnswer& answer) {
  while (next_part(answer)) {
  }
  const nb::gil_scoped_release released;
  return answer.whole();
}

using Rows = nb::ndarray<nb::numpy, const float, nb::ndim<2>>;

/// The rows lie where the engine wrote them; the array keeps them alive.
Rows logits(const LocalModel& model, const std::vector<TokenId>& tokens) {
  LocalModel::Logits made;
  {
    const nb::gil_scoped_release released;
    made = value_of(model.logits(tokens));
  }
  const std::size_t n_vocab = model.model().config().n_vocab;
  const nb::capsule owner(made.owner.release(),
                          [](void* sequence) noexcept { delete static_cast<Sequence*>(sequence); });
  return {made.rows.data(), {made.rows.size() / n_vocab, n_vocab}, owner};
}

std::vector<TokenId> tokenize(const LocalModel& model, const std::string& text, bool add_special,
                              bool parse_special) {
  const nb::gil_scoped_release released;
  return prompt_ids(model.served().tokenizer(), text, add_special, parse_special);
}

nb::str detokenize(const LocalModel& model, const std::vector<TokenId>& ids, bool show_special) {
  const Tokenizer& tokenizer = model.served().tokenizer();
  for (const TokenId id : ids) {
    if (!tokenizer.contains(id))
      throw Failure{Error{
          ErrorCode::kUsage, "ids",
          "found " + std::to_string(id) + ", need 0.." + std::to_string(tokenizer.size() - 1)}};
  }
  const std::string text = tokenizer.decode(ids, {.render_special = show_special});
  return nb::str(text.data(), text.size());
}

/// The report of llmcheck --layer-diff.
std::string layer_diff(const LocalModel& local, const std::string& path) {
  const nb::gil_scoped_release released;
  const Model& model = local.model();
  const auto checked = [&](auto result) {
    if (!result.ok()) throw Failure{in_file(std::move(result).error(), path)};
    return std::move(result).value();
  };
  const Dump reference = checked(Dump::load(path));
  checked(check_positions(reference));
  Report report;
  report.facts = {{"model", local.path()}, {"reference", path}};
  for (const ComputeMode mode : modes_for(reference.meta())) {
    for (DiffSection& section :
         checked(check_layers(value_of(model.with_compute(mode.compute)), mode, reference,
                              {.model_sha256 = model.file_sha256(), .progress = {}})))
      report.diffs.push_back(std::move(section));
  }
  return json_report(report);
}

std::vector<std::tuple<std::string, std::string, std::uint64_t>> list_cached_models() {
  std::vector<std::tuple<std::string, std::string, std::uint64_t>> rows;
  for (CachedModel& model : value_of(cached_models()))
    rows.emplace_back(std::move(model.name), std::move(model.path), model.bytes);
  return rows;
}

/// What the texts of a model are at.
nb::dict figures(const LocalModel& model) {
  const ServiceFigures now = model.figures();
  nb::dict dict;
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::uint64_t>>{
           {"running", now.running},
           {"waiting", now.waiting},
           {"finished", now.finished},
           {"failed", now.failed},
           {"cancelled", now.cancelled},
           {"kv_pages", now.kv_pages},
           {"kv_pages_in_use", now.kv_pages_in_use},
           {"steps", now.steps},
           {"prompt_tokens", now.prompt_tokens},
           {"generated_tokens", now.generated_tokens}})
    dict[name] = value;
  return dict;
}

std::string check_model(const std::string& path, const std::string& text, int threads,
                        bool fail_fast) {
  SelfCheckOptions options;
  options.text = text;
  options.threads = threads;
  options.fail_fast = fail_fast;
  const nb::gil_scoped_release released;
  SelfCheckOutcome outcome = value_of(self_check(path, options));
  Report report;
  report.facts = {{"model", path}};
  report.checks = std::move(outcome.results);
  report.not_covered = std::move(outcome.not_covered);
  return json_report(report);
}

}  // namespace
}  // namespace llm

NB_MODULE(_llmrun, module) {
  using llm::LocalAnswer;
  using llm::LocalModel;
  nb::register_exception_translator(llm::raise_failure);
  spdlog::set_level(spdlog::level::off);  // a library prints nothing
  nb::class_<LocalAnswer>(module, "Answer")
      .def("next_part", llm::next_part)
      .def("whole", llm::whole)
      .def("logits_sha256", &LocalAnswer::logits_sha256)
      .def("cancel", &LocalAnswer::cancel);
  nb::class_<LocalModel>(module, "Model")
      .def("start", llm::start, "body"_a, "endpoint"_a)
      .def("logits", llm::logits, "tokens"_a)
      .def("tokenize", llm::tokenize, "text"_a, "add_special"_a, "parse_special"_a)
      .def("detokenize", llm::detokenize, "ids"_a, "show_special"_a)
      .def("layer_diff", llm::layer_diff, "reference"_a)
      .def("figures", llm::figures)
      .def_prop_ro("bos_id", [](const LocalModel& m) { return m.served().tokenizer().spec().bos; })
      .def_prop_ro("eos_id", [](const LocalModel& m) { return m.served().tokenizer().spec().eos; })
      .def_prop_ro("path", &LocalModel::path)
      .def_prop_ro("name", [](const LocalModel& m) { return m.model().name(); })
      .def_prop_ro("sha256", [](const LocalModel& m) { return m.model().file_sha256(); })
      .def_prop_ro("isa",
                   [](const LocalModel& m) { return std::string(llm::isa_name(m.model().isa())); })
      .def_prop_ro("threads", [](const LocalModel& m) { return m.model().threads(); })
      .def_prop_ro("n_vocab", [](const LocalModel& m) { return m.model().config().n_vocab; })
      .def_prop_ro("context", [](const LocalModel& m) { return m.served().context; })
      .def_prop_ro("has_chat", [](const LocalModel& m) { return m.served().style != nullptr; })
      .def_prop_ro("warnings", [](const LocalModel& m) { return m.model().warnings(); })
      .def_prop_ro("fingerprint",
                   [](const LocalModel& m) { return llm::system_fingerprint(m.served()); });
  module.def("open_model", llm::open_model, "path"_a, "threads"_a, "isa"_a.none(), "compute"_a,
             "kv"_a, "context"_a, "parallel"_a, "chat_template"_a, "chat_date"_a, "packed_cache"_a,
             "strict"_a, "progress"_a.none());
  module.def("cached_models", llm::list_cached_models);
  module.def("self_check", llm::check_model, "path"_a, "text"_a, "threads"_a, "fail_fast"_a);
}
