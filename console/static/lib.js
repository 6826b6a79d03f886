// What all views share: requests, texts, and small components. Names and data of nodes are text, never markup.
import { html, useState, useEffect, useMemo, useRef } from "./vendor/htm-preact.js";

// --- requests ---

let token = sessionStorage.getItem("zoolet.token") || "";

export const hasToken = () => token !== "";

export function setToken(value) {
  token = value.trim();
  if (token) sessionStorage.setItem("zoolet.token", token);
  else sessionStorage.removeItem("zoolet.token");
}

// Empty for none. Authorization is for a reverse proxy, whose credentials the browser adds itself.
const headers = () => ({ "X-Zoolet-Token": token });

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let refused = () => {};

// Sets a function that is called when the server does not accept the token, for example after a restart.
export const onRefused = (call) => {
  refused = call;
};

async function checked(response, used = "") {
  if (response.ok) return response;
  let reason = `${response.status} ${response.statusText}`;
  try {
    reason = (await response.json()).error || reason;
  } catch {
    // the status is all that there is
  }
  const error = new Refused(response.status, reason);
  // A reverse proxy may answer 401 as well, and the answer to a request with an earlier token may come late.
  if (used && used === token && error.status === 401 && response.headers.get("WWW-Authenticate") === "Bearer") {
    error.isOfToken = true;
    refused(error);
  }
  throw error;
}

// Of a cluster, which member is shown; it is in the address of the page.
const member = new URLSearchParams(location.search).get("member") || "";

// The page may have been opened with credentials in its address, to which a browser makes no request.
const urlAt = (path) => new URL(path, location.origin + location.pathname);

function urlOf(name, query) {
  const given = Object.entries({ ...query, member }).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return urlAt(`console/api/${name}${text ? `?${text}` : ""}`);
}

const LONGEST = 60000; // milliseconds until a request is given up, whose connection may be forgotten on the way
export const WORK = 10 * LONGEST; // for a request that reads or deletes many nodes

async function answerOf(url, options = {}, limit = LONGEST) {
  const late = AbortSignal.timeout(limit);
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
  try {
    const used = options.headers ? token : "";
    return await (await checked(await fetch(url, { ...options, signal }), used)).json();
  } catch (error) {
    if (error.name !== "TimeoutError") throw error;
    const more = options.method ? " It may have executed the request." : "";
    throw new Refused("Late", `The server has not answered for ${limit / 1000} s.${more}`);
  }
}

export const ask = (name, query, signal, limit) => answerOf(urlOf(name, query), { headers: headers(), signal }, limit);

// Waits while the page is hidden. A hidden page asks for nothing.
export const untilShown = async () => {
  while (document.hidden)
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
    });
};

export const change = (action, args) =>
  answerOf(
    urlOf(`change/${action}`),
    { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(args) },
    WORK,
  );

// Lines of a response as they come. EventSource could not send the token.
export async function* lines(name, query, signal) {
  const response = await checked(await fetch(urlOf(name, query), { headers: headers(), signal }));
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
const HIDDEN = /[\p{Default_Ignorable_Code_Point}\p{Control}\p{Format}\u2028\u2029\u2800\ufff9-\ufffb]/gu;
// In names also blanks that cannot be told apart (those other than the space, and spaces at an end or before another
// space), and a backslash that would look like the start of such a number.
const AMBIGUOUS = new RegExp(`${HIDDEN.source}|[^\\P{Zs} ]|^ | $| (?= )|\\\\(?=u\\{)`, "gu");
const escapeOne = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;
export const visible = (text) => String(text).replace(AMBIGUOUS, escapeOne);
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
  if (seconds < 1) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)}\u00a0s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)}\u00a0h`;
  return `${Math.round(seconds / 86400)}\u00a0days`;
}

const two = (number) => String(number).padStart(2, "0");

export function moment(milliseconds) {
  const at = new Date(milliseconds);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

let ahead = 0; // milliseconds by which the clock of the server is ahead of that of the browser

export const setServerTime = (now) => {
  ahead = now - Date.now();
};

export const ago = (milliseconds) => `${duration(Math.max(0, (Date.now() + ahead - milliseconds) / 1000))} ago`;

export const decodeBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export function encodeBase64(data) {
  let text = "";
  for (let at = 0; at < data.length; at += 0x8000) text += String.fromCharCode(...data.subarray(at, at + 0x8000));
  return btoa(text);
}

// Returns data as text; null if it is none. If the data is cut, its last character may be incomplete.
export function textOf(data, isWhole = true) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data, { stream: !isWhole });
  } catch {
    return null;
  }
}

export function hexOf(data, isTable = true) {
  const rows = [];
  const digits = (part) => Array.from(part, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  if (!isTable) return digits(data);
  for (let at = 0; at < data.length; at += 16) {
    const part = data.subarray(at, at + 16);
    const text = Array.from(part, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits(part).padEnd(47)}  ${text}`);
  }
  return rows.join("\n");
}

// --- links: every view, node, session and lock has an address of its own ---

export const link = (view, rest = "") => `#/${view}${rest ? `/${encodeURIComponent(rest)}` : ""}`;

const CUT = /… \([\d,]+ characters\)$/;
export const isCut = (name) => name.length > 1000 && CUT.test(name);

export function NodeLink({ path }) {
  // The server has cut a very long path; a link could not lead there.
  if (isCut(path)) return html`<bdi class="path">${visible(path)}</bdi>`;
  return html`<a class="path" href=${link("tree", path)}><bdi>${visible(path)}</bdi></a>`;
}

export function SessionLink({ id, address }) {
  if (!id) return html`<span class="muted">the server</span>`;
  return html`<a class="code" href=${link("sessions", id)}>${id}</a>${
    address ? html` <span class="muted">of ${address}</span>` : null
  }`;
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
      await untilShown();
      if (controller.signal.aborted) return;
      const began = performance.now();
      try {
        const answer = await ask(name, query, controller.signal);
        setState({ answer, error: null, asked });
      } catch (error) {
        if (controller.signal.aborted) return;
        setState({ answer: null, error, asked });
        if (error.status === 400) return; // the same request is as invalid later
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

// An answer that would be too large has shorter lists, and names them.
export function Cut({ answer }) {
  return answer?.cut
    ? html`<p class="problem" data-test="cut">This list ends early: the answer would be larger than 8 MB.</p>`
    : null;
}

// The rest of a list of which the first ones are shown.
export const More = ({ all, shown }) =>
  all > shown.length ? html`<p class="muted">${count(all - shown.length)} more are not shown.</p>` : null;

export function Problem({ error }) {
  if (!error) return null;
  return html`<p class="problem" role="alert"><b>${error.status || "Not reached"}</b> ${visible(error.message)}</p>`;
}

const TRIED = 5; // rows of which the first that still exists keeps its place
const TALLEST = 12000000; // pixels of an element, which browsers limit

// A list of which only what is seen exists: `load(offset, limit)` returns rows, `total` is how many there are. The row
// at `place` is scrolled to. After a change of `load`, old rows are shown until the new ones have come, and the first
// row that is seen stays where it is: `find(row)` returns its new place.
export function LongList({ total, load, find, row, label, height = 28, tall = 480, place }) {
  const PAGE = 100;
  const [top, setTop] = useState(0);
  const [pages, setPages] = useState({});
  const wanted = useRef(new Set());
  const box = useRef(null);
  useEffect(() => {
    const { scrollTop } = box.current;
    if (place && (place * height < scrollTop || (place + 1) * height > scrollTop + tall))
      box.current.scrollTop = place * height - tall / 2;
  }, [place]);
  const first = Math.max(0, Math.floor(top / height) - 10);
  const last = Math.min(total, first + Math.ceil(tall / height) + 20);
  const anchor = useRef(null); // the rows before a change, until the place of the first one is known
  const isFresh = useRef(false); // whether the pages are those of the last `load`
  useEffect(() => {
    const mine = new Set();
    wanted.current = mine;
    const keep = async () => {
      const start = Math.ceil(anchor.current.top / height);
      for (let at = start; at < start + TRIED; at += 1) {
        const seen = anchor.current.pages[Math.floor(at / PAGE)]?.[at % PAGE];
        const now = seen ? await find(seen) : null;
        if (mine !== wanted.current || !box.current) return;
        if (now !== null) {
          box.current.scrollTop += (now - at) * height;
          break;
        }
      }
      anchor.current = null;
    };
    if (isFresh.current) anchor.current = { top: box.current.scrollTop, pages };
    if (find && anchor.current?.top) keep().catch(() => {});
    isFresh.current = false;
  }, [load]);
  useEffect(() => {
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) {
      if (wanted.current.has(page)) continue;
      const mine = wanted.current;
      mine.add(page);
      load(page * PAGE, PAGE).then(
        (rows) => {
          if (mine !== wanted.current) return;
          isFresh.current = true;
          setPages((before) => ({ ...before, [page]: rows }));
        },
        () => mine.delete(page),
      );
    }
  }, [first, last, load]);
  const shown = [];
  for (let at = first; at < last; at += 1) {
    const each = pages[Math.floor(at / PAGE)]?.[at % PAGE];
    shown.push(
      html`<li key=${at} style=${{ top: `${at * height}px`, height: `${height}px` }} aria-setsize=${total}
        aria-posinset=${at + 1}>
      ${each ? row(each) : html`<span class="muted">…</span>`}
    </li>`,
    );
  }
  return html`<div class="long" ref=${box} style=${{ maxHeight: `${tall}px` }}
    onScroll=${(event) => setTop(event.target.scrollTop)} tabindex="0" role="region" aria-label=${label}>
    <ul style=${{ height: `${Math.min(total * height, TALLEST)}px` }}>${shown}</ul>
  </div>
  ${
    total * height > TALLEST &&
    html`<p
    class="muted">A browser scrolls to the first ${Math.floor(TALLEST / height)} only.</p>`
  }`;
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

export { html, useState, useEffect, useMemo, useRef };

// A name with its value, in a list of facts.
export function Fact({ name, children }) {
  return html`<div class="fact"><dt>${name}</dt><dd>${children}</dd></div>`;
}

// The calls of the control API of a test server, and one of them.
export const listCommands = () => answerOf(urlAt("commands"));

export const command = async (name, parameters) =>
  (await answerOf(urlAt(`commands/${name}`), { method: "POST", body: JSON.stringify(parameters || {}) })).result;

// A table whose rows become blocks with labels on a narrow screen. `heads` are names, or names with a class.
export function Table({ heads, rows, test }) {
  const named = heads.map((head) => [head].flat());
  return html`<table class="stacked" data-test=${test}>
    <thead><tr>${named.map(([name, kind]) => html`<th key=${name} class=${kind}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      ([key, ...cells]) =>
        html`<tr key=${key}>${cells.map(
          (cell, at) => html`<td key=${at} class=${named[at][1]} data-label=${named[at][0]}>${cell}</td>`,
        )}</tr>`,
    )}</tbody></table>`;
}

export const FOR_CHANGES = "Only users with the token can make changes.";

// The dialogs of a view: `open` asks for the token first if it is missing.
export function useDialog({ trusted, needToken }, onDone) {
  const [asking, setAsking] = useState(null);
  const close = () => setAsking(null);
  return {
    open: (dialog) => (trusted ? setAsking(dialog) : needToken(() => setAsking(dialog), FOR_CHANGES)),
    shown: asking
      ? html`<${Confirm} ...${asking} onCancel=${close} onDone=${() => {
          close();
          onDone?.();
        }} />`
      : null,
  };
}

// The button that expires a session. `nodes` says what will be deleted with it.
export function Expire({ id, name, nodes, dialog }) {
  const asked = {
    question: "Expire the session",
    dangerous: true,
    detail: html`<p>The session ${id}${name ? ` of ${name}` : ""} will end immediately.
      ${" "}${nodes || "Its ephemeral nodes"} will be deleted, so other clients get its locks and elections.</p>`,
    action: () => change("expire", { session: id }),
  };
  return html`<button class="danger" aria-label=${name ? `Expire the session of ${name}…` : undefined}
    onClick=${() => dialog.open(asked)}>Expire…</button>`;
}

// The name that a client has given itself in the data of a contender; random data is no name.
const RANDOM = /^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;
export function nameOf({ data, address, session }) {
  const text = typeof data === "string" ? data : `${data.size ?? atob(data.base64).length} bytes`;
  return visible(RANDOM.test(text) ? "" : text) || address || session || "unknown";
}

// A holder or waiter of a lock, and since when; `now` is the time of the server.
export function Contender({ entry, now, verb }) {
  const since = (verb === "holds it" && entry.held_since) || entry.since;
  const queued = since > entry.since + 0.5 ? `, in line since ${moment(entry.since * 1000)}` : "";
  return html`<b><bdi>${nameOf(entry)}</bdi></b>${entry.reader ? " as a reader" : ""}${
    entry.session ? html` (<${SessionLink} id=${entry.session} address=${entry.address} />)` : null
  } ${verb} for <b>${duration(Math.max(0, now - since))}</b>${" "}
    <span class="muted">since ${moment(since * 1000)}${queued}</span>`;
}
