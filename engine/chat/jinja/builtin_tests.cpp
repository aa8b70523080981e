#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shown_text.h"
#include "engine/chat/jinja/runtime.h"

namespace llm::jinja {
namespace {

struct Test {
  std::string_view name;
  std::size_t n_args;
  bool (*holds)(Runtime& rt, const Value& value, const Value& arg);
  std::string_view op = {};  ///< in place of `holds`: the comparison that it is
};

Int whole(Runtime& rt, const Value& value) { return rt.need_int(value, "what is tested"); }

bool has_case(Runtime& rt, const Value& value, std::string_view method) {
  return value.text() && is_true(call_method(rt, value, method, {}));
}

using R = Runtime&;
using V = const Value&;

constexpr std::array kTests = {
    Test{"defined", 0, [](R, V v, V) { return !v.is<Undefined>(); }},
    Test{"undefined", 0, [](R, V v, V) { return v.is<Undefined>(); }},
    Test{"none", 0, [](R, V v, V) { return v.is<None>(); }},
    Test{"boolean", 0, [](R, V v, V) { return v.is<bool>(); }},
    Test{"true", 0, [](R, V v, V) { return v.is<bool>() && *v.get<bool>(); }},
    Test{"false", 0, [](R, V v, V) { return v.is<bool>() && !*v.get<bool>(); }},
    Test{"integer", 0, [](R, V v, V) { return v.is<Int>(); }},
    Test{"float", 0, [](R, V v, V) { return v.is<double>(); }},
    Test{"number", 0, [](R, V v, V) { return v.is_number(); }},
    Test{"string", 0, [](R, V v, V) { return v.text() != nullptr; }},
    Test{"mapping", 0, [](R, V v, V) { return v.dict() != nullptr; }},
    Test{"sequence", 0,
         [](R, V v, V) {
           return v.text() || (v.list() && !v.list()->is_generator) || v.dict() ||
                  v.is<Undefined>();
         }},
    Test{"iterable", 0,
         [](R, V v, V) {
           return v.text() || v.list() || v.dict() || v.is<Undefined>() || v.is<const Loop*>();
         }},
    Test{"callable", 0,
         [](R, V v, V) { return v.is<MethodPtr>() || v.is<Function>() || v.is<const Macro*>(); }},
    Test{"even", 0, [](R rt, V v, V) { return whole(rt, v) % 2 == 0; }},
    Test{"odd", 0, [](R rt, V v, V) { return whole(rt, v) % 2 != 0; }},
    Test{"divisibleby", 1,
         [](R rt, V v, V a) {
           const Int by = whole(rt, a);
           if (by == 0) rt.wrong("found a division by zero");
           return by != 0 && whole(rt, v) % by == 0;
         }},
    Test{"lower", 0, [](R rt, V v, V) { return has_case(rt, v, "islower"); }},
    Test{"upper", 0, [](R rt, V v, V) { return has_case(rt, v, "isupper"); }},
    Test{"escaped", 0, [](R, V v, V) { return v.text() && (*v.get<TextPtr>())->is_safe; }},
    Test{"filter", 0, [](R, V v, V) { return v.text() && is_filter(v.text()->bytes()); }},
    Test{"test", 0, [](R, V v, V) { return v.text() && is_test(v.text()->bytes()); }},
    Test{"sameas", 1, [](R, V v, V a) { return v.index() == a.index() && is_equal(v, a); }},
    Test{"in", 1, nullptr, "in"},
    Test{"eq", 1, nullptr, "=="},
    Test{"equalto", 1, nullptr, "=="},
    Test{"==", 1, nullptr, "=="},
    Test{"ne", 1, nullptr, "!="},
    Test{"!=", 1, nullptr, "!="},
    Test{"lt", 1, nullptr, "<"},
    Test{"lessthan", 1, nullptr, "<"},
    Test{"<", 1, nullptr, "<"},
    Test{"le", 1, nullptr, "<="},
    Test{"<=", 1, nullptr, "<="},
    Test{"gt", 1, nullptr, ">"},
    Test{"greaterthan", 1, nullptr, ">"},
    Test{">", 1, nullptr, ">"},
    Test{"ge", 1, nullptr, ">="},
    Test{">=", 1, nullptr, ">="},
};

const Test* find_test(std::string_view name) {
  const auto* at = std::ranges::find(kTests, name, &Test::name);
  return at == kTests.end() ? nullptr : at;
}

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(Runtime& rt, std::string_view name, const Value& input, const Args& args) {
  const Test* test = find_test(name);
  if (!test) {
    rt.unsupported(fmt::format("the test '{}'", shown(name)));
    return false;
  }
  if (!args.named.empty() || args.values.size() != test->n_args) {
    rt.wrong(fmt::format("found {} arguments of the test '{}', need {}",
                         args.values.size() + args.named.size(), name, test->n_args));
    return false;
  }
  if (!test->holds) return compared(rt, test->op, input, args.values[0]);
  return test->holds(rt, input, test->n_args > 0 ? args.values[0] : Value());
}

}  // namespace llm::jinja
