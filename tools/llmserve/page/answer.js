// The models, and the answers that they give.
"use strict";
const kMostRounds = 8;    // of calls before a reply; the last has to be a text
const kSavedEach = 1000;  // milliseconds, of a reply that grows

// ---- The models ------------------------------------------------------------------------------------------------------

function showModel() {
  document.title = $("name").textContent = model.id;
  $("name").hidden = models.length > 1;
  $("model").hidden = models.length < 2;
  $("model").replaceChildren(...models.map(({ id, loaded }) => new Option(loaded ? id : `${id} (not loaded)`, id)));
  $("model").value = model.id;
  $("system-label").hidden = $("tools-label").hidden = !isChat();
  $("text").placeholder = isChat() ? "Message" : "Beginning of a text";
  showFacts();
}

// The model, and how much of its context the conversation takes.
function showFacts() {
  if (!model) return;
  const context = model.max_model_len?.toLocaleString("en");
  const used = path().findLast(({ tokens }) => tokens)?.tokens.toLocaleString("en");
  $("facts").textContent = !context ? model.id : used ? `${model.id}: ${used} of ${context} tokens of context` : `${model.id}: ${context} tokens of context`;
}

async function listModels() {
  models = await Server.models();
  model = models.find(({ id }) => id === model?.id) ?? models[0];
}

async function openPage() {
  const wanted = restoreSettings();
  await listModels();
  model = models.find(({ id }) => id === wanted) ?? model;
  showModel();
  known = new Map((await Store.list()).map((one) => [one.id, one]));
  await takeOver();
  await openConversation(location.hash.slice(1));
  if (Store.failure()) showNotice("This browser stores no conversations: " + Store.failure().message);
}

const fits = () => conversation.nodes.every(({ role }) => (role === "text") !== isChat());

// The chosen model is loaded, and what is known of it then is shown.
async function loadModel(signal) {
  if (!model || models.length > 1) await listModels();
  if (!model.loaded) {
    $("speed").textContent = `Loading ${model.id} …`;
    await Server.load(model.id, signal);
    await listModels();
    $("speed").textContent = "";
  }
  showModel();
}

function chooseModel() {
  model = models.find(({ id }) => id === $("model").value);
  storeSettings();
  showModel();
  if (!fits()) show(Store.create());
  else if (!conversation.nodes.length) showAll([]);
}

// ---- An answer -------------------------------------------------------------------------------------------------------

// Of a setting; one that is empty is left to the server.
const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));

// A user's text, behind the files that are attached to it.
function sentText({ content, files: attached }) {
  const fence = (text) => "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length + 1)));
  return attached.map(({ name, text }) => `${name}:\n${fence(text)}\n${text}\n${fence(text)}\n\n`).join("") + content;
}

function messagesOf(node) {
  const { role, steps } = node;
  if (!steps) return [{ role, content: sentText(node) }];
  return steps.filter((step) => step.content || step.calls.length).flatMap((step) => [
    { role, content: step.content, ...(step.calls.length && {
      tool_calls: step.calls.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text } })) }) },
    ...step.calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result }))]);
}

function bodyOf(run, isLastRound) {
  const stops = $("stop").value.split("\n").filter(Boolean);
  const body = { model: model.id, stream: true, stream_options: { include_usage: true }, timings_per_token: true, return_progress: true,
                 ...Object.fromEntries(kSampling.map((id) => [id, number(id)])), stop: stops.length ? stops : undefined };
  if (!isChat()) return { ...body, prompt: sentText(run.node) };
  const system = $("system").value ? [{ role: "system", content: $("system").value }] : [];
  const messages = [...system, ...path().flatMap(messagesOf)];
  if (run.continues) return { ...body, messages, continue_final_message: true };
  if (!$("use-tools").checked) return { ...body, messages };
  return { ...body, messages, tools: Tools.list, tool_choice: isLastRound ? "none" : "auto" };
}

// What the server says of an answer when it is complete.
function noteUsage({ usage, timings }, node) {
  if (usage) node.tokens = usage.total_tokens;
  if (!timings) return;
  const { predicted_n: n, predicted_per_second: speed, prompt_n: prompt, cache_n: cached, prompt_ms: time } = timings;
  $("speed").textContent = `${n.toLocaleString("en")} tokens, ${speed.toFixed(1)} a second; prompt of ${(prompt + cached).toLocaleString("en")}` +
    `${cached ? ` (${cached.toLocaleString("en")} cached)` : ""} in ${(time / 1000).toFixed(1)} s`;
}

// Appends one answer to `target`, the node's last step or, where the model has no chat, the node itself.
async function readAnswer(run, target, body) {
  const { node } = run;
  let drawn = 0;
  let stored = Date.now();
  for await (const event of Server.events(isChat() ? "v1/chat/completions" : "v1/completions", body, run.controller.signal)) {
    if (run.controller.signal.aborted) return;
    noteUsage(event, node);
    const choice = event.choices[0];
    const piece = choice && (choice.text ?? choice.delta.content);
    const thought = choice?.delta?.reasoning_content;
    const calls = choice?.delta?.tool_calls ?? [];
    if (choice?.finish_reason) Object.assign(node, choice.finish_reason === "length" ? kLimit : kWhole);
    for (const { id, function: called } of calls)
      target.calls.push({ id, name: called.name, text: called.arguments, result: Tools.run(called.name, called.arguments) });
    if (event.prompt_progress) showProgress(node, event.prompt_progress);
    else if (piece || thought || calls.length) showProgress(node, null);
    if (!piece && !thought && !calls.length) continue;
    target.content += piece ?? "";
    if (thought) target.thoughts += thought;
    drawn ||= setTimeout(() => {
      drawn = 0;
      showTurn(node);
    }, 50);
    if (Date.now() - stored < kSavedEach) continue;
    stored = Date.now();
    node.edited += 1;
    save(run.conversation);
  }
}

// A reply, with as many rounds of calls as the model wants.
async function readReply(run) {
  const { steps } = run.node;
  for (let round = 1; ; ++round) {
    const body = bodyOf(run, round === kMostRounds);
    const step = run.continues ? steps.at(-1) : round === 1 ? steps[0] : newStep();
    if (!steps.includes(step)) steps.push(step);
    await readAnswer(run, step, body);
    if (run.continues || !step.calls.length || round === kMostRounds || run.controller.signal.aborted) return;
  }
}

// How a node has ended. One that the page loses while it grows was stopped.
const kStopped = { cut: true, note: "stopped" };
const kLimit = { cut: true, note: "ended at the limit of tokens" };
const kWhole = { cut: false, note: "" };

// Lets the model write on at `node`, which is shown last. @param old  the leaf to show again where nothing comes
async function answer(node, { continues = false, old = null } = {}) {
  const run = { controller: new AbortController(), node, conversation, continues };
  const before = contentOf(node);
  setRunning(run);
  Object.assign(node, kStopped);
  for (const error of document.querySelectorAll(".error")) error.remove();
  showAll(path());
  goToEnd();
  save(run.conversation);
  let failure = null;
  try {
    await (node.steps ? readReply(run) : readAnswer(run, node, bodyOf(run)));
  } catch (error) {
    if (error.name !== "AbortError") failure = error;
  }
  if (failure) Object.assign(node, { cut: true, note: "ended by an error" });
  node.edited += 1;
  if (running === run) setRunning(null);
  showProgress(node, null);
  if (node.steps && isEmpty(node)) {
    run.conversation.nodes.splice(run.conversation.nodes.indexOf(node), 1);
    run.conversation.leaf = old ?? node.parent;
  } else if (contentOf(node) === before && continues && !node.cut) {
    node.note = "has no more to say";
  }
  save(run.conversation);
  if (conversation !== run.conversation) return;
  showAll(path());
  showFacts();
  if (failure) showError(failure);
}

// A new reply to the last node that is shown.
const reply = (old = null) => answer(add(newNode(conversation.leaf, { role: "assistant", steps: [newStep()] })), { old });

// Adds a user's node and answers it; another version of a node stands where that does.
async function ask(node) {
  add(node);
  conversation.title ||= titleOf(conversation);
  if (location.hash !== "#" + conversation.id) history.replaceState(null, "", "#" + conversation.id);
  await (isChat() ? reply() : answer(node));
}

// Loads the model if need be. @return whether it is there
async function isReady() {
  const run = { controller: new AbortController() };
  setRunning(run);
  for (const error of document.querySelectorAll(".error")) error.remove();
  try {
    await loadModel(run.controller.signal);
  } catch (error) {
    if (error.name !== "AbortError") showError(error);
    $("speed").textContent = "";
  }
  if (running === run) setRunning(null);
  return Boolean(model?.loaded) && !run.controller.signal.aborted;
}

async function send() {
  if (!await isReady()) return;
  if (!fits()) show(Store.create());
  const node = userNode($("text").value, files);
  $("text").value = "";
  fit($("text"));
  files = [];
  showFiles(files);
  await ask(node);
  $("text").focus();
}
