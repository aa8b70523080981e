#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/shown_text.h"
#include "engine/chat/jinja/parser.h"

namespace llm::jinja {
namespace {

std::optional<Int> parse_int(std::string_view digits) {
  Int value = 0;
  for (const char c : digits) {
    if (__builtin_mul_overflow(value, Int{10}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, Int{c - '0'}, &value)) return std::nullopt;
  }
  return value;
}

Value text_value(std::string_view text) {
  return TextPtr(make_counted(TextObject{.text = Text(text, kMarkup)}));
}

}  // namespace

ExprPtr Parser::make(Expr::Kind kind) const {
  return std::unique_ptr<Expr>(new Expr{.kind = kind, .line = now().line});
}

void Parser::add(Expr& expr, ExprPtr part) {
  if (part) expr.depth = std::max(expr.depth, part->depth + 1);
  if (expr.depth > kMaxDepth) {
    fail(ErrorCode::kResource,
         fmt::format("found an expression of more than {} levels, need fewer", kMaxDepth));
  }
  expr.parts.push_back(std::move(part));
}

ExprPtr Parser::binary(Expr::Kind kind, std::string_view op, ExprPtr left, ExprPtr right) {
  ExprPtr expr = make(kind);
  expr->name = op;
  add(*expr, std::move(left));
  add(*expr, std::move(right));
  return expr;
}

/// One expression, or several with commas between them.
ExprPtr Parser::parse_tuple(bool with_if) {
  const auto one = [&] { return with_if ? parse_expression() : parse_or(); };
  ExprPtr first = one();
  if (!is_op(",")) return first;
  ExprPtr tuple = make(Expr::Kind::kTuple);
  add(*tuple, std::move(first));
  while (skip_op(",")) {
    const Kind kind = now().kind;
    const bool is_end = kind == Kind::kVariableEnd || kind == Kind::kBlockEnd ||
                        kind == Kind::kEnd || is_op(")") || is_name("in");
    if (is_end) break;
    add(*tuple, one());
  }
  return tuple;
}

ExprPtr Parser::parse_expression() {
  if (!enter()) return make(Expr::Kind::kConst);
  ++depth_;
  ExprPtr expr = parse_or();
  while (skip_name("if")) {
    ExprPtr choice = make(Expr::Kind::kIf);
    add(*choice, parse_or());
    add(*choice, std::move(expr));
    add(*choice, skip_name("else") ? parse_expression() : nullptr);
    expr = std::move(choice);
  }
  --depth_;
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or")) left = binary(Expr::Kind::kOr, "or", std::move(left), parse_and());
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) left = binary(Expr::Kind::kAnd, "and", std::move(left), parse_not());
  return left;
}

ExprPtr Parser::parse_not() {
  bool is_negated = false;
  bool has_not = false;
  while (skip_name("not")) {
    is_negated = !is_negated;
    has_not = true;
  }
  ExprPtr expr = parse_compare();
  for (int i = is_negated ? 1 : 2; has_not && i > 0; --i) {
    ExprPtr negation = make(Expr::Kind::kNot);
    add(*negation, std::move(expr));
    expr = std::move(negation);
  }
  return expr;
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr compare;
  while (true) {
    std::string op;
    if (is_name("not") && next().kind == Kind::kName && next().text == "in") {
      op = "not in";
      skip();
    } else if (is_name("in")) {
      op = "in";
    } else {
      for (const std::string_view o : {"==", "!=", "<", "<=", ">", ">="}) {
        if (is_op(o)) op = o;
      }
      if (op.empty()) break;
    }
    skip();
    if (!compare) {
      compare = make(Expr::Kind::kCompare);
      add(*compare, std::move(first));
    }
    compare->operators.push_back(std::move(op));
    add(*compare, parse_sum());
  }
  return compare ? std::move(compare) : std::move(first);
}

ExprPtr Parser::parse_chain(Names operators, ExprPtr (Parser::*parse_operand)()) {
  ExprPtr left = (this->*parse_operand)();
  while (std::ranges::any_of(operators, [this](std::string_view op) { return is_op(op); })) {
    const std::string_view op = now().text;
    skip();
    left = binary(Expr::Kind::kBinary, op, std::move(left), (this->*parse_operand)());
  }
  return left;
}

ExprPtr Parser::parse_sum() { return parse_chain({"+", "-"}, &Parser::parse_concat); }

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is_op("~")) return first;
  ExprPtr concat = make(Expr::Kind::kConcat);
  add(*concat, std::move(first));
  while (skip_op("~")) add(*concat, parse_product());
  return concat;
}

ExprPtr Parser::parse_product() { return parse_chain({"*", "/", "//", "%"}, &Parser::parse_power); }

ExprPtr Parser::parse_power() { return parse_chain({"**"}, &Parser::parse_filtered); }

ExprPtr Parser::parse_filtered() { return parse_filters(parse_unary()); }

ExprPtr Parser::parse_unary() {
  ExprPtr expr;
  if (is_op("-") || is_op("+")) {
    expr = make(Expr::Kind::kSign);
    expr->name = now().text;
    skip();
    if (!enter()) return expr;
    ++depth_;
    add(*expr, parse_unary());
    --depth_;
  } else {
    expr = parse_primary();
  }
  return parse_postfix(std::move(expr));
}

ExprPtr Parser::parse_primary() {
  ExprPtr expr = make(Expr::Kind::kConst);
  const std::string_view text = now().text;
  const Kind kind = now().kind;
  if (skip_op("(")) {
    if (skip_op(")")) return make(Expr::Kind::kTuple);
    expr = parse_tuple();
    need_op(")");
  } else if (is_op("[")) {
    expr = parse_list();
  } else if (is_op("{")) {
    expr = parse_dict();
  } else if (kind == Kind::kName) {
    skip();
    if (text == "true" || text == "True") {
      expr->value = true;
    } else if (text == "false" || text == "False") {
      expr->value = false;
    } else if (text == "none" || text == "None") {
      expr->value = None{};
    } else {
      expr->kind = Expr::Kind::kName;
      expr->name = text;
    }
  } else if (kind == Kind::kString) {
    String all;
    for (; now().kind == Kind::kString; skip()) all += now().text;
    expr->value = text_value(all);
  } else if (kind == Kind::kInteger) {
    skip();
    const auto value = parse_int(text);
    if (!value)
      fail(ErrorCode::kUnsupported, fmt::format("found the number {}, need less", shown(text)));
    expr->value = value.value_or(0);
  } else if (kind == Kind::kFloat) {
    skip();
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    expr->value = value;
  } else {
    fail("an expression");
  }
  return expr;
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(Expr::Kind::kList);
  need_op("[");
  while (now().kind != Kind::kEnd && !is_op("]")) {
    add(*list, parse_expression());
    if (!skip_op(",")) break;
  }
  need_op("]");
  return list;
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(Expr::Kind::kDict);
  need_op("{");
  while (now().kind != Kind::kEnd && !is_op("}")) {
    add(*dict, parse_expression());
    need_op(":");
    add(*dict, parse_expression());
    if (!skip_op(",")) break;
  }
  need_op("}");
  return dict;
}

}  // namespace llm::jinja
