// How the conversation looks: page.js has it, as `turns`.

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

// The details below `step` of that class, made before its `next` where they are not there yet.
function detailsOf(step, className, title, next = null) {
  let details = step.element.querySelector(":scope > ." + className);
  if (!details) {
    details = element("details", className);
    details.append(element("summary", "", title), element("div", "body"));
    step.element.insertBefore(details, next);
  }
  return details;
}

// A call with its arguments and what it gave, as far as they are JSON spread over lines.
function showCall(step, call, index) {
  const spread = (text) => {
    try {
      return JSON.stringify(JSON.parse(text), null, 1).replace(/\n */g, " ");
    } catch {
      return text;
    }
  };
  const details = detailsOf(step, "call-" + index, "");
  details.classList.add("call");
  const name = element("code", "", call.name);
  details.firstChild.replaceChildren("Called ", name);
  details.lastChild.replaceChildren(element("div", "note", "Arguments"), element("pre", "", spread(call.text)),
                                    element("div", "note", "Result"), element("pre", "", spread(call.result ?? "…")));
}

// A part of a reply. Thoughts are not kept over a reload, and not sent back.
function showStep(turn, step) {
  step.element ??= turn.element.insertBefore(element("div", "step"), turn.element.querySelector(":scope > .tools"));
  if (step.thoughts) detailsOf(step, "thoughts", "Thoughts", step.element.firstChild).lastChild.textContent = step.thoughts;
  if (step.content) {
    const body = step.element.querySelector(":scope > .reply") ??
                 step.element.insertBefore(element("div", "reply"), step.element.querySelector(":scope > .call"));
    Markdown.show(body, step.content);
  }
  step.calls.forEach((call, index) => showCall(step, call, index));
}

function showTurn(turn) {
  turn.element ??= addElement(element("div", "turn"));
  if (turn.steps) return turn.steps.forEach((step) => showStep(turn, step));
  const body = turn.element.querySelector(":scope > .body") ?? turn.element.appendChild(element("div", "body " + turn.role));
  if (body.textContent !== turn.content) body.textContent = turn.content;
}

// The buttons below a turn, and what is to be said of its end.
function showTools(turn) {
  turn.element.querySelector(".tools")?.remove();
  const tools = turn.element.appendChild(element("div", "tools"));
  const copier = button("Copy", () => copy(contentOf(turn), copier));
  tools.append(copier);
  if (turn.steps && turn === turns.at(-1)) tools.append(button("Regenerate", regenerate));
  if (turn.note) tools.append(element("span", "note", turn.note));
}

function showAll() {
  $("turns").replaceChildren();
  for (const turn of turns) {
    turn.element = null;
    for (const step of turn.steps ?? []) step.element = null;
    showTurn(turn);
    showTools(turn);
  }
  if (turns.length) return;
  addElement(element("div", "turn empty", !model ? "" : isChat() ? "Say something." : "This model has no chat template: it continues your text."));
}
