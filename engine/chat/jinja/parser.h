#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/chat/jinja/ast.h"
#include "engine/chat/jinja/lexer.h"

namespace llm::jinja {

/// Reads a template's tokens. The grammar and its precedences are jinja2's (3.1.6), with the
/// extension loopcontrols and transformers' tag `generation`. After the first error every token is
/// the end, so that whatever is under way comes to its own.
class Parser {
 public:
  /// @param tokens  outlives this
  explicit Parser(const Tokens& tokens) : tokens_(tokens.tokens) {}

  /// The whole template. Errors: kMalformed, kUnsupported (tags that need other files) and
  /// kResource (nesting above kMaxDepth), naming the line.
  Result<Body> parse();

 private:
  using Kind = Token::Kind;
  using Names = std::initializer_list<std::string_view>;
  /// Of statements and of expressions inside each other, and of an expression's tree: so often does
  /// what reads, evaluates or destroys one recurse at most, twice.
  static constexpr int kMaxDepth = 150;

  // The stream of tokens.
  const Token& now() const { return error_ ? end_ : tokens_[at_]; }
  const Token& next() const {
    return error_ || at_ + 1 >= tokens_.size() ? end_ : tokens_[at_ + 1];
  }
  bool is(Kind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool is_op(std::string_view op) const { return is(Kind::kOperator, op); }
  bool is_name(std::string_view name) const { return is(Kind::kName, name); }
  void skip() {
    if (error_ || now().kind == Kind::kEnd) return;
    meter_here->line = tokens_[++at_].line;
  }
  bool skip_op(std::string_view op) { return is_op(op) && (skip(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (skip(), true); }
  void need_op(std::string_view op);
  std::string need_name();
  void need_block_end();
  void fail(std::string_view need);
  void fail(ErrorCode code, std::string_view message);
  bool enter();

  // Statements (parse_statements.cpp).
  Body parse_body(Names ends);
  /// Behind a block's end: a body whose text is caught, which a break cannot leave, and its end.
  Body parse_captured(std::string_view end);
  StmtPtr parse_block();
  StmtPtr parse_if();
  StmtPtr parse_for();
  StmtPtr parse_set();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_with();
  StmtPtr parse_plain_block(std::string_view end);
  void parse_params(Stmt& stmt);
  void end_block(std::string_view name);
  ExprPtr parse_target(bool with_member);
  StmtPtr make(Stmt::Kind kind) const;

  // Expressions (parse_expressions.cpp), the loosest first.
  ExprPtr parse_tuple(bool with_if = true);
  ExprPtr parse_expression();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  /// Operands with operators between them, from the left.
  ExprPtr parse_chain(Names operators, ExprPtr (Parser::*parse_operand)());
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_filtered();
  ExprPtr parse_unary();
  ExprPtr parse_primary();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters(ExprPtr expr);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  ExprPtr parse_subscript(ExprPtr object);
  void parse_arguments(Expr& call);
  std::string parse_dotted_name();
  ExprPtr make(Expr::Kind kind) const;
  /// Adds a part and keeps the depth of the tree within bounds.
  void add(Expr& expr, ExprPtr part);
  ExprPtr binary(Expr::Kind kind, std::string_view op, ExprPtr left, ExprPtr right);

  const Vector<Token>& tokens_;
  std::size_t at_ = 0;
  Token end_ = {Kind::kEnd, 1, "the template's end"};
  int depth_ = 0;
  int loops_ = 0;  ///< around what is read
  std::optional<Error> error_;
};

}  // namespace llm::jinja
