// The server's API, as far as the page needs it.
const Server = (() => {
  let key = "";

  async function ask(path, { body, signal } = {}) {
    const headers = { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
    if (answer.ok) return answer;
    let message = "status " + answer.status;
    try {
      message = (await answer.json()).error.message;
    } catch {
      // A proxy's answer.
    }
    throw new Error(message);
  }

  return {
    setKey: (value) => { key = value; },
    models: async () => (await (await ask("v1/models")).json()).data,
    // Returns when the model is loaded.
    load: (id, signal) => ask("props?model=" + encodeURIComponent(id), { signal }),
    // The events of a streamed answer, one by one.
    async *events(path, body, signal) {
      const answer = await ask(path, { body, signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let waiting = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Error("the connection ended before the answer did");
        waiting += value;
        const events = waiting.split("\n\n");
        waiting = events.pop();
        for (const event of events) {
          const data = event.replace(/^data: /, "");
          if (data === "[DONE]") return;
          const json = JSON.parse(data);
          if (json.error) throw new Error(json.error.message);
          yield json;
        }
      }
    },
  };
})();
