// Bodies of 4 MiB that have much of one thing.

#include "tests/tools/llmserve_process.h"

namespace llm::test {
namespace {

constexpr std::size_t kMost = (4 << 20) - 1024;
/// A second is what they may take on an idle machine. Where each thing is compared with those
/// before it, they take minutes.
constexpr std::chrono::seconds kHang(effort(10, 100));

using Item = std::function<std::string(std::size_t i)>;

/// begin item(0),item(1),... end, of about `most` bytes.
std::string many(std::string text, const Item& item, std::string_view end,
                 std::size_t most = kMost) {
  for (std::size_t i = 0; text.size() < most; ++i) text += (i == 0 ? "" : ",") + item(i);
  return text + std::string(end);
}

/// The same item again and again.
std::string many(std::string text, const char* item, std::string_view end) {
  return many(
      std::move(text), [item](std::size_t) { return std::string(item); }, end);
}

/// `end` after all of `item` and as many of `other` behind `between`.
std::string both(std::string text, const Item& item, std::string_view between, const Item& other,
                 std::string_view end) {
  std::size_t n = 0;
  for (; text.size() < kMost / 2 - 4096; ++n) text += (n == 0 ? "" : ",") + item(n);
  text += between;
  for (std::size_t i = 0; i < n; ++i) text += (i == 0 ? "" : ",") + other(i);
  return text + std::string(end);
}

const char* const kUser = R"({"role":"user","content":"a"})";
const std::string kChat = std::string(R"({"max_tokens":1,"messages":[)") + kUser;
const std::string kChats = "/v1/chat/completions";

std::string tool(std::size_t i) {
  return fmt::format(R"({{"type":"function","function":{{"name":"f{}"}}}})", i);
}
std::string call(std::size_t i) {
  return fmt::format(
      R"({{"id":"{}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}})", i);
}
std::string result(std::size_t i) {
  return fmt::format(R"({{"role":"tool","tool_call_id":"{}","content":"x"}})", i);
}
std::string again(std::string_view text, int n) {
  std::string all;
  for (; n > 0; --n) all += text;
  return all;
}

/// Paths and bodies.
std::vector<std::pair<std::string, std::string>> long_bodies() {
  const char* const system = R"({"role":"system","content":"a"})";
  const char* const part = R"({"type":"text","text":"a"})";
  const auto name = [](std::size_t i) { return fmt::format(R"("k{}":1)", i); };
  const auto flat = [](std::size_t i) {
    return fmt::format(R"({{"type":"function","name":"f{}"}})", i);
  };
  return {
      {kChats, many(kChat + "," + system + ",", system, "]}")},
      {"/apply-template", many(R"({"messages":[)", system, std::string(",") + kUser + "]}")},
      {kChats, many(kChat + ",", kUser, "]}")},
      {kChats, both(kChat + R"(,{"role":"assistant","tool_calls":[)", call, "]},", result, "]}")},
      {kChats, many(kChat + R"(],"tools":[)", tool, "]}")},
      {kChats,
       both(kChat + R"(],"tools":[)", tool,
            R"(],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[)", tool, "]}}")},
      {kChats, many(kChat + R"(],"chat_template_kwargs":{)", name, "}}")},
      {kChats, many(kChat + R"(],"metadata":{)", name, "}}")},
      {kChats, many(kChat + R"(],"logit_bias":{)", name, "}}")},
      {kChats, many(kChat + "],", name, "}")},
      {"/v1/messages", many(R"({"max_tokens":1,"messages":[{"role":"user","content":[)" +
                                again(R"({"type":"search_result","content":[)", 28),
                            part, again("]}", 28) + "]}]}")},
      {"/v1/responses",
       many(R"({"input":"a","tools":[)" + again(R"({"type":"namespace","name":"","tools":[)", 29),
            flat, again("]}", 29) + "]}")},
      {"/v1/rerank", many(R"({"query":"a","documents":[)", R"("d")", "]}")},
      {"/v1/embeddings", many(R"({"input":[)", R"("a")", "]}")},
      {"/v1/completions", many(R"({"prompt":"a","stop":[)", R"("a")", "]}")},
  };
}

/// A template that takes neither system messages nor two messages of a role.
const std::string kStrict =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('no') }}{% endif %}{{ m.content }}\n{% endfor %}";

}  // namespace

TEST_CASE("bad input 103: parsing time is proportional to the length of a body", "[llmserve]") {
  const ScratchDirectory folder;
  const Server server = serve_fable({"--chat-template", folder.write("strict.jinja", kStrict)});
  for (const auto& [path, body] : long_bodies()) {
    const auto begin = std::chrono::steady_clock::now();
    const Reply reply = server.ask(post_text(path, body));
    CAPTURE(path, body.substr(0, 300), reply.body.substr(0, 300));
    CHECK((reply.status == 200 || reply.status == 400));
    CHECK(std::chrono::steady_clock::now() - begin < kHang);
  }
}

TEST_CASE("bad input 104: schemas and arguments have limits of their own", "[llmserve]") {
  const Server server = serve_fable({"--chat-template", "zephyr"});
  const auto property = [](std::size_t i) { return fmt::format(R"("p{}":{{"not":{{}}}})", i); };
  const std::string begin = R"(,"parameters":{"type":"object","properties":{)";
  const std::string function = R"({"type":"function","function":{"name":"f")";
  const std::string required = kChat + R"(],"tool_choice":"required","tools":[)";
  const auto ask = [&](const std::string& body) {
    const auto from = std::chrono::steady_clock::now();
    const Reply reply = server.ask(post_text(kChats, body));
    CHECK(std::chrono::steady_clock::now() - from < kHang);
    return reply;
  };
  // All functions together.
  const auto large = [&](std::size_t i) {
    return fmt::format(R"({{"type":"function","function":{{"name":"f{}","parameters":)"
                       R"({{"type":"object","description":"{}"}}}}}})",
                       i, std::string(1000, 'x'));
  };
  ask(many(required, large, "]}")).must_name("tools", {"need at most 131072 bytes in all"});
  // What is within the limit is refused for its prompt; so is what need not be kept to.
  ask(many(required, large, "]}", 100000)).must_name("messages", {"tokens"});
  ask(many(kChat + R"(],"tools":[)", large, "]}", 400000)).must_name("messages", {"tokens"});
  // Each keyword that is not enforced has the rules written anew, as long as there are bytes left.
  ask(many(required + function + begin, property, "}}}}]}", 120000))
      .must_name("messages", {"tokens"});
  const std::string deep = again("[", 100) + again("]", 100);
  ask(kChat + R"(,{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":)" +
      R"({"name":"f","arguments":"{\"a\":)" + deep + R"(}"}}]}]})")
      .must_name("messages[1].tool_calls[0].function.arguments", {"JSON of at most 64 levels"});
}

}  // namespace llm::test
