// The conversation that is shown: its tree, what is kept of it, and the list of all.
"use strict";
const kSampling = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed", "max_tokens"];  // fields of requests
const kKept = [...kSampling, "system", "stop", "theme"];

let models = [];                    // of /v1/models
let model = null;                   // the one that is chosen
let conversation = Store.create();  // the one that is shown: store.js
let files = [];                     // to go with the next message
let running = null;                 // what is under way: {controller, node, conversation}. Whatever belongs to another one comes too late.

// What is not loaded is not known yet.
const isChat = () => Boolean(model && (!model.loaded || model.chat_template));
const contentOf = (node) => node.content ?? node.steps.map(({ content }) => content).filter(Boolean).join("\n\n");
const newStep = (content = "") => ({ content, thoughts: "", calls: [] });
const newNode = (parent, rest) => ({ id: Store.newId(), parent, edited: 0, deleted: false, cut: false, note: "", ...rest });
const userNode = (content, attached) => newNode(conversation.leaf, { role: isChat() ? "user" : "text", content, files: attached });
const isEmpty = (node) => !contentOf(node) && !node.files?.length && !node.steps?.some(({ calls, thoughts }) => calls.length || thoughts);

// ---- The tree --------------------------------------------------------------------------------------------------------

const nodesBelow = (parent) => conversation.nodes.filter((node) => node.parent === parent && !node.deleted);

// What is shown: from the first node to the leaf.
function path() {
  const nodes = new Map(conversation.nodes.map((node) => [node.id, node]));
  const shown = [];
  for (let node = nodes.get(conversation.leaf); node; node = nodes.get(node.parent)) shown.unshift(node);
  return shown.some(({ deleted }) => deleted) ? shown.slice(0, shown.findIndex(({ deleted }) => deleted)) : shown;
}

// The leaf below a node, by its latest versions.
function leafBelow(id) {
  for (let below = nodesBelow(id); below.length; below = nodesBelow(id)) id = below.at(-1).id;
  return id;
}

function add(node) {
  conversation.nodes.push(node);
  conversation.leaf = node.id;
  return node;
}

// Empties what is deleted, with what stands below it.
function forgetDeleted(one) {
  const gone = new Set(one.nodes.filter(({ deleted }) => deleted).map(({ id }) => id));
  for (let size = 0; size !== gone.size;) {
    size = gone.size;
    for (const { id, parent } of one.nodes) if (gone.has(parent)) gone.add(id);
  }
  for (const node of one.nodes) {
    if (!gone.has(node.id) || isEmpty(node)) continue;
    Object.assign(node, { deleted: true, edited: node.edited + 1, note: "" }, node.steps ? { steps: [newStep()] } : { content: "", files: [] });
  }
}

// ---- What is kept ----------------------------------------------------------------------------------------------------

function storeSettings() {
  try {
    localStorage.setItem("llmserve.settings", JSON.stringify({
      model: model?.id, tools: $("use-tools").checked, values: Object.fromEntries(kKept.map((id) => [id, $(id).value])) }));
  } catch {
    // No room, or not allowed: they are this page's alone.
  }
  document.documentElement.dataset.theme = $("theme").value;
}

function restoreSettings() {
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem("llmserve.settings"));
  } catch {
    // Not ours, or not allowed.
  }
  for (const id of kKept) if (typeof kept?.values?.[id] === "string") $(id).value = kept.values[id];
  $("use-tools").checked = kept?.tools === true;
  document.documentElement.dataset.theme = $("theme").value;
  return kept?.model;
}

// Takes over what another tab has added or changed. @return whether there is any
function adopt(one, stored) {
  const mine = new Map(one.nodes.map((node) => [node.id, node]));
  let changed = one.title !== stored.title;
  const nodes = stored.nodes.map((node) => {
    const own = mine.get(node.id);
    mine.delete(node.id);
    if (own && (own.edited >= node.edited || own === running?.node)) return own;
    changed = true;
    return node;
  });
  nodes.push(...mine.values());  // not stored yet
  Object.assign(one, { title: stored.title, renamed: stored.renamed, nodes });
  return changed;
}

let known = new Map();  // what is stored, by ids
let saved = Promise.resolve();

// Stores a conversation, after what is being stored.
function save(one = conversation) {
  const write = async () => {
    const nodes = one.nodes.filter((node) => node.deleted || !isEmpty(node));
    if (!nodes.length) return;
    const leaf = nodes.some(({ id }) => id === one.leaf) ? one.leaf : one.nodes.find(({ id }) => id === one.leaf)?.parent ?? null;
    one.updated = Date.now();
    note(await Store.save({ ...one, nodes, leaf }), one);
  };
  saved = saved.then(write).catch((error) => showNotice("Not stored: " + error.message));
  return saved;
}

// That `stored` is stored now. @param one  the same conversation, where this page has it
function note(stored, one = null) {
  if (stored.deleted) known.delete(stored.id);
  else known.set(stored.id, stored);
  if (one && adopt(one, stored) && one === conversation && !running) {
    one.leaf = leafBelow(one.leaf);  // goes on with the other tab
    showAll(path());
  }
  listConversations();
}

function listConversations() {
  const words = $("search").value.toLowerCase();
  const has = ({ title, nodes }) =>
    title.toLowerCase().includes(words) || nodes.some((node) => !node.deleted && contentOf(node).toLowerCase().includes(words));
  const found = [...known.values()].filter((one) => !words || has(one)).sort((a, b) => b.updated - a.updated);
  if (!$("list").querySelector("input")) showList(found, conversation.id);  // none is being renamed
}

// Another tab has stored that conversation.
Store.listen(async (id) => {
  const stored = await Store.load(id);
  if (stored) note(stored, id === conversation.id ? conversation : null);
});

// The only conversation that pages before had.
async function takeOver() {
  try {
    const old = JSON.parse(localStorage.getItem("llmserve.conversation"));
    if (!old?.turns?.length) return;
    const one = Store.create();
    for (const { role, content, steps, note } of old.turns) {
      const rest = role === "assistant" ? { steps: steps.map((step) => ({ ...newStep(step.content), calls: step.calls })) } : { content, files: [] };
      one.nodes.push({ ...newNode(one.leaf, { role, ...rest }), note: note ?? "" });
      one.leaf = one.nodes.at(-1).id;
    }
    one.title = titleOf(one);
    await save(one);
    localStorage.removeItem("llmserve.conversation");
  } catch {
    // There is none, or it is broken.
  }
}

// ---- Conversations ---------------------------------------------------------------------------------------------------

const titleOf = (one) => (contentOf(one.nodes[0]) || one.nodes[0].files?.[0]?.name || "").trim().split("\n")[0].slice(0, 60) || "Untitled";

// The list, which a phone has no room for.
function setSide(isOpen) {
  document.body.classList.toggle("side", isOpen);
  $("shade").hidden = !isOpen;
}

function setRunning(run) {
  running = run;
  $("send").textContent = run ? "Stop" : "Send";
  $("turns").ariaBusy = String(Boolean(run));  // it is read out when it is whole
}

function stop() {
  running?.controller.abort();
}

// Shows a conversation; an empty one is stored with its first message.
function show(one) {
  stop();
  setRunning(null);
  conversation = one;
  const place = one.nodes.length ? "#" + one.id : "";
  if (location.hash !== place) history.pushState(null, "", place || location.pathname);
  setSide(false);
  $("speed").textContent = "";
  showAll(path());
  goToEnd();
  showFacts();
  listConversations();
}

async function openConversation(id) {
  await saved;
  const found = id ? await Store.load(id) : null;
  show(found && !found.deleted ? found : Store.create());
  if (!conversation.nodes.some((node) => node.deleted && !isEmpty(node))) return;
  forgetDeleted(conversation);
  await save();
}

// Changes a stored conversation, which may be the one that is shown.
async function change(id, changes) {
  await saved;
  const one = id === conversation.id ? conversation : await Store.load(id);
  if (!one) return null;
  Object.assign(one, changes);
  await save(one);
  return one;
}

function download(conversations, name) {
  const file = new Blob([Store.toFile(conversations)], { type: "application/json" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: name + ".json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

async function importFile(file) {
  try {
    const found = Store.fromFile(await file.text());
    for (const one of found) note(await Store.save({ ...one, deleted: 0 }), one.id === conversation.id ? conversation : null);
    showNotice(`Imported ${found.length} conversation${found.length === 1 ? "" : "s"}`);
  } catch (error) {
    showNotice(`${file.name}: ${error.message}`);
  }
}
