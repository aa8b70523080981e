// Conversations, as this browser keeps them (IndexedDB, a record for each).
//
// A conversation is a tree of nodes, so that a message has versions: nodes with the same parent. A node is never taken out
// and its id is random, so two tabs that write the same conversation are merged node by node (merge()), and none of them
// can overwrite what the other has added. `edited` counts the changes of a node; of two copies the later one stays.
//
//   conversation = {id, format, title, renamed, updated, deleted, leaf, nodes: [node]}
//   node = {id, parent, edited, deleted, role: "user" or "text", content, files: [{name, text}]}
//       or {id, parent, edited, deleted, role: "assistant", steps: [{content, thoughts, calls: [{id, name, text, result}]}]},
//   both with cut (a limit or the user ended it) and note. All steps of a reply but the last have calls. `leaf` is the last
//   node that is shown.
const Store = (() => {
  const kFormat = 1;           // of a record and of a file; others are not read
  const kKeptDeleted = 60000;  // milliseconds in which a deletion can be undone
  const channel = new BroadcastChannel("llmserve.conversations");
  let failed = null;           // why nothing is stored
  const memory = new Map();    // then they are here

  const opened = new Promise((done) => {
    const request = indexedDB.open("llmserve", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
    request.onsuccess = () => done(request.result);
    request.onerror = () => { failed = request.error; done(null); };
  }).catch((error) => { failed = error; return null; });

  // One transaction, in which `work` reads and writes records.
  async function transact(mode, work) {
    const database = await opened;
    if (!database) return work({ get: (id, then) => then(memory.get(id)), all: (then) => then([...memory.values()]),
                                 put: (record) => memory.set(record.id, structuredClone(record)), remove: (id) => memory.delete(id) });
    return new Promise((done, fail) => {
      const transaction = database.transaction("conversations", mode);
      const records = transaction.objectStore("conversations");
      const then = (request, next) => { request.onsuccess = () => next(request.result); };
      transaction.oncomplete = done;
      transaction.onabort = () => fail(transaction.error);
      work({ get: (id, next) => then(records.get(id), next), all: (next) => then(records.getAll(), next),
             put: (record) => records.put(record), remove: (id) => records.delete(id) });
    });
  }

  const newId = () => [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join("-");
  const isText = (value) => typeof value === "string";
  const isCall = ({ id, name, text, result }) => [id, name, text, result].every(isText);
  const isStep = ({ content, thoughts, calls }) => isText(content) && isText(thoughts) && Array.isArray(calls) && calls.every(isCall);
  const isFile = ({ name, text }) => isText(name) && isText(text);
  const isNode = ({ id, parent, edited, role, content, steps, files, note }) =>
    isText(id) && (parent === null || isText(parent)) && Number.isInteger(edited) && (note === undefined || isText(note)) &&
    (role === "assistant" ? Array.isArray(steps) && steps.length > 0 && steps.every(isStep)
                          : ["user", "text"].includes(role) && isText(content) && Array.isArray(files) && files.every(isFile));

  // That every parent is there, and that no chain of parents is a ring.
  function isTree(nodes) {
    const parents = new Map(nodes.map(({ id, parent }) => [id, parent]));
    const good = new Set([null]);
    return parents.size === nodes.length && nodes.every(({ id }) => {
      const path = new Set();
      for (let at = id; !good.has(at); at = parents.get(at)) {
        if (path.has(at) || !parents.has(at)) return false;
        path.add(at);
      }
      for (const one of path) good.add(one);
      return true;
    });
  }

  function isConversation(record) {
    try {
      const { format, id, title, updated, leaf, nodes } = record;
      return format === kFormat && isText(id) && isText(title) && Number.isFinite(updated) && (leaf === null || isText(leaf)) &&
             nodes.every(isNode) && isTree(nodes);
    } catch {
      return false;  // something in it is null, or no list
    }
  }

  // Nodes of both; the rest is that of `mine`.
  function merge(stored, mine) {
    if (!stored) return mine;
    const nodes = new Map(stored.nodes.map((node) => [node.id, node]));
    for (const node of mine.nodes) {
      const other = nodes.get(node.id);
      if (!other || other.edited <= node.edited) nodes.set(node.id, node);
    }
    const named = (stored.renamed ?? 0) > (mine.renamed ?? 0) ? stored : mine;
    return { ...mine, title: named.title, renamed: named.renamed, updated: Math.max(stored.updated, mine.updated),
             nodes: [...nodes.values()] };
  }

  return {
    newId,
    failure: () => failed,
    create: () => ({ id: newId(), format: kFormat, title: "",
                     renamed: 0, updated: Date.now(), deleted: 0, leaf: null, nodes: [] }),
    // All that are not deleted, the latest first. What was deleted long ago goes now.
    async list() {
      let found = [];
      await transact("readwrite", (records) => records.all((all) => {
        for (const { id, deleted } of all) if (deleted && Date.now() - deleted > kKeptDeleted) records.remove(id);
        found = all.filter((record) => !record.deleted && isConversation(record));
      }));
      return found.sort((a, b) => b.updated - a.updated);
    },
    async load(id) {
      let found = null;
      await transact("readonly", (records) => records.get(id, (record) => { found = record ?? null; }));
      return isConversation(found) ? found : null;
    },
    // Stores it with what other tabs have stored of it, which is returned, and tells them.
    async save(conversation) {
      let merged = null;
      await transact("readwrite", (records) => records.get(conversation.id, (stored) => {
        merged = merge(isConversation(stored) ? stored : null, conversation);
        records.put(merged);
      }));
      channel.postMessage(conversation.id);
      return merged;
    },
    // `change` is called with what another tab has changed.
    listen: (change) => { channel.onmessage = ({ data }) => change(data); },
    toFile: (conversations) => JSON.stringify({ llmserve: "conversations", format: kFormat, conversations }, null, 1),
    // The conversations of a file. Throws what is wrong with it.
    fromFile(text) {
      let file = null;
      try {
        file = JSON.parse(text);
      } catch (error) {
        throw new Error("found no JSON: " + error.message);
      }
      if (file?.llmserve !== "conversations") throw new Error('found no "llmserve": "conversations"; only exported files can be imported');
      if (file.format !== kFormat) throw new Error(`format: found ${JSON.stringify(file.format)}, need ${kFormat}`);
      if (!Array.isArray(file.conversations)) throw new Error("conversations: need a list");
      file.conversations.forEach((one, i) => {
        if (!isConversation(one)) throw new Error(`conversations[${i}]: found no valid conversation`);
      });
      return file.conversations;
    },
  };
})();
