// What the user does.
"use strict";
const kMostFile = 1 << 20;  // bytes of an attached file

// What the buttons of show.js do. Nothing is changed while a reply is written.
const idle = (work) => async (...given) => { if (!running) await work(...given); };
const actions = {
  isRunning: (node) => running?.node === node,
  versionsOf: (node) => nodesBelow(node.parent),
  canContinue: (node) => node.id === conversation.leaf && (node.role === "text" || (node.cut && node.steps?.at(-1).content && !node.steps.at(-1).calls.length)),
  lacksReply: (node) => node.role === "user" && node.id === conversation.leaf,
  greeting: () => (!model ? "" : isChat() ? "Say something." : "This model has no chat template: it continues your text."),
  show: idle((node) => {
    conversation.leaf = leafBelow(node.id);
    save();
    showAll(path());
    showFacts();
  }),
  edit: idle((node) => {
    const sends = !node.steps && isChat();
    showEditor(node, contentOf(node), sends ? "Send" : "Save", async (content) => {
      if (running || (sends && !await isReady())) return;
      conversation.leaf = node.parent;
      if (sends) return ask(userNode(content, node.files));
      add(newNode(node.parent, { role: node.role, ...(node.steps ? { steps: [newStep(content)], cut: true } : { content, files: node.files }) }));
      save();
      showAll(path());
    });
  }),
  regenerate: idle(async (node) => {
    if (!await isReady()) return;
    const old = conversation.leaf;
    conversation.leaf = node.parent;
    await reply(old);
  }),
  resume: idle(async (node) => { if (await isReady()) await answer(node, { continues: true }); }),
  answer: idle(async () => { if (await isReady()) await reply(); }),
  remove: idle((node) => {
    const one = conversation;
    const { leaf } = one;
    const setDeleted = (deleted) => Object.assign(node, { deleted, edited: node.edited + 1 });
    setDeleted(true);
    one.leaf = leafBelow(nodesBelow(node.parent).at(-1)?.id ?? node.parent);
    save();
    showAll(path());
    showNotice("Deleted the message", () => {
      setDeleted(false);
      one.leaf = leaf;
      save(one);
      if (one === conversation) showAll(path());
    }, () => {
      forgetDeleted(one);
      save(one);
    });
  }),
  open: (id) => openConversation(id),
  rename: (id, title) => change(id, { title, renamed: Date.now() }),
  exportOne: async (id) => {
    const one = await Store.load(id);
    download([one], one.title.replace(/[^\p{L}\p{N} _-]/gu, "_"));
  },
  drop: async (id) => {
    const one = await change(id, { deleted: Date.now() });
    if (!one) return;
    if (one === conversation) show(Store.create());
    showNotice(`Deleted “${one.title}”`, async () => {
      one.deleted = 0;
      await save(one);
      await openConversation(id);
    });
  },
};

async function attach(chosen) {
  for (const file of chosen) {
    const text = file.size > kMostFile ? "" : await file.text();
    if (file.size > kMostFile) showNotice(`${file.name}: found ${file.size.toLocaleString("en")} bytes, need at most ${kMostFile.toLocaleString("en")}`);
    else if (text.includes("\0") || text.includes("\uFFFD")) showNotice(`${file.name}: found other data than UTF-8 text`);
    else files.push({ name: file.name, text });
  }
  const list = () => showFiles(files, (file) => { files = files.filter((one) => one !== file); list(); });
  list();
  $("text").focus();
}

const startNew = () => { show(Store.create()); $("text").focus(); };

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  await opening;
  if (running) stop();
  else if ($("text").value.trim() || files.length) send();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) $("form").requestSubmit();
  }
  const last = path().findLast(({ steps }) => !steps);
  if (event.key === "ArrowUp" && !$("text").value && last) {
    event.preventDefault();
    actions.edit(last);
  }
});
$("text").addEventListener("input", () => fit($("text")));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop();
  if (!event.ctrlKey && !event.metaKey) return;
  const shortcut = event.shiftKey ? { O: startNew, F: () => { setSide(true); $("search").focus(); } }[event.key.toUpperCase()]
                                  : { "/": () => $("help-box").showModal() }[event.key];
  if (!shortcut) return;
  event.preventDefault();
  shortcut();
});
$("scroll").addEventListener("scroll", noteScroll);
$("down").addEventListener("click", goToEnd);
$("new").addEventListener("click", startNew);
$("menu").addEventListener("click", () => setSide(true));
$("shade").addEventListener("click", () => setSide(false));
$("search").addEventListener("input", listConversations);
$("export").addEventListener("click", () => download([...known.values()], "conversations"));
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", async () => {
  for (const file of $("import-file").files) await importFile(file);
  $("import-file").value = "";
});
$("attach").addEventListener("click", () => $("attach-file").click());
$("attach-file").addEventListener("change", async () => {
  await attach([...$("attach-file").files]);
  $("attach-file").value = "";
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  attach([...event.dataTransfer.files]);
});
$("settings").addEventListener("click", () => $("settings-box").showModal());
$("help").addEventListener("click", () => $("help-box").showModal());
$("model").addEventListener("change", chooseModel);
for (const id of [...kKept, "use-tools"]) $(id).addEventListener("change", storeSettings);
addEventListener("hashchange", () => { if (location.hash.slice(1) !== conversation.id) openConversation(location.hash.slice(1)); });
addEventListener("visibilitychange", () => { if (document.hidden && running?.node) save(running.conversation); });
$("key").value = sessionStorage.getItem("key") ?? "";
Server.setKey($("key").value);
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  Server.setKey($("key").value);
  openPage().catch(showError);
});
const opening = openPage().catch((error) => {
  showAll([]);
  showError(error);
  $("settings-box").showModal();
});
