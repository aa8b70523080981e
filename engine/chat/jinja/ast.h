#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/chat/jinja/value.h"

namespace llm::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// Nodes count as what the template's source takes.
inline void* new_node(std::size_t n) { return Counted<std::byte>().allocate(n); }
inline void delete_node(void* node, std::size_t n) {
  Counted<std::byte>().deallocate(static_cast<std::byte*>(node), n);
}

/// A node of an expression. What `parts` are depends on the kind:
struct Expr {
  static void* operator new(std::size_t n) { return new_node(n); }
  static void operator delete(void* node, std::size_t n) { delete_node(node, n); }

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
  Vector<ExprPtr> parts = {};
  Vector<std::pair<std::string, ExprPtr>> named = {};
  Vector<std::string> operators = {};
  int depth = 1;  ///< of the tree below; the parser bounds it
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = Vector<StmtPtr>;

struct Stmt {
  static void* operator new(std::size_t n) { return new_node(n); }
  static void operator delete(void* node, std::size_t n) { delete_node(node, n); }

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
  Vector<std::pair<std::string, ExprPtr>> params = {};  ///< with defaults, which may be null
  Body body = {};
  Body orelse = {};
  Vector<StmtPtr> branches = {};  ///< of kIf: the elifs, in turn
};

}  // namespace llm::jinja
