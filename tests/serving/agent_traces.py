"""Requests in the shapes in which coding agents send them, with texts of our own: 60 each of Claude Code (/v1/messages),
Codex CLI (/v1/responses) and OpenCode (/v1/chat/completions). Written by hand from their public sources and documents: what
fields, blocks, items and tools they send, in which order. Each is replayed against llmserve by tests/tools/agent_traces_test.py.

    tests/serving/agent_traces.py [claude_code | codex | opencode]    prints them, a line of JSON each: path, body
"""

import json
import sys

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def obj(required=(), **properties):
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties,
            "required": list(required), "additionalProperties": False}


TEXT = {"type": "string", "description": "d"}
NUMBER = {"type": "number", "exclusiveMinimum": 0}
FUNCTIONS = {
    "Bash": obj(["command"], command=TEXT, timeout=NUMBER, run_in_background={"type": "boolean"}),
    "Read": obj(["file_path"], file_path=TEXT, offset={"type": "integer", "minimum": 0}, limit=NUMBER),
    "Edit": obj(["file_path", "old", "new"], file_path=TEXT, old=TEXT, new=TEXT,
                replace_all={"type": "boolean", "default": False}),
    "TodoWrite": obj(["todos"], todos={"type": "array", "items": obj(
        ["content", "status"], content={"type": "string", "minLength": 1},
        status={"type": "string", "enum": ["pending", "in_progress", "completed"]})}),
    "mcp__calendar__list": {"type": "object", "properties": {"day": {"anyOf": [{"type": "string", "format": "date"},
                                                                               {"type": "null"}]}}},
}


# ---- Claude Code

CACHE = {"type": "ephemeral"}


def anthropic_tools(*names, **more):
    return [{"name": name, "description": f"{name} does it.", "input_schema": FUNCTIONS[name]} | more
            for name in names or FUNCTIONS]


def text(words, **more):
    return {"type": "text", "text": words} | more


def image():
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def use(n, name, **arguments):
    return {"type": "tool_use", "id": f"toolu_{n:02}", "name": name, "input": arguments}


def result(n, content=None, **more):
    block = {"type": "tool_result", "tool_use_id": f"toolu_{n:02}"}
    return block | ({} if content is None else {"content": content}) | more


def user(*content):
    return {"role": "user", "content": list(content) if len(content) != 1 or isinstance(content[0], dict) else content[0]}


def assistant(*content):
    return user(*content) | {"role": "assistant"}


def claude_code():
    system = [text("x-billing: version=1.0; entry=cli;"), text("You are a coding agent.", cache_control=CACHE),
              text("Work in /srv.", cache_control=CACHE | {"ttl": "1h"})]
    reminder = text("<system-reminder>\nThe date is known.\n</system-reminder>")
    thought = {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}
    histories = [
        [user("List the files.")],
        [user(reminder, text("List the files.", cache_control=CACHE))],
        [user("a"), assistant(text("Hello.")), user("b")],
        [user("a"), assistant(thought, text("Yes."), use(1, "Bash", command="ls")), user(result(1, "a.txt\nb.txt"))],
        [user("a"), assistant({"type": "redacted_thinking", "data": "zz"}, use(1, "Bash", command="ls")),
         user(result(1, [text("a.txt")], cache_control=CACHE))],
        [user("a"), assistant(use(1, "Read", file_path="/a"), use(2, "Read", file_path="/b")),
         user(result(1, "1"), result(2, "<tool_use_error>none</tool_use_error>", is_error=True))],
        [user("a"), assistant(use(1, "Bash", command="true")), user(result(1), text("Go on."))],
        [user("a"), assistant(use(1, "Bash", command="true")), user(result(1, []), reminder, text("Go on."))],
        [user("See it."), assistant(use(1, "Read", file_path="p.png")), user(result(1, [image()])), assistant("No."),
         user("Go on.")],
        [user("See it."), assistant(use(1, "Read", file_path="p.png")), user(result(1, [text("A picture:"), image()]))],
        [user(text("[Image #1]"), image()), assistant("I cannot."), user("Then without.")],
        [user({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Notes."}},
              text("Sum up."))],
        [user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}}),
         assistant("No."), user("Go on.")],
        [user("Search."), assistant({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
                                    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [
                                        {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e"}]},
                                    text("Found.", citations=[])), user("More.")],
        [user("a"), assistant(use(1, "Bash", command="x")),
         user(result(1, [{"type": "tool_reference", "tool_name": "mcp__calendar__list"}])), assistant("ok"), user("b")],
        [user("a"), assistant("ok"), {"role": "system", "content": "The calendar's tools changed."}, user("b")],
        [user("a"), {"role": "system", "content": [text("Plan mode is on.")]}],
        [user("Is this a new topic? Answer in JSON."), assistant("{")],
        [user("a"), assistant(text("Let me see.")), user(text("[Request interrupted by user]"), text("Stop."))],
        [user("a"), assistant(use(1, "TodoWrite", todos=[{"content": "x", "status": "pending"}])),
         user(result(1, "Todos were changed.")), assistant(thought, use(2, "Edit", file_path="/a", old="\"x\"\n", new="y")),
         user(result(2, "done"), reminder)],
    ]
    options = [
        {"max_tokens": 32000, "temperature": 1, "tools": anthropic_tools()},
        {"max_tokens": 64000, "thinking": {"type": "enabled", "budget_tokens": 31999}, "tools": anthropic_tools("Bash"),
         "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
        {"max_tokens": 21333, "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}, "speed": "fast",
         "tools": anthropic_tools("Read", "Edit", "Bash", eager_input_streaming=True) +
         [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["example.org"]}]},
        {"max_tokens": 32000, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
         "tools": anthropic_tools("mcp__calendar__list", defer_loading=True) + anthropic_tools("Read") +
         [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
          {"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"}]},
    ]
    requests = []
    for i, messages in enumerate(histories):
        for j in (i % 4, (i + 1) % 4):
            body = {"model": "claude-sonnet", "messages": messages, "system": system, "stream": True,
                    "metadata": {"user_id": "user_1_account__session_2"}} | options[j]
            requests.append(("/v1/messages", body))
    tokens = [{"model": "claude-haiku", "messages": messages, "tools": anthropic_tools()} for messages in histories[:14]]
    requests += [("/v1/messages/count_tokens", body) for body in tokens]
    small = {"model": "claude-haiku", "metadata": {"user_id": "u"}}
    requests += [
        ("/v1/messages", small | {"max_tokens": 1, "messages": [user("quota")]}),
        ("/v1/messages", small | {"max_tokens": 512, "temperature": 0, "system": "Name the topic.", "messages": [user("a")]}),
        ("/v1/messages", small | {"max_tokens": 32000, "messages": [user("a")], "stream": True, "betas": ["x-2025-01-01"],
                                  "output_config": {"format": {"type": "json_schema", "schema": {
                                      "type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"],
                                      "additionalProperties": False}}}}),
        ("/v1/messages", small | {"max_tokens": 4096, "messages": [user("a")], "service_tier": "auto",
                                  "stop_sequences": ["</done>"], "top_p": 0.9, "top_k": 50}),
        ("/v1/messages", small | {"max_tokens": 100, "system": [], "messages": [user("a")], "container": None,
                                  "mcp_servers": [], "inference_geo": "us", "cache_control": CACHE}),
        ("/v1/messages", small | {"max_tokens": 0, "messages": [user("warm")], "system": system}),
    ]
    return requests


# ---- Codex CLI

def item(role, *parts):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role,
            "content": [part if isinstance(part, dict) else {"type": kind, "text": part} for part in parts]}


def flat(name, **more):
    return {"type": "function", "name": name, "description": f"{name} does it.", "strict": False,
            "parameters": FUNCTIONS[name]} | more


def call(n, name, arguments, **more):
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": f"call_{n}"} | more


def output(n, value, kind="function_call_output"):
    return {"type": kind, "call_id": f"call_{n}", "output": value}


def codex():
    developer = item("developer", "<permissions>Read only.</permissions>", "Be short.")
    context = item("user", "<environment_context><cwd>/srv</cwd></environment_context>")
    ask = item("user", "List the files.")
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}], "content": None,
                 "encrypted_content": "Z0FB"}
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    shell = call(1, "Bash", {"command": "ls"})
    histories = [
        [ask],
        [developer, context, ask],
        [developer, context, ask, item("assistant", "There are two."), item("user", "Go on.")],
        [developer, ask, reasoning, shell, output(1, "a.txt")],
        [ask, shell, output(1, json.dumps({"output": "a", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}))],
        [ask, call(1, "Read", {"file_path": "/p.png"}), output(1, [{"type": "input_text", "text": "p"}, picture])],
        [item("user", "See.", picture), item("assistant", "No."), item("user", "Go on.")],
        [ask, {"type": "custom_tool_call", "status": "completed", "call_id": "call_1", "name": "apply_patch",
               "input": "*** Begin Patch\n*** End Patch"}, output(1, "Done", "custom_tool_call_output")],
        [ask, {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
         item("assistant", "Found."), item("user", "More.")],
        [ask, {"type": "local_shell_call", "id": None, "call_id": "call_1", "status": "completed",
               "action": {"type": "exec", "command": ["ls"], "timeout_ms": None, "working_directory": None, "env": None,
                          "user": None}}, output(1, "a")],
        [ask, call(1, "list", {"day": None}, namespace="mcp__calendar"), output(1, "none")],
        [ask, {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"query": "c"}},
         {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "status": "completed", "tools": []},
         item("user", "Go on.")],
        [ask, {"type": "ghost_snapshot", "ghost_commit": {"id": "1"}}, item("assistant", "ok"), item("user", "b")],
        [ask, {"type": "compaction", "encrypted_content": "Z0FB"}, item("user", "Go on.")],
        [ask, {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PNG}, item("user", "b")],
        [ask, reasoning, item("assistant", "First.") | {"phase": "commentary"}, shell,
         call(2, "Bash", {"command": "pwd"}), output(1, "a"), output(2, "/srv")],
        [context, ask, developer],
        [item("user", "<user_instructions>\nUse tabs.\n</user_instructions>"), ask,
         item("assistant", "Which ones?") | {"id": "msg_1", "status": "completed"}, item("user", "All.")],
        [ask, shell, output(1, "aborted by user"), item("user", "<turn_aborted>stopped</turn_aborted>"), item("user", "b")],
        [item("user", "Sum up what was said for the one who goes on.")],
    ]
    patch = {"type": "custom", "name": "apply_patch", "description": "Patches files.",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\""}}
    space = {"type": "namespace", "name": "mcp__calendar", "description": "Days.", "tools": [
        flat("mcp__calendar__list") | {"name": "list", "defer_loading": True}]}
    variants = [
        {"tools": [flat("Bash"), flat("TodoWrite")], "parallel_tool_calls": False,
         "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
        {"tools": [flat("Bash"), patch, {"type": "web_search", "external_web_access": False}, flat("Read")],
         "parallel_tool_calls": True, "reasoning": {"effort": "high", "summary": "detailed", "context": None},
         "include": ["reasoning.encrypted_content"], "text": {"verbosity": "low"}, "client_metadata": {"id": "x"}},
        {"tools": [space, flat("Bash"), {"type": "local_shell"}, {"type": "image_generation", "output_format": "png"},
                   {"type": "tool_search", "execution": "client", "description": "d", "parameters": None}],
         "parallel_tool_calls": True, "reasoning": None, "include": [], "service_tier": "priority",
         "text": {"format": {"type": "json_schema", "strict": True, "name": "codex_output_schema", "schema": {
             "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
             "additionalProperties": False}}}},
    ]
    requests = []
    for history in histories:
        for variant in variants:
            requests.append(("/v1/responses", {
                "model": "gpt-codex", "instructions": "You are a coding agent.", "input": history, "tool_choice": "auto",
                "store": False, "stream": True, "prompt_cache_key": "0199", "max_output_tokens": None} | variant))
    return requests


# ---- OpenCode

def nested(*names):
    return [{"type": "function", "function": {"name": name, "description": f"{name} does it.",
                                              "parameters": FUNCTIONS[name]}} for name in names or FUNCTIONS]


def says(role, content, **more):
    return {"role": role, "content": content} | more


def calls(*named, content="", **more):
    return says("assistant", content, tool_calls=[
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(named)], **more)


def opencode():
    systems = [says("system", "You are a coding agent."), says("system", "<env>Folder: /srv</env>")]
    hello = says("user", "List the files.")
    parts = says("user", [{"type": "text", "text": "List "}, {"type": "text", "text": "the files."}])
    picture = says("user", [{"type": "text", "text": "See."},
                            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}])
    answer = says("tool", "a.txt", tool_call_id="call_0")
    histories = [
        [*systems, hello],
        [*systems, parts],
        [systems[0], hello, says("assistant", "Two."), says("user", "Go on.")],
        [*systems, hello, calls(("Bash", {"command": "ls"})), answer],
        [*systems, hello, calls(("Bash", {"command": "ls"}), content=None), answer, says("assistant", "One."), parts],
        [*systems, hello, calls(("Read", {"file_path": "/a"}), ("Read", {"file_path": "/b"}), content="Both."), answer,
         says("tool", "b", tool_call_id="call_1")],
        [*systems, hello, calls(("Bash", {}), reasoning_content="Look first."), answer],
        [*systems, hello, calls(("Bash", {"command": "ls"}), reasoning="Look.", reasoning_details=[
            {"type": "reasoning.text", "text": "Look."}]), answer],
        [*systems, picture, says("assistant", "No."), hello],
        [*systems, hello, says("assistant", [{"type": "text", "text": "Yes."}]), says("user", "b")],
        [*systems, hello, says("assistant", "", reasoning_content="Hm."), says("user", "Well?")],
        [*systems, hello, says("assistant", "Half a"), says("user", "The last answer was stopped.")],
        [*systems, hello, calls(("Bash", {"command": "ls"})), says("tool", [{"type": "text", "text": "a"}],
                                                                   tool_call_id="call_0", name="Bash")],
        [hello, says("system", "Plan mode is on.")],
        [*systems, hello, says("assistant", "Steps are used up; I sum up.")],
        [*systems, says("user", "a", cache_control={"type": "ephemeral"}), says("assistant", "b"), hello],
        [says("system", [{"type": "text", "text": "You name things.", "cache_control": {"type": "ephemeral"}}]), hello],
        [*systems, hello, calls(("TodoWrite", {"todos": [{"content": "x", "status": "pending"}]})), answer,
         calls(("Edit", {"file_path": "/a", "old": "\"x\"\n", "new": "</tool_call>"})), answer],
        [says("developer", "You are a coding agent."), hello],
        [*systems, hello, calls(("mcp__calendar__list", {"day": None}), refusal=None, annotations=[], audio=None), answer,
         says("user", "Thanks.", name="me")],
    ]
    variants = [
        {"max_tokens": 32000, "temperature": 0, "top_p": 1, "tools": nested(), "tool_choice": "auto", "stream": True,
         "stream_options": {"include_usage": True}},
        {"max_completion_tokens": 32000, "reasoning_effort": "medium", "verbosity": "low", "store": False,
         "prompt_cache_key": "ses_1", "tools": nested("Bash", "Read", "Edit", "mcp__calendar__list"), "stream": True,
         "parallel_tool_calls": True, "usage": {"include": True}},
        {"max_tokens": 20000, "temperature": 0.55, "topP": 1, "enable_thinking": True, "chat_template_args": {"x": True},
         "promptCacheKey": "ses_1", "reasoningEffort": "low", "thinking": {"type": "disabled"}, "user": "me",
         "tools": nested("Bash", "TodoWrite", "Read", "Edit", "mcp__calendar__list")},
    ]
    return [("/v1/chat/completions", {"model": "local", "messages": history} | variant)
            for history in histories for variant in variants]


AGENTS = {"claude_code": claude_code, "codex": codex, "opencode": opencode}

if __name__ == "__main__":
    for agent in sys.argv[1:] or AGENTS:
        for path, body in AGENTS[agent]():
            print(json.dumps({"path": path, "body": body}))
