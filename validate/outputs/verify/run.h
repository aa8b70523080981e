#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "engine/engine.h"
#include "validate/outputs/verify/reference.h"
#include "validate/outputs/verify/verdict.h"

namespace llm {

/// The model to be verified with that way of computing.
using ModelLoader = std::function<Result<std::shared_ptr<const Model>>(Compute)>;

/// Runs the reference's prompts: with int8 activations and f16 keys and values, once as a user does
/// (prompt, then its own choices one by one, up to the first that differs) and once fed the
/// reference's tokens at once; and fed so in f32, for the errors.
///
/// Errors: kIntegrity when the vocabulary's hash differs from the reference's; kMalformed as
/// check_ids(); the loader's and the session's.
/// Cost: n_steps * n_vocab floats a prompt, until it has been computed both ways.
Result<VerifyOutcome> run_verify(const VerifyReference& reference, VerifyGate gate,
                                 const ModelLoader& load, const Progress& progress = {});

}  // namespace llm
