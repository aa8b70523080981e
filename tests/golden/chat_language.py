"""Small templates of our own, one for each rule of Jinja's language (make_chat_golden.py renders them by jinja2)."""

# What they are rendered with, beside add_generation_prompt, bos_token and eos_token.
VARIABLES = {
    "n": 7, "x": 2.5, "s": "Stra\u00dfe \u4f60\u597d ab", "t": " \t a b\u3000c \n", "empty": "", "nothing": None, "yes": True,
    "items": [3, 1, 2], "words": ["b", "A", "c", "a"], "quote": "it's", "both": "'\"\\\n\t\u00a0\u00e9\u200b\U0001f600",
    "rows": [{"k": "b", "v": 1}, {"k": "a", "v": 2}, {"k": "b", "v": None}, {"v": 4}],
    "map": {"b": 1, "A": [1, 2.0, None, True], "items": "mine", "c": {"d": "<e>"}}, "big": 18446744073709551615,
}

# Between ";;" or line breaks.
EXPRESSIONS = """
n + 1 ;; n - 10 ;; n * x ;; n / 2 ;; n // 2 ;; -n // 2 ;; n % 3 ;; -n % 3 ;; n ** 2 ;; 2 ** -1 ;; -2 ** 2 ;; 7.0 // 2 ;; -7.5 % 2
1 / 3 ;; 1e16 ;; 1e15 ;; 1.5e-5 ;; 0.0001 ;; 100.0 ;; 1e22 ;; -0.0 ;; 0.1 + 0.2 ;; 3.0 * 2 ;; 1_000 + 1 ;; big ;; big + 1 ;; big * 2
n ~ x ~ nothing ~ yes ~ items ;; "a" + "b" ~ 1 + 2 ;; "ab" * 3 ;; 2 * [1] ;; [1] + [2] ;; (1,) + (2,) ;; "a" + 1 ;; [1] + (1,)
nothing + 1 ;; 1 < 2 < 3 ;; 1 < 3 < 2 ;; 1 == 1.0 ;; 1 == true ;; "a" < "b" ;; [1, 2] < [1, 3] ;; "a" < 1 ;; nothing == none
[1] == (1,) ;; "1" == 1 ;; {"a": 1} == {"a": 1.0} ;; {"a": 1, "b": 2} == {"b": 2, "a": 1} ;; missing == missing ;; missing == none
2 != 3 ;; not 1 == 2 ;; "a" in "cab" ;; 1 in items ;; 9 not in items ;; "b" in map ;; 1 in "a" ;; 1 in missing ;; 1 in nothing
not n in items ;; yes and empty ;; empty or nothing ;; not empty ;; n and x or 0 ;; 1 if yes else 2 ;; 1 if empty
(1 if empty) is defined ;; 1 if empty else 2 if nothing else 3 ;; items[0] ;; items[-1] ;; items[9] ;; items[9] is defined
items[1:] ;; items[::-1] ;; items[:-1] ;; items[5:] ;; items[-2:9] ;; items[2:0:-1] ;; items[::0] ;; s[0] ;; s[4] ;; s[-1] ;; s[5:9]
s[::-1] ;; s[1:-1:2] ;; s[99] is defined ;; (1, 2, 3)[1:] ;; s[:n] ;; items["x"] is defined ;; nothing[1:] is defined ;; map.b
map["b"] ;; map.items is defined ;; map["items"] ;; map.c.d ;; map.nope ;; map.nope.more ;; map["nope"] is defined ;; nothing.x
rows[1].k ;; rows.1.k ;; missing ;; missing.x ;; missing[0] ;; missing ~ "a" ;; missing + "a" ;; missing | length ;; missing | list
missing | upper ;; missing | int ;; missing is defined ;; [] ;; [1, "a", none, 2.0, true] ;; {} ;; {"a": [1], 2: (3,)} ;; () ;; (1,)
(1, "x") ;; ["it's", 'say "x"', both] ;; {"k": quote} ;; [[], {}, ()] ;; ["\\x07"] ;; "\\n\\t\\\\ \\" \\' \\x41 \\u00e9 \\U0001F600 \\101 \\q"
'a' 'b' "c" ;; "a\\\nb" ;; t.strip() ~ "|" ;; t.lstrip() ~ "|" ;; t.rstrip() ~ "|" ;; "xxaxx".strip("x") ;; "abcab".strip("ba")
"xax".lstrip("x") ;; "\xe9a\xe9".strip("\xe9") ;; s.strip(1) ;; "a,b,,c".split(",") ;; "a,b,,c".split(",", 1) ;; t.split()
" a  b c ".split(none, 1) ;; "a b".split("") ;; "a,b,c".rsplit(",", 1) ;; " a b c ".rsplit(none, 1) ;; "".split() ;; "".split(",")
"a\\nb\\r\\nc\\n".splitlines() ;; "a\\n\\nb".splitlines(true) ;; "a-b-c".partition("-") ;; "a-b-c".rpartition("-") ;; "abc".partition("-")
s.startswith("Str") ;; s.startswith(("x", "S")) ;; s.endswith("ab") ;; s.endswith("") ;; s.startswith(1) ;; s.find("a") ;; s.find("\u4f60")
s.find("zz") ;; "abab".rfind("ab") ;; "abab".count("ab") ;; "abc".count("") ;; "abc".index("c") ;; "abc".index("x")
"aaa".replace("a", "b", 2) ;; "abc".replace("", "-") ;; "abc".replace("b", "") ;; "a\xe9".replace("", ".") ;; "aBc dEf".upper()
"aBc dEf".lower() ;; "aBc dEf-gh it's".title() ;; "aBc".capitalize() ;; "ab".join(["x", "y"]) ;; ",".join("abc") ;; ",".join([1])
"12".isdigit() ;; "".isdigit() ;; "ab1".isalpha() ;; "ab1".isalnum() ;; "AB1".isupper() ;; "a".islower() ;; " \\n".isspace()
"abc".removeprefix("a") ;; "abc".removesuffix("x") ;; "{} {}".format(1, "b") ;; "{1}{0}{k}{{}}".format("a", "b", k=2)
"%s is %d%%" % ("a", 3) ;; "%s" % "x" ;; "%s %s" % ("x",) ;; "%r" % "x" ;; "%s|%s" | format(1, none) ;; map.keys() | list
map.values() | list ;; map.items() | list ;; map.get("b") ;; map.get("zz") ;; map.get("zz", 5) ;; map.get("zz") is none
map.copy() == map ;; map.clear() ;; items.index(1) ;; items.count(2) ;; items.index(9) ;; items.append(4) ;; items.sort is defined
s.nope is defined ;; s.nope() ;; n.real is callable ;; n is integer ;; x is float ;; n is number ;; yes is number ;; yes is integer
yes is boolean ;; s is string ;; items is sequence ;; map is sequence ;; s is iterable
n is iterable ;; map is mapping ;; items is mapping ;; nothing is none ;; missing is none ;; missing is sequence ;; missing is iterable
n is odd ;; 4 is even ;; n is divisibleby 7 ;; n is eq 7 ;; n is equalto(7) ;; n is not sameas 7.0 ;; n is ge(7) ;; n is lt 3
n is in [7] ;; "a" is lower ;; "A1" is upper ;; yes is true ;; n is true ;; empty is false ;; n is nosuch ;; "upper" is filter
"odd" is test ;; range is callable ;; none is undefined ;; missing is not defined ;; "abc" is eq "abc" and n is odd ;; quote | upper
"aBC" | lower ;; "hello wORLD-foo (bar" | title ;; "hELLO" | capitalize ;; t | trim ~ "|" ;; "xax" | trim("x") ;; n | trim
s | length ;; items | length ;; map | count ;; items | sort ;; words | sort ;; words | sort(case_sensitive=true)
items | sort(reverse=true) ;; rows[:3] | sort(attribute="k") | map(attribute="v") | list ;; [1, "a"] | sort ;; items | first
items | last ;; [] | first ;; s | first ;; s | last ;; items | reverse | list ;; "abc" | reverse ;; [3, 1] | max ;; [3, 1] | min
[] | max ;; words | min ;; items | sum ;; items | sum(start=10) ;; rows | sum(attribute="v") ;; rows[:2] | sum("v")
words | unique | list ;; words | join(", ") ;; rows[:2] | join("-", attribute="k") ;; items | join ;; s | list ;; "abc" | list
map | list ;; map | dictsort ;; map | dictsort(by="value") ;; {"b": 1, "a": 2} | dictsort(reverse=true) ;; map | items | list
nothing | items | list ;; s | items | list ;; missing | items | list ;; rows | map(attribute="k") | list ;; rows | map(attribute="k", default="-") | list
words | map("upper") | list ;; items | map("string") | join("+") ;; items | map("nosuch") | list
rows | selectattr("v") | list | length ;; rows | selectattr("k", "defined") | list | length
rows | selectattr("k", "equalto", "b") | list ;; rows | rejectattr("v", "none") | list ;; items | select("odd") | list
items | reject("gt", 1) | list ;; items | select | list ;; words | select("in", ["a", "b"]) | list
rows | map(attribute="c.d") | list ;; "a" | default("b") ;; missing | default("b") ;; empty | default("b")
empty | default("b", true) ;; missing | d("x") ;; missing | default ;; nothing | default("b", boolean=true) ;; "42" | int
" 42 " | int ;; "4.7" | int ;; "x" | int ;; "x" | int(5) ;; 4.9 | int ;; -4.9 | int ;; yes | int ;; nothing | int ;; "ff" | int(0, 16)
"1.5" | float ;; "x" | float ;; n | float ;; x | round ;; 2.567 | round(2) ;; 2.5 | round ;; 3.5 | round ;; 7 | round
2.1 | round(0, "ceil") ;; 2.9 | round(method="floor") ;; -3 | abs ;; -2.5 | abs ;; "a" | abs ;; n | string ;; items | string
"a\\nb\\n\\nc" | indent ;; "a\\nb" | indent(2, true) ;; "a\\n\\nb" | indent(2, blank=true) ;; "a\\nb" | indent("> ") ;; "a\\n" | indent ~ "|"
"aXbX" | replace("X", "--") ;; "aXbX" | replace("X", "-", 1) ;; "<a & 'b'>" | escape ;; "<a>" | safe ;; "<" + ("<" | safe) ;; ("<" | safe) + "&"
"<" ~ ("<" | safe) ;; ("<" | safe) is escaped ;; n | nosuch ;; "%s-%s" | format("a", 1)
map | attr("items") is defined ;; map | tojson ;; both | tojson ;; both | tojson(ensure_ascii=true)
[1, 2.0, none, true, "\xe9"] | tojson ;; map | tojson(indent=2) ;; [] | tojson(indent=2) ;; {} | tojson(indent=1) ;; (1, 2) | tojson
map | tojson(separators=(",", ":")) ;; map | tojson(indent=4, sort_keys=true) ;; {"b": 1, "a": 2} | tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson ;; missing | tojson ;; 1e16 | tojson ;; [[1], {"a": []}] | tojson(indent="\\t")
range(3) | list ;; range(1, 4) | list ;; range(5, 0, -2) | list ;; range(0) | list ;; range(1, 2, 0) | list ;; dict(a=1, b=2)
dict([("a", 1)]) ;; namespace(a=1).a ;; raise_exception("no") ;; nosuch(1) ;; "a"("b") ;; n() ;; strftime_now("%d %b %Y")
strftime_now("%A, %B %-d, %y; %j %H:%M:%S %p %%") ;; strftime_now is defined ;; bos_token ~ eos_token ;; add_generation_prompt ;; (1 | string) + "a" ;; - 3 | abs ;; 1 + 2 | string ~ "x" ;; "a" if n > 5 and not empty else "b" ;; n == 7 and items == [3, 1, 2]
[i for i in items] ;; 1 + ;; (1 ;; [1 ;; {1: } ;; "abc ;; n.0 ;; items.0 ;; items.1 + 1 ;; @ ;; 5 is ;; true.x ;; none is none is none
{"a": 1}.a
nothing | selectattr("v") | list ;; nothing | rejectattr("v") | list ;; nothing | map(attribute="v") | list ;; nothing | map("upper") | list
nothing | select | list ;; nothing | reject("odd") | list ;; 0 | selectattr("v") | list ;; false | rejectattr("v") | list ;; 0 | map("upper") | list
false | select | list ;; 0 | reject | list ;; "" | selectattr("v") | list ;; missing | select | list ;; {} | map("upper") | list ;; 0.0 | select | list
nothing | selectattr("v", "nosuch") | list ;; nothing | map | list ;; nothing | selectattr | list ;; 1 | select | list ;; true | map("upper") | list
2.5 | selectattr("v") | list ;; nothing | list ;; nothing | first ;; nothing | sort ;; nothing | unique | list ;; nothing | reverse | list ;; 0 | join
nothing | indent ;; 7 | indent ;; [1] | indent ;; missing | indent ;; (nothing | select) and 1 ;; ([] | map("abs")) and 1 ;; 1 if [] | select else 2
items | select | length ;; (items | map("abs")) is sequence ;; (items | map("abs")) is iterable ;; (items | select)[0] is defined ;; (items | select)[1:] is defined
(items | select) == (items | select) ;; items | select | last ;; items | select | first ;; items | select | reverse | list ;; map | items | length
items | reverse | length ;; [] | select | sort ;; (items | select) + [1] ;; (items | select) * 2 ;; 2 in (items | select) ;; (items | select).count is defined
items | unique | list | length ;; items | unique | length ;; [[1]] | unique | list ;; [{}] | unique | list ;; [1, 1.0, true, "1", (1,), (1.0,)] | unique | list
true | round ;; "abcabc".rsplit("bc") ;; "aaaa".rsplit("aa", 1) ;; "aaa".rsplit("aa") ;; "aaa".split("aa") ;; "abab".rpartition("ab") ;; "\u3000a\u3000 b\u2003".rsplit()
"\u3000a\u3000 b\u2003".split(none, 1) ;; " a b  c ".rsplit(none, 2) ;; " a b ".rsplit(none, 0) ;; " a b ".split(none, 0) ;; "abc".rfind("") ;; "".rfind("") ;; "abc".rfind("zz")
"\xe9a\xe9b\xe9".rfind("\xe9") ;; "\xe9a\xe9b\xe9".count("\xe9") ;; "a\xe9\u4f60b".strip("ab\u4f60") ;; "a\xe9\u4f60b"[1:3] ;; "0123456789\xe9abcdefghij"[10:12] ;; "0123456789\xe9abcdefghij" | length
dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10) ;; dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10)["j"] ;; dict({"a": 1}, a=2)
{1: "a", 2: "b", 3: "c", 4: "d", 5: "e", 6: "f", 7: "g", 8: "h", 9: "i", 1.0: "z", true: "y", "1": "x", (1,): "w"} ;; {1: 2}[1.0] ;; {(1, "a"): 2}[(1.0, "a")] ;; {none: 1}[none]
dict(range(20) | map("string") | map("list") | map("length") | list) ;; {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9} == {"i": 9, "h": 8, "g": 7, "f": 6, "e": 5, "d": 4, "c": 3, "b": 2, "a": 1}
"ab" * 3000 == "ab" * 2999 + "ab" ;; ("ab" * 3000) | length ;; "ab" * 0 ;; "ab" * -1 ;; "" * 5 ;; ("\xe9" * 5000)[4999] ;; ("abc" * 2731) | length
rows | groupby("k") ;; rows | groupby("k") | length ;; rows | groupby("k") | map(attribute="grouper") | list ;; rows | groupby("k") | map(attribute="list") | map("length") | list
rows | groupby("nosuch", default="z") ;; [{"a": "B"}, {"a": "b"}, {"a": "A"}] | groupby("a") ;; [{"a": "B"}, {"a": "b"}, {"a": "A"}] | groupby("a", case_sensitive=true)
[{"a": {"b": 2}}, {"a": {"b": 1}}] | groupby("a.b") ;; [[2, 1], [1, 5], [2, 3]] | groupby(0) ;; nothing | groupby("a") ;; [] | groupby("a") ;; rows | groupby ;; (rows | groupby("k"))[0].nosuch is defined
range(7) | batch(3) | list ;; range(7) | batch(3, "x") | list ;; range(6) | batch(3, 0) | list ;; [] | batch(2) | list ;; range(2) | batch(0) | list ;; range(3) | batch(5, none) | list ;; "abcd" | batch(3, "-") | map("join") | join("|") ;; items | batch
range(7) | slice(3) | list ;; range(7) | slice(3, "x") | list ;; range(6) | slice(3, 0) | list ;; range(2) | slice(4) | list ;; range(2) | slice(4, "x") | list ;; [] | slice(2) | list ;; [] | slice(2, 1) | list ;; items | slice(0) | list
"ab" | center(7) ~ "|" ;; "abc" | center(6) ~ "|" ;; "abc" | center(8) ~ "|" ;; "\xe9" | center(4) ~ "|" ;; n | center(4) ;; "abc" | center(2) ;; ("" | center) | length
"ab".center(5, "*") ;; "ab".ljust(5, ".") ;; "ab".rjust(5) ;; "ab".ljust(1) ;; "-7".zfill(5) ;; "+7".zfill(5) ;; "7".zfill(3) ;; "".zfill(2) ;; "a-".zfill(4) ;; "ab".rjust(5, "xy") ;; "ab".rjust() ;; "ab".rjust(9, "\xe9") | length
"abcabc".rindex("b") ;; "abc".rindex("x") ;; "\xe9a\xe9".rindex("\xe9")
"foo bar baz qux" | truncate(9) ;; "foo bar baz qux" | truncate(9, true) ;; "foo bar baz qux" | truncate(11) ;; "foo bar baz qux" | truncate(11, false, "...", 0) ;; "foo bar baz" | truncate(4, end="", leeway=0)
"abcdefghijkl" | truncate(5) ;; "\xe9\xe9\xe9 \xe9\xe9\xe9\xe9\xe9\xe9" | truncate(6, leeway=0) ;; "abc" | truncate(2) ;; "abc" | truncate(5, leeway=-1) ;; ("ab " * 100) | truncate | length ;; "abcdef ghijkl" | truncate(8, end="\u2026", leeway=0)
"a b-c, d_e  f" | wordcount ;; "" | wordcount ;; "\xe9t\xe9 \u4f60\u597d x" | wordcount ;; "\u3000a\u2003b " | wordcount ;; 12 | wordcount ;; "a.b.c" | wordcount
"a b/c?d=1&e" | urlencode ;; "\xe9 ~-._" | urlencode ;; 12 | urlencode ;; "%" | urlencode ;; "" | urlencode
"""

STATEMENTS = [
    "{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }};{% endfor %}",
    "{% for i in items %}{{ loop.previtem }}-{{ loop.nextitem }}-{{ loop.previtem is defined }};{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}|{% for i in missing %}x{% else %}none{% endfor %}|{% for k in map %}{{ k }}{% endfor %}",
    "{% for i in items if i > 1 %}{{ loop.index }}:{{ i }}{{ loop.last }} {% endfor %}|{% for i in nothing %}{% endfor %}",
    "{% for key, group in rows | groupby('k') %}{{ key }}:{{ group | length }} {% endfor %}{% for g in rows | groupby('k') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}",
    "{% for row in items | batch(2) %}{{ row | join('-') }};{% endfor %}{% for row in items | slice(2, '') %}{{ row | join('-') }};{% endfor %}",
    "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}|{% for k, v in map | dictsort %}{{ k }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}|{% for c in 'h\u00e9' %}[{{ c }}]{% endfor %}|{% for i in 5 %}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{{ loop.depth }}{% break %}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}{% for i in [1] + [2] if i %}{{ i }}{% endfor %}{% for i in (items if yes else []) %}{{ i }}{% endfor %}",
    "{% set a = 1 %}{% for i in items %}{{ a }}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}", "{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}",
    "{% set ns = namespace(a=1, b=[]) %}{% for i in items %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}", "{% set n.x = 1 %}", "{% set a %}<{{ n }}>{% endset %}{{ a }}{{ a | length }}", "{% set a | upper | trim %} x{{ n }} {% endset %}{{ a }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(b=5, a=6) }}|{{ m() }}|{{ m(1) | upper }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro f(i) %}{% if i > 0 %}{{ i }}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% macro m() %}{{ n }}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}",
    "{% macro m() %}{% set n = 9 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}", "{% for i in items %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}[{{ caller() }}{{ x }}]{% endmacro %}{% call m(1) %}in{{ n }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% filter upper %}ab{{ quote }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aXa{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% generation %}a{{ n }}{% endgeneration %}b", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% raw %}{{ n }}{% if %}{% endraw %}|{% raw -%}  a {%- endraw %} b", "a {# c {{ n }} #} b{#- x -#}  c", "{#\nlines\n#}\nx", "{% if yes %}\n  a\n{% endif %}\nb\n", "  {% if yes %}\n  x {{ n }}\n  {% endif %}\n y",
    "a\n  {%- if yes -%}  \n b \n {%- endif -%} \n c", "a {{- n -}} b {{ n }}\n c", "  {%+ if yes %}x{% endif +%}\n  y", "{% if yes +%}\nx{%+ endif %}\ny", "a\r\n{% if yes %}\r\nb{% endif %}\rc\r\n", "x\n\n", "{{ n }}\n", "\n",
    "{{ n }}  {% if yes %} z {% endif %}  \n", "\u3000{%- if yes -%}\u3000 a{% endif %}", "  {# c #}\n  b {# d #}\n c", "{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a']['b'] }}", "{{ '{% raw %}' }}{{ '}}' }}{{ \"%}\" }}", "{%if yes%}a{%elif n%}b{%else%}c{%endif%}{%-if not yes-%} q{%else%}r{%endif%}",
    "{% if missing %}a{% elif missing is defined %}b{% else %}c{% endif %}", "{% if %}{% endif %}", "{% if yes %}", "{% endif %}", "{% for %}", "{{ n", "{% if yes", "{# x", "{% nosuch %}", "{{ }}", "{% set %}", "{% set x = %}", "{% macro %}{% endmacro %}", "{% break %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% do items.append(1) %}", "{{ loop }}", "{{ m(*items) }}", "{{ items | map('tojson') | join }}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m['content'] | trim }}\n{% endfor %}", "{{ messages[0]['content'] }}{{ messages[-1].content }}{{ messages | length }}{{ tools is none }}{{ documents is none }}",
    "{{ raise_exception('Bad: ' ~ n) }}", "{{ 1 if n }}{{ '' if n else 'b' }}{{ ('a' if n) ~ 'b' }}", "{{ s }}{{- '' }}   {{- n }}", "{%- for i in items -%}\n  {{- i }},\n{%- endfor %}",
    "{% set a = 'x' if n == 7 else 'y' %}{{ a }}{% set b = n, %}{{ b }}", "{% for i in items | sort %}{{ i }}{% endfor %}{% for i in items | select('odd') %}{{ i }}{% endfor %}", "{{ messages[0]['role'] == 'user' and 'U' or 'S' }}", "{% if n is defined and n is not none and n %}a{% endif %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ m.content }}{% endfor %}", "{% for x in [1, 1, 2] %}{% if loop.nextitem is defined and loop.nextitem == x %}={% endif %}{% endfor %}", "{{ messages[1:] | length }}{{ messages[1:][0].role }}",
    "{% set ns = namespace() %}{{ ns.x is defined }}{% set ns.x = 1 %}{{ ns.x }}", "{% macro a() %}1{% endmacro %}{% macro b() %}{{ a() }}2{% endmacro %}{{ b() }}{{ a is defined }}", "{% set f = 'a' %}{% macro m(f) %}{{ f }}{% endmacro %}{{ m('b') }}{{ f }}", "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}",
    "{% macro m(a, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10) %}{{ a }}{{ b }}{{ h }}{{ j }}{% endmacro %}{{ m(1) }}|{{ m(j=1, i=2, a=3) }}|{{ m(1, 2, 3, 4, 5, 6, 7, 8, 9, 0) }}|{{ m(a=1, j=2) }}",
    "{% macro m(a, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10) %}{% endmacro %}{{ m(z=1) }}",
    "{% set a, b, c, d, e, f, g, h, i, j = range(10) %}{{ a }}{{ j }}{% set j = 'x' %}{{ j }}{{ k is defined }}", "{% set ns = namespace(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9) %}{% set ns.j = 10 %}{% set ns.a = 0 %}{{ ns.a }}{{ ns.i }}{{ ns.j }}",
    "{% for x in nothing | selectattr('v') %}{{ x }}{% else %}none{% endfor %}", "{% if items | selectattr('nosuch') %}true{% endif %}{% if items | selectattr('nosuch') | list %}true{% endif %}",
]


# What jinja2 renders and we refuse by choice.
REFUSED = [
    "{% for i in [] recursive %}{% endfor %}",  # no published template has one
    "{% block b %}x{% endblock %}",  # blocks are for templates that inherit
    "{{ map.items }}",  # an address in memory
    "{% set x = namespace() %}{% set x.y = x %}",  # a cycle
    "{% macro m() %}{% endmacro %}{{ [m] }}",
    "{{ namespace(a=1) }}", "{{ 2 ** 200 }}", "{{ '%5d' % 1 }}", "{{ '{:>5}'.format(1) }}", "{{ dict(*[{}]) }}", "{{ [1] | pprint }}",
]


def templates() -> list[str]:
    return ["{{ " + one + " }}" for line in EXPRESSIONS.strip("\n").split("\n") for one in line.split(" ;; ")] + STATEMENTS
