// The forms in which data is shown. A value that is deeper or longer than a page can show has no indented form.
import { visibleText, textOf, hexOf } from "./lib.js";

const MAX_DEPTH = 50;
const MAX_SHOWN = 262144; // characters of an indented value
const MAX_ADDED = 1048576; // characters that the numbers of invisible ones add to a text

class Unshown extends Error {}

// The text of an indented value, which is limited.
class Text {
  parts = [];
  room = MAX_SHOWN;
  put(text) {
    this.room -= text.length;
    if (this.room < 0) throw new Unshown();
    this.parts.push(text);
  }
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// Returns a JSON text with line breaks. Its values stay as they are: parsing them would round large numbers and leave out
// all but one of several equal keys.
function laidOut(json) {
  JSON.parse(json);
  const text = new Text();
  let depth = 0;
  let before = "";
  for (const [token] of json.matchAll(TOKENS)) {
    const isEnd = token === "}" || token === "]";
    const isFirst = before === "{" || before === "[";
    if (isEnd) depth -= 1;
    if (before === "," || isFirst !== isEnd) text.put(`\n${"  ".repeat(depth)}`);
    text.put(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
    if (depth > MAX_DEPTH) throw new Unshown();
    before = token;
  }
  return text.parts.join("");
}

// Returns a value as indented JSON. A map is an object with its pairs, whose keys may be equal.
function indented(value) {
  const whole = new Text();
  const put = (text) => whole.put(text);
  const several = (items, one, [first, last], depth) => {
    if (depth >= MAX_DEPTH) throw new Unshown();
    const margin = "  ".repeat(depth);
    items.forEach((item, number) => {
      put(`${number ? "," : first}\n${margin}  `);
      one(item);
    });
    put(items.length ? `\n${margin}${last}` : first + last);
  };
  const write = (item, depth) => {
    if (Array.isArray(item)) several(item, (each) => write(each, depth + 1), "[]", depth);
    else if (item !== null && typeof item === "object") {
      several(
        item.pairs,
        ([key, each]) => {
          write(key, depth + 1);
          put(": ");
          write(each, depth + 1);
        },
        "{}",
        depth,
      );
    } else if (typeof item === "string") put(JSON.stringify(item));
    else put(String(item));
  };
  write(value, 0);
  return whole.parts.join("");
}

// Returns the value in msgpack data. Bytes, extensions and times are shown as text, as JSON has none of them.
function unpacked(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  let at = 0;
  const take = (size) => {
    if (size > data.length - at) throw new Unshown();
    at += size;
    return at - size;
  };
  const number = (size, read) => read.call(view, take(size));
  const length = (size) => number(size, [0, view.getUint8, view.getUint16, 0, view.getUint32][size]);
  const bytes = (size) => data.subarray(take(size), at);
  const text = (size) => {
    const found = textOf(bytes(size));
    if (found === null) throw new Unshown();
    return found;
  };
  const blob = (size, name) => `${name}(${size ? hexOf(bytes(size), false) : ""})`;
  const extension = (size) => {
    const type = number(1, view.getInt8);
    return blob(size, type === -1 ? "timestamp" : `extension ${type}`);
  };
  const list = (size, depth, one) => {
    if (size > data.length - at || depth >= MAX_DEPTH) throw new Unshown();
    return Array.from({ length: size }, () => one(depth + 1));
  };
  const array = (size, depth) => list(size, depth, value);
  const map = (size, depth) => ({ pairs: list(size, depth, (below) => [value(below), value(below)]) });
  const READERS = {
    0xc0: () => null,
    0xc2: () => false,
    0xc3: () => true,
    0xc4: () => blob(length(1), "bytes"),
    0xc5: () => blob(length(2), "bytes"),
    0xc6: () => blob(length(4), "bytes"),
    0xc7: () => extension(length(1)),
    0xc8: () => extension(length(2)),
    0xc9: () => extension(length(4)),
    0xca: () => number(4, view.getFloat32),
    0xcb: () => number(8, view.getFloat64),
    0xcc: () => length(1),
    0xcd: () => length(2),
    0xce: () => length(4),
    0xcf: () => number(8, view.getBigUint64),
    0xd0: () => number(1, view.getInt8),
    0xd1: () => number(2, view.getInt16),
    0xd2: () => number(4, view.getInt32),
    0xd3: () => number(8, view.getBigInt64),
    0xd4: () => extension(1),
    0xd5: () => extension(2),
    0xd6: () => extension(4),
    0xd7: () => extension(8),
    0xd8: () => extension(16),
    0xd9: () => text(length(1)),
    0xda: () => text(length(2)),
    0xdb: () => text(length(4)),
    0xdc: (depth) => array(length(2), depth),
    0xdd: (depth) => array(length(4), depth),
    0xde: (depth) => map(length(2), depth),
    0xdf: (depth) => map(length(4), depth),
  };
  function value(depth) {
    const code = length(1);
    if (code < 0x80) return code;
    if (code < 0x90) return map(code & 15, depth);
    if (code < 0xa0) return array(code & 15, depth);
    if (code < 0xc0) return text(code & 31);
    if (code >= 0xe0) return code - 256;
    if (code === 0xc1) throw new Unshown();
    return READERS[code](depth);
  }
  const found = value(0);
  if (at < data.length) throw new Unshown();
  return found;
}

// Returns what a function makes as text; null if that is none of the form, or too much.
function made(form) {
  try {
    const text = form();
    const shown = visibleText(text);
    return shown.length - text.length > MAX_ADDED ? null : shown;
  } catch (error) {
    if (error instanceof Unshown || error instanceof SyntaxError || error instanceof RangeError) return null;
    throw error;
  }
}

// Returns the forms of data by name, as functions that return text; indented ones of whole data only.
export function formsOf(data, isWhole) {
  const text = textOf(data, isWhole);
  const forms = {};
  const add = (name, form) => {
    const shown = made(form);
    if (shown !== null) forms[name] = () => shown;
  };
  if (text !== null) add("text", () => text);
  if (isWhole && /^\s*[[{]/.test(text || "")) add("JSON", () => laidOut(text));
  if (isWhole && data[0] >= 0x80) add("msgpack", () => indented(unpacked(data)));
  forms.hex = () => hexOf(data);
  return forms;
}
