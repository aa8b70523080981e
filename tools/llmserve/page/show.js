// How a conversation looks; page.js says what its buttons do (`actions`).

const $ = (id) => document.getElementById(id);
const views = new WeakMap();  // the elements of nodes and of their steps
let follows = true;           // the end is in sight, and stays there as the text grows

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function viewOf(thing, make) {
  if (!views.has(thing)) views.set(thing, make());
  return views.get(thing);
}

function button(text, onclick, label = "") {
  const made = Object.assign(element("button", "", text), { type: "button", onclick });
  if (label) made.title = label;
  if (label) made.setAttribute("aria-label", label);
  return made;
}

// ---- The place in the text -------------------------------------------------------------------------------------------

let lastTop = 0;
function noteScroll() {
  const { scrollHeight, scrollTop, clientHeight } = $("scroll");
  if (scrollHeight - scrollTop - clientHeight < 40) follows = true;
  else if (scrollTop < lastTop) follows = false;  // the text alone never moves up
  lastTop = scrollTop;
  $("down").hidden = follows;
}

// After a change of the text or of its layout.
function keepPlace() {
  if (follows) $("scroll").scrollTop = $("scroll").scrollHeight;
  noteScroll();
}
new ResizeObserver(keepPlace).observe($("turns"));

function goToEnd() {
  follows = true;
  keepPlace();
}

// ---- Parts -----------------------------------------------------------------------------------------------------------

function showError(error) {
  $("turns").append(element("div", "turn error", error.message));
  goToEnd();
}

async function copy(text, copier) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not allowed, or the page did not come from this machine or by TLS
    const field = document.body.appendChild(element("textarea", "", text));
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  copier.textContent = "Copied";
  setTimeout(() => { copier.textContent = "Copy"; }, 1500);
}
Markdown.onCopy = copy;

// The details below `place` of that class, made before its `next` where they are not there yet.
function detailsOf(place, className, title, next = null) {
  let details = place.querySelector(":scope > ." + className);
  if (!details) {
    details = element("details", className);
    details.append(element("summary", "", title), element("div", "body"));
    place.insertBefore(details, next);
  }
  return details;
}

// A call with its arguments and what it gave, as far as they are JSON spread over lines.
function showCall(place, call, index) {
  const spread = (text) => {
    try {
      return JSON.stringify(JSON.parse(text), null, 1).replace(/\n */g, " ");
    } catch {
      return text;
    }
  };
  const details = detailsOf(place, "call-" + index, "");
  details.classList.add("call");
  const name = element("code", "", call.name);
  details.firstChild.replaceChildren("Called ", name);
  details.lastChild.replaceChildren(element("div", "note", "Arguments"), element("pre", "", spread(call.text)),
                                    element("div", "note", "Result"), element("pre", "", spread(call.result ?? "…")));
}

// A part of a reply. Thoughts are not sent back.
function showStep(turn, step) {
  const place = viewOf(step, () => turn.insertBefore(element("div", "step"), turn.querySelector(":scope > .tools")));
  if (step.thoughts) detailsOf(place, "thoughts", "Thoughts", place.firstChild).lastChild.textContent = step.thoughts;
  if (step.content) {
    const body = place.querySelector(":scope > .reply") ?? place.insertBefore(element("div", "reply"), place.querySelector(":scope > .call"));
    Markdown.show(body, step.content);
  }
  step.calls.forEach((call, index) => showCall(place, call, index));
}

// The element of a node, which shows it as it is now.
function showTurn(node) {
  const turn = viewOf(node, () => element("div", "turn"));
  if (node.steps) {
    for (const step of node.steps) showStep(turn, step);
    return turn;
  }
  const body = turn.querySelector(":scope > .body") ?? turn.insertBefore(element("div", "body " + node.role), turn.firstChild);
  if (body.textContent !== node.content) body.textContent = node.content;
  if (node.files.length && !turn.querySelector(":scope > .attached")) {
    const list = turn.insertBefore(element("div", "attached"), body);
    node.files.forEach(({ name, text }, index) => detailsOf(list, "file-" + index, name).lastChild.append(element("pre", "", text)));
  }
  return turn;
}

// How far the server is with the prompt; null: it is done.
function showProgress(node, progress) {
  const turn = viewOf(node, () => element("div", "turn"));
  turn.querySelector(":scope > .progress")?.remove();
  if (!progress) return;
  const { total, cache, processed, time_ms: time } = progress;
  const bar = Object.assign(document.createElement("progress"), { max: total - cache || 1, value: processed - cache });
  const left = processed > cache ? Math.ceil(time / 1000 * (total - processed) / (processed - cache)) : null;
  const parts = [`Reading the prompt: ${processed.toLocaleString("en")} of ${total.toLocaleString("en")} tokens`];
  if (cache) parts.push(`${cache.toLocaleString("en")} cached`);
  if (left !== null) parts.push(`${left.toLocaleString("en")} s left`);
  const place = turn.insertBefore(element("div", "progress"), turn.querySelector(":scope > .tools"));
  place.append(bar, element("span", "note", parts.join(", ")));
}

// The buttons below a node, and what is to be said of its end.
function showTools(node) {
  const turn = showTurn(node);
  turn.querySelector(":scope > .tools")?.remove();
  if (actions.isRunning(node)) return;
  const tools = turn.appendChild(element("div", "tools"));
  const versions = actions.versionsOf(node);
  if (versions.length > 1) {
    const at = versions.indexOf(node);
    const previous = button("‹", () => actions.show(versions[at - 1]), "Previous version");
    const next = button("›", () => actions.show(versions[at + 1]), "Next version");
    previous.disabled = at === 0;
    next.disabled = at === versions.length - 1;
    tools.append(previous, element("span", "note version", `${at + 1}/${versions.length}`), next);
  }
  const copier = button("Copy", () => copy(contentOf(node), copier));
  tools.append(copier, button("Edit", () => actions.edit(node)));
  if (node.steps) tools.append(button("Regenerate", () => actions.regenerate(node)));
  if (actions.canContinue(node)) tools.append(button("Continue", () => actions.resume(node)));
  if (actions.lacksReply(node)) tools.append(button("Answer", () => actions.answer()));
  tools.append(button("Delete", () => actions.remove(node)));
  if (node.note) tools.append(element("span", "note", node.note));
}

// A field in place of a node's text.
function showEditor(node, text, label, done) {
  const turn = showTurn(node);
  const editor = element("form", "editor");
  const field = Object.assign(element("textarea", "", text), { ariaLabel: "Message" });
  const close = () => {
    editor.remove();
    turn.classList.remove("edited");
  };
  editor.onsubmit = (event) => {
    event.preventDefault();
    close();
    if (field.value.trim() && field.value !== text) done(field.value);
  };
  field.onkeydown = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !node.steps) {
      event.preventDefault();
      editor.requestSubmit();
    }
    event.stopPropagation();
  };
  field.oninput = () => fit(field);
  const row = element("div", "row");
  row.append(Object.assign(button(label), { type: "submit", className: "main" }), button("Cancel", close));
  editor.append(field, row);
  turn.classList.add("edited");
  turn.append(editor);
  fit(field);
  field.focus();
}

// As high as its text.
function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function showAll(nodes) {
  for (const node of nodes) showTools(node);
  $("turns").replaceChildren(...nodes.map(showTurn));
  if (!nodes.length) $("turns").append(element("div", "turn empty", actions.greeting()));
}

// ---- The list of conversations ---------------------------------------------------------------------------------------

function showList(conversations, current) {
  $("list").replaceChildren(...conversations.map((one) => {
    const item = element("li", one.id === current ? "current" : "");
    const open = button(one.title, () => actions.open(one.id));
    open.className = "title";
    if (one.id === current) open.setAttribute("aria-current", "true");
    const rename = () => {
      const field = Object.assign(element("input", ""), { value: one.title, ariaLabel: "Name" });
      let isOpen = true;
      const end = (keep) => {
        if (!isOpen) return;
        isOpen = false;
        field.remove();
        actions.rename(one.id, keep ? field.value.trim() || one.title : one.title);
      };
      field.onkeydown = (event) => {
        if (event.key === "Enter" || event.key === "Escape") end(event.key === "Enter");
        event.stopPropagation();
      };
      field.onblur = () => end(true);
      item.replaceChildren(field);
      field.select();
    };
    item.append(open, button("✎", rename, "Rename"), button("⇩", () => actions.exportOne(one.id), "Export"),
                button("✕", () => actions.drop(one.id), "Delete"));
    return item;
  }));
}

// What was done, for a while, with what undoes it. `gone` is called when it cannot be undone any more.
let closeNotice = () => {};
function showNotice(text, undo = null, gone = () => {}) {
  closeNotice();
  const [words, undoer] = $("notice").children;
  words.textContent = text;
  undoer.hidden = !undo;
  $("notice").hidden = false;
  const timer = setTimeout(() => closeNotice(), 10000);
  const end = (last) => {
    clearTimeout(timer);
    $("notice").hidden = true;
    closeNotice = () => {};
    last();
  };
  closeNotice = () => end(gone);
  undoer.onclick = () => end(undo);
}

function showFiles(files, remove) {
  $("files").replaceChildren(...files.map((file) => {
    const chip = element("span", "chip", file.name);
    chip.append(button("✕", () => remove(file), "Remove " + file.name));
    return chip;
  }));
}
