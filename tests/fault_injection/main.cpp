// llmfaults MODEL.gguf [REFERENCE.npz]: says which checks and parts of models there are, the
// architecture, and instruction sets; then runs a check for each line "CHECK<TAB>FAULT<TAB>PART" of
// stdin, the fault planted, in a process of its own that has the loaded model (run.py).

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/cpu_features.h"
#include "tests/fault_injection/checks.h"

namespace {

using namespace llm;
using namespace llm::faults;

constexpr unsigned kMostSeconds = 60;

/// Prints, after all that goes to stderr, whether the fault struck, then a complaint a line.
[[noreturn]] void run_here(const Bench& bench, const std::string& check, const std::string& fault,
                           std::string_view part) {
  ::alarm(kMostSeconds);
  ::dup2(STDOUT_FILENO, STDERR_FILENO);  // the words of a process that aborts
  plant(fault);
  for (const auto& [name, add] : kModelParts)
    if (part == name) add(*bench.model);
  Complaints complaints = run_check(check, bench);
  fmt::print("\n== {}\n", has_struck() ? "struck" : "quiet");
  for (std::string& complaint : complaints) {
    std::ranges::replace(complaint, '\n', ' ');
    fmt::print("{}\n", complaint);
  }
  std::fflush(stdout);
  ::_exit(0);
}

/// How a process ended; empty: as it should.
std::string end_of(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  if (!WIFSIGNALED(status))
    return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
  return WTERMSIG(status) == SIGALRM ? fmt::format("no end after {} s", kMostSeconds)
                                     : fmt::format("signal {}", WTERMSIG(status));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "usage: llmfaults MODEL.gguf [REFERENCE.npz]\n"), 2;
  const std::string path = argv[1];
  auto model = Model::load(path, {.threads = 1});
  auto file = open_model_file(path);
  if (!model.ok() || !file.ok()) {
    const Error& error = model.ok() ? file.error() : model.error();
    fmt::print(stderr, "llmfaults: {}\n", error.to_string());
    return 3;
  }
  Bench bench{.path = path,
              .reference = argc > 2 ? argv[2] : "",
              .model = *model,
              .file = std::make_shared<const ModelFile>(std::move(file).value()),
              .sizes = {}};
  bench.sizes = kernel_sizes(*bench.file);
  bench.sizes.context = std::max<std::size_t>(bench.sizes.context, 1100);
  for (const std::string_view name : check_names()) fmt::print("{} ", name);
  fmt::print("\n");
  const HyperParameters& config = bench.model->config();
  const bool takes_parts =
      std::ranges::all_of(config.layers, [](auto& layer) { return layer.attention() != nullptr; });
  for (const auto& [name, add] : kModelParts)
    if (takes_parts) fmt::print("{} ", name);
  fmt::print("\n{}\n", config.architecture->name);
  for (const Isa isa : all_isas())
    if (isa_supported(isa)) fmt::print("{} ", isa_name(isa));
  fmt::print("\n");
  std::fflush(stdout);
  for (std::string check, fault, part;
       std::getline(std::getline(std::getline(std::cin, check, '\t'), fault, '\t'), part);) {
    std::string end = "nothing to compare with";
    if (has_reference(check, bench)) {
      const pid_t process = ::fork();
      if (process == 0) run_here(bench, check, fault, part);
      end = end_of(process);
    }
    fmt::print("\n== end {}\n", end);
    std::fflush(stdout);
  }
  return 0;
}
