// What a template may take: levels, steps, memory, time (docs/chat.md, "Limits").

#include <sys/resource.h>

#include "base/bounded_stack.h"
#include "engine/chat/chat_template.h"
#include "engine/chat/jinja/evaluator.h"
#include "engine/chat/jinja/lexer.h"
#include "engine/chat/jinja/parser.h"
#include "tests/base/texts.h"

namespace llm {
namespace {

using test::split;
using test::times;

Result<std::string> rendered_within(const std::string& jinja, const ChatInput& input = {},
                                    const RenderLimits& limits = {}) {
  LLM_TRY(const ChatTemplate parsed, ChatTemplate::parse(jinja));
  LLM_TRY(const auto parts, parsed.render(input, limits));
  return chat_text(parts);
}

/// That a template's end is that limit, named with its line.
void must_exceed(const std::string& jinja, std::string_view limit, const ChatInput& input = {}) {
  CAPTURE(jinja.substr(0, 200), jinja.size());
  const auto text = rendered_within(jinja, input);
  REQUIRE(!text.ok());
  CHECK(text.error().code == ErrorCode::kResource);
  CHECK_THAT(text.error().to_string(),
             Contains("chat template: line ") && Contains(std::string(limit)));
}

/// The steps that a template takes. @pre it is one, and needs no variables
std::size_t steps_of(const std::string& jinja) {
  CAPTURE(jinja.substr(0, 200));
  std::size_t steps = 0;
  const Status ok = jinja::metered(std::size_t{1} << 30, {}, [&](jinja::Meter& meter) -> Status {
    LLM_TRY(const auto tokens, jinja::lex(jinja));
    LLM_TRY(const jinja::Body body, jinja::Parser(*tokens).parse());
    jinja::Runtime rt(meter);
    jinja::Scope scope;
    const std::size_t before = meter.steps();
    jinja::Evaluator(rt).render(body, scope);
    steps = meter.steps() - before;
    return rt.failed() ? Status(*rt.error()) : Status(Ok{});
  });
  test::require_ok(ok);
  return steps;
}

/// What the process holds, and the most that it has held, in MiB.
double memory_now(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    double kib = 0;
    if (name == field && status >> kib) return kib / 1024;
  }
  return 0;
}

}  // namespace

TEST_CASE("whatever recurses in a template is counted", "[chat]") {
  const std::string ifs = times("{% if 1 %}", 60);
  const std::string end_ifs = times("{% endif %}", 60);
  const std::string filters = times("{% filter upper %}", 60);
  const std::string end_filters = times("{% endfilter %}", 60);
  std::vector<std::string> bodies = split(
      "{{ m() }}\n{% call m() %}{% endcall %}\n{% call m() %}{{ m() }}{% endcall %}\n"
      "{% set x = m() %}\n{% set x %}{{ m() }}{% endset %}\n"
      "{% set x | upper | lower | trim %}{{ m() }}{% endset %}\n{% with x = m() %}{% endwith %}\n"
      "{% with %}{{ m() }}{% endwith %}\n{% for a in [m()] %}{% endfor %}\n"
      "{% for a in [1] %}{{ m() }}{% endfor %}\n{% for a in [1] if m() %}{% endfor %}\n"
      "{% for a in [] %}{% else %}{{ m() }}{% endfor %}\n{% if m() %}{% endif %}\n"
      "{% if 0 %}{% elif m() %}{% endif %}\n{% if 0 %}{% else %}{{ m() }}{% endif %}\n"
      "{% generation %}{{ m() }}{% endgeneration %}\n"
      "{% filter upper | replace(m(), 'a') %}{% endfilter %}\n"
      "{% filter upper %}{{ m() }}{% endfilter %}\n{% macro k(a=m()) %}{% endmacro %}{{ k() }}\n"
      "{{ [m()] }}{{ {1: m()} }}\n{{ 'a'[m()] }}\n{{ 'a'[m():] }}\n{{ 'a' ~ m() }}\n"
      "{{ 'a' + m() }}\n{{ not m() }}\n{{ 1 == m() }}\n{{ 1 and m() }}\n{{ 0 or m() }}\n"
      "{{ 1 if m() }}\n{{ m() | upper | trim }}\n{{ m() is eq m() }}\n"
      "{{ 'a'.replace(m(), 'b') }}\n{{ dict(a=m()) }}",
      "\n");
  for (const std::string& body : {
           "{{ " + times("(", 60) + "m()" + times(" ~ '')", 60) + " }}",
           ifs + "{{ m() }}" + end_ifs,
           filters + "{{ m() }}" + end_filters,
           "{% filter upper" + times(" | upper", 100) + " %}{{ m() }}{% endfilter %}",
       })
    bodies.push_back(body);
  for (const std::string& body : bodies)
    must_exceed("{% macro m() %}" + body + "{% endmacro %}\n{{ m() }}", "inside each other");
  // Two that call each other by what they are given.
  must_exceed("{% macro a(f) %}{{ f(f) }}{% endmacro %}{{ a(a) }}", "inside each other");
  must_exceed(
      "{% macro a() %}{{ caller() }}{% endmacro %}"
      "{% macro b() %}{% call a() %}{{ b() }}{% endcall %}{% endmacro %}{{ b() }}",
      "inside each other");
}

TEST_CASE("bad input 91: a deep chat template does not use the caller's stack", "[chat]") {
  // The parser's 150 levels, and 149 of an expression's tree.
  const std::string deep = times("{% if 1 %}{% filter upper %}", 73) + "{{ 1" + times(" + 1", 148) +
                           " }}" + times("{% endfilter %}{% endif %}", 73) + "{{ " +
                           times("[", 148) + "1" + times("]", 148) + " }}";
  OrderedJson tools = 1;
  for (int i = 0; i < 98; ++i) tools = OrderedJson::array({std::move(tools)});
  const ChatInput input{.tools = tools};
  test::require_ok(run_on_stack(std::size_t{96} << 10, [&] {
    // Read, rendered, printed, compared and destroyed there.
    CHECK_THAT(rendered_within(deep).error().to_string(),
               Contains("lists and dicts inside each other"));
    test::require_ok(
        rendered_within("{{ tools | tojson }}{{ tools }}{{ tools == [tools][0] }}"
                        "{{ tools < tools }}{{ {(tools | string): 1} }}{{ tools in [tools] }}",
                        input));
    must_exceed("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
                "chat template: line 1: found more than 1000 evaluations inside each other");
    for (const auto& [before, each, inside, close] :
         std::vector<std::array<const char*, 4>>{{"", "{% if 1 %}", "", ""},
                                                 {"", "{% for a in b %}", "", ""},
                                                 {"", "{% macro a() %}", "", ""},
                                                 {"{{ ", "(", "1", ")"},
                                                 {"{{ ", "[", "1", "]"},
                                                 {"{{ ", "{1:", "1", "}"},
                                                 {"{{ ", "-", "1", ""},
                                                 {"{{ x", "(", "", ")"},
                                                 {"{{ 1", " + 1", "", ""},
                                                 {"{{ 1", "|abs", "", ""},
                                                 {"{{ 1", " if 1 else 1", "", ""},
                                                 {"{{ 1", " and 1", "", ""},
                                                 {"{{ x", ".x", "", ""},
                                                 {"{{ x", "[0]", "", ""},
                                                 {"{{ x", " is eq(1)", "", ""}})
      must_exceed(before + times(each, 60'000) + inside + times(close, 60'000) +
                      (*before != 0 ? " }}" : ""),
                  "levels");
  }));
  CHECK(ChatTemplate::parse("{{ " + times("not ", 100'000) + "1 }}").ok());
  OrderedJson deeper = 1;
  for (int i = 0; i < 1000; ++i) deeper = OrderedJson::array({std::move(deeper)});
  CHECK(rendered_within("x", {.tools = deeper}).error().code == ErrorCode::kResource);
  CHECK(ChatTemplate::parse(std::string(ChatTemplate::kMaxBytes + 1, 'x')).error().code ==
        ErrorCode::kResource);
}

TEST_CASE("bad input 92: every operation of a chat template counts the data that it reads",
          "[chat]") {
  // On a text of 256 KiB, a list of 5000.
  const std::string given =
      "{% set a = ('a' * 262143) ~ 'b' %}{% set w = ' ' * 262144 %}{% set n = 'a' * 125000 ~ 'c' "
      "%}"
      "{% set l = range(5000) | list %}{% set s = (',' * 5000).split(',') %}";
  const auto steps = [&](const std::string& body, int n) {
    return steps_of(
        given + fmt::format("{{% for i in range({}) %}}{{% set y = {} %}}{{% endfor %}}", n, body));
  };
  const auto each = [&](const std::string& body) { return (steps(body, 3) - steps(body, 1)) / 2; };
  // A text is at least 1/4 byte each, in 64 a step.
  constexpr std::size_t kText = (std::size_t{1} << 18) / 64 / 4;
  for (const std::string& body :
       split("n in a; a.find(n); a.rfind(n); a.count(n); a.count('b'); a.index('b'); "
             "a.replace(n, ''); a | replace('b', 'c'); a.split(n); a.rsplit(n); a.split('b'); "
             "a.rsplit('b', 1); w.split(); w.rsplit(); a.split(); a.rsplit(); w.strip(); "
             "w.lstrip(); w.rstrip(); w | trim; a.strip('ab'); a.strip(a); a.strip('b' ~ n); "
             "a.partition(n); a.rpartition(n); a.splitlines(); a | length; a | count; w.isspace(); "
             "a.isalpha(); a.islower(); (a ~ '').isdigit(); a is lower; a.startswith(a); "
             "a.endswith(a); a.removeprefix('x'); a.upper(); a | upper; a | title; a | capitalize; "
             "a[5:]; a[:-1]; a[-1]; a[250000]; a == (a ~ ''); a < (a ~ 'x'); a ~ 'x'; a + 'x'; "
             "'%s' % a; '{}'.format(a); a | tojson; [a] | string; a | indent; a | string ~ ''; "
             "a | escape; a | safe; a | int; a | float; [a] | join; [a, a] | join(a[:1]); "
             "a | truncate(9); a | wordcount; a | urlencode; a | center(300000); "
             "a.zfill(300000); a.rindex('b'); "
             "{a: 1}[a]; [a ~ ''].index(a); [a ~ ''].count(a); [a ~ '', a ~ '', a ~ ''] | sort; "
             "[a ~ '', a ~ ''] | unique | list; [a ~ '', a ~ ''] | max; a in [a ~ '']; "
             "a is in [a ~ '']; namespace(k=a ~ ''); 'a' * 262144; (a, 1) == (a ~ '', 1)",
             "; ")) {
    CAPTURE(body);
    CHECK(each(body) >= kText);
  }
  // An item of 5000 is at least 1/16 step.
  for (const std::string& body :
       split("l + [1]; l * 2; l[1:]; l[::-1]; l | list; l | reverse; l | sort; l | unique; "
             "l | batch(9); l | slice(9); l | groupby('x', 1); [1] | batch(5000, 1); "
             "[] | slice(5000); "
             "l | sum; l | max; l | min; l | first; l | last; l | join; l | map('abs'); "
             "l | select('odd'); l | reject('odd'); l | selectattr('x'); l | map(attribute='x'); "
             "l == (l + []); l < (l + [1]); -1 in l; l.count(-1); l | tojson; l | string; "
             "s | join(','); s | unique; l | length ~ l; '%s' | format(l); range(5000); "
             "s == (s + []); (l, 1) == (l + [], 1)",
             "; ")) {
    CAPTURE(body);
    CHECK(each(body) >= 5000 / 16);
  }
}

TEST_CASE("work grows with what it touches, and no faster", "[chat]") {
  // Twice the size takes at most 2.4 times the steps.
  const auto grows = [](const std::string& of, const std::string& with) {
    CAPTURE(of.substr(0, 100));
    CHECK(static_cast<double>(steps_of(with)) <= 2.4 * static_cast<double>(steps_of(of)) + 1000);
  };
  const auto names = [](std::string_view before, std::string_view each, std::string_view behind,
                        int n) {
    std::string jinja(before);
    for (int i = 0; i < n; ++i) jinja += fmt::format(fmt::runtime(each), i);
    return jinja + std::string(behind);
  };
  for (const auto& [before, each, behind] : std::vector<std::array<const char*, 3>>{
           {"", "{{% set a{} = 1 %}}", "{{ a0 }}"},
           {"{{ dict(", "a{}=1,", ") | length }}"},
           {"{% set x = namespace(", "a{}=1,", ") %}{{ x.a0 }}"},
           {"{% set x = namespace() %}", "{{% set x.a{} = 1 %}}", "{{ x.a0 }}"},
           {"{{ {", "'a{}': 1,", "} | length }}"},
           {"{{ {", "{}: 1,", "} | length }}"},
           {"{{ [", "'a{}',", "] | unique | list | length }}"},
           {"{{ [", "'a{}',", "] | sort | length }}"},
           {"{% set d = {", "'a{}': 1,", "} %}{{ d == dict(d) }}{{ d | dictsort | length }}"},
           {"{% macro m(", "a{}=1,", "z=1) %}{% endmacro %}{{ m() }}"},
       }) {
    const std::string_view parameters = std::string_view(before).starts_with("{% macro") ? "," : "";
    std::string one = names(before, each, behind, 10'000);
    std::string two = names(before, each, behind, 20'000);
    if (!parameters.empty()) {  // named by the call, too
      const std::string call = "z=1) }}";
      one = one.substr(0, one.size() - 4) + names("", "a{}=1,", call, 10'000);
      two = two.substr(0, two.size() - 4) + names("", "a{}=1,", call, 20'000);
    }
    grows(one, two);
  }
  for (const std::string op :
       {"n in a", "a.rfind(n)", "a.replace(n, '')", "a.rsplit(n)", "a.count('aa')", "a.strip(n)",
        "w.rsplit()", "w.split()", "a.splitlines()", "a | replace('a', 'b')"}) {
    const auto sized = [&](int n) {
      return fmt::format(
          "{{% set a = 'a' * {0} %}}{{% set n = 'a' * {1} ~ 'b' %}}"
          "{{% set w = ' ' * {1} ~ 'a ' * {2} %}}{{% set y = {3} %}}",
          n, n / 2, n / 64, op);
    };
    grows(sized(500'000), sized(1'000'000));
  }
}

TEST_CASE("bad input 93: the memory of a chat template is limited", "[chat]") {
  const std::string many = "{% for i in range(99999) %}";
  const std::string end = "{% endfor %}";
  const std::string list = "{% set ns = namespace(l=[], t='0123456789abcdef' * 4096) %}" + many;
  const double before = memory_now("VmRSS:");
  for (const std::string& jinja : std::vector<std::string>{
           "{% set k = (123456789012345,) * 900000 %}{% set ns = namespace(l=[]) %}" + many +
               "{% set ns.l = ns.l + [{}[k] ~ i, {}[k], k] %}" + end,
           list + "{% set ns.l = ns.l + [ns.t ~ i] %}" + end,
           list + "{% set ns.l = ns.l + [{}[ns.t ~ i]] %}" + end,
           list + "{% set ns.l = ns.l + ['a' * 100000] %}" + end,
           list + "{% set ns.l = ns.l + [(ns.t ~ i).copy] %}" + end,
           list + "{% set ns.l = ns.l + [range(1000) | list] %}" + end,
           list + "{% set ns.l = ns.l + [dict(a=i ~ ns.t)] %}" + end,
           "{% set t = 'ab' * 8000000 %}{{ t | list | length }}",
           "{% set t = 'a,' * 8000000 %}{{ t.split(',') | length }}",
           "{% set t = 'a ' * 8000000 %}{{ t.split() | length }}{{ t.rsplit() | length }}",
           "{% set t = 'a\n' * 8000000 %}{{ t.splitlines() | length }}{{ t | indent }}",
           "{{ [1] * 99999999 }}",
           "{% set t = [1] * 1000000 %}{{ t | sort(attribute='x') }}{{ (t + t) | unique | list }}",
           "{% set t = [1] * 600000 %}{{ dict([(t | string, t)]) | tojson | tojson }}",
           "{% set a = 'a' * 16000000 %}{% set b = a ~ 'b' %}{% set c = b ~ 'c' %}{% set d = c ~ "
           "'d' %}"
           "{% set e = a.replace('a', 'e') %}{% set f = a.strip('b' ~ a) %}{% set g = "
           "f.rsplit('g') %}",
           "{% macro m(x) %}" + times("{% set x %}{{ x }}{{ x }}", 30) + times("{% endset %}", 30) +
               "{% endmacro %}{{ m('a' * 1000000) }}",
           "{{ [" + times("[],", 340'000) + "] }}",
           times("{{a}}", 200'000),
       }) {
    CAPTURE(jinja.substr(0, 200));
    const auto text = rendered_within(jinja);
    if (!text.ok()) {
      CHECK(text.error().code == ErrorCode::kResource);
      CHECK_THAT(text.error().to_string(), Contains("chat template: line "));
    }
    CHECK(memory_now("VmHWM:") - before < 128);
  }
  // Each character of another source than the one before.
  must_exceed("{{ (messages[0].content ~ 'x') * 8000000 }}", "other sources",
              {.messages = {{{"role", "user"}, {"content", "y"}}}});
  CHECK(memory_now("VmHWM:") - before < 128);
}

TEST_CASE("messages of a chat template's errors have a bounded length", "[chat]") {
  const std::string name(500'000, 'n');
  for (const std::string& jinja :
       {"{{ " + name + ".x }}", "{{ {}." + name + ".x }}", "{{ {}['" + name + "'].x }}",
        "{{ 1 | " + name + " }}", "{{ 1 is " + name + " }}", "{% " + name + " %}",
        "{% macro m() %}{% endmacro %}{{ m(" + name + "=1) }}", "{{ 'a'.split(" + name + "=1) }}",
        "{% macro " + name + "() %}{% endmacro %}{{ " + name + "(1) }}", "{{ 1 " + name + " }}",
        "{{ raise_exception('" + name + "') }}", "{{ '{" + name + "}'.format() }}",
        "{{ {}[('" + name + "',)].x }}", "{{ " + std::string(500'000, '9') + " }}",
        "{{ '\\x" + name + "' }}"}) {
    CAPTURE(jinja.substr(0, 50));
    const auto text = rendered_within(jinja);
    REQUIRE(!text.ok());
    CHECK(text.error().message.size() < 2100);
  }
}

TEST_CASE("bad input 94: a chat template is stopped if no client waits or if it takes too long",
          "[chat]") {
  const std::string endless =
      "{% for a in range(9) %}\n{% for b in range(99999) %}{% endfor %}{% endfor %}";
  int asked = 0;
  const auto gone = rendered_within(endless, {}, {.is_given_up = [&] { return ++asked == 3; }});
  REQUIRE(!gone.ok());
  CHECK(asked == 3);
  CHECK(gone.error().to_string() ==
        "chat template: line 2: found that no client waits for the result");
  using std::chrono::milliseconds;
  for (const RenderLimits& limits :
       {RenderLimits{.most_work = milliseconds(0)}, RenderLimits{.most_time = milliseconds(0)}}) {
    const auto late = rendered_within(endless, {}, limits);
    REQUIRE(!late.ok());
    CHECK(late.error().code == ErrorCode::kResource);
    CHECK_THAT(late.error().to_string(), Contains("line 2: found more than 0 ms"));
  }
  CHECK(rendered_within("short", {}, {.most_work = milliseconds(0)}).ok());  // nobody looks so soon
}

}  // namespace llm
