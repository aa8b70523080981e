"use strict";
const $ = (id) => document.getElementById(id);
const kStored = "llmserve.conversation";
const kVersion = 2;            // of what is stored; another one is forgotten
const kSettings = ["system", "temperature", "max", "seed"];
const kMostRounds = 8;         // of calls before a reply; the last has to be a text

let models = [];     // of /v1/models
let model = null;    // the one that is chosen
// The conversation: {role: "user" or "text", content} or {role: "assistant", steps: [{content, thoughts, calls}]}, with note and
// element. All steps of a reply but the last have calls: {id, name, text, result}.
let turns = [];
let running = null;  // what is under way: {controller, turn}. Whatever belongs to another one comes too late.

// What is not loaded is not known yet.
const isChat = () => Boolean(model && (!model.loaded || model.chat_template));
const contentOf = (turn) => turn.content ?? turn.steps.map(({ content }) => content).filter(Boolean).join("\n\n");
const newStep = () => ({ content: "", thoughts: "", calls: [] });

// ---- What is kept over a reload --------------------------------------------------------------------------------------

function store() {
  if (!model) return;
  const kept = { version: kVersion, chat: isChat(), model: model.id, tools: $("use-tools").checked,
                 settings: Object.fromEntries(kSettings.map((id) => [id, $(id).value])),
                 turns: turns.filter(contentOf).map(({ role, content, steps, note }) =>
                   ({ role, content, note, steps: steps?.map(({ content, calls }) => ({ content, calls })) })) };
  try {
    localStorage.setItem(kStored, JSON.stringify(kept));
  } catch {
    // No room, or not allowed: the conversation is this page's alone.
  }
}

const isText = (value) => typeof value === "string";
const isCall = ({ id, name, text, result }) => [id, name, text, result].every(isText);
const isStep = ({ content, calls }) => isText(content) && Array.isArray(calls) && calls.every(isCall);
const isTurn = ({ role, content, steps }) =>
  role === "assistant" ? Array.isArray(steps) && steps.length > 0 && steps.every(isStep) : ["user", "text"].includes(role) && isText(content);

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(kStored));
    if (kept?.version !== kVersion) return;
    model = models.find(({ id }) => id === kept.model) ?? model;
    if (kept.chat !== isChat() || !Array.isArray(kept.turns) || !kept.turns.every(isTurn)) return;
    for (const id of kSettings) if (isText(kept.settings?.[id])) $(id).value = kept.settings[id];
    $("use-tools").checked = kept.tools === true;
    turns = kept.turns.map(({ role, content, steps, note }) => ({ role, content, steps, note: isText(note) ? note : "" }));
    if (turns.at(-1)?.role === "user") $("text").value = turns.pop().content;  // its answer never came
  } catch {
    // Not ours, or nothing there.
  }
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

// ---- The models ------------------------------------------------------------------------------------------------------

function showModel() {
  document.title = $("name").textContent = model.id;
  $("name").hidden = models.length > 1;
  $("model").hidden = models.length < 2;
  $("model").replaceChildren(...models.map(({ id, loaded }) => new Option(loaded ? id : `${id} (not loaded)`, id)));
  $("model").value = model.id;
  $("fingerprint").textContent = model.system_fingerprint ?? "";
  $("system-label").hidden = $("tools-label").hidden = !isChat();
  $("text").placeholder = isChat() ? "Message" : "Beginning of a text";
}

async function listModels() {
  models = await Server.models();
  model = models.find(({ id }) => id === model?.id) ?? models[0];
}

async function openPage() {
  await listModels();
  restore();
  showModel();
  showAll();
}

// The chosen model is loaded, and what is known of it then is shown.
async function loadModel(signal) {
  if (!model || models.length > 1) await listModels();
  if (!model.loaded) {
    $("speed").textContent = `Loading ${model.id} …`;
    await Server.load(model.id, signal);
    await listModels();
    $("speed").textContent = "";
  }
  const fits = turns.every(({ role }) => (role === "text") !== isChat());
  if (!fits) turns = [];
  showModel();
  if (!fits) showAll();
}

function chooseModel() {
  model = models.find(({ id }) => id === $("model").value);
  if (turns.every(({ role }) => (role === "text") !== isChat())) store();
  else startOver();
  showModel();
  if (!turns.length) showAll();
}

// ---- An answer -------------------------------------------------------------------------------------------------------

// Of a setting; one that is empty is left to the server.
const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));

function messagesOf({ role, content, steps }) {
  if (!steps) return [{ role, content }];
  return steps.filter((step) => step.content || step.calls.length).flatMap((step) => [
    { role, content: step.content, ...(step.calls.length && {
      tool_calls: step.calls.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text } })) }) },
    ...step.calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result }))]);
}

function bodyOf(isLastRound) {
  const body = { model: model.id, stream: true, stream_options: { include_usage: true },
                 temperature: number("temperature"), max_tokens: number("max"), seed: number("seed") };
  if (!isChat()) return { ...body, prompt: turns.at(-1).content };
  const system = $("system").value ? [{ role: "system", content: $("system").value }] : [];
  const tools = $("use-tools").checked ? { tools: Tools.list, tool_choice: isLastRound ? "none" : "auto" } : {};
  return { ...body, ...tools, messages: [...system, ...turns.flatMap(messagesOf)] };
}

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

// Lets `target`, a step or a text, grow by what the server says to `body`.
async function readAnswer(run, target, body) {
  const measure = speedometer();
  let drawn = 0;
  for await (const event of Server.events(isChat() ? "v1/chat/completions" : "v1/completions", body, run.controller.signal)) {
    if (running !== run) return;
    const choice = event.choices[0];
    const piece = choice && (choice.text ?? choice.delta.content);
    const thought = choice?.delta?.reasoning_content;
    const calls = choice?.delta?.tool_calls ?? [];
    measure(event, piece || thought || calls.length);
    if (event.system_fingerprint) $("fingerprint").textContent = event.system_fingerprint;
    if (choice?.finish_reason === "length") run.turn.note = "ended at the limit of tokens";
    for (const { id, function: called } of calls)
      target.calls.push({ id, name: called.name, text: called.arguments, result: Tools.run(called.name, called.arguments) });
    if (!piece && !thought && !calls.length) continue;
    target.content += piece ?? "";
    if (thought) target.thoughts += thought;
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

// A reply, with as many rounds of calls as the model wants.
async function readReply(run) {
  for (let round = 1; running === run; ++round) {
    const step = newStep();
    const body = bodyOf(round === kMostRounds);
    run.turn.steps.push(step);
    showTurn(run.turn);
    await readAnswer(run, step, body);
    if (!step.calls.length || round === kMostRounds) return;
  }
}

// Answers the last turn: a reply behind the user's, or more of a text. Where nothing comes, `old` is shown again if there
// is one.
async function answer(old = null) {
  const asked = turns.at(-1);
  const run = { controller: new AbortController(), turn: isChat() ? { role: "assistant", steps: [], note: "" } : asked };
  const before = contentOf(run.turn);
  const isEmpty = () => contentOf(run.turn) === before && !run.turn.steps?.some(({ calls }) => calls.length);
  running = run;
  $("send").textContent = "Stop";
  if (isChat()) turns.push(run.turn);
  showTurn(run.turn);
  let failure = null;
  try {
    await (run.turn.steps ? readReply(run) : readAnswer(run, asked, bodyOf()));
  } catch (error) {
    if (error.name !== "AbortError") failure = error;
  }
  if (running !== run) return;  // another conversation has begun
  running = null;
  $("send").textContent = "Send";
  if (isEmpty() && old) {
    turns.splice(-1, 1, old);
    run.turn.element.replaceWith(old.element);
  } else if (isEmpty()) {
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

// Loads the model if need be, then answers.
async function send() {
  const run = running = { controller: new AbortController() };
  $("send").textContent = "Stop";
  for (const error of document.querySelectorAll(".error")) error.remove();
  try {
    await loadModel(run.controller.signal);
  } catch (error) {
    if (running === run && error.name !== "AbortError") showError(error);
    if (running === run) $("speed").textContent = "";
  }
  if (running !== run) return;
  running = null;
  $("send").textContent = "Send";
  if (!model?.loaded || run.controller.signal.aborted) return;
  const content = $("text").value;
  $("text").value = "";
  for (const old of turns.slice(-1)) old.element.querySelector(".tools button + button")?.remove();
  const turn = { role: isChat() ? "user" : "text", content, note: "" };
  turns.push(turn);
  showTurn(turn);
  await answer();
  $("text").focus();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) running.controller.abort();
  else if ($("text").value.trim()) send();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) $("form").requestSubmit();
  }
});
$("clear").addEventListener("click", startOver);
$("model").addEventListener("change", chooseModel);
for (const id of [...kSettings, "use-tools"]) $(id).addEventListener("change", store);
addEventListener("pagehide", store);
$("key").value = sessionStorage.getItem("key") ?? "";
Server.setKey($("key").value);
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  Server.setKey($("key").value);
  openPage().catch(showError);
});
openPage().catch((error) => { showAll(); showError(error); document.querySelector("footer details").open = true; });
