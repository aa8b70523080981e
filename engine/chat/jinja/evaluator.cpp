#include "engine/chat/jinja/evaluator.h"

#include <fmt/format.h>

#include "base/shown_text.h"

namespace llm::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->outer) {
    touch(8);
    if (const Value* found = scope->values.find(name)) return found;
  }
  return nullptr;
}

Text Evaluator::render(const Body& body, Scope& variables) {
  Text out;
  out_ = &out;
  run(body, variables);
  out_ = nullptr;
  return out;
}

Evaluator::Flow Evaluator::run(const Body& body, Scope& scope) {
  for (const StmtPtr& stmt : body) {
    if (rt_.failed()) break;
    const Flow flow = run(*stmt, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const Stmt& stmt, Scope& scope) {
  const Level level;
  rt_.line = stmt.line;
  if (!rt_.charge()) return Flow::kNext;
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      print(stmt.value);
      break;
    case Stmt::Kind::kPrint:
      print(eval(*stmt.expr, scope));
      break;
    case Stmt::Kind::kIf:
      return run_if(stmt, scope);
    case Stmt::Kind::kFor:
      return run_for(stmt, scope);
    case Stmt::Kind::kWith:
      return run_with(stmt, scope);
    case Stmt::Kind::kSet:
      assign(*stmt.target, eval(*stmt.expr, scope), scope);
      break;
    case Stmt::Kind::kSetBlock:
    case Stmt::Kind::kFilterBlock: {
      Scope inner{.outer = &scope};
      Value text = capture(stmt.body, inner);
      if (stmt.expr) text = eval_filter(*stmt.expr, scope, &text);
      if (stmt.kind == Stmt::Kind::kSetBlock) {
        assign(*stmt.target, std::move(text), scope);
      } else {
        print(text);
      }
      break;
    }
    case Stmt::Kind::kMacro:
      scope.macros.push_back(std::make_unique<Macro>(Macro{&stmt, &scope}));
      scope.set(stmt.name, static_cast<const Macro*>(scope.macros.back().get()));
      break;
    case Stmt::Kind::kCall:
      run_call_block(stmt, scope);
      break;
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_if(const Stmt& stmt, Scope& scope) {
  if (is_true(eval(*stmt.test, scope))) return run(stmt.body, scope);
  for (const StmtPtr& branch : stmt.branches) {
    rt_.line = branch->line;
    if (is_true(eval(*branch->test, scope))) return run(branch->body, scope);
  }
  return run(stmt.orelse, scope);
}

Evaluator::Flow Evaluator::run_for(const Stmt& stmt, Scope& scope) {
  Values items = rt_.items_of(eval(*stmt.expr, scope));
  if (stmt.test) {
    Values kept;
    for (Value& item : items) {
      if (!rt_.charge()) break;
      Scope inner{.outer = &scope};
      assign(*stmt.target, item, inner);
      if (is_true(eval(*stmt.test, inner))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  Loop loop{.items = &items};
  for (; loop.index < items.size() && rt_.charge(); ++loop.index) {
    Scope inner{.outer = &scope};
    inner.set("loop", static_cast<const Loop*>(&loop));
    assign(*stmt.target, items[loop.index], inner);
    if (run(stmt.body, inner) == Flow::kBreak) break;
  }
  if (items.empty()) {
    Scope inner{.outer = &scope};
    return run(stmt.orelse, inner);
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_with(const Stmt& stmt, Scope& scope) {
  Scope inner{.outer = &scope};
  for (const auto& [name, value] : stmt.params) inner.set(name, eval(*value, scope));
  return run(stmt.body, inner);
}

void Evaluator::run_call_block(const Stmt& stmt, Scope& scope) {
  const Macro caller{&stmt, &scope};
  print(eval_call(*stmt.expr, scope, &caller));
}

void Evaluator::assign(const Expr& target, Value value, Scope& scope) {
  if (rt_.failed()) return;
  if (target.kind == Expr::Kind::kName) return scope.set(target.name, std::move(value));
  if (target.kind == Expr::Kind::kTuple) {
    const Values items = rt_.items_of(value);
    if (items.size() != target.parts.size()) {
      rt_.wrong(
          fmt::format("found {} values to unpack, need {}", items.size(), target.parts.size()));
      return;
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
    return;
  }
  const Value object = eval(*target.parts[0], scope);
  const auto* ns = object.get<NamespacePtr>();
  if (!ns) {
    rt_.wrong("cannot assign attribute on non-namespace object");
    return;
  }
  std::size_t depth = 0;
  if (rt_.may_hold(value, depth)) (*ns)->items.set(String(target.name), std::move(value));
}

void Evaluator::print(const Value& value) {
  if (value.is<MethodPtr>() || value.is<Function>() || value.is<const Macro*>() ||
      value.is<const Loop*>() || value.is<NamespacePtr>()) {
    rt_.unsupported(fmt::format("a {} that is printed", type_name(value)));
    return;
  }
  append_str(value, *out_);
  if (out_->is_too_long()) rt_.too_long(*out_);
}

Value Evaluator::capture(const Body& body, Scope& scope) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  run(body, scope);
  out_ = outer;
  return rt_.failed() ? Value() : rt_.text(std::move(text));
}

Value Evaluator::call_macro(const Macro& macro, const Args& args, const Macro* caller) {
  const Stmt& definition = *macro.definition;
  Scope scope{.outer = macro.scope};
  const auto& params = definition.params;
  if (args.values.size() > params.size()) {
    return rt_.wrong(fmt::format("macro '{}' takes not more than {} argument(s)",
                                 shown(definition.name), params.size()));
  }
  for (const auto& [name, value] : args.named) scope.set(name, value);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const auto& [name, standard] = params[i];
    if (i < args.values.size()) {
      scope.set(name, args.values[i]);
    } else if (!scope.values.find(name)) {
      scope.set(name, standard ? eval(*standard, scope)
                               : rt_.undefined(
                                     fmt::format("parameter '{}' was not provided", shown(name))));
    }
  }
  if (!knows_names(definition, args)) return Undefined{};
  if (caller) scope.set("caller", caller);
  return capture(definition.body, scope);
}

bool Evaluator::knows_names(const Stmt& definition, const Args& args) {
  if (args.named.empty()) return true;
  Table<std::string_view, bool, NameKeys> known;
  for (const auto& [name, standard] : definition.params) known.set(name, true);
  for (const auto& [name, value] : args.named) {
    if (known.find(name)) continue;
    rt_.wrong(fmt::format("macro '{}' takes no keyword argument '{}'", shown(definition.name),
                          shown(name)));
    return false;
  }
  return true;
}

}  // namespace llm::jinja
