#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tests/fault_injection/fault.h"
#include "validate/selftest/kernel_check.h"
#include "validate/selftest/text_path.h"

namespace llm::faults {

/// What is checked: a model, loaded before any fault, of one thread.
struct Bench {
  std::string path;
  std::string reference;  ///< f64's activations of its first layers; empty: none
  ModelPointer model;
  std::shared_ptr<const ModelFile> file;
  KernelSizes sizes;
};

/// What a check of --self or --layer-diff says is wrong, a line each: name, colon, detail. An error
/// is such a line, too.
using Complaints = std::vector<std::string>;

/// Runs a check by its name in the list of faults, as small as finds what the planted fault is. May
/// change the model: once in a process. Where the fault is one of reading the file, the model is
/// loaded anew, and an error of that is a complaint. @pre check_names() has it
Complaints run_check(std::string_view name, const Bench& bench);
std::vector<std::string_view> check_names();
/// Whether what the check compares with is there: bench.reference, or frozen texts of the model.
bool has_reference(std::string_view name, const Bench& bench);

/// Faults of a loaded model: tensors exchanged, rows in another order, other hyper-parameters.
void change_model(const Model& model);
/// Make a model of the loaded one that has what its family has not.
void add_biases(const Model& model);
void add_head_norms(const Model& model);
void add_post_norms(const Model& model);
/// Of three positions, in every other layer, with a RoPE of their own.
void add_windows(const Model& model);
/// Sinks, a bias of attn_output, and the activation of gpt-oss.
void add_sinks(const Model& model);
inline constexpr std::pair<std::string_view, void (*)(const Model&)> kModelParts[] = {
    {"biases", add_biases},
    {"head_norms", add_head_norms},
    {"post_norms", add_post_norms},
    {"windows", add_windows},
    {"sinks", add_sinks}};
/// Leaves the first layers and the first tokens, for checks in plain loops.
void cut_model(const Model& model, std::size_t n_layers, std::size_t n_vocab);

}  // namespace llm::faults
