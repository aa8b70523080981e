#pragma once

// The public interface of the engine:
//
//   model    = Model::load(path)                 weights, immutable, shared
//   executor = Executor::create(model)           threads, activations, pages of the KV cache
//   sequence = Executor::open(executor)          one sequence; cheap
//   logits   = sequence->evaluate(tokens, ...)   or executor->evaluate(segments) for many at once

#include "engine/executor.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "engine/state/state_store.h"
