// Functions that a model may call and the page runs: they see nothing but their arguments and the clock.
const Tools = (() => {
  const kFunctions = { sqrt: Math.sqrt, abs: Math.abs, round: Math.round, floor: Math.floor, ceil: Math.ceil, exp: Math.exp, ln: Math.log,
                       log10: Math.log10, sin: Math.sin, cos: Math.cos, tan: Math.tan, min: Math.min, max: Math.max };
  const kConstants = { pi: Math.PI, e: Math.E };
  const kOperators = [{ "+": (a, b) => a + b, "-": (a, b) => a - b }, { "*": (a, b) => a * b, "/": (a, b) => a / b, "%": (a, b) => a % b }];
  const kMostBytes = 1000;

  // expression = term {("+" | "-") term}; term = sign {("*" | "/" | "%") sign}; sign = ["+" | "-"] sign | power;
  // power = value ["^" sign]; value = number | constant | function "(" expression {"," expression} ")" | "(" expression ")".
  function evaluate(text) {
    if (text.length > kMostBytes) throw new Error(`found ${text.length} characters, need at most ${kMostBytes}`);
    const tokens = text.replaceAll("**", "^").match(/\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|\S/g) ?? [];
    let at = 0;
    const take = (...wanted) => (wanted.includes(tokens[at]) ? tokens[at++] : null);
    const need = (wanted) => {
      if (!take(wanted)) throw new Error(`found ${tokens[at] ?? "the end"}, need ${wanted}`);
    };
    function expression(level = 0) {
      const operators = kOperators[level];
      if (!operators) return sign();
      let value = expression(level + 1);
      for (let name; (name = take(...Object.keys(operators)));) value = operators[name](value, expression(level + 1));
      return value;
    }
    function sign() {
      const name = take("+", "-");
      if (name) return name === "-" ? -sign() : sign();
      const base = value();
      return take("^") ? base ** sign() : base;
    }
    function value() {
      const token = tokens[at++];
      if (/^[\d.]/.test(token ?? "")) return Number(token);
      if (Object.hasOwn(kConstants, token)) return kConstants[token];
      const called = Object.hasOwn(kFunctions, token) ? kFunctions[token] : null;
      if (called) need("(");
      else if (token !== "(") throw new Error(`found ${token ?? "the end"}, need a number`);
      const values = [expression()];
      while (called && take(",")) values.push(expression());
      need(")");
      return called ? called(...values) : values[0];
    }
    const result = expression();
    if (at < tokens.length) throw new Error(`found ${tokens[at]}, need an operator`);
    if (!Number.isFinite(result)) throw new Error("the result is not a number");
    return result;
  }

  function timeIn(zone) {
    const now = new Date();
    const shown = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long", timeZone: zone }).format(now);
    return { time: shown, utc: now.toISOString() };
  }

  const kTools = {
    calculator: {
      description: "Evaluates an arithmetic expression: + - * / % ^, parentheses, " + [...Object.keys(kFunctions), ...Object.keys(kConstants)].join(", ") + ".",
      parameters: { type: "object", properties: { expression: { type: "string", description: "For example 2 * (3 + 4)" } }, required: ["expression"] },
      run: ({ expression }) => ({ result: evaluate(String(expression)) }),
    },
    current_time: {
      description: "The date and the time now.",
      parameters: { type: "object", properties: { time_zone: { type: "string", description: "IANA name, for example Europe/Berlin; without it, the user's" } } },
      run: ({ time_zone }) => timeIn(time_zone || undefined),
    },
  };

  return {
    // For a request.
    list: Object.entries(kTools).map(([name, { description, parameters }]) => ({ type: "function", function: { name, description, parameters } })),
    // What a call gives, as text: JSON, with an error that the model can read.
    run(name, text) {
      try {
        if (!Object.hasOwn(kTools, name)) throw new Error("no such function");
        return JSON.stringify(kTools[name].run(JSON.parse(text || "{}") ?? {}));
      } catch (error) {
        return JSON.stringify({ error: error.message });
      }
    },
  };
})();
