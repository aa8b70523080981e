// What follows a value: members, subscripts, calls, filters, tests.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/chat/jinja/parser.h"

namespace llm::jinja {

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (is_op("(")) {
      ExprPtr call = make(Expr::Kind::kCall);
      add(*call, std::move(expr));
      parse_arguments(*call);
      expr = std::move(call);
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  ExprPtr expr = make(Expr::Kind::kMember);
  add(*expr, std::move(object));
  if (skip_op(".")) {
    if (now().kind != Kind::kInteger) {
      expr->name = need_name();
      return expr;
    }
    expr->kind = Expr::Kind::kItem;
    add(*expr, parse_primary());
    return expr;
  }
  need_op("[");
  expr->kind = Expr::Kind::kItem;
  ExprPtr start = is_op(":") ? nullptr : parse_tuple();
  add(*expr, std::move(start));
  for (int i = 0; i < 2 && skip_op(":"); ++i) {
    expr->kind = Expr::Kind::kSlice;
    add(*expr, is_op(":") || is_op("]") ? nullptr : parse_expression());
  }
  if (expr->kind == Expr::Kind::kSlice) expr->parts.resize(4);
  need_op("]");
  return expr;
}

/// (value, ..., name=value, ...)
void Parser::parse_arguments(Expr& call) {
  need_op("(");
  while (now().kind != Kind::kEnd && !is_op(")")) {
    if (is_op("*") || is_op("**")) {
      fail(ErrorCode::kUnsupported, "found * or ** before an argument, which is not supported");
    }
    if (now().kind == Kind::kName && next().kind == Kind::kOperator && next().text == "=") {
      std::string name = need_name();
      skip();  // =
      ExprPtr value = parse_expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) fail("a keyword argument");
      add(call, parse_expression());
    }
    if (!skip_op(",")) break;
  }
  need_op(")");
}

ExprPtr Parser::parse_filters(ExprPtr expr) {
  while (true) {
    if (is_op("|")) {
      skip();
      expr = parse_filter(std::move(expr));
    } else if (is_name("is")) {
      skip();
      expr = parse_test(std::move(expr));
    } else if (is_op("(")) {
      expr = parse_postfix(std::move(expr));
    } else {
      return expr;
    }
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = need_name();
  while (skip_op(".")) name += "." + need_name();
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  ExprPtr filter = make(Expr::Kind::kFilter);
  filter->name = parse_dotted_name();
  add(*filter, std::move(input));
  if (is_op("(")) parse_arguments(*filter);
  return filter;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const bool is_negated = skip_name("not");
  ExprPtr test = make(Expr::Kind::kTest);
  test->name = parse_dotted_name();
  add(*test, std::move(input));
  const Kind kind = now().kind;
  if (is_name("is")) fail("one test, since tests cannot be chained");
  const bool is_word = is_name("else") || is_name("or") || is_name("and") || is_name("is");
  if (is_op("(")) {
    parse_arguments(*test);
  } else if (kind == Kind::kString || kind == Kind::kInteger || kind == Kind::kFloat ||
             is_op("[") || is_op("{") || (kind == Kind::kName && !is_word)) {
    // One argument may stand without brackets; "if" and "in" of what follows may, too, in jinja2.
    if (!is_name("if") && !is_name("in") && !is_name("not")) {
      add(*test, parse_postfix(parse_primary()));
    }
  }
  if (!is_negated) return test;
  ExprPtr negation = make(Expr::Kind::kNot);
  add(*negation, std::move(test));
  return negation;
}

}  // namespace llm::jinja
