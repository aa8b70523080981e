#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/shown_text.h"
#include "engine/chat/jinja/parser.h"

namespace llm::jinja {

void Parser::fail(ErrorCode code, std::string_view message) {
  if (!error_) error_ = template_error(code, tokens_[at_].line, message);
}
void Parser::fail(std::string_view need) {
  fail(ErrorCode::kMalformed, fmt::format("found '{}', need {}", shown(now().text), need));
}
bool Parser::enter() {
  if (depth_ < kMaxDepth) return true;
  fail(ErrorCode::kResource,
       fmt::format("found more than {} levels of nesting, need fewer", kMaxDepth));
  return false;
}
void Parser::need_op(std::string_view op) {
  if (!skip_op(op)) fail(fmt::format("'{}'", op));
}
std::string Parser::need_name() {
  if (now().kind != Kind::kName) {
    fail("a name");
    return {};
  }
  std::string name(now().text);
  skip();
  return name;
}
void Parser::need_block_end() {
  if (now().kind != Kind::kBlockEnd) return fail("%}");
  skip();
}
StmtPtr Parser::make(Stmt::Kind kind) const {
  return std::unique_ptr<Stmt>(new Stmt{.kind = kind, .line = now().line});
}

Result<Body> Parser::parse() {
  Body body = parse_body({});
  if (now().kind != Kind::kEnd) fail("the template's end");
  if (error_) return *std::move(error_);
  return body;
}

/// Statements up to a block that starts with one of `ends`, which is current then.
Body Parser::parse_body(Names ends) {
  Body body;
  if (!enter()) return body;
  ++depth_;
  while (now().kind != Kind::kEnd) {
    if (now().kind == Kind::kText) {
      StmtPtr text = make(Stmt::Kind::kText);
      text->value = TextPtr(make_counted(TextObject{.text = Text(now().text, kMarkup)}));
      skip();
      body.push_back(std::move(text));
    } else if (now().kind == Kind::kVariable) {
      StmtPtr print = make(Stmt::Kind::kPrint);
      skip();
      print->expr = parse_tuple();
      if (now().kind != Kind::kVariableEnd) fail("}}");
      skip();
      body.push_back(std::move(print));
    } else {
      skip();  // {%
      const bool is_end =
          std::ranges::any_of(ends, [this](std::string_view end) { return is_name(end); });
      if (is_end) break;
      if (StmtPtr block = parse_block()) body.push_back(std::move(block));
    }
  }
  --depth_;
  return body;
}

Body Parser::parse_captured(std::string_view end) {
  need_block_end();
  const int loops = std::exchange(loops_, 0);
  Body body = parse_body({end});
  loops_ = loops;
  end_block(end);
  return body;
}

StmtPtr Parser::parse_block() {
  if (is_name("if")) return parse_if();
  if (is_name("for")) return parse_for();
  if (is_name("set")) return parse_set();
  if (is_name("macro")) return parse_macro();
  if (is_name("call")) return parse_call_block();
  if (is_name("filter")) return parse_filter_block();
  if (is_name("with")) return parse_with();
  if (is_name("generation")) return parse_plain_block("endgeneration");
  if (is_name("break") || is_name("continue")) {
    if (loops_ == 0) fail("it inside a loop");
    StmtPtr stmt = make(is_name("break") ? Stmt::Kind::kBreak : Stmt::Kind::kContinue);
    skip();
    need_block_end();
    return stmt;
  }
  for (const std::string_view other :
       {"include", "import", "from", "extends", "block", "do", "autoescape", "trans"}) {
    if (is_name(other)) {
      fail(ErrorCode::kUnsupported,
           fmt::format("found the tag '{}', which is not supported", other));
    }
  }
  fail("a tag that is known here");
  return nullptr;
}

/// Behind a body: its end, which is called `name`.
void Parser::end_block(std::string_view name) {
  if (!skip_name(name)) return fail(name);
  need_block_end();
}

StmtPtr Parser::parse_if() {
  StmtPtr first = make(Stmt::Kind::kIf);
  Stmt* branch = first.get();
  while (true) {
    skip();  // if, elif
    branch->test = parse_tuple(false);
    need_block_end();
    branch->body = parse_body({"elif", "else", "endif"});
    if (!is_name("elif")) break;
    first->branches.push_back(make(Stmt::Kind::kIf));
    branch = first->branches.back().get();
  }
  if (skip_name("else")) {
    need_block_end();
    first->orelse = parse_body({"endif"});
  }
  end_block("endif");
  return first;
}

StmtPtr Parser::parse_for() {
  StmtPtr loop = make(Stmt::Kind::kFor);
  skip();
  loop->target = parse_target(false);
  if (!skip_name("in")) fail("in");
  loop->expr = parse_tuple(false);
  if (skip_name("if")) loop->test = parse_expression();
  if (is_name("recursive")) {
    fail(ErrorCode::kUnsupported, "found a recursive loop, which is not supported");
  }
  need_block_end();
  ++loops_;
  loop->body = parse_body({"endfor", "else"});
  --loops_;
  if (skip_name("else")) {
    need_block_end();
    loop->orelse = parse_body({"endfor"});
  }
  end_block("endfor");
  return loop;
}

StmtPtr Parser::parse_set() {
  StmtPtr set = make(Stmt::Kind::kSet);
  skip();
  set->target = parse_target(true);
  if (skip_op("=")) {
    set->expr = parse_tuple();
    need_block_end();
    return set;
  }
  set->kind = Stmt::Kind::kSetBlock;
  if (is_op("|")) set->expr = parse_filters(nullptr);
  set->body = parse_captured("endset");
  return set;
}

/// (name, name=default, ...)
void Parser::parse_params(Stmt& stmt) {
  need_op("(");
  while (now().kind != Kind::kEnd && !is_op(")")) {
    if (!stmt.params.empty()) need_op(",");
    std::string name = need_name();
    stmt.params.emplace_back(std::move(name), skip_op("=") ? parse_expression() : nullptr);
  }
  need_op(")");
}

StmtPtr Parser::parse_macro() {
  StmtPtr macro = make(Stmt::Kind::kMacro);
  skip();
  macro->name = need_name();
  parse_params(*macro);
  macro->body = parse_captured("endmacro");
  return macro;
}

StmtPtr Parser::parse_call_block() {
  StmtPtr call = make(Stmt::Kind::kCall);
  skip();
  call->name = "caller";
  if (is_op("(")) parse_params(*call);
  call->expr = parse_expression();
  if (!call->expr || call->expr->kind != Expr::Kind::kCall) fail("a call");
  call->body = parse_captured("endcall");
  return call;
}

StmtPtr Parser::parse_filter_block() {
  StmtPtr block = make(Stmt::Kind::kFilterBlock);
  skip();
  block->expr = parse_filter(nullptr);
  if (is_op("|")) block->expr = parse_filters(std::move(block->expr));
  block->body = parse_captured("endfilter");
  return block;
}

StmtPtr Parser::parse_with() {
  StmtPtr with = make(Stmt::Kind::kWith);
  skip();
  while (now().kind == Kind::kName) {
    std::string name = need_name();
    need_op("=");
    with->params.emplace_back(std::move(name), parse_expression());
    if (!skip_op(",")) break;
  }
  need_block_end();
  with->body = parse_body({"endwith"});
  end_block("endwith");
  return with;
}

/// A tag that only marks its body.
StmtPtr Parser::parse_plain_block(std::string_view end) {
  StmtPtr block = make(Stmt::Kind::kWith);
  skip();
  need_block_end();
  block->body = parse_body({end});
  end_block(end);
  return block;
}

/// name, (name, name), or, where it may be, namespace.member.
ExprPtr Parser::parse_target(bool with_member) {
  const auto one = [&]() -> ExprPtr {
    ExprPtr name = make(Expr::Kind::kName);
    name->name = need_name();
    return name;
  };
  if (with_member && next().kind == Kind::kOperator && next().text == ".") {
    ExprPtr object = one();
    skip();  // .
    ExprPtr member = make(Expr::Kind::kMember);
    member->name = need_name();
    add(*member, std::move(object));
    return member;
  }
  const bool has_brackets = skip_op("(");
  ExprPtr first = one();
  if (is_op(",")) {
    ExprPtr tuple = make(Expr::Kind::kTuple);
    add(*tuple, std::move(first));
    while (skip_op(",") && now().kind == Kind::kName && !is_name("in")) add(*tuple, one());
    first = std::move(tuple);
  }
  if (has_brackets) need_op(")");
  return first;
}

}  // namespace llm::jinja
