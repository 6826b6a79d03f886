// The sessions, and the page of one session.
import {
  html,
  useState,
  useEffect,
  useMemo,
  ask,
  change,
  useAnswer,
  Problem,
  More,
  LongList,
  NodeLink,
  Fact,
  Contender,
  Expire,
  useDialog,
  nameOf,
  visible,
  count,
  several,
  duration,
  moment,
  ago,
  link,
} from "./lib.js";
import { Entries, MARKS } from "./history.js";

export function Sessions({ about, rest, trusted, needToken }) {
  return rest && !rest.startsWith(SORTED)
    ? html`<${Session} id=${rest} about=${about} trusted=${trusted} needToken=${needToken} />`
    : html`<${SessionList} about=${about} rest=${rest} />`;
}

// The columns: heading, and the order in which a click on it lists the sessions.
const COLUMNS = [
  ["Session"],
  ["Client"],
  ["Connected since", "oldest"],
  ["Last heard (timeout)", "silent"],
  ["Ephemeral nodes", "ephemerals"],
  ["Watches", "watches"],
  ["Requests", "requests"],
  ["Writes in 10 min", "writes"],
];
const SORTED = "by ";

const counted = (value, one, many) =>
  html`<span class="n" data-unit=${value === 1 ? one : many}>${value === null || value === undefined ? "–" : count(value)}</span>`;

function SessionRow({ each }) {
  return html`<a class="code" href=${link("sessions", each.id)}>${each.id}</a>
    <span class="client">${each.name ? html`<b><bdi>${visible(each.name)}</bdi></b> ` : null}${
      each.address ? visible(each.address) : "✕ not connected"
    }</span>
    <span data-before="since ">${each.since ? moment(each.since) : "–"}</span>
    <span data-before="heard ">${duration(each.heard)} ago <span class="muted">(${duration(each.timeout)})</span></span>
    ${counted(each.ephemerals, " ephemeral node", " ephemeral nodes")}
    ${counted(each.watches, " watch", " watches")}${counted(each.requests, " request", " requests")}
    ${each.writes === undefined ? null : counted(each.writes, " write in 10 min", " writes in 10 min")}`;
}

// The address of the list names its order, as in `#/sessions/by%20writes`.
function SessionList({ about, rest }) {
  const [text, setText] = useState("");
  const [last, setLast] = useState(null);
  const asked = rest.slice(SORTED.length);
  const order = about.orders.includes(asked) ? asked : about.orders[0];
  const { answer, error } = useAnswer("sessions", { text, order, limit: 1 }, 0, 2000);
  useEffect(() => {
    if (answer) setLast(answer);
  }, [answer]);
  const total = last?.total;
  const load = useMemo(
    () => async (offset, limit) => (await ask("sessions", { text, order, offset, limit })).rows,
    [text, order, last],
  );
  return html`<h1>Sessions</h1>
    <p class="search"><label>${about.kind === "remote" ? "Id or address" : "Id, address or name"} contains <input id="search" value=${text}
      onInput=${(event) => setText(event.target.value)} /></label></p>
    <${Problem} error=${error} />
    <section class="card sessions"><h2 data-test="total">${last ? several(total, "session", "sessions") : ""}</h2>
    ${
      total
        ? html`<div class="heads" role="group" aria-label="Order">${COLUMNS.map(([title, name]) =>
            about.orders.includes(name)
              ? html`<a key=${title} class="muted" href=${link("sessions", SORTED + name)}
          aria-current=${name === order ? "true" : undefined}>${title}${name === order ? " ▾" : ""}</a>`
              : name === "writes"
                ? null
                : html`<span key=${title} class="muted">${title}</span>`,
          )}</div>
        <${LongList} key=${`${order} ${text}`} total=${total} load=${load} row=${(each) => html`<${SessionRow} each=${each} />`}
          label="Sessions" tall=${Math.max(320, innerHeight - 330)}
          height=${matchMedia("(max-width: 600px)").matches ? 132 : 28} />`
        : null
    }</section>`;
}

const MAX_HOLDERS = 5;

// The locks of a session: those that it holds, and those that it waits for, with its place and the holders.
function Held({ id, can, dialog, refresh }) {
  const { answer, error } = useAnswer("locks", { session: id }, refresh, 2000);
  if (!answer) return html`<${Problem} error=${error} />`;
  const now = answer.now;
  const name = (each) =>
    html`<a class="path" href=${link("locks", each.path)}><bdi>${visible(each.path)}</bdi></a>${" "}
    <span class="muted">${each.kind}</span>`;
  const own = (entries) => entries.find((entry) => entry.session === id);
  const itself = (entry, since) =>
    html` as <b><bdi>${nameOf(entry)}</bdi></b> for <b>${duration(Math.max(0, now - since))}</b>`;
  const held = answer.shared.filter((each) => !each.place);
  const waits = answer.shared.filter((each) => each.place);
  return html`${
    answer.circles
      ? html`<p class="health bad"><b>✕ In a deadlock</b> <a href="#/locks">Which clients wait for each other</a></p>`
      : null
  }
    <h2>Holds ${several(held.length, "lock", "locks")}</h2>
    <ul class="plain" data-test="holds">${held.map((each) => {
      const entry = own(each.holders);
      return html`<li key=${each.path}>${name(each)}${entry ? itself(entry, entry.held_since || entry.since) : ""}${
        each.waiting ? html`, <b>${several(each.waiting, "client waits", "clients wait")}</b>` : ""
      }</li>`;
    })}</ul>
    <h2>Waits for ${several(waits.length, "lock", "locks")}</h2>
    <ul class="plain" data-test="waits">${waits.map((each) => {
      const entry = own(each.waiters);
      return html`<li key=${each.path}>${name(each)}, number ${count(each.place)} of ${count(each.waiting)} in line${
        entry ? itself(entry, entry.since) : ""
      }<ul class="plain">${each.holders.slice(0, MAX_HOLDERS).map(
        (holder) =>
          html`<li key=${holder.node}><${Contender} entry=${holder} now=${now} verb="holds it" />${" "}
        ${can && holder.session ? html`<${Expire} id=${holder.session} name=${nameOf(holder)} dialog=${dialog} />` : null}</li>`,
      )}</ul><${More} all=${each.held} shown=${each.holders.slice(0, MAX_HOLDERS)} /></li>`;
    })}</ul>`;
}

function Session({ id, about, trusted, needToken }) {
  const [refresh, setRefresh] = useState(0);
  const dialog = useDialog({ trusted, needToken }, () => setRefresh(refresh + 1));
  const { answer, error } = useAnswer("session", { id }, refresh, 2000);
  const can = (action) => about.changes.includes(action);
  return html`<h1>Session <span class="code">${visible(id)}</span></h1>
    <p><a href=${link("sessions")}>All sessions</a></p>
    <${Problem} error=${error} />
    ${answer && !answer.alive ? html`<p class="problem">This session is not alive.</p>` : null}
    ${
      answer?.alive
        ? html`<div class="split"><section class="card" aria-label="Session">
      <dl class="facts">
        <${Fact} name="Client">${answer.address ? visible(answer.address) : "✕ not connected"}<//>
        ${
          answer.since
            ? html`<${Fact} name="Connected since">${moment(answer.since)} <span
          class="muted">${ago(answer.since)}</span><//>`
            : null
        }
        ${answer.timeout ? html`<${Fact} name="Timeout">${duration(answer.timeout)}<//>` : null}
        ${
          answer.heard !== undefined
            ? html`<${Fact} name="Last heard">${duration(answer.heard)} ago<//>
        <${Fact} name="Expires if silent">in ${duration(answer.expires)}<//>`
            : null
        }
        <${Fact} name="Requests">${count(answer.requests)}, the last ${answer.last || "none"}<//>
        ${Number.isInteger(answer.writes) ? html`<${Fact} name="Writes in 10 min">${count(answer.writes)}<//>` : null}
        ${answer.identities ? html`<${Fact} name="Identities">${visible(answer.identities.join(", "))}<//>` : null}
      </dl>
      <p class="buttons">
        ${
          can("drop") && answer.address
            ? html`<button onClick=${() =>
                dialog.open({
                  question: "Disconnect the client",
                  detail: html`<p>The server closes its connection. The session stays alive, and the client can reconnect.</p>`,
                  action: () => change("drop", { session: id }),
                })}>Disconnect…</button>`
            : null
        }
        ${
          can("expire")
            ? html`<${Expire} id=${id} dialog=${dialog}
                nodes=${`Its ${several(answer.ephemerals, "ephemeral node", "ephemeral nodes")}`} />`
            : null
        }
      </p>
      ${about.views.includes("locks") ? html`<${Held} id=${id} can=${can("expire")} dialog=${dialog} refresh=${refresh} />` : null}
    </section>
    <section class="card"><h2>${several(answer.ephemerals, "ephemeral node", "ephemeral nodes")}</h2>
      <ul class="plain">${answer.owned.map((path) => html`<li key=${path}><${NodeLink} path=${path} /></li>`)}</ul>
        <${More} all=${answer.ephemerals} shown=${answer.owned} />
      ${
        answer.watches !== null
          ? html`<h2>${several(answer.watches, "watch", "watches")}</h2>
      <ul class="plain">${(answer.watched || []).map(
        (each) =>
          html`<li
        key=${each.kind + each.path}>${each.kind}: <${NodeLink} path=${each.path} /></li>`,
      )}</ul>
        ${answer.watched ? html`<${More} all=${answer.watches} shown=${answer.watched} />` : null}`
          : null
      }
    </section></div>`
        : null
    }
    ${
      about.views.includes("history")
        ? html`<section class="card"><h2>History</h2>
      <${Life} id=${id} refresh=${refresh} /></section>`
        : null
    }
    ${dialog.shown}`;
}

function Life({ id, refresh }) {
  const { answer } = useAnswer("history", { session: id, limit: 200 }, refresh);
  const entries = answer ? answer.entries.toReversed() : [];
  const first = entries[0]?.time;
  const span = Math.max(1, (entries.at(-1)?.time || 0) - (first || 0));
  return html`${
    entries.length > 1
      ? html`<div class="life" role="img"
        aria-label=${`From ${moment(first)} to ${moment(entries.at(-1).time)}: ${entries.length} transactions`}>
      ${entries.map(
        (each, number) =>
          html`<span key=${number} class=${MARKS[each.kind] ? "mark" : "tick"}
        style=${{ left: `${((each.time - first) / span) * 98}%` }}
        title=${`${each.kind} ${moment(each.time)}`}>${MARKS[each.kind] || ""}</span>`,
      )}
    </div>`
      : null
  }<${Entries} query=${{ session: id }} refresh=${refresh} />`;
}
