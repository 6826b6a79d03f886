// What all views share: requests, texts, and small components. Names and data of nodes are text, never markup.
import { html, useState, useEffect, useRef } from "./vendor/htm-preact.js";

// --- requests ---

let token = sessionStorage.getItem("zoolet.token") || "";

export const hasToken = () => token !== "";

export function setToken(value) {
  token = value.trim();
  if (token) sessionStorage.setItem("zoolet.token", token);
  else sessionStorage.removeItem("zoolet.token");
}

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function checked(response) {
  if (response.ok) return response;
  let reason = `${response.status} ${response.statusText}`;
  try {
    reason = (await response.json()).error || reason;
  } catch {
    // the status is all that there is
  }
  throw new Refused(response.status, reason);
}

// Of a cluster, which member is shown; it is in the address of the page.
const member = new URLSearchParams(location.search).get("member") || "";

function address(name, query) {
  const given = Object.entries({ ...query, member }).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `console/api/${name}${text ? `?${text}` : ""}`;
}

export async function ask(name, query, signal) {
  const response = await checked(await fetch(address(name, query), { headers: headers(), signal }));
  return response.json();
}

export async function change(action, args) {
  const response = await checked(
    await fetch(address(`change/${action}`), {
      method: "POST",
      headers: { ...headers(), "Content-Type": "application/json" },
      body: JSON.stringify(args),
    }),
  );
  return response.json();
}

// Lines of a response as they come. EventSource could not send the token.
export async function* lines(name, query, signal) {
  const response = await checked(await fetch(address(name, query), { headers: headers(), signal }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield part;
  }
}

// --- texts ---

// Characters that would be invisible, or change the direction of what follows, are shown as their numbers.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const escapeOne = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;
export const visible = (text) => String(text).replace(HIDDEN, escapeOne);
export const visibleText = (text) => text.replace(HIDDEN, (c) => (c === "\n" || c === "\t" ? c : escapeOne(c)));

export const count = (number) => Number(number).toLocaleString("en-US");

export const several = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let value = number / 1024;
  let unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

const two = (number) => String(number).padStart(2, "0");

export function moment(milliseconds) {
  const at = new Date(milliseconds);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const ago = (milliseconds) => `${duration(Math.max(0, (Date.now() - milliseconds) / 1000))} ago`;

export const decodeBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export function encodeBase64(data) {
  let text = "";
  for (let at = 0; at < data.length; at += 0x8000) text += String.fromCharCode(...data.subarray(at, at + 0x8000));
  return btoa(text);
}

export function textOf(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

export function hexOf(data) {
  const rows = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = data.subarray(at, at + 16);
    const codes = Array.from(part, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(part, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${codes.padEnd(47)}  ${text}`);
  }
  return rows.join("\n");
}

// --- links: every view, node, session and lock has an address of its own ---

export const link = (view, rest = "") => `#/${view}${rest ? `/${encodeURIComponent(rest)}` : ""}`;

export function NodeLink({ path }) {
  return html`<a class="path" href=${link("tree", path)}><bdi>${visible(path)}</bdi></a>`;
}

export function SessionLink({ id, address }) {
  if (!id) return html`<span class="muted">the server</span>`;
  return html`<a class="code" href=${link("sessions", id)}>${id}</a>${address
    ? html` <span class="muted">of ${address}</span>`
    : null}`;
}

// --- state ---

// Asks again and again while it is shown. A reload is a change of `key`.
export function useAnswer(name, query, key, every) {
  const [state, setState] = useState({ answer: null, error: null });
  const asked = JSON.stringify([name, query, key]);
  useEffect(() => {
    const controller = new AbortController();
    let timer = null;
    const go = async () => {
      const began = performance.now();
      try {
        const answer = await ask(name, query, controller.signal);
        setState({ answer, error: null, asked });
      } catch (error) {
        if (controller.signal.aborted) return;
        setState({ answer: null, error, asked });
      }
      // A costly answer is asked for less often.
      if (every) timer = setTimeout(go, Math.max(every, 4 * (performance.now() - began)));
    };
    go();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [asked]);
  return state.asked === asked ? state : { answer: null, error: null };
}

export function Problem({ error }) {
  if (!error) return null;
  return html`<p class="problem" role="alert"><b>${error.status || "Not reached"}</b> ${visible(error.message)}</p>`;
}

const TALLEST = 12000000; // pixels of an element, which browsers limit

// A list of which only what is seen exists: `load(offset, limit)` returns rows, `total` is how many there are.
export function LongList({ total, load, row, label, height = 28, tall = 480, refresh }) {
  const PAGE = 100;
  const [top, setTop] = useState(0);
  const [pages, setPages] = useState({});
  const wanted = useRef(new Set());
  const first = Math.max(0, Math.floor(top / height) - 10);
  const last = Math.min(total, first + Math.ceil(tall / height) + 20);
  useEffect(() => {
    wanted.current = new Set();
    setPages({});
  }, [load]);
  useEffect(() => {
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) {
      if (wanted.current.has(page)) continue;
      const mine = wanted.current;
      mine.add(page);
      load(page * PAGE, PAGE).then(
        (rows) => mine === wanted.current && setPages((before) => ({ ...before, [page]: rows })),
        () => mine.delete(page),
      );
    }
  }, [first, last, load, refresh]);
  const shown = [];
  for (let at = first; at < last; at += 1) {
    const each = pages[Math.floor(at / PAGE)]?.[at % PAGE];
    shown.push(html`<li key=${at} style=${{ top: `${at * height}px`, height: `${height}px` }} aria-setsize=${total} aria-posinset=${at + 1}>
      ${each ? row(each) : html`<span class="muted">…</span>`}
    </li>`);
  }
  return html`<div class="long" style=${{ maxHeight: `${tall}px` }} onScroll=${(event) => setTop(event.target.scrollTop)} tabindex="0" role="region" aria-label=${label}>
    <ul style=${{ height: `${Math.min(total * height, TALLEST)}px` }}>${shown}</ul>
  </div>
  ${total * height > TALLEST && html`<p class="muted">A browser scrolls to the first ${Math.floor(TALLEST / height)} only.</p>`}`;
}

// Asks once, and says what will happen.
export function Confirm({ question, detail, action, onDone, onCancel, dangerous }) {
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await action();
      onDone();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onCancel=${onCancel} onClose=${onCancel} aria-labelledby="question">
    <form onSubmit=${go}>
      <h2 id="question">${question}</h2>
      <div>${detail}</div>
      <${Problem} error=${problem} />
      <p class="buttons">
        <button type="button" onClick=${onCancel}>Cancel</button>
        <button type="submit" class=${dangerous ? "danger" : "primary"} disabled=${busy}>${question}</button>
      </p>
    </form>
  </dialog>`;
}

export { html, useState, useEffect, useRef };
