#include <fmt/format.h>

#include "engine/chat/jinja/evaluator.h"

namespace llm::jinja {

Value Evaluator::eval(const Expr& expr, const Scope& scope) {
  const Level level;
  return rt_.charge() ? eval_node(expr, scope) : Undefined{};
}

Value Evaluator::eval_node(const Expr& expr, const Scope& scope) {
  const auto part = [&](std::size_t i) { return eval(*expr.parts[i], scope); };
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.value;
    case Expr::Kind::kName:
      return eval_name(expr, scope);
    case Expr::Kind::kList:
      return rt_.list(eval_all(expr, 0, scope));
    case Expr::Kind::kTuple:
      return rt_.list(eval_all(expr, 0, scope), true);
    case Expr::Kind::kDict:
      return eval_dict(expr, scope);
    case Expr::Kind::kNot:
      return !is_true(part(0));
    case Expr::Kind::kSign:
      return eval_sign(expr, scope);
    case Expr::Kind::kBinary: {
      const Value left = part(0);
      const Value right = part(1);
      return rt_.failed() ? Value() : binary(rt_, expr.name, left, right);
    }
    case Expr::Kind::kConcat:
      return eval_concat(expr, scope);
    case Expr::Kind::kCompare:
      return eval_compare(expr, scope);
    case Expr::Kind::kAnd: {
      Value left = part(0);
      return is_true(left) ? part(1) : left;
    }
    case Expr::Kind::kOr: {
      Value left = part(0);
      return is_true(left) ? left : part(1);
    }
    case Expr::Kind::kIf:
      if (is_true(part(0))) return part(1);
      if (expr.parts[2]) return part(2);
      return rt_.undefined("an inline if without else had no value");
    case Expr::Kind::kMember: {
      const Value object = part(0);
      rt_.line = expr.line;
      return rt_.failed() ? Value() : member_of(rt_, object, expr.name);
    }
    case Expr::Kind::kItem: {
      const Value object = part(0);
      const Value key = part(1);
      rt_.line = expr.line;
      return rt_.failed() ? Value() : item_of(rt_, object, key);
    }
    case Expr::Kind::kSlice:
      return eval_slice(expr, scope);
    case Expr::Kind::kCall:
      return eval_call(expr, scope, nullptr);
    case Expr::Kind::kFilter:
      return eval_filter(expr, scope, nullptr);
    case Expr::Kind::kTest: {
      const Value input = part(0);
      const Args args = eval_args(expr, scope);
      return !rt_.failed() && apply_test(rt_, expr.name, input, args);
    }
  }
  return Undefined{};
}

Value Evaluator::eval_name(const Expr& expr, const Scope& scope) {
  const Value* found = scope.find(expr.name);
  return found ? *found : find_function(rt_, expr.name);
}

Value Evaluator::eval_compare(const Expr& expr, const Scope& scope) {
  Value left = eval(*expr.parts[0], scope);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = eval(*expr.parts[i + 1], scope);
    if (rt_.failed() || !compared(rt_, expr.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::eval_concat(const Expr& expr, const Scope& scope) {
  Text text;
  for (const Value& part : eval_all(expr, 0, scope)) append_str(part, text);
  return rt_.text(std::move(text));
}

Value Evaluator::eval_dict(const Expr& expr, const Scope& scope) {
  const Values parts = eval_all(expr, 0, scope);
  DictObject made;
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) rt_.add(made, parts[i], parts[i + 1]);
  return rt_.failed() ? Value() : rt_.dict(std::move(made));
}

Value Evaluator::eval_slice(const Expr& expr, const Scope& scope) {
  const Value object = eval(*expr.parts[0], scope);
  Values bounds;
  for (std::size_t i = 1; i < 4; ++i) {
    bounds.push_back(expr.parts[i] ? eval(*expr.parts[i], scope) : Value(None{}));
  }
  return rt_.failed() ? Value() : slice_of(rt_, object, bounds);
}

Value Evaluator::eval_sign(const Expr& expr, const Scope& scope) {
  const Value value = eval(*expr.parts[0], scope);
  if (!value.is_number()) {
    if (!rt_.is_there(value)) return Undefined{};
    return rt_.wrong(
        fmt::format("bad operand type for unary {}: '{}'", expr.name, type_name(value)));
  }
  if (value.is<double>()) return expr.name == "-" ? -value.number() : value.number();
  return binary(rt_, expr.name, Int{0}, *value.integer());
}

Value Evaluator::eval_filter(const Expr& expr, const Scope& scope, const Value* input) {
  const Level level;
  const ExprPtr& inner = expr.parts[0];
  const bool leads_to_block = input && inner && inner->kind == Expr::Kind::kFilter;
  const Value value = leads_to_block ? eval_filter(*inner, scope, input)
                      : input        ? *input
                                     : eval(*inner, scope);
  const Args args = eval_args(expr, scope);
  rt_.line = expr.line;
  return rt_.failed() ? Value() : apply_filter(rt_, expr.name, value, args);
}

Values Evaluator::eval_all(const Expr& expr, std::size_t from, const Scope& scope) {
  Values values;
  values.reserve(expr.parts.size() - from);
  for (std::size_t i = from; i < expr.parts.size(); ++i) {
    values.push_back(eval(*expr.parts[i], scope));
  }
  return values;
}

Args Evaluator::eval_args(const Expr& expr, const Scope& scope) {
  Args args{eval_all(expr, 1, scope), {}};
  for (const auto& [name, value] : expr.named) args.named.emplace_back(name, eval(*value, scope));
  return args;
}

Value Evaluator::eval_call(const Expr& expr, const Scope& scope, const Macro* caller) {
  const Value function = eval(*expr.parts[0], scope);
  const Args args = eval_args(expr, scope);
  rt_.line = expr.line;
  if (rt_.failed() || !rt_.is_there(function)) return Undefined{};
  if (const auto* macro = function.get<const Macro*>()) return call_macro(**macro, args, caller);
  if (const auto* method = function.get<MethodPtr>()) {
    return call_method(rt_, (*method)->self, (*method)->name, args);
  }
  if (const auto* global = function.get<Function>()) return call_function(rt_, global->name, args);
  return rt_.wrong(fmt::format("'{}' object is not callable", type_name(function)));
}

}  // namespace llm::jinja
