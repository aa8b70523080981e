// Calls in every form that templates write: read off, read, and read as they come; layouts that
// models get wrong; values that look like marks.

#include <random>

#include "tests/base/texts.h"
#include "tests/engine/reply_support.h"

namespace llm::test::call_forms {
namespace {

using Kind = ReplyPart::Kind;

const OrderedJson& tools() {
  static const OrderedJson list = OrderedJson::array({function("save", parse_ordered_json(R"({
         "title": {"type": "string", "description": "d"},
         "body": {"type": "string", "description": "d"},
         "count": {"type": "integer", "description": "d"},
         "tags": {"type": "array", "items": {"type": "string"}},
         "place": {"type": "object", "properties": {
           "x": {"type": "number"}, "names": {"type": "array", "items": {"type": "string"}},
           "near": {"$ref": "#/properties/place"}}},
         "any": {},
         "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}})")),
                                                      function("clock", OrderedJson::object())});
  return list;
}

/// A form of calls, as the parts of a template.
struct Form {
  const char* name;
  const char* open;
  const char* call;
  const char* joint;
  const char* close;
};

constexpr const char* kObject =
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}";
constexpr const char* kPairs = "{% for k, v in c.function.arguments | items %}";

const std::vector<Form>& forms() {
  static const std::string pairs(kPairs);
  static const std::string json = "{{ v if v is string else v | tojson }}";
  static const std::string xml = "<tool_call>\n<function={{ c.function.name }}>\n" + pairs +
                                 "<parameter={{ k }}>\n" + json +
                                 "\n</parameter>\n{% endfor %}</function>\n</tool_call>";
  static const std::string glm = "<tool_call>{{ c.function.name }}\n" + pairs +
                                 "<arg_key>{{ k }}</arg_key>\n<arg_value>" + json +
                                 "</arg_value>\n{% endfor %}</tool_call>";
  static const std::string invoke = "<invoke name=\"{{ c.function.name }}\">\n" + pairs +
                                    "<parameter name=\"{{ k }}\">" + json +
                                    "</parameter>\n{% endfor %}</invoke>\n";
  static const std::string dsml =
      "<D invoke name=\"{{ c.function.name }}\">\n" + pairs +
      "<D parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" + json +
      "</D parameter>\n{% endfor %}</D invoke>\n";
  static const std::string gemma =
      "<|tool_call>call:{{ c.function.name + '{' }}" + pairs +
      "{{ k }}:{% if v is string %}<|\"|>{{ v }}<|\"|>{% else %}{{ v | tojson }}{% endif %}"
      "{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}<tool_call|>";
  static const std::string python = "{{ c.function.name }}(" + pairs +
                                    "{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}"
                                    "{% endfor %})";
  static const std::string seed = "<seed:tool_call>\n<function={{ c.function.name }}>\n" + pairs +
                                  "<parameter={{ k }}>" + json +
                                  "</parameter>\n{% endfor %}</function>\n</seed:tool_call>";
  static const std::string elements =
      "]<]m[>[<invoke name=\"{{ c.function.name }}\">" + pairs +
      "]<]m[>[<{{ k }}>{{ parts(v) }}]<]m[>[</{{ k }}>{% endfor %}]<]m[>[</invoke>\n";
  static const std::vector<Form> all = {
      {"Hermes", "<tool_call>\n", kObject, "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"},
      {"Mistral, list", "[TOOL_CALLS][", kObject, ", ", "]"},
      {"Mistral, names", "",
       "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}", "", ""},
      {"Mistral, ids", "",
       "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | "
       "tojson }}",
       "", ""},
      {"Granite", "<|tool_call|>[", kObject, ", ", "]"},
      {"Command R", "<|START_ACTION|>[\n",
       "{\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"{{ c.function.name }}\", "
       "\"parameters\": {{ c.function.arguments | tojson }}}",
       ",\n", "\n]<|END_ACTION|>"},
      {"DeepSeek", "<｜tool▁calls▁begin｜>",
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name }}\n```json\n{{ "
       "c.function.arguments | tojson }}\n```<｜tool▁call▁end｜>",
       "\n", "<｜tool▁calls▁end｜>"},
      {"DeepSeek 3.1", "<｜tool▁calls▁begin｜>",
       "<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments | tojson "
       "}}<｜tool▁call▁end｜>",
       "", "<｜tool▁calls▁end｜>"},
      {"DeepSeek 4", "<D tool_calls>\n", dsml.c_str(), "", "</D tool_calls>"},
      {"Kimi", "<|tool_calls_section_begin|>",
       "<|tool_call_begin|>functions.{{ c.function.name }}:{{ loop.index0 "
       "}}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>",
       "", "<|tool_calls_section_end|>"},
      {"Solar", "<|tool_calls|>",
       "<|tool_call:begin|>{{ c.id }}<|tool_call:name|>{{ c.function.name }}<|tool_call:args|>{{ "
       "c.function.arguments | tojson }}<|tool_call:end|>",
       "", "<|calls|>"},
      {"Gemma 4", "", gemma.c_str(), "", ""},
      {"LFM2", "<|tool_call_start|>[", python.c_str(), ", ", "]<|tool_call_end|>"},
      {"Llama 4", "[", python.c_str(), ", ", "]"},
      {"Llama 3", "",
       "{\"name\": \"{{ c.function.name }}\", \"parameters\": {{ c.function.arguments | tojson }}}",
       "; ", ""},
      {"Qwen3-Coder", "", xml.c_str(), "\n", ""},
      {"GLM", "", glm.c_str(), "\n", ""},
      {"MiniMax", "<minimax:tool_call>\n", invoke.c_str(), "", "</minimax:tool_call>"},
      {"MiniMax 3", "]<]m[>[<tool_call>\n", elements.c_str(), "", "]<]m[>[</tool_call>"},
      {"Seed-OSS", "", seed.c_str(), "\n", ""},
  };
  return all;
}

const ChatModel& model_named(const std::string& name) {
  static std::map<std::string, ChatModel> models;
  for (const Form& form : forms())
    if (form.name == name && !models.contains(name))
      models.emplace(name,
                     chat_model(calling_template(form.open, form.call, form.joint, form.close)));
  return models.at(name);
}

std::vector<ReplyPart> pushed(const ReplyFormat& format, const std::string& reply, std::size_t step,
                              bool is_cut = false) {
  return test::pushed(ReplyParser(format, tools(), false), reply, step, is_cut);
}

/// Content as it is, calls as [name arguments].
std::string in_words(std::vector<ReplyPart> parts, UnfinishedCall unfinished) {
  std::string words;
  for (const ReplyPart& part : whole_parts(std::move(parts), unfinished))
    words += part.kind == Kind::kCall ? "[" + part.call.name + " " + part.call.arguments + "]"
                                      : part.text;
  return words;
}

/// What becomes of a reply, which is the same however it is cut; what was given of arguments while
/// they came is what they are.
std::string parsed(const ReplyFormat& format, const std::string& reply, bool is_cut = false) {
  const auto unfinished = is_cut ? UnfinishedCall::kCall : UnfinishedCall::kContent;
  const std::string whole = in_words(pushed(format, reply, reply.size(), is_cut), unfinished);
  for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
    const auto parts = pushed(format, reply, step, is_cut);
    CAPTURE(reply, step);
    CHECK(in_words(parts, unfinished) == whole);
    std::string arguments;
    for (const ReplyPart& part : parts) {
      if (part.kind == Kind::kCall) arguments.clear();
      if (part.kind == Kind::kArguments) arguments += part.text;
      if (part.kind == Kind::kCallEnd) CHECK(part.call.arguments == arguments);
    }
  }
  return whole;
}

}  // namespace

TEST_CASE("calls of every form are read, several and none among them", "[reply][calls]") {
  const OrderedJson first = {{"name", "save"},
                             {"arguments", {{"title", "S\u00e3o \"P\"\n{x}"}, {"count", 3}}}};
  const OrderedJson second = {{"name", "save"}, {"arguments", {{"body", "a\\b"}}}};
  const std::string is = "[save " + json_text(first["arguments"]) + "]";
  for (const Form& form : forms()) {
    const ChatModel& model = model_named(form.name);
    CAPTURE(form.name, model.format.begin, model.format.between, model.format.end,
            model.format.middle, model.format.key_begin, model.format.key_end,
            model.format.value_end);
    CHECK(model.format.call != ReplyFormat::Call::kNone);
    CHECK(parsed(model.format, written(model, OrderedJson::array({first}))) == is);
    CHECK(parsed(model.format, written(model, OrderedJson::array({first, second}))) ==
          is + R"([save {"body":"a\\b"}])");
    CHECK(parsed(model.format, "Just text, <b>so</b> [x] {y}.") == "Just text, <b>so</b> [x] {y}.");
  }
}

TEST_CASE("no value is cut by what it spells", "[reply][calls]") {
  const std::vector<std::string> pieces = split(
      "</parameter>#</function>#</tool_call>#<tool_call>#<function=g>#<parameter=#</arg_value>#"
      "</arg_key>#<arg_key>#<arg_value>#</invoke>#</minimax:tool_call>#<invoke name=\"#"
      "</seed:tool_call>#[TOOL_CALLS]#[ARGS]#[/x]#]#[#{#}#})#\"#'#\\#\n#\n# #  #\r\n#\t#```#"
      "<|tool_call_end|>#<tool_call|>#|#<｜tool▁call▁end｜>#<｜tool▁calls▁end｜>#</D parameter>#"
      "</D invoke>#a#s.replace(#\u00e9#\u65e5#12#: #, #,#null#]<]m[>[#]<]m[>[</title>#"
      "]<]m[>[<item>#<item>#<#>",
      "#");
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (const Form& form : forms()) {
    const ChatModel& model = model_named(form.name);
    std::size_t n_text = 0;
    for (int i = 0; i < 200; ++i) {
      std::string value;
      for (std::size_t n = 1 + below(14); n > 0; --n) value += pieces[below(pieces.size())];
      value += '.';  // a mark at the very end cannot be told from a doubled one
      const OrderedJson arguments = {{"title", "t"}, {"body", value}, {"count", 7}};
      const bool is_last = below(2) == 0;
      const OrderedJson given = is_last ? OrderedJson{{"title", "t"}, {"body", value}} : arguments;
      OrderedJson calls = OrderedJson::array({{{"name", "save"}, {"arguments", given}}});
      if (below(3) == 0) calls.push_back({{"name", "save"}, {"arguments", {{"title", "2"}}}});
      const std::string reply = written(model, calls);
      CAPTURE(form.name, reply);
      const auto parts =
          whole_parts(pushed(model.format, reply, reply.size()), UnfinishedCall::kContent);
      std::vector<FunctionCall> found;
      for (const ReplyPart& part : parts)
        if (part.kind == Kind::kCall) found.push_back(part.call);
      n_text += found.empty() ? 1 : 0;
      if (found.empty()) continue;
      REQUIRE(found.size() == calls.size());
      CHECK(parse_ordered_json(found[0].arguments) == given);
      CHECK(parts.size() == calls.size());
      if (i % 20 == 0) parsed(model.format, reply);
    }
    CAPTURE(form.name);
    CHECK(n_text == 0);
  }
}

TEST_CASE("values with parts are read in every form", "[reply][calls]") {
  const OrderedJson place = parse_ordered_json(
      R"({"x": -1.5, "names": ["a, b", "]", "{\"}"], "near": {"x": 2, "names": []}})");
  for (const OrderedJson& arguments : std::vector<OrderedJson>{
           {{"tags", {"x", "", "1"}}, {"place", place}},
           {{"place", {{"near", {{"near", place}}}}}, {"title", "true"}},
           {{"tags", OrderedJson::array()}, {"place", OrderedJson::object()}, {"title", ""}},
           {{"any", {{"k", {1, 2}}}}, {"count", 12345}}}) {
    for (const Form& form : forms()) {
      const ChatModel& model = model_named(form.name);
      const std::string reply =
          written(model, OrderedJson::array({{{"name", "save"}, {"arguments", arguments}}}));
      CAPTURE(form.name, reply);
      CHECK(parsed(model.format, reply) == "[save " + json_text(arguments) + "]");
    }
  }
  // Space between elements is none of the value's, nor are marks that close nothing.
  const ReplyFormat& elements = model_named("MiniMax 3").format;
  for (const char* inner :
       {"]<]m[>[<title>A]<]m[>[</title>", "\n  ]<]m[>[<title>A]<]m[>[</title>\n"})
    CHECK(parsed(elements, std::string("]<]m[>[<invoke name=\"save\">") + inner +
                               "]<]m[>[</invoke>") == R"([save {"title":"A"}])");
}

TEST_CASE("a call of marked arguments in any layout", "[reply][calls]") {
  const ReplyFormat& xml = model_named("Qwen3-Coder").format;
  const std::string is = R"([save {"title":"Shopping","body":"milk"}])";
  const std::string title = "<parameter=title>\nShopping\n</parameter>\n";
  const std::string body = "<parameter=body>\nmilk\n</parameter>\n";
  for (const std::string& reply : std::vector<std::string>{
           "<tool_call>\n<function=save>\n" + title + body + "</function>\n</tool_call>",
           "<tool_call><function=save><parameter=title>Shopping</parameter><parameter=body>milk"
           "</parameter></function></tool_call>",
           "<tool_call>\r\n<function=save>\r\n<parameter=title>\r\nShopping\r\n</parameter>\r\n"
           "<parameter=body>\r\nmilk\r\n</parameter>\r\n</function>\r\n</tool_call>",
           "<tool_call>\n  <function=save>\n    <parameter=title>\n    Shopping\n    </parameter>\n"
           "    <parameter=body>\nmilk\n    </parameter>\n  </function>\n</tool_call>",
           "<function=save>\n" + title + body + "</function>\n</tool_call>",
           "<function=save>\n" + title + body + "</function>",
           "<tool_call>\n<function=save>\n" + title + body + "</tool_call>",
           "<tool_call>\n<function=save>\n" + title + body + "</function>",
           "<tool_call>\n<function=save>\n" + title + body,
           "<tool_call>\n<tool_call>\n<function=save>\n" + title + body +
               "</function>\n</function>\n</tool_call>\n</tool_call>",
           "<tool_call>\n<function=save>\n" + title + "</parameter>\n" + body +
               "</parameter>\n</function>\n</tool_call>",
           "<tool_call>\n<function=save>\n" + title +
               "<parameter=body>\nmilk\n</function>\n"
               "</tool_call>",
           "```xml\n<tool_call>\n<function=save>\n" + title + body +
               "</function>\n</tool_call>\n```",
           "<tool_call>\n<function=save>\n{\"title\": \"Shopping\", \"body\": \"milk\"}\n"
           "</function>\n</tool_call>"}) {
    CAPTURE(reply);
    std::string found = parsed(xml, reply);
    if (const std::size_t at = found.find("    Shopping"); at != std::string::npos)
      found.erase(at, 4);  // an indented value keeps its blanks
    CHECK(found == is);
  }
  CHECK(parsed(xml, "<tool_call>\n<function=save>\n" + title + "</function>\n<function=save>\n" +
                        body + "</function>\n</tool_call>") ==
        R"([save {"title":"Shopping"}][save {"body":"milk"}])");
  CHECK(parsed(xml, "<tool_call>\n<function=clock>\n</function>\n</tool_call>") == "[clock {}]");
  CHECK(parsed(xml, "Well.\n<tool_call>\n<function=save>\n" + title +
                        "</function>\n</tool_call>\nDone.") ==
        R"(Well.[save {"title":"Shopping"}]Done.)");
  // An unknown function, and a call that is not closed, are text.
  for (const std::string& text :
       std::vector<std::string>{"<function=other>\n" + title + "</function>",
                                "<tool_call>\n<function=save>\n<parameter=ti",
                                "<tool_call>\n<function=save>\n<parameter=title>\nShop"})
    CHECK(parsed(xml, text) == text);
  const ReplyFormat& glm = model_named("GLM").format;
  for (const char* reply :
       {"<tool_call>save<arg_key>title</arg_key><arg_value>Shopping</arg_value>"
        "<arg_key>body</arg_key><arg_value>milk</arg_value></tool_call>",
        "<tool_call>save\n<arg_key>title</arg_key><arg_value>Shopping</arg_value>\n"
        "<arg_key>body</arg_key><arg_value>milk</arg_value>\n</tool_call>"})
    CHECK(parsed(glm, reply) == is);
}

TEST_CASE("a value ends where its form says so", "[reply][calls]") {
  const ReplyFormat& xml = model_named("Qwen3-Coder").format;
  const auto body = [&](const std::string& value) {
    return "<tool_call>\n<function=save>\n<parameter=body>\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const std::string& value : std::vector<std::string>{
           "use </parameter> here", "s = s.replace(\"</parameter>\", \"\")\nprint(s)",
           "a\n</parameter>\nb", "a</parameter>", "\n\nx\n\n", "",
           "x\n</parameter>\n</function>\n</tool_call>\nand more",
           "x</parameter></function></tool_call> y", "</function>\n</tool_call>",
           "<tool_call>\n<function=g>\n<parameter=a>\n1\n</parameter>\n</function>\n</"
           "tool_call>\nx",
           "<parameter=x> y", "if a < b: </param", "</parameter><parameter=x>1"}) {
    CAPTURE(value);
    CHECK(parsed(xml, body(value)) == "[save " + json_text(OrderedJson{{"body", value}}) + "]");
  }
  const ReplyFormat& glm = model_named("GLM").format;
  CHECK(parsed(glm,
               "<tool_call>save\n<arg_key>body</arg_key>\n<arg_value>a </arg_value> b"
               "</arg_value>\n</tool_call>") == R"([save {"body":"a </arg_value> b"}])");
  // Values that may be something else than a string.
  const auto note = [&](const std::string& value) {
    return parsed(xml, "<function=save>\n<parameter=note>\n" + value +
                           "\n</parameter>\n<parameter=count>\n7\n</parameter>\n</function>");
  };
  CHECK(note("null") == R"([save {"note":null,"count":7}])");
  CHECK(note("nullable") == R"([save {"note":"nullable","count":7}])");
  CHECK(note("\"x\"") == R"([save {"note":"\"x\"","count":7}])");
}

TEST_CASE("calls of JSON in any layout", "[reply][calls]") {
  const ReplyFormat hermes = usual_reply_format("");
  const std::string call = R"({"name": "save", "arguments": {"title": "A"}})";
  const std::string is = R"([save {"title":"A"}])";
  for (const std::string& reply : std::vector<std::string>{
           "<tool_call>\n" + call + "\n</tool_call>",
           "<tool_call>" + call,
           "<tool_call>\r\n" + call + "\r\n</tool_call>\r\n",
           "<tool_call>\n" + call + "}\n</tool_call>",
           "<tool_call>\n" + call + "}}",
           "<tool_call>\n" + call.substr(0, call.size() - 1) + "\n</tool_call>",
           "<tool_call>\n<tool_call>\n" + call + "\n</tool_call>\n</tool_call>",
           "```xml\n<tool_call>\n" + call + "\n</tool_call>\n```",
           "<tool_call>\n```json\n" + call + "\n```\n</tool_call>",
           call,
           "```json\n" + call + "\n```",
           "```\n" + call + "\n```\n",
           "\n" + call + "\n",
           "<tools>\n" + call + "\n</tools>",
           call + "\n</tool_call>",
           R"({"name": "save", "parameters": {"title": "A"}})",
           R"({"arguments": {"title": "A"}, "name": "save"})",
           R"({"type": "function", "function": {"name": "save", "arguments": {"title": "A"}}})",
           R"(<tool_call>{"name": "save", "arguments": "{\"title\": \"A\"}"}</tool_call>)",
           R"([save(title="A")])",
           R"(<tool_call>{'name': 'save', 'arguments': {'title': 'A'}})"}) {
    CAPTURE(reply);
    CHECK(parsed(hermes, reply) == is);
  }
  for (const std::string& reply : std::vector<std::string>{
           "<tool_call>\n" + call + "\n" + call + "\n</tool_call>",
           "<tool_call>\n[" + call + ", " + call + "]\n</tool_call>",
           "<tool_call>\n" + call + ",\n" + call + "\n</tool_call>", "[" + call + ", " + call + "]",
           R"([save(title="A"), save(title='A')])"}) {
    CAPTURE(reply);
    CHECK(parsed(hermes, reply) == is + is);
  }
  // Text beside it, a function that is none, and what only looks alike, stay.
  for (const std::string& reply : std::vector<std::string>{
           "So: " + call, call + " is the call.", "```json\n" + call + "\n```\nThat is it.",
           R"({"name": "other", "arguments": {}})", R"({"name": "save"})", R"([save](http://x))",
           R"({"a": 1, "b": [2]})", "[1, 2]", "```python\nsave(title=\"A\")\n```",
           "<p>" + call + "</p> x", R"([other(title="A")])", "```\nx = 1\n```"}) {
    CAPTURE(reply);
    CHECK(parsed(hermes, reply) == reply);
  }
  const auto of = [&](const std::string& arguments) {
    return parsed(hermes, "<tool_call>\n{\"name\": \"save\", \"arguments\": " + arguments +
                              "}\n</tool_call>");
  };
  CHECK(of("null") == "[save {}]");
  CHECK(of(R"({"count": 12345678901234567890123, "x": [0.12345678901234567890123, 19.90, 1E5]})") ==
        R"([save {"count":12345678901234567890123,"x":[0.12345678901234567890123,19.90,1E5]}])");
  CHECK(of("{\"body\": \"a\nb\tc\"}") == R"([save {"body":"a\nb\tc"}])");
  CHECK(of(R"({"body": "\d \' \u00e9 C:\users", "note": None})") ==
        R"([save {"body":"\\d ' \u00e9 C:\\users","note":null}])");
  const ReplyFormat& mistral = model_named("Mistral, list").format;
  CHECK(parsed(mistral, "[TOOL_CALLS] [" + call + "]") == is);
}

TEST_CASE("arguments come as they are written", "[reply][calls]") {
  for (const Form& form : forms()) {
    const ChatModel& model = model_named(form.name);
    std::string code;
    for (int i = 0; i < 400; ++i) code += "    x = y[" + std::to_string(i) + "]  # <b>\n";
    const std::string reply =
        written(model, OrderedJson::array({{{"name", "save"}, {"arguments", {{"body", code}}}}}));
    const std::size_t begin = reply.find("x = y[0]");
    ReplyParser parser(model.format, tools(), false);
    std::size_t first = 0;
    std::size_t n = 0;
    std::size_t given = 0;
    for (std::size_t i = 0; i < reply.size(); ++i) {
      for (const ReplyPart& part : parser.push(reply.substr(i, 1))) {
        if (part.kind != Kind::kArguments) continue;
        if (n++ == 0) first = i;
        given += part.text.size();
        // Never far behind: a mark, or a line's end, may be held.
        if (i >= begin && i < begin + code.size()) CHECK(given + 40 > i - begin);
      }
    }
    CAPTURE(form.name, first, begin);
    CHECK(first <= begin + 8);
    CHECK(n > 1000);
  }
}

TEST_CASE("what a limit cuts is no whole call", "[reply][calls]") {
  const ReplyFormat hermes = usual_reply_format("");
  const std::string begun = R"(<tool_call>{"name": "save", "arguments": {"title": "Sho)";
  CHECK(parsed(hermes, begun, true) == R"([save {"title":"Sho])");
  CHECK(parsed(hermes, begun, false) == begun);
  const ReplyFormat& xml = model_named("Qwen3-Coder").format;
  const std::string title = "<tool_call>\n<function=save>\n<parameter=title>\nShopping\n";
  CHECK(parsed(xml, title, true) == R"([save {"title":"Shopping])");
  CHECK(parsed(xml, title + "</parameter>\n", true) == R"([save {"title":"Shopping"])");
  CHECK(parsed(xml, title + "</parameter>\n<parameter=bo", true) ==
        R"([save {"title":"Shopping"])");
  CHECK(parsed(xml, title + "</parameter>\n</function>", true) == R"([save {"title":"Shopping"}])");
  // What is no JSON is text, and in a stream no JSON either.
  const std::string wrong = R"(<tool_call>{"name": "save", "arguments": {"title": oops}})";
  CHECK(parsed(hermes, wrong) == wrong);
  for (const ReplyPart& part : pushed(hermes, wrong, 1))
    if (part.kind == Kind::kCallEnd) CHECK(parse_json(part.call.arguments).is_discarded());
}

TEST_CASE("what a limit leaves of a mark after a call is no content", "[reply][calls]") {
  const ReplyFormat hermes = usual_reply_format("");
  const std::string call = R"(<tool_call>{"name": "save", "arguments": {"title": "Shop"}})";
  const std::string marks = "</tool_call>\n<tool_call>\n{\"name\": \"sa";
  for (std::size_t n = 0; n <= marks.size(); ++n)
    CHECK(parsed(hermes, call + marks.substr(0, n), true) == R"([save {"title":"Shop"}])");
  const ReplyFormat& xml = model_named("Qwen3-Coder").format;
  const std::string begun = "<tool_call>\n<function=save>\n<parameter=title>\nShop\n</parameter>\n";
  const std::string more = "</function>\n</tool_call>\n<tool_call>\n<function=sa";
  for (std::size_t n = std::string("</function>").size(); n <= more.size(); ++n)
    CHECK(parsed(xml, begun + more.substr(0, n), true) == R"([save {"title":"Shop"}])");
}

TEST_CASE("a call that a limit cut can be left out, with its marks", "[reply][calls]") {
  const std::string said = "Saved it.\n";
  const auto left = [&](const ReplyFormat& format, const std::string& call) {
    for (std::size_t n = 0; n < call.size(); ++n) {
      CAPTURE(call.substr(0, n));
      const auto parts = pushed(format, said + call.substr(0, n), 5, true);
      const std::string words = in_words(parts, UnfinishedCall::kLeftOut);
      // After the last argument it may be whole before its mark of an end.
      if (words.find("[save") == std::string::npos)
        CHECK(words.find("tool_call>") == std::string::npos);
    }
  };
  left(usual_reply_format(""), R"(<tool_call>{"name": "save", "arguments": {"title": "Sh"}})");
  left(model_named("Qwen3-Coder").format,
       "<tool_call>\n<function=save>\n<parameter=title>\nShop\n</parameter>\n</function>");
}

TEST_CASE("marks without end take time that grows with them alone", "[reply][calls]") {
  const ReplyFormat& xml = model_named("Qwen3-Coder").format;
  const std::string begin = "<tool_call>\n<function=save>\n<parameter=body>\n";
  for (const char* piece : {"</parameter>\n", "\n", "</parameter>\n</function>\n", "<tool_call>",
                            "</parameter>\n<tool_call>\n<function=save", " ", "```"}) {
    std::string reply = begin;
    while (reply.size() < 400000) reply += piece;
    const auto start = std::chrono::steady_clock::now();
    pushed(xml, reply, 3);
    pushed(usual_reply_format(""), "<tool_call>" + reply, 3);
    CAPTURE(piece);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  }
}

}  // namespace llm::test::call_forms
