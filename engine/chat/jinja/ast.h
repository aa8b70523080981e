#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/jinja/value.h"

namespace llm::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// A node of an expression. What `parts` are depends on the kind:
struct Expr {
  enum class Kind {
    kConst,    ///< value
    kName,     ///< name
    kList,     ///< its items
    kTuple,    ///< its items
    kDict,     ///< key, value, key, value, ...
    kNot,      ///< operand
    kSign,     ///< operand; name: "+" or "-"
    kBinary,   ///< left, right; name: the operator
    kConcat,   ///< operands of ~
    kCompare,  ///< operands; operators: those between them
    kAnd,      ///< left, right
    kOr,       ///< left, right
    kIf,       ///< condition, value, other value (null: undefined)
    kMember,   ///< object; name: behind the dot
    kItem,     ///< object, subscript
    kSlice,    ///< object, start, stop, step (each may be null)
    kCall,     ///< function, arguments; named: keyword arguments
    kFilter,   ///< input (null: the text of a block), arguments; name; named
    kTest,     ///< input, arguments; name; named
  };
  Kind kind;
  int line;
  std::string name = {};
  Value value = {};
  std::vector<ExprPtr> parts = {};
  std::vector<std::pair<std::string, ExprPtr>> named = {};
  std::vector<std::string> operators = {};
  int depth = 1;  ///< of the tree below; the parser bounds it
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Stmt {
  enum class Kind {
    kText,         ///< value
    kPrint,        ///< expr
    kIf,           ///< test (null: else), body, orelse
    kFor,          ///< target, expr, test (may be null), body, orelse
    kSet,          ///< target, expr
    kSetBlock,     ///< target, expr (filters, may be null), body
    kMacro,        ///< name, params, body
    kCall,         ///< expr (the call), params, body: the caller
    kFilterBlock,  ///< expr (filters), body
    kWith,         ///< params (names and values), body
    kBreak,
    kContinue,
  };
  Kind kind;
  int line;
  std::string name = {};
  Value value = {};
  ExprPtr target = {};
  ExprPtr expr = {};
  ExprPtr test = {};
  std::vector<std::pair<std::string, ExprPtr>> params = {};  ///< with defaults, which may be null
  Body body = {};
  Body orelse = {};
  std::vector<StmtPtr> branches = {};  ///< of kIf: the elifs, in turn
};

}  // namespace llm::jinja
