// filter.js - the filter line: prev>0.5 & layer<3, !sink | (broad & head=2).
//
//   or     = and { "|" and }
//   and    = not { "&" not }
//   not    = "!" not | "(" or ")" | name [ sign number ]
//
// parseFilter returns a function of a head, or throws a FilterError with a position.

class FilterError extends Error {
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

function tokensOf(text) {
  const tokens = [], pattern = /\s*(?:([A-Za-z_]\w*)|(-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(<=|>=|!=|==|&&|\|\||[<>=!&|()]))/y;
  const rest = /\s*$/y;
  for (let at = 0; ;) {
    rest.lastIndex = at;
    if (rest.test(text)) break;
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) {
      at += text.slice(at).match(/^\s*/)[0].length;
      throw new FilterError(t("filterChar", Array.from(text.slice(at))[0]), at);
    }
    const [all, name, value, sign] = found;
    tokens.push({ name, value: value && Number(value), sign, text: all.trim(), at: pattern.lastIndex - all.trim().length });
    at = pattern.lastIndex;
  }
  return tokens;
}

const COMPARE = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "==": (a, b) => a === b, "!=": (a, b) => a !== b,
};

// The meaning of a name: a measure of a head, or whether it has a label.
function meaningOf(name, report) {
  const word = name.toLowerCase();
  if (word === "layer") return { number: (ref) => ref.l + 1 };
  if (word === "head") return { number: (ref) => ref.h + 1 };
  const m = report.metrics.findIndex((metric) => metric.key.toLowerCase() === word);
  const k = report.roles.findIndex((role) => role.key.toLowerCase() === word);
  const number = m >= 0 && ((ref) => scoreOf(ref, m));
  const links = (ref) => stackOf(ref).why?.[indexOf(ref)]?.startsWith("link ") ?? false; // of any relation
  const label = k >= 0 ? (ref) => roleOf(ref) === report.roles[k] : word === "link" && links;
  return number || label ? { number, label } : null;
}

function parseFilter(text, report) {
  const tokens = tokensOf(text);
  let next = 0;
  if (!tokens.length) return () => true;
  const is = (...signs) => tokens[next] && signs.includes(tokens[next].sign);
  const refuse = () => {
    const token = tokens[next];
    throw token ? new FilterError(t("filterChar", token.text), token.at) : new FilterError(t("filterEnd"), text.length);
  };

  function or() {
    let left = and();
    while (is("|", "||")) {
      next++;
      const a = left, b = and();
      left = (ref) => a(ref) || b(ref);
    }
    return left;
  }
  function and() {
    let left = not();
    while (is("&", "&&")) {
      next++;
      const a = left, b = not();
      left = (ref) => a(ref) && b(ref);
    }
    return left;
  }
  function not() {
    if (is("!")) {
      next++;
      const inner = not();
      return (ref) => !inner(ref);
    }
    if (!is("(")) return test();
    next++;
    const inner = or();
    if (!is(")")) throw new FilterError(t("filterClose"), tokens[next]?.at ?? text.length);
    next++;
    return inner;
  }
  function test() {
    const token = tokens[next];
    if (!token?.name) refuse();
    const meaning = meaningOf(token.name, report);
    if (!meaning) throw new FilterError(t("filterName", token.name), token.at);
    next++;
    const sign = tokens[next]?.sign;
    if (!COMPARE[sign]) {
      if (!meaning.label) refuse();
      return meaning.label;
    }
    next++;
    if (!meaning.number || tokens[next]?.value === undefined) refuse();
    const bound = tokens[next++].value;
    return (ref) => COMPARE[sign](meaning.number(ref), bound);
  }

  const whole = or();
  if (next < tokens.length) refuse();
  return whole;
}
