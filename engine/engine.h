#pragma once

// The engine as its users see it:
//
//   model    = Model::load(path)                 weights, immutable, shared
//   executor = Executor::create(model)           threads, activations, pages of keys and values
//   sequence = Executor::open(executor)          one text; light
//   logits   = sequence->evaluate(tokens, ...)   or executor->evaluate(segments) for many at once

#include "engine/executor.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "engine/state_store.h"
