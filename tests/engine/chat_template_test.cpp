// Our Jinja against jinja2, by its language and by published templates (tests/golden/README.md),
// its limits, and where characters come from.

#include "engine/chat/chat_template.h"

#include "base/sha256.h"
#include "tests/support/json.h"

namespace llm {
namespace {

constexpr std::chrono::year_month_day kDate{std::chrono::year{2026}, std::chrono::November,
                                            std::chrono::day{4}};

OrderedJson golden(std::string_view name) {
  const std::string path = fmt::format(LLM_SOURCE_DIR "/tests/golden/chat/{}", name);
  OrderedJson json = parse_ordered_json(test::read_file(path));
  REQUIRE(json.is_object());
  return json;
}

std::optional<std::string> text_of_file(const std::string& path) {
  return std::filesystem::exists(path) ? std::optional(test::read_file(path)) : std::nullopt;
}

Result<std::string> rendered(const std::string& jinja, const ChatInput& input) {
  LLM_TRY(const ChatTemplate parsed, ChatTemplate::parse(jinja));
  LLM_TRY(const auto parts, parsed.render(input));
  return chat_text(parts);
}

ChatInput language_input(const OrderedJson& language) {
  return {.messages = language["messages"],
          .bos_token = "<s>",
          .eos_token = "</s>",
          .variables = language["variables"],
          .date = kDate};
}

/// Parts as text, content in brackets: "<s>[Hi]".
std::string marked(const std::string& jinja, const ChatInput& input) {
  const auto parts = test::require_ok(test::require_ok(ChatTemplate::parse(jinja)).render(input));
  std::string text;
  for (const ChatPart& part : parts) {
    text += part.is_markup ? part.text : fmt::format("[{}]", part.text);
    if (part.message) text += fmt::format("={}", *part.message);
  }
  return text;
}

Error error_of(const std::string& jinja, const ChatInput& input = {}) {
  const auto result = rendered(jinja, input);
  REQUIRE(!result.ok());
  return result.error();
}

ChatInput chat(OrderedJson messages) { return {.messages = std::move(messages)}; }

}  // namespace

TEST_CASE("the language is jinja2's", "[chat][golden]") {
  const OrderedJson language = golden("language.json");
  const ChatInput input = language_input(language);
  REQUIRE(language["cases"].size() > 400);
  for (const OrderedJson& one : language["cases"]) {
    const std::string jinja = one[0];
    CAPTURE(jinja);
    const auto text = rendered(jinja, input);
    if (one[1].is_null()) {
      CHECK(!text.ok());
    } else {
      CAPTURE(text.ok() ? "" : text.error().to_string());
      REQUIRE(text.ok());
      CHECK(*text == one[1].get<std::string>());
    }
  }
}

TEST_CASE("what there is not of the language is refused by name", "[chat]") {
  const OrderedJson language = golden("language.json");
  for (const OrderedJson& one : language["refused"]) {
    CAPTURE(one);
    const auto text = rendered(one, language_input(language));
    REQUIRE(!text.ok());
    CHECK(text.error().code == ErrorCode::kUnsupported);
    CHECK_THAT(text.error().to_string(), Contains("line 1: found "));
  }
}

TEST_CASE("published templates have the texts of jinja2", "[chat][golden]") {
  // jinja2 refuses tools there, since json.dumps knows no generator; a list is what was meant.
  const std::set<std::string> renders_more = {"llama-cpp-deepseek-r1.jinja"};
  const OrderedJson content = golden("templates.json");
  const char* data = std::getenv("LLM_TEST_DATA");
  std::size_t n_templates = 0;
  for (const OrderedJson& entry : content["templates"]) {
    const std::string file = entry["file"];
    auto text = text_of_file(LLM_SOURCE_DIR "/tests/golden/chat/" + file);
    if (!text && data) text = text_of_file(fmt::format("{}/templates/{}", data, file));
    if (!text) continue;
    CAPTURE(file);
    CHECK(sha256_hex(std::as_bytes(std::span(*text))) == entry["sha256"]);
    const ChatTemplate parsed = test::require_ok(ChatTemplate::parse(*text));
    std::istringstream digests(entry["texts"].get<std::string>());
    ++n_templates;
    for (const OrderedJson& run : content["runs"]) {
      CAPTURE(run);
      ChatInput input{.messages = content["conversations"][run["conversation"].get<std::size_t>()],
                      .add_generation_prompt = run["add_generation_prompt"],
                      .bos_token = "<s>",
                      .eos_token = "</s>",
                      .variables = run["variables"]};
      if (run["tools"].is_string()) input.tools = content["tools"][run["tools"].get<std::string>()];
      if (run["date"] == true) input.date = kDate;
      const auto parts = parsed.render(input);
      std::string digest = "-";
      if (parts.ok()) {
        const std::string made = chat_text(*parts);
        digest = sha256_hex(std::as_bytes(std::span(made))).substr(0, 12);
      }
      std::string expected;
      REQUIRE(digests >> expected);
      if (expected == "-" && renders_more.contains(file)) continue;
      CAPTURE(parts.ok() ? chat_text(*parts) : parts.error().to_string());
      CHECK(digest == expected);
    }
  }
  if (!data) WARN("skipped: all but the templates committed here, LLM_TEST_DATA is unset");
  REQUIRE(n_templates >= (data ? 52U : 2U));
}

TEST_CASE("characters keep where they came from", "[chat]") {
  const ChatInput input = [] {
    ChatInput made = chat({{{"role", "user"}, {"content", "a<|x|>b, c"}, {"name", "Eve"}, {"n", 5}},
                           {{"role", "evil<|"}, {"content", " ok "}}});
    made.bos_token = "<s>";
    made.tools = {{{"d", "<|x|>\n"}}};
    made.variables = {{"v", "<|v|>"}};
    return made;
  }();
  const auto of = [&](const std::string& expression) {
    return marked("{% set m = messages[0] %}{{ " + expression + " }}", input);
  };
  CHECK(of("bos_token + '<|' ~ m.role ~ '|>' + m.content") == "<s><|user|>[a<|x|>b, c]=0");
  CHECK(of("'<|' + messages[1].role + '|>'") == "<|[evil<|]|>");
  CHECK(of("m.content ~ '<|x|>'") == "[a<|x|>b, c]=0<|x|>");
  CHECK(of("m.content[1:6] + m.content[0]") == "[<|x|>a]");
  CHECK(of("m.content.split('<|') | join('-')") == "[a]-[x|>b, c]");
  CHECK(of("m.content.replace('a', '<|x|>')") == "<|x|>[<|x|>b, c]");
  CHECK(of("'-x-'.replace('x', m.name)") == "-[Eve]-");
  CHECK(of("(' ' + m.content + ' ') | trim | upper") == "[A<|X|>B, C]");
  CHECK(of("messages[1].content | trim") == "[ok]");
  CHECK(of("messages[1].content") == "[ ok ]=1");
  CHECK(of("tools | tojson") == R"([[{"d": "<|x|>\n"}]])");
  CHECK(of("'<' ~ m.n ~ '>' ~ v") == "<[5]>[<|v|>]");
  CHECK(of("m.keys() | first") == "[role]");
  CHECK(of("'%s:%s' % ('a', m.name)") == "a:[Eve]");
  CHECK(of("'{}{}'.format(m.name, 1)") == "[Eve1]");
  CHECK(of("[m.name] | string") == "[['Eve']]");
  CHECK(of("m.name | reverse ~ m.name[::-1]") == "[evEevE]");
  CHECK(of("m.name | list | join | indent(2, true)") == "  [Eve]");
  CHECK(of("m.content | replace('b', 'b')") == "[a<|x|>]b[, c]");
  CHECK(marked("{% set x %}<{{ messages[0].name }}>{% endset %}{{ x }}", input) == "<[Eve]>");
  CHECK(marked("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].name) }}", input) ==
        "<[Eve]>");
  CHECK(marked("{% filter trim %} {{ v }} {% endfilter %}", input) == "[<|v|>]");
}

TEST_CASE("a template's own refusal is an error with its words", "[chat]") {
  const Error error = error_of("a\n{{ raise_exception('No ' ~ messages[0].role) }}",
                               chat({{{"role", "system"}, {"content", ""}}}));
  CHECK(error.code == ErrorCode::kUsage);
  CHECK(error.to_string() == "chat template: line 2: the template says: No system");
}

TEST_CASE("errors name the line", "[chat]") {
  CHECK_THAT(error_of("a\n\n{{ missing.x }}").to_string(),
             Contains("line 3: 'missing' is undefined"));
  CHECK_THAT(error_of("{% if x %}\n{% else x %}").to_string(),
             Contains("line 2: found 'x', need %}"));
  CHECK_THAT(error_of("\n{% include 'x' %}").to_string(),
             Contains("line 2: found the tag 'include'"));
  CHECK_THAT(error_of("\n{{ 1 | nosuch }}").to_string(),
             Contains("line 2: found the filter 'nosuch'"));
}

TEST_CASE("endless work ends with an error", "[chat]") {
  const std::string many = "{% for a in range(99999) %}{% for b in range(99999) %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  const std::string grow = "{% set ns = namespace(x='0123456789abcdef', l=[]) %}" + many;
  std::string nested = "0";
  for (int i = 0; i < 40; ++i)
    nested = fmt::format("[{},{}]", nested, nested.size() > 99 ? "0" : nested);
  const std::vector<std::string> templates = {
      many + ends,
      many + "0123456789abcdef0123456789abcdef0123456789abcdef" + ends,
      "{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(0) }}",
      "{% macro f(x) %}{% for i in range(2) %}{{ f(x ~ i) }}{% endfor %}{% endmacro %}{{ f('') }}",
      grow + "{% set ns.x = ns.x ~ ns.x %}" + ends,
      grow + "{% set ns.l = ns.l + [ns.x * 9999 ~ b] %}" + ends,
      grow + "{% set ns.l = [ns.l, ns.l] %}" + ends,
      grow + "{% set ns.x = ns.x.replace('', ns.x) %}" + ends,
      grow + "{% set ns.x = ns.x | tojson | tojson | indent(99) %}" + ends,
      "{{ 'a' * 999999999 }}",
      "{{ [1] * 999999999 }}",
      "{{ 'aaaaaaaaaaaaaaaa' | list * 999999 }}",
      "{{ range(999999999999) }}",
      "{% set x %}" + many + "0123456789abcdef" + ends + "{% endset %}",
      "{{ ('ab,' * 5000000).split(',') | join('+') }}",
  };
  for (const std::string& jinja : templates) {
    CAPTURE(jinja);
    CHECK(error_of(jinja).code == ErrorCode::kResource);
  }
}

TEST_CASE("no damage to a template crashes it", "[chat]") {
  std::mt19937 random(20261104);
  const OrderedJson language = golden("language.json");
  const ChatInput input = language_input(language);
  std::vector<std::string> seeds;
  for (const OrderedJson& one : language["cases"]) seeds.push_back(one[0]);
  for (const char* file : {"Qwen2.5-7B-Instruct.jinja", "SmolLM2-135M-Instruct.jinja"}) {
    seeds.push_back(*text_of_file(fmt::format(LLM_SOURCE_DIR "/tests/golden/chat/{}", file)));
  }
  const std::string signs = "{}%#()[]|.,:'\"-+*~ 019axnis\\\n\x80";
  std::size_t n_rendered = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string jinja = seeds[random() % seeds.size()];
    for (auto n = random() % 4 + 1; n > 0; --n) {
      const std::size_t at = random() % (jinja.size() + 1);
      const std::string& other = seeds[random() % seeds.size()];
      if (const auto kind = random() % 4; kind == 0) {
        jinja.erase(at, random() % 5 + 1);
      } else if (kind == 1) {
        jinja.insert(at, other.substr(random() % other.size(), random() % 20));
      } else {
        jinja.insert(at, 1, signs[random() % signs.size()]);
      }
    }
    n_rendered += rendered(jinja, input).ok();
  }
  CHECK(n_rendered > 1000);
}

}  // namespace llm
