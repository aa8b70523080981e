// Markdown to DOM nodes, as much of it as models write. A model's text only ever becomes text nodes: nothing here parses
// HTML but what highlight.js has made of it, no link runs a script, nothing is loaded from elsewhere. Time is linear in the
// text, but for nesting, which is bounded.
"use strict";
const Markdown = (() => {
  const kMostLevels = 8;
  const kMostMath = 4000;   // characters of a formula; a longer one is shown as it is written
  const kMostCode = 30000;  // of a block of code; a longer one has no colours

  function node(name, children = [], properties = {}) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // ---- Libraries, loaded when the first text needs them ----------------------------------------------------------

  // A function that promises the library of that name, or null where it cannot be loaded.
  function library(name, script, style) {
    let loading = null;
    return () => loading ??= new Promise((done) => {
      if (style) document.head.append(node("link", [], { rel: "stylesheet", href: style }));
      document.head.append(node("script", [], { src: script, onload: () => done(globalThis[name]), onerror: () => done(null) }));
    });
  }
  const katex = library("katex", "page/katex/katex.min.js", "page/katex/katex.min.css");
  const highlight = library("hljs", "page/highlight/highlight.min.js");

  // A formula; until it is laid out, and where it is wrong, its source.
  function math(source, tex, displayMode) {
    const made = node("span", [source], { className: displayMode ? "math display" : "math" });
    const options = { displayMode, maxExpand: 200, maxSize: 20, strict: "ignore", throwOnError: true, trust: false };
    if (tex.length <= kMostMath) {
      katex().then((library) => {
        const laidOut = document.createElement("span");
        library?.render(tex, laidOut, options);
        if (library) made.replaceChildren(laidOut);
      }).catch(() => {});
    }
    return made;
  }

  async function colour(place, code, language) {
    if (!language || code.length > kMostCode) return;
    const library = await highlight();
    if (!library?.getLanguage(language)) return;
    const html = library.highlight(language, code, /*ignoreIllegals=*/true).value;
    place.replaceChildren(...new DOMParser().parseFromString(`<pre>${html}</pre>`, "text/html").querySelector("pre").childNodes);
  }

  // ---- Inside of a paragraph -------------------------------------------------------------------------------------

  const kSpans = [["***", ["strong", "em"]], ["**", ["strong"]], ["__", ["strong"]], ["~~", ["del"]], ["*", ["em"]], ["_", ["em"]]];
  const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);

  function link(url, children) {
    return node("a", children, { href: url, target: "_blank", rel: "noopener noreferrer" });
  }

  // The place behind the run of marks that ends what `mark` opened at `from`, or -1.
  function closes(text, mark, from) {
    for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
      if (at === from || /\s/.test(text[at - 1])) continue;
      if (mark.length === 1 && text[at + 1] === mark) { at += 1; continue; }  // of a longer mark
      if (mark[0] === "_" && isWord(text[at + mark.length])) continue;
      return at;
    }
    return -1;
  }

  function inline(text, levels = kMostLevels) {
    const nodes = [];
    const hopeless = new Set();  // marks that nothing closes from here on
    let plain = "";
    let at = 0;
    const flush = () => { if (plain) nodes.push(document.createTextNode(plain)); plain = ""; };
    const take = (end, made) => { flush(); nodes.push(made); at = end; };

    const codeSpan = () => {
      const ticks = /^`+/.exec(text.slice(at, at + 64))[0];
      let end = hopeless.has(ticks) ? -1 : at + ticks.length;
      do {
        end = end < 0 ? -1 : text.indexOf(ticks, end);
        if (end >= 0 && text[end + ticks.length] !== "`") {
          const code = text.slice(at + ticks.length, end).replace(/\n/g, " ");
          const inner = /^ .*\S.* $/.test(code) ? code.slice(1, -1) : code;
          take(end + ticks.length, node("code", [inner]));
          return true;
        }
        while (end >= 0 && text[end] === "`") end += 1;
      } while (end >= 0);
      hopeless.add(ticks);
      plain += ticks;
      at += ticks.length;
      return true;
    };

    const span = () => {
      for (const [mark, names] of kSpans) {
        if (!text.startsWith(mark, at)) continue;
        const begin = at + mark.length;
        const opens = !hopeless.has(mark) && begin < text.length && !/\s/.test(text[begin]) && !(mark[0] === "_" && isWord(text[at - 1]));
        if (!opens) continue;
        const end = closes(text, mark, begin);
        if (end < 0) { hopeless.add(mark); continue; }
        const inner = inline(text.slice(begin, end), levels - 1);
        take(end + mark.length, names.reduceRight((children, name) => [node(name, children)], inner)[0]);
        return true;
      }
      return false;
    };

    const named = () => {  // [text](url); a picture is its text
      const picture = text[at] === "!";
      const found = /^!?\[([^[\]\n]{0,500})\]\(<?([^\s<>()]{1,2000}(?:\([^\s<>()]{0,500}\))?[^\s<>()]{0,500})>?(?: +"[^"\n]{0,500}")?\)/.exec(text.slice(at, at + 4000));
      if (!found) return false;
      const children = picture ? [found[1]] : inline(found[1], levels - 1);
      const isSafe = !picture && /^(https?:|mailto:)/i.test(found[2]);
      take(at + found[0].length, isSafe ? link(found[2], children) : node("span", children));
      return true;
    };

    const formula = () => {
      const closer = { "\\(": "\\)", "\\[": "\\]" }[text.slice(at, at + 2)];
      if (closer && (hopeless.has(closer) || text.indexOf(closer, at) < 0)) {
        hopeless.add(closer);
        return false;
      }
      // "$5 and $6" is none: what closes it stands behind no space and before no digit, and code is none.
      const found = /^(?:\$\$([^$]+)\$\$|\$(?![\s$])([^$\n`]{0,500}?[^\s\\$`])\$(?!\d)|\\\(([^]{1,2000}?)\\\)|\\\[([^]{1,2000}?)\\\])/
        .exec(text.slice(at, at + kMostMath));
      if (!found) return false;
      const [source, display, inside, bracket, displayBracket] = found;
      take(at + source.length, math(source, display ?? inside ?? bracket ?? displayBracket, Boolean(display ?? displayBracket)));
      return true;
    };

    const address = () => {  // a bare one
      const found = /^https?:\/\/[^\s<>"`]{1,2000}/i.exec(text.slice(at, at + 2010));
      if (!found || isWord(text[at - 1])) return false;
      const url = found[0].replace(/[.,;:!?'*_~]+$/, "").replace(/\)$/, (end) => (found[0].includes("(") ? end : ""));
      take(at + url.length, link(url, [url]));
      return true;
    };

    while (at < text.length) {
      const c = text[at];
      if ((c === "$" || (c === "\\" && "([".includes(text[at + 1] ?? " "))) && formula()) {
        // taken
      } else if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
        plain += text[at + 1];
        at += 2;
      } else if (c === "\n") {
        take(at + 1, node("br"));
      } else if (c === "`") {
        codeSpan();
      } else if (levels > 0 && ("*_~".includes(c) ? span() : c === "[" || (c === "!" && text[at + 1] === "[") ? named() : (c === "h" || c === "H") && address())) {
        // taken
      } else if ("*_~".includes(c)) {  // a whole run, so that it is looked at once
        const run = /^([*_~])\1*/.exec(text.slice(at, at + 64))[0];
        plain += run;
        at += run.length;
      } else {
        plain += c;
        at += 1;
      }
    }
    flush();
    return nodes;
  }

  // ---- Blocks ----------------------------------------------------------------------------------------------------

  const kItem = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
  // No expression here goes back over more than a few characters, whatever the text.
  const kFence = /^( {0,3})(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
  const kHeading = /^ {0,3}(#{1,6})(?:\s(.*))?$/;
  const kRule = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
  const kRow = /^ *\|.*\| *$/;
  const kDashes = /^ *\|(?: *:?-+:? *\|)+ *$/;
  // What closes the formula over several lines that the line opens.
  const closerOf = (line) => {
    const found = /^ {0,3}(\$\$|\\\[)/.exec(line);
    const closer = found && (found[1] === "$$" ? "$$" : "\\]");
    return closer && !line.slice(found[0].length).includes(closer) ? closer : null;
  };
  const isBlank = (line) => line === undefined || /^\s*$/.test(line);
  const beginsBlock = (line) => kFence.test(line) || kHeading.test(line) || kRule.test(line) || /^ {0,3}>/.test(line) || kItem.test(line) || closerOf(line) !== null;

  // "Title ##" is "Title".
  function withoutMarks(heading) {
    let end = heading.length;
    while (end > 0 && heading[end - 1] === "#") end -= 1;
    return end === 0 || heading[end - 1] === " " ? heading.slice(0, end).trim() : heading;
  }

  // The text's blocks: the lines of each, and what makes nodes of it. A block's lines say all about it, so one whose
  // lines are as before needs no new nodes.
  function blocks(lines, levels) {
    const found = [];
    let at = 0;
    const until = (begin, ends) => {
      let end = begin;
      while (end < lines.length && !ends(lines[end], end)) end += 1;
      return end;
    };
    const add = (end, make) => {
      found.push({ source: lines.slice(at, end).join("\n"), make });
      at = end;
    };
    while (at < lines.length) {
      const line = lines[at];
      let match;
      if (isBlank(line)) {
        at += 1;
      } else if ((match = kFence.exec(line))) {
        const [, indent, fence, info] = match;
        const isEnd = (other) => { const text = other.trim(); return text.length >= fence.length && text === fence[0].repeat(text.length); };
        const end = until(at + 1, isEnd);
        const code = lines.slice(at + 1, end).map((one) => (one.startsWith(indent) ? one.slice(indent.length) : one.trimStart()));
        add(Math.min(end + 1, lines.length), () => codeBlock(code.join("\n"), info.trim().split(/\s/)[0]));
      } else if ((match = closerOf(line))) {
        const end = Math.min(until(at + 1, (other) => other.includes(match)) + 1, lines.length);
        const source = lines.slice(at, end).join("\n").trim();
        const tex = source.endsWith(match) ? source.slice(2, -2) : source.slice(2);
        add(end, () => node("p", [math(source, tex, true)]));
      } else if ((match = kHeading.exec(line))) {
        const [, marks, rest = ""] = match;
        add(at + 1, () => node("h" + Math.min(6, marks.length + 1), inline(withoutMarks(rest.trim()))));
      } else if (kRule.test(line)) {
        add(at + 1, () => node("hr"));
      } else if (levels > 0 && /^ {0,3}>/.test(line)) {
        const end = until(at, (other) => !/^ {0,3}>/.test(other));
        const inner = lines.slice(at, end).map((one) => one.replace(/^ {0,3}> ?/, ""));
        add(end, () => node("blockquote", nodesOf(inner, levels - 1)));
      } else if (levels > 0 && kItem.test(line)) {
        const end = endOfList(lines, at);
        const items = lines.slice(at, end);
        add(end, () => list(items, levels - 1));
      } else if (kRow.test(line) && kDashes.test(lines[at + 1] ?? "")) {
        const end = until(at + 2, (other) => !kRow.test(other));
        const rows = lines.slice(at, end);
        add(end, () => table(rows));
      } else {
        const end = until(at + 1, (other, i) => isBlank(other) || beginsBlock(other) || (kRow.test(other) && kDashes.test(lines[i + 1] ?? "")));
        const text = lines.slice(at, end).map((one) => one.trim()).join("\n");
        add(end, () => node("p", inline(text)));
      }
    }
    return found;
  }

  const isOrdered = (match) => /\d/.test(match[2]);

  function endOfList(lines, begin) {
    const ordered = isOrdered(kItem.exec(lines[begin]));
    let end = begin + 1;
    for (let at = begin + 1; at < lines.length; at += 1) {
      if (isBlank(lines[at])) continue;
      const match = kItem.exec(lines[at]);
      const goesOn = /^( {2,}|\t)/.test(lines[at]) || (match ? isOrdered(match) === ordered && !kRule.test(lines[at])
                                                             : !isBlank(lines[at - 1]) && !beginsBlock(lines[at]));
      if (!goesOn) break;
      end = at + 1;
    }
    return end;
  }

  function list(lines, levels) {
    const first = kItem.exec(lines[0]);
    const ordered = isOrdered(first);
    const made = node(ordered ? "ol" : "ul");
    if (ordered) made.start = Number.parseInt(first[2], 10);
    let at = 0;
    while (at < lines.length) {
      const [, lead, mark, , rest] = kItem.exec(lines[at]);
      const indent = lead.length + mark.length + 1;
      const task = /^\[([ xX])\] +(?=\S)/.exec(rest);
      const inner = [task ? rest.slice(task[0].length) : rest];
      for (at += 1; at < lines.length; at += 1) {
        const match = kItem.exec(lines[at]);
        if (match && match[1].length <= lead.length + 1) break;
        const strip = Math.min(indent, lines[at].length - lines[at].trimStart().length);
        inner.push(lines[at].slice(strip));
      }
      const children = nodesOf(inner, levels);
      // A tight item is its text and not a paragraph.
      if (children.length && children[0].nodeName === "P" && !inner.some(isBlank)) children.splice(0, 1, ...children[0].childNodes);
      if (task) children.unshift(node("input", [], { type: "checkbox", disabled: true, checked: task[1] !== " " }));
      made.append(node("li", children, task ? { className: "task" } : {}));
    }
    return made;
  }

  function table(rows) {
    const cells = (row) => row.trim().slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
    const aligned = cells(rows[1]).map((dashes) => (dashes.endsWith(":") ? (dashes.startsWith(":") ? "center" : "right") : ""));
    const tr = (name, row) => node("tr", aligned.map((side, i) => {
      const cell = node(name, inline(cells(row)[i] ?? ""));
      cell.style.textAlign = side;
      return cell;
    }));
    return node("div", [node("table", [node("thead", [tr("th", rows[0])]), node("tbody", rows.slice(2).map((row) => tr("td", row)))])],
                { className: "table" });
  }

  function codeBlock(code, language) {
    const copy = node("button", ["Copy"], { type: "button", className: "copy", onclick: () => Markdown.onCopy(code, copy) });
    const place = node("code", [code]);
    colour(place, code, language.toLowerCase());
    return node("div", [node("div", [node("span", [language]), copy], { className: "code-head" }), node("pre", [place])],
                { className: "code" });
  }

  const nodesOf = (lines, levels) => blocks(lines, levels).map((block) => block.make());

  // Makes `parent` show `text`. Blocks that are as they were keep their nodes, so that a text that grows costs little.
  function show(parent, text) {
    const shown = parent.shownBlocks ?? [];
    const wanted = blocks(text.replace(/\r\n?/g, "\n").split("\n"), kMostLevels);
    let same = 0;
    while (same < wanted.length && same < shown.length && wanted[same].source === shown[same].source) same += 1;
    while (parent.childNodes.length > same) parent.lastChild.remove();
    parent.append(...wanted.slice(same).map((block) => block.make()));
    parent.shownBlocks = wanted.map(({ source }) => ({ source }));
  }

  return { show, onCopy: () => {} };
})();
