// The history: who changed what.
import {
  html,
  useState,
  useEffect,
  ask,
  useAnswer,
  Problem,
  Cut,
  NodeLink,
  SessionLink,
  count,
  several,
  bytes,
  moment,
  link,
} from "./lib.js";

export const MARKS = { opened: "●", resumed: "◐", closed: "■", expired: "✕", ended: "■" };
const KINDS = {
  "": "all changes",
  create: "creates",
  set: "sets",
  delete: "deletions",
  acl: "changes of ACLs",
  start: "starts of sessions",
  end: "ends of sessions",
};
const MAX_SHOWN = 6; // changes of one transaction
const AROUND = 10000; // milliseconds before and after an entry

// The filter is in the address of the page: a path, a session, or parameters.
const filterOf = (rest) =>
  rest.startsWith("?") ? Object.fromEntries(new URLSearchParams(rest)) : rest ? { of: rest } : {};
const linkTo = (filter) => {
  const given = Object.entries(filter).filter(([, value]) => value);
  const isPlain = given.every(([name, value]) => name === "of" && !value.startsWith("?"));
  return link("history", isPlain ? filter.of : `?${new URLSearchParams(given)}`);
};
const around = ({ time, zxid }) => linkTo({ since: moment(time - AROUND), until: moment(time + AROUND), at: zxid });

function queryOf({ of = "", below, kind, since, until, each }) {
  const at = (text) =>
    text && (new Date(text.length > 10 ? text.replace(" ", "T") : `${text}T00:00`).getTime() || undefined);
  const isSession = of.startsWith("0x");
  return {
    [isSession ? "session" : "path"]: of || undefined,
    below: below && !isSession ? 1 : undefined,
    kind,
    since: at(since),
    until: at(until),
    fold: each ? undefined : 1,
  };
}

export function History({ rest }) {
  const filter = filterOf(rest || "");
  const [form, setForm] = useState(filter);
  useEffect(() => setForm(filter), [rest]);
  const set = (name) => (event) => {
    const { type, checked, value } = event.target;
    setForm({ ...form, [name]: type === "checkbox" ? (checked ? "1" : "") : value });
  };
  const go = (event) => {
    event.preventDefault();
    location.hash = linkTo({ ...form, of: form.of?.trim(), at: "" });
  };
  const box = (name, text) =>
    html`<label><input type="checkbox" checked=${Boolean(form[name])} onChange=${set(name)} />
    ${" "}${text}</label>`;
  const time = (name, text) =>
    html`<label>${text} <input size="19" name=${name} value=${form[name] || ""}
    pattern="\\d{4}-\\d\\d-\\d\\d( \\d\\d:\\d\\d(:\\d\\d)?)?" placeholder="2030-12-31 23:59" title="date, or date and time"
    onInput=${set(name)} /></label>`;
  return html`<h1>History</h1>
    <form class="search" onSubmit=${go}><label>Of the node or session <input id="search" size="32"
      value=${form.of || ""} placeholder="/path or 0x1a2b" onInput=${set("of")} /></label>
      ${box("below", "and all below")}
      <label>Kind <select value=${form.kind || ""} onChange=${set("kind")}>${Object.entries(KINDS).map(
        ([kind, text]) => html`<option key=${kind} value=${kind}>${text}</option>`,
      )}</select></label>
      ${time("since", "From")}${time("until", "To")}${box("each", "each repeated set")}
      <button type="submit">Show</button>
      ${rest ? html`<a href=${link("history")}>everything</a>` : null}</form>
    <section class="card"><${Entries} query=${queryOf(filter)} key=${rest} every=${rest ? 2000 : 1000} at=${filter.at} />
      </section>`;
}

const DONE = { create: "created", set: "set", delete: "deleted", "set ACL": "ACL changed", check: "checked" };

// Log files have again what is kept, but not why a session has ended.
function together(pages) {
  const kept = new Set(pages.flatMap((page) => page.entries.map((each) => each.number && each.zxid)));
  const all = pages.flatMap((page) => page.entries.filter((each) => each.number || !kept.has(each.zxid)));
  return pages.some((page) => page.isOfFiles) ? all.toSorted((one, other) => other.time - one.time) : all;
}

export function Entries({ query, refresh, every, at }) {
  const [paused, setPaused] = useState(false);
  const [more, setMore] = useState([]);
  const [reading, setReading] = useState({});
  const asked = { fold: 1, limit: 100, ...query };
  const { answer, error } = useAnswer("history", asked, `${refresh} ${paused}`, paused ? 0 : every);
  const [known, setKnown] = useState(null);
  const follow = () => {
    setMore([]);
    setReading({});
    setPaused(false);
  };
  useEffect(follow, [refresh]);
  useEffect(() => {
    if (answer && !paused) setKnown({ ...answer, at: Date.now() });
  }, [answer]);
  if (!known) return html`<${Problem} error=${error} />`;
  const pages = [known, ...more];
  const last = pages.at(-1);
  const load = async (files) => {
    setPaused(true); // what is shown would otherwise move away from what is added
    setReading({ busy: true });
    try {
      const next = await ask("history", {
        ...asked,
        ...(files ? { before: last.files, files } : { before: last.next }),
      });
      setMore([...more, { ...next, isOfFiles: Boolean(files) }]);
      setReading({});
    } catch (problem) {
      setReading({ problem });
    }
  };
  const entries = together(pages);
  const button = (text, files) => html`<button onClick=${() => load(files)}>${text}</button>`;
  return html`<${Problem} error=${error} />
    ${
      every
        ? html`<p class="buttons"><button aria-pressed=${paused} onClick=${paused ? follow : () => setPaused(true)}>${paused ? "Resume" : "Pause"}
          </button> ${paused ? html`<span class="muted">as of ${moment(known.at)}</span>` : null}</p>`
        : null
    }
    ${entries.length ? null : html`<${Nothing} known=${known} />`}
    <ul class="entries" data-test="entries">${entries.map(
      (each) => html`<${Entry} key=${`${each.number} ${each.zxid}`} entry=${each} here=${at && each.zxid === at} />`,
    )}</ul>
    ${entries.length && last.since && !last.isOfFiles && (last.lasting || last.since > known.since) ? html`<${Complete} since=${last.since} />` : null}
    <${Cut} answer=${last} />
    ${
      reading.busy
        ? html`<p>Reading…</p>`
        : html`<p class="buttons">${last.next ? button("Earlier") : null}
          ${last.files ? button("Look in the log files", 1) : last.isOfFiles ? "No more transactions." : null}</p>`
    }
    <${Problem} error=${reading.problem} />`;
}

function Complete({ since }) {
  return html`<p class="muted" data-test="since">Complete since ${moment(since)}.
    Before: only ends of sessions, deletions and changes of ACLs.</p>`;
}

function Nothing({ known }) {
  const since = known.since ? `, since ${moment(known.since)}` : "";
  return html`<p class="muted">Nothing of it among the last ${several(known.kept, "transaction", "transactions")}${since},
    and ${count(known.lasting)} older ends of sessions, deletions and changes of ACLs.</p>`;
}

function period(from, to) {
  const isOneDay = from.slice(0, 10) === to.slice(0, 10);
  return isOneDay ? `${from.slice(11)} to ${to.slice(11)}` : `${from} to ${to}`;
}

function Entry({ entry, here }) {
  const { kind, changes, times, time, first } = entry;
  const [from, to] = [moment(first), moment(time)];
  const word = MARKS[kind] ? `${MARKS[kind]} session ${kind} ` : kind === "multi" ? "multi " : "";
  const hidden = Math.max(0, changes.length - MAX_SHOWN) + entry.left_out;
  return html`<li aria-current=${here ? "true" : undefined}>
      <a href=${around(entry)} title="what happened around this moment"><time datetime=${new Date(time).toISOString()}>${to}</time></a>
      <span>${word ? html`<b>${word}</b>` : null}
        ${changes
          .slice(0, MAX_SHOWN)
          .map(
            ([op, path, size], number) =>
              html`${number ? ", " : ""}${DONE[op] || op} <${NodeLink} path=${path} />${size ? ` (${bytes(size)})` : ""}`,
          )}
        ${hidden ? ` and ${count(hidden)} more` : ""}
        ${times > 1 ? html` <b>${count(times)} times</b>, ${period(from, to)}` : ""}
        <span class="because">${because(entry)}</span></span>
      <span class="muted code">${entry.zxid || ""}</span></li>`;
}

function because(entry) {
  const who = entry.session ? html`<${SessionLink} id=${entry.session} address=${entry.address} />` : null;
  if (entry.kind === "expired") return html` because session ${who} expired: ${entry.why}`;
  if (entry.kind === "closed")
    return entry.changes.length ? html` because session ${who} was closed by its client` : html` ${who} by its client`;
  if (entry.kind === "ended") return html` because session ${who} ended; the log does not tell why`;
  if (entry.why) return ` ${entry.session ? "" : "by the server: "}${entry.why}`;
  return html` by session ${who}`;
}
