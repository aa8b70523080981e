"use strict";
const $ = (id) => document.getElementById(id);
const kStored = "llmserve.conversation";
const kVersion = 1;            // of what is stored; another one is forgotten
const kSettings = ["system", "temperature", "max", "seed"];

let model = null;    // of /v1/models
let turns = [];      // the conversation: {role: "user", "assistant" or "text", content, note, element}
let running = null;  // the answer under way: {controller, turn}. Whatever belongs to another one comes too late.

const isChat = () => Boolean(model?.chat_template);

// ---- What is kept over a reload --------------------------------------------------------------------------------------

function store() {
  if (!model) return;
  const kept = { version: kVersion, chat: isChat(), settings: Object.fromEntries(kSettings.map((id) => [id, $(id).value])),
                 turns: turns.filter(({ content }) => content).map(({ role, content, note }) => ({ role, content, note })) };
  try {
    localStorage.setItem(kStored, JSON.stringify(kept));
  } catch {
    // No room, or not allowed: the conversation is this page's alone.
  }
}

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(kStored));
    if (kept?.version !== kVersion || kept.chat !== isChat()) return;
    const isTurn = ({ role, content }) => ["user", "assistant", "text"].includes(role) && typeof content === "string";
    if (!Array.isArray(kept.turns) || !kept.turns.every(isTurn)) return;
    for (const id of kSettings) if (typeof kept.settings?.[id] === "string") $(id).value = kept.settings[id];
    turns = kept.turns.map(({ role, content, note }) => ({ role, content, note: typeof note === "string" ? note : "" }));
    if (turns.at(-1)?.role === "user") $("text").value = turns.pop().content;  // its answer never came
  } catch {
    // Not ours, or nothing there.
  }
}

// ---- What is shown ---------------------------------------------------------------------------------------------------

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function addElement(made) {
  document.querySelector(".empty")?.remove();
  $("turns").append(made);
  made.scrollIntoView({ block: "end" });
  return made;
}

const showError = (error) => addElement(element("div", "turn error", error.message));

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not allowed, or the page did not come from this machine or by TLS
    const field = addElement(element("textarea", "", text));
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
Markdown.onCopy = copy;

function button(text, onclick) {
  return Object.assign(element("button", "", text), { type: "button", onclick });
}

// What the model thought before its reply; not kept over a reload, and not sent back.
function showThoughts(turn, body) {
  let thoughts = turn.element.querySelector(".thoughts");
  if (!thoughts) {
    thoughts = element("details", "thoughts");
    thoughts.append(element("summary", "", "Thoughts"), element("div", "body"));
    body.before(thoughts);
  }
  thoughts.lastChild.textContent = turn.thoughts;
}

function showTurn(turn) {
  turn.element ??= addElement(element("div", "turn"));
  const body = turn.element.querySelector(":scope > .body") ?? turn.element.appendChild(element("div", "body"));
  if (turn.thoughts) showThoughts(turn, body);
  if (turn.role === "assistant") {
    body.className = "body reply";
    Markdown.show(body, turn.content);
  } else if (body.textContent !== turn.content) {
    body.className = "body " + turn.role;
    body.textContent = turn.content;
  }
}

// The buttons below a turn, and what is to be said of its end.
function showTools(turn) {
  turn.element.querySelector(".tools")?.remove();
  const tools = turn.element.appendChild(element("div", "tools"));
  const copier = button("Copy", () => copy(turn.content, copier));
  tools.append(copier);
  if (turn.role === "assistant" && turn === turns.at(-1)) tools.append(button("Regenerate", regenerate));
  if (turn.note) tools.append(element("span", "note", turn.note));
}

function showAll() {
  $("turns").replaceChildren();
  for (const turn of turns) {
    turn.element = null;
    showTurn(turn);
    showTools(turn);
  }
  if (turns.length) return;
  addElement(element("div", "turn empty", !model ? "" : isChat() ? "Say something." : "This model has no chat template: it continues your text."));
}

function startOver() {
  running?.controller.abort();
  running = null;
  $("send").textContent = "Send";
  turns = [];
  store();
  showAll();
  $("speed").textContent = "";
}

// ---- The server ------------------------------------------------------------------------------------------------------

function headers() {
  const key = $("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
}

async function messageOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return "status " + answer.status;
  }
}

async function loadModel() {
  const answer = await fetch("v1/models", { headers: headers() });
  if (!answer.ok) throw new Error(await messageOf(answer));
  model = (await answer.json()).data[0];
  $("name").textContent = document.title = model.id;
  $("fingerprint").textContent = model.system_fingerprint;
  $("system-label").hidden = !isChat();
  $("text").placeholder = isChat() ? "Message" : "Beginning of a text";
  restore();
  showAll();
}

// The data of server-sent events, one by one.
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// Of a setting; one that is empty is left to the server.
const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));

function bodyOf() {
  const body = { model: model.id, stream: true, stream_options: { include_usage: true },
                 temperature: number("temperature"), max_tokens: number("max"), seed: number("seed") };
  if (!isChat()) return { ...body, prompt: turns.at(-1).content };
  const system = $("system").value ? [{ role: "system", content: $("system").value }] : [];
  return { ...body, messages: [...system, ...turns.map(({ role, content }) => ({ role, content }))] };
}

// ---- An answer -------------------------------------------------------------------------------------------------------

// Counts tokens and shows how fast they come: from the first one on, or from the question on where they come all at once.
function speedometer() {
  const asked = performance.now();
  let first = 0;
  let tokens = 0;
  return (event, piece) => {
    if (event.usage) tokens = event.usage.completion_tokens;
    if (piece) {
      first ||= performance.now();
      tokens += 1;
    }
    const now = performance.now();
    const seconds = (now - (now - first < 200 ? asked : first)) / 1000;
    if (tokens > 1 && seconds > 0) $("speed").textContent = `${tokens} tokens, ${((tokens - 1) / seconds).toFixed(1)} a second`;
  };
}

// Lets `run.turn` grow by what the server says to `body`.
async function readAnswer(run, body) {
  const measure = speedometer();
  const answer = await fetch(isChat() ? "v1/chat/completions" : "v1/completions",
                             { method: "POST", headers: headers(), body: JSON.stringify(body), signal: run.controller.signal });
  if (!answer.ok) throw new Error(await messageOf(answer));
  let drawn = 0;
  for await (const event of eventsOf(answer)) {
    if (running !== run) return;
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    const piece = choice && (choice.text ?? choice.delta.content);
    const thought = choice?.delta?.reasoning_content;
    measure(event, piece || thought);
    if (event.system_fingerprint) $("fingerprint").textContent = event.system_fingerprint;
    if (choice?.finish_reason === "length") run.turn.note = "ended at the limit of tokens";
    if (!piece && !thought) continue;
    run.turn.content += piece ?? "";
    run.turn.thoughts = (run.turn.thoughts ?? "") + (thought ?? "");
    drawn ||= setTimeout(() => {
      drawn = 0;
      if (running !== run) return;
      const list = $("turns");
      const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 120;
      showTurn(run.turn);
      if (follows) run.turn.element.scrollIntoView({ block: "end" });
    }, 50);
  }
}

// Answers the last turn: a reply behind the user's, or more of a text. Where nothing comes, `old` is shown again if there
// is one.
async function answer(old = null) {
  const asked = turns.at(-1);
  const body = bodyOf();
  const run = { controller: new AbortController(), turn: isChat() ? { role: "assistant", content: "", note: "" } : asked };
  const before = run.turn.content;
  running = run;
  $("send").textContent = "Stop";
  if (isChat()) turns.push(run.turn);
  showTurn(run.turn);
  let failure = null;
  try {
    await readAnswer(run, body);
  } catch (error) {
    if (error.name !== "AbortError") failure = error;
  }
  if (running !== run) return;  // another conversation has begun
  running = null;
  $("send").textContent = "Send";
  if (run.turn.content === before && old) {
    turns.splice(-1, 1, old);
    run.turn.element.replaceWith(old.element);
  } else if (run.turn.content === before) {
    withdraw(asked);
  }
  for (const turn of turns.slice(-2)) {
    showTurn(turn);
    showTools(turn);
  }
  $("turns").lastChild?.scrollIntoView({ block: "end" });
  if (failure) showError(failure);
  store();
}

// What got no answer is the user's to send again.
function withdraw(asked) {
  for (const turn of turns.splice(turns.indexOf(asked))) turn.element.remove();
  if (!$("text").value) $("text").value = asked.content;
  for (const turn of turns.slice(-1)) showTools(turn);
}

function regenerate() {
  if (running) return;
  const old = turns.pop();
  old.element.remove();
  answer(old);
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return running.controller.abort();
  const text = $("text").value;
  if (!text.trim()) return;
  try {
    if (!model) await loadModel();
  } catch (error) {
    return showError(error);
  }
  $("text").value = "";
  for (const old of turns.slice(-1)) old.element.querySelector(".tools button + button")?.remove();
  const turn = { role: isChat() ? "user" : "text", content: text, note: "" };
  turns.push(turn);
  showTurn(turn);
  await answer();
  $("text").focus();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) $("form").requestSubmit();
  }
});
$("clear").addEventListener("click", startOver);
for (const id of kSettings) $(id).addEventListener("change", store);
addEventListener("pagehide", store);
$("key").value = sessionStorage.getItem("key") ?? "";
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  loadModel().catch(showError);
});
loadModel().catch((error) => { showAll(); showError(error); document.querySelector("details").open = true; });
