#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "engine/chat/jinja/ast.h"
#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {

struct Scope;

/// A macro, or what a call block calls `caller`. It lives as long as the scope that names it: no
/// list, dict or namespace can hold it longer.
struct Macro {
  const Stmt* definition;
  const Scope* scope;  ///< where it was defined
};

/// Names and values of a block, and those around it.
struct Scope {
  const Scope* outer = nullptr;
  Table<std::string_view, Value, NameKeys> values = {};
  Vector<std::unique_ptr<Macro>> macros = {};

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value) { values.set(name, std::move(value)); }
};

/// Renders a template, once. Macros see the values that their scope has when they are called.
class Evaluator {
 public:
  explicit Evaluator(Runtime& rt) : rt_(rt) {}

  /// The text that `body` prints with these variables.
  Text render(const Body& body, Scope& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run(const Body& body, Scope& scope);
  Flow run(const Stmt& stmt, Scope& scope);
  Flow run_if(const Stmt& stmt, Scope& scope);
  Flow run_for(const Stmt& stmt, Scope& scope);
  Flow run_with(const Stmt& stmt, Scope& scope);
  void run_call_block(const Stmt& stmt, Scope& scope);
  void assign(const Expr& target, Value value, Scope& scope);
  void print(const Value& value);
  /// What `body` prints.
  Value capture(const Body& body, Scope& scope);

  Value eval(const Expr& expr, const Scope& scope);
  Value eval_node(const Expr& expr, const Scope& scope);
  Value eval_name(const Expr& expr, const Scope& scope);
  Value eval_compare(const Expr& expr, const Scope& scope);
  Value eval_concat(const Expr& expr, const Scope& scope);
  Value eval_dict(const Expr& expr, const Scope& scope);
  Value eval_slice(const Expr& expr, const Scope& scope);
  Value eval_sign(const Expr& expr, const Scope& scope);
  Value eval_call(const Expr& expr, const Scope& scope, const Macro* caller);
  /// `input`: the text of a filter block, for the innermost filter.
  Value eval_filter(const Expr& expr, const Scope& scope, const Value* input);
  Values eval_all(const Expr& expr, std::size_t from, const Scope& scope);
  Args eval_args(const Expr& expr, const Scope& scope);
  Value call_macro(const Macro& macro, const Args& args, const Macro* caller);
  /// @return whether all of `args.named` are parameters
  bool knows_names(const Stmt& definition, const Args& args);

  Runtime& rt_;
  Text* out_ = nullptr;
};

}  // namespace llm::jinja
