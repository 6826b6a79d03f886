// The locks with holders, waiters and deadlocks.
import {
  html,
  useState,
  useEffect,
  useAnswer,
  Problem,
  Cut,
  More,
  SessionLink,
  Contender,
  Expire,
  useDialog,
  nameOf,
  visible,
  isCut,
  count,
  several,
  duration,
  link,
} from "./lib.js";

const MAX_SHOWN = 100;
const MAX_CIRCLES = 20;
const MAX_IN_LIST = 5; // holders and waiters of a lock, unless only this lock is shown
const MAX_LABELLED = 6; // clients of a ring with texts, which would overlap otherwise
const longestWait = (each, now) => duration(Math.max(0, now - each.waiters[0].since));

export function Locks({ about, rest, trusted, needToken }) {
  const [refresh, setRefresh] = useState(0);
  const { answer, error } = useAnswer("locks", {}, refresh, 1000);
  const [text, setText] = useState(rest || "");
  const [last, setLast] = useState(null);
  const dialog = useDialog({ trusted, needToken }, () => setRefresh(refresh + 1));
  useEffect(() => {
    if (answer) setLast(answer);
  }, [answer]);
  useEffect(() => setText(rest || ""), [rest]);
  const known = answer || last;
  // The page of a lock is not about those whose paths have its path.
  const isOne = text !== "" && text === rest && known?.shared.some((each) => each.path === text);
  const isShown = (path) => (isOne ? path === text : path.includes(text));
  const shown = known ? known.shared.filter((each) => isShown(each.path)) : [];
  const circles = known ? known.deadlocks.filter((circle) => circle.waits.some((wait) => isShown(wait.lock))) : [];
  const waiting = shown.reduce((sum, each) => sum + each.waiting, 0);
  const locked = new Set(circles.flatMap((circle) => circle.waits.map((wait) => wait.lock)));
  const expire = (entry) =>
    about.changes.includes("expire") && entry.session
      ? html` <${Expire} id=${entry.session} name=${nameOf(entry)} dialog=${dialog} />`
      : null;
  return html`<h1>Locks</h1>
    <p class="search"><label>Path contains <input id="search" value=${text}
      onInput=${(event) => setText(event.target.value)} /></label></p>
    <${Problem} error=${error} />
    ${
      known
        ? html`<p role="status" data-test="deadlocks" class=${circles.length ? "health bad" : "health good"}>
      ${
        circles.length
          ? html`<b>✕ ${circles.length === 1 ? "A deadlock:" : `${circles.length} deadlocks`}
        </b>`
          : html`<b>✓ No deadlock${known.deadlocks.length ? " here" : ""}</b>`
      }
      ${` ${several(shown.length, "lock", "locks")}, ${several(waiting, "client waits", "clients wait")}`}${
        waiting ? `, the longest for ${longestWait(shown[0], known.now)}` : ""
      }</p>`
        : null
    }
    ${circles.slice(0, MAX_CIRCLES).map(
      (circle, number) =>
        html`<${Deadlock} key=${number} circle=${circle} now=${known.now}
      expire=${expire} />`,
    )}<${More} all=${circles.length} shown=${circles.slice(0, MAX_CIRCLES)} />
    ${
      known && !shown.length
        ? html`<p
      class="muted">${known.shared.length ? "No path contains this text." : "No lock, election, semaphore, queue or double barrier is in use."}</p>`
        : null
    }
    ${shown.slice(0, MAX_SHOWN).map(
      (each) =>
        html`<${Lock} key=${each.path + each.kind} each=${each} most=${isOne ? Infinity : MAX_IN_LIST} now=${known.now}
          expire=${expire} isLocked=${locked.has(each.path)} />`,
    )}
    ${
      known?.left_out
        ? html`<p>${count(known.left_out)} nodes are left out:
      ${" "}there are too many, or they have too many children or very long paths.</p>`
        : null
    }<${Cut} answer=${known} />
    ${shown.length > MAX_SHOWN ? html`<p>${count(shown.length - MAX_SHOWN)} more: narrow the path.</p>` : null}
    ${dialog.shown}`;
}

function Lock({ each, most, now, expire, isLocked }) {
  const isBarrier = each.kind === "double barrier";
  const holders = each.holders.slice(0, most);
  const waiters = each.waiters.slice(0, most);
  return html`<section class="card lock" data-path=${each.path}>
    <h2>${
      isCut(each.path)
        ? html`<bdi>${visible(each.path)}</bdi>`
        : html`<a href=${link("locks", each.path)}><bdi>
        ${visible(each.path)}</bdi></a>`
    } <span class="muted">${each.kind}, ${each.naming}${each.size === null ? "" : `, ${count(each.size)} entries`}
      </span> <a class="small" href=${link("tree", each.path)}>node</a>${
        isLocked ? html` <span class="small bad">✕ in a deadlock</span>` : null
      }</h2>
    ${
      holders.length
        ? html`<h3>${isBarrier ? "In the round" : "Held by"}</h3><ul class="plain holders">${holders.map(
            (entry) =>
              html`<li key=${entry.node}><${Contender} entry=${entry} now=${now} verb=${isBarrier ? "is in the round" : "holds it"} />${
                entry.czxid
                  ? html` <span class="muted"
        title="the zxid that created its node; the fencing token of a lease is this or higher">czxid ${entry.czxid}${" "}
          (0x${BigInt(entry.czxid).toString(16)})</span>`
                  : null
              }${expire(entry)}</li>`,
          )}</ul>
        <${More} all=${each.held} shown=${holders} />`
        : html`<p>${isBarrier ? "No round has started." : "No client holds it."}</p>`
    }
    ${
      waiters.length
        ? html`<h3>${count(each.waiting)} waiting${isBarrier ? "" : ", in order"}, the longest for ${longestWait(each, now)}</h3>
        <ol class="waiters">${waiters.map(
          (entry) =>
            html`<li key=${entry.node}><${Contender}
        entry=${entry} now=${now} verb="waits" /></li>`,
        )}</ol><${More} all=${each.waiting} shown=${waiters} />`
        : null
    }
  </section>`;
}

function Deadlock({ circle: { clients, waits }, now, expire }) {
  return html`<section class="card deadlock"><h2>Deadlock of ${count(clients)} clients</h2>
    <p>Expire one of the sessions to let the others continue.</p><div class="split">
    <ol>${waits.map(
      ({ waiter, holder, lock }) =>
        html`<li key=${waiter.node}><b><bdi>${nameOf(waiter)}</bdi></b>${" "}
      (<${SessionLink} id=${waiter.session} address=${waiter.address} />)
      waits for <a class="path" href=${link("locks", lock)}><bdi>${visible(lock)}</bdi></a>${" "}
      for <b>${duration(Math.max(0, now - waiter.since))}</b>, and <b><bdi>${nameOf(holder)}</bdi></b>${" "}
      (<${SessionLink} id=${holder.session} address=${holder.address} />) holds it${expire(holder)}</li>`,
    )}</ol><${More} all=${clients} shown=${waits} />
    <${Ring} waits=${waits} /></div></section>`;
}

const short = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);

// Clients that wait for each other as a ring: from each client, an arrow with a lock leads to the holder of the lock.
function Ring({ waits }) {
  const isNarrow = matchMedia("(max-width: 600px)").matches;
  const isLabelled = waits.length <= MAX_LABELLED;
  const radius = isLabelled ? (isNarrow ? 62 : 60 + 26 * waits.length) : 12 * waits.length;
  const width = isLabelled ? 2 * radius + (isNarrow ? 230 : 380) : 2 * radius + 60;
  const height = 2 * radius + 100;
  const most = isNarrow ? 14 : 24;
  const at = (part, distance) => {
    const angle = (2 * Math.PI * part) / waits.length - Math.PI / 2;
    return [width / 2 + distance * Math.cos(angle), height / 2 + distance * Math.sin(angle)];
  };
  const text = (part, distance, kind, lines) => {
    const [x, y] = at(part, distance);
    const side = x - width / 2;
    const anchor = Math.abs(side) < 5 ? "middle" : side > 0 ? "start" : "end";
    const top = y - (lines.length - 1) * (anchor === "middle" ? (y < height / 2 ? 15 : -2) : 7) + 4;
    return html`<text class=${kind} x=${x} y=${top} text-anchor=${anchor}>${lines.map(
      (line, number) => html`<tspan key=${number} x=${x} dy=${number ? 15 : 0}>${short(line, most)}</tspan>`,
    )}<title>${lines.join(" ")}</title></text>`;
  };
  const gap = 17 / radius / ((2 * Math.PI) / waits.length); // the part of an arc that a dot and its arrow cover
  return html`<svg viewBox=${`0 0 ${width} ${height}`} style=${{ width: `${width}px` }} class="circle" role="img"
    aria-label=${waits.map(({ waiter, holder, lock }) => `${nameOf(waiter)} waits for ${visible(lock)}, which ${nameOf(holder)} holds`).join("; ")}>
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
      <path d="M0 0 8 4 0 8z" class="arrow" /></marker></defs>
    ${waits.map(({ waiter, lock }, number) => {
      const [x, y] = at(number, radius);
      return html`<g key=${number}><path class="edge" marker-end="url(#arrow)"
          d=${`M${at(number + gap, radius).join(" ")} A${radius} ${radius} 0 0 1 ${at(number + 1 - gap, radius).join(" ")}`} />
        <circle cx=${x} cy=${y} r="12" class="dot" />
        <text class="number" x=${x} y=${y + 4} text-anchor="middle">${number + 1}</text>
        ${
          isLabelled
            ? html`${text(number, radius + 22, "", [nameOf(waiter), ...(waiter.address && waiter.address !== nameOf(waiter) ? [waiter.address] : [])])}
          ${text(number + 0.5, radius + 10, "on", [visible(lock)])}`
            : null
        }</g>`;
    })}</svg>`;
}
