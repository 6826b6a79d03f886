// The views: overview, tree, sessions, locks, history.
import uPlot from "./vendor/uPlot.js";
import {
  html, useState, useEffect, useRef, ask, change, lines, useAnswer, Problem, LongList, Confirm, NodeLink, SessionLink,
  visible, visibleText, count, several, bytes, duration, moment, ago, decodeBase64, encodeBase64, textOf, hexOf, link,
} from "./lib.js";

// --- overview ---

const CHARTS = [
  { title: "Requests and writes a second", series: [["requests", "requests"], ["writes", "writes"]] },
  { title: "Milliseconds, 99 % of the last five to ten minutes", series: [["reads", "read_ms"], ["writes", "write_ms"]] },
  { title: "Sessions and watches", series: [["sessions", "sessions"], ["watches", "watches"]] },
  { title: "Nodes", series: [["nodes", "nodes"]] },
  { title: "Memory, MB", series: [["memory", "memory", 1 / 1048576]] },
];

function Chart({ title, series, columns, rows }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = [
    rows.map((row) => row[0]),
    ...series.map(([, name, factor]) => rows.map((row) => row[columns.indexOf(name)] * (factor || 1))),
  ];
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--text"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    plot.current = new uPlot(
      {
        width: Math.max(240, place.current.clientWidth),
        height: 170,
        cursor: { y: false },
        legend: { live: true },
        axes: [axis, { ...axis, size: 62 }],
        scales: { y: { range: (u, low, high) => [0, Math.max(high, 1) * 1.05] } },
        series: [
          {},
          // The second line is dashed, so that colour is not all that tells them apart.
          ...series.map(([label], number) => ({
            label, stroke: color(`--series-${number}`), width: 2, dash: number ? [6, 4] : undefined, points: { show: false },
          })),
        ],
      },
      data,
      place.current,
    );
    const resize = new ResizeObserver(() => plot.current.setSize({ width: Math.max(240, place.current.clientWidth), height: 170 }));
    resize.observe(place.current);
    return () => {
      resize.disconnect();
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current.setData(data), [rows]);
  const last = rows.length ? series.map(([label], number) => `${label} ${count(Math.round(data[number + 1].at(-1) * 10) / 10)}`) : [];
  return html`<figure class="card"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: ${last.join(", ")} now`}></div></figure>`;
}

function Fact({ name, children }) {
  return html`<div class="fact"><dt>${name}</dt><dd>${children}</dd></div>`;
}

export function Overview({ about, live, problem }) {
  const [rows, setRows] = useState([]);
  useEffect(() => {
    ask("samples").then((answer) => setRows(answer.rows), () => {});
  }, []);
  useEffect(() => {
    if (!live?.sample) return;
    setRows((before) => (before.length && before.at(-1)[0] >= live.sample[0] ? before : [...before.slice(-3599), live.sample]));
  }, [live]);
  if (!live) return html`<${Problem} error=${problem} /><p class="muted pad">Waiting for the server…</p>`;
  const disk = live.disk;
  const used = disk ? 1 - disk.free / disk.total : 0;
  return html`<h1>Overview</h1>
    <p class=${live.health ? "health bad" : "health good"} role="status" data-test="health">
      <b>${live.health ? "✕ Not ready" : "✓ Serving"}</b> ${live.health ? visible(live.health) : `${live.mode}, up for ${duration(live.uptime)}`}
    </p>
    ${live.members ? html`<section class="card"><h2>Members</h2><table data-test="members">
      <thead><tr><th>member</th><th>address</th><th>role</th><th>now</th><th class="n">behind by</th><th class="n">late by</th></tr></thead>
      <tbody>${live.members.map((each) => html`<tr key=${each.index}><td><a href=${`?member=${each.index}`}>${each.index}</a>${each.index === live.member ? " (shown)" : ""}</td>
        <td>${each.hosts}</td><td>${each.role}</td><td>${each.paused ? "paused" : each.status}</td>
        <td class="n">${several(each.behind, "transaction", "transactions")}</td><td class="n">${duration(each.lag)}</td></tr>`)}</tbody></table></section>` : null}
    <dl class="facts">
      <${Fact} name="Sessions"><a href=${link("sessions")}>${count(live.sessions)}</a><//>
      <${Fact} name="Connections">${count(live.connections)}<//>
      <${Fact} name="Nodes"><a href=${link("tree", "/")}>${count(live.nodes)}</a><//>
      <${Fact} name="Ephemeral">${count(live.ephemerals)}<//>
      <${Fact} name="Watches">${count(live.watches)}<//>
      <${Fact} name="Paths and data">${bytes(live.data_bytes)}<//>
      ${live.memory ? html`<${Fact} name="Memory">${bytes(live.memory)}<//>` : null}
      <${Fact} name="Last zxid"><span class="code">${live.zxid}</span><//>
      <${Fact} name="Sessions expired">${count(live.expired)}<//>
      <${Fact} name="Refused by limits">${count(live.refused)}<//>
    </dl>
    <p class="disk" data-test="disk">${disk
      ? html`<label>Disk of <bdi>${visible(disk.folder)}</bdi>: ${Math.round(used * 100)} % used, ${bytes(disk.free)} of ${bytes(disk.total)} free${" "}
          <meter min="0" max="1" low="0.8" high="0.95" optimum="0" value=${used}></meter></label>`
      : about.kind === "remote" ? "The disk is not known from here." : "No data directory: everything is in memory."}</p>
    <div class="columns">
      <section class="card"><h2>Busiest clients</h2>
        ${live.clients.length ? html`<table data-test="clients"><thead><tr><th>client</th><th>session</th><th class="n">a second</th><th class="n">requests</th><th>last</th></tr></thead>
          <tbody>${live.clients.map((each) => html`<tr key=${each.address}><td>${each.address}</td><td>${each.session ? html`<${SessionLink} id=${each.session} />` : ""}</td>
            <td class="n">${count(each.rate)}</td><td class="n">${count(each.requests)}</td><td>${each.last}</td></tr>`)}</tbody></table>`
          : html`<p class="muted">No client is connected, or the server does not tell.</p>`}
      </section>
      <section class="card"><h2>Busiest paths <span class="muted">(by their first two parts, from a sample)</span></h2>
        ${live.paths.length ? html`<table><thead><tr><th>path</th><th class="n">timed</th><th class="n">ms</th></tr></thead>
          <tbody>${live.paths.map((each) => html`<tr key=${each.path}><td>${each.path === "others" ? "others" : html`<${NodeLink} path=${each.path} />`}</td>
            <td class="n">${count(each.requests)}</td><td class="n">${each.ms}</td></tr>`)}</tbody></table>`
          : html`<p class="muted">Nothing was timed yet.</p>`}
      </section>
    </div>
    <div class="charts">${CHARTS.filter(({ series }) => series.every(([, name]) => about.columns.includes(name))).map(
      (chart) => html`<${Chart} key=${chart.title} ...${chart} columns=${about.columns} rows=${rows} />`)}</div>`;
}

// --- tree ---

const join = (path, name) => (path === "/" ? `/${name}` : `${path}/${name}`);
const parentOf = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const SIGNS = { ephemeral: "⏱ ephemeral", container: "▣ container", TTL: "⌛ TTL" };

export function Tree({ about, rest, trusted, needToken }) {
  const path = rest || "/";
  const [refresh, setRefresh] = useState(0);
  const { answer: newest, error } = useAnswer("node", { path }, `${refresh} ${trusted}`, 2000);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (newest) setLast(newest);
  }, [newest]);
  // What is being edited stays while it is asked for again.
  const answer = newest || (!error && last?.path === path ? last : null);
  const [asking, setAsking] = useState(null);
  const gone = error && error.status === 404;
  return html`<h1>Tree</h1>
    <${Search} below=${path} trusted=${trusted} />
    <${Crumbs} path=${path} />
    <div class="split">
      <${Children} path=${path} refresh=${refresh} key=${path} />
      <section class="card" aria-label="Node">
        ${gone ? html`<p class="problem" data-test="gone">There is no node <bdi>${visible(path)}</bdi>.</p>` : html`<${Problem} error=${error} />`}
        ${gone && about.views.includes("history") ? html`<h2>Why is it gone?</h2><${Entries} query=${{ path }} files=${about.files} />` : null}
        ${answer ? html`<${Node} node=${answer} about=${about} reload=${() => setRefresh(refresh + 1)}
            ask=${(dialog) => (trusted ? setAsking(dialog) : needToken(() => setAsking(dialog)))} trusted=${trusted} needToken=${needToken} />` : null}
        ${answer && about.views.includes("history") ? html`<h2>History</h2><${Entries} query=${{ path }} key=${path} refresh=${refresh} files=${about.files} />` : null}
      </section>
    </div>
    ${asking ? html`<${Confirm} ...${asking} onCancel=${() => setAsking(null)} onDone=${() => {
      const { then, done } = asking;
      setAsking(null);
      if (done) done();
      setRefresh(refresh + 1);
      if (then) location.hash = then;
    }} />` : null}`;
}

function Crumbs({ path }) {
  const parts = path === "/" ? [] : path.slice(1).split("/");
  let at = "";
  return html`<nav aria-label="Path" class="crumbs"><a href=${link("tree", "/")}>/</a>${parts.map((part, number) => {
    at += `/${part}`;
    return html`<span key=${at}>${number ? " / " : " "}<a href=${link("tree", at)} aria-current=${at === path ? "page" : undefined}><bdi>${visible(part)}</bdi></a></span>`;
  })}</nav>`;
}

function Children({ path, refresh }) {
  const [total, setTotal] = useState(null);
  const [problem, setProblem] = useState(null);
  const [load] = useState(() => async (offset, limit) => {
    const answer = await ask("children", { path, offset, limit });
    setTotal(answer.total);
    return answer.rows;
  });
  useEffect(() => {
    load(0, 1).then(() => setProblem(null), setProblem);
  }, [refresh]);
  const row = ([name, below, size, kind]) => html`<a href=${link("tree", join(path, name))}><bdi>${visible(name)}</bdi></a>
    <span class="muted">${below ? ` ${several(below, "child", "children")}` : ""} ${size ? bytes(size) : ""} ${SIGNS[kind] || ""}</span>`;
  return html`<section class="card" aria-label="Children">
    <h2>${total === null ? "Children" : total === 1 ? "1 child" : `${count(total)} children`}</h2>
    ${problem && problem.status !== 404 ? html`<${Problem} error=${problem} />` : null}
    ${total ? html`<${LongList} total=${total} load=${load} row=${row} label="Children" refresh=${refresh} />` : null}
    ${path !== "/" ? html`<p><a href=${link("tree", parentOf(path))}>↑ up</a></p>` : null}
  </section>`;
}

function Search({ below, trusted }) {
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const [state, setState] = useState(null);
  const running = useRef(null);
  useEffect(() => () => running.current?.abort(), []);
  const go = async (event) => {
    event.preventDefault();
    if (name.startsWith("/") && !text && !/[*?[]/.test(name)) {
      location.hash = link("tree", name.length > 1 ? name.replace(/\/+$/, "") : name);
      return;
    }
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    const found = [];
    setState({ found, searched: 0 });
    try {
      for await (const line of lines("search", { name, text, path: below }, controller.signal)) {
        const item = JSON.parse(line);
        if (item.error) throw new Error(item.error);
        if (item.path !== undefined) found.push(item);
        else setState({ found: [...found], ...item });
      }
    } catch (error) {
      if (!controller.signal.aborted) setState({ found, error });
    }
  };
  return html`<form role="search" onSubmit=${go} class="search">
      <label>Name <input id="search" value=${name} onInput=${(event) => setName(event.target.value)} placeholder="part, *.lock, /a/*/b" /></label>
      <label>and data has <input value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button type="submit">Search below here</button>
      ${state ? html`<button type="button" onClick=${() => {
        running.current?.abort();
        setState(null);
      }}>Close</button>` : null}
    </form>
    ${state ? html`<section class="card" aria-live="polite" data-test="found"><h2>${state.done ? "" : "Searching: "}${count(state.found.length)}${state.more ? " or more" : ""} found among ${count(state.searched || 0)} nodes${state.more ? ", and stopped" : ""}${trusted ? "" : ", without data that not everyone may read"}</h2>
      <${Problem} error=${state.error} />
      <ul class="plain">${state.found.map((each) => html`<li key=${each.path}><${NodeLink} path=${each.path} /> <span class="muted">${bytes(each.bytes)} ${SIGNS[each.kind] || ""}</span></li>`)}</ul></section>` : null}`;
}

function Data({ node, trusted, needToken }) {
  const [shown, setShown] = useState(node.data);
  const [form, setForm] = useState("");
  // Asking again must not take back what was shown in whole.
  useEffect(() => setShown(node.data), [node.path, node.stat.mzxid, node.data === undefined]);
  if (!shown) {
    return html`<p>${bytes(node.secret)} of data that not everyone may read.
      ${trusted ? null : html` <button onClick=${() => needToken()}>Enter the token</button>`}</p>`;
  }
  if (shown.null) return html`<p>No data (null).</p>`;
  if (!shown.size) return html`<p>Empty data.</p>`;
  const data = decodeBase64(shown.base64);
  const isWhole = data.length === shown.size;
  const text = textOf(isWhole ? data : data.subarray(0, data.length - 4));
  const forms = {};
  if (text !== null) {
    forms.text = () => visibleText(text);
    if (isWhole) {
      try {
        const value = JSON.parse(text);
        if (value !== null && typeof value === "object") forms.JSON = () => visibleText(JSON.stringify(value, null, 2));
      } catch {
        // not JSON
      }
    }
  }
  if (shown.msgpack) forms.msgpack = () => visibleText(shown.msgpack);
  forms.hex = () => hexOf(data);
  const best = forms.JSON ? "JSON" : forms.msgpack ? "msgpack" : forms.text ? "text" : "hex";
  const chosen = forms[form] ? form : best;
  return html`<div role="group" aria-label="Form of the data" class="buttons">${Object.keys(forms).map(
      (name) => html`<button key=${name} aria-pressed=${name === chosen} onClick=${() => setForm(name)}>${name}</button>`)}
      <span class="muted">${bytes(shown.size)}${isWhole ? "" : `, the first ${bytes(data.length)} of them`}</span>
      ${isWhole ? null : html`<button onClick=${async () => setShown((await ask("node", { path: node.path, whole: 1 })).data)}>Show all</button>`}
    </div>
    <pre class=${`data ${chosen}`} tabindex="0" data-test="data">${forms[chosen]()}</pre>`;
}

const PERMISSIONS = { c: "create children", d: "delete children", r: "read", w: "write", a: "change the ACL" };

function Node({ node, about, reload, ask: open, trusted, needToken }) {
  const stat = node.stat;
  const [editing, setEditing] = useState(null);
  useEffect(() => setEditing(null), [node.path]);
  const can = (action) => about.changes.includes(action);
  const edit = () => setEditing({ text: textOf(decodeBase64(node.data.base64)), version: stat.version });
  const save = () => {
    const value = new TextEncoder().encode(editing.text);
    open({
      question: "Set the data",
      detail: html`<p>The data of <bdi class="code">${visible(node.path)}</bdi> becomes these ${bytes(value.length)},
        if nobody has changed it since version ${editing.version}, which was edited.</p>`,
      action: () => change("set", { path: node.path, base64: encodeBase64(value), version: editing.version }),
      done: () => setEditing(null),
    });
  };
  return html`<h2><bdi>${visible(node.path)}</bdi></h2>
    ${editing === null ? html`<${Data} node=${node} trusted=${trusted} needToken=${needToken} />`
      : html`<label>Data as text<textarea rows="10" value=${editing.text} onInput=${(event) => setEditing({ ...editing, text: event.target.value })}></textarea></label>
        ${editing.version !== stat.version ? html`<p class="problem">Somebody has changed it meanwhile: it has version ${stat.version} now, and this text is made of version ${editing.version}.</p>` : null}
        <p class="buttons"><button onClick=${() => setEditing(null)}>Cancel</button><button class="primary" onClick=${save}>Save…</button></p>`}
    <dl class="facts">
      <${Fact} name="Kind">${SIGNS[stat.kind] || stat.kind}${node.ttl ? ` of ${duration(node.ttl / 1000)}` : ""}<//>
      ${stat.owner ? html`<${Fact} name="Owner"><${SessionLink} id=${stat.owner} address=${node.owner_address} /><//>` : null}
      ${stat.created ? html`<${Fact} name="Created">${moment(stat.created)} <span class="muted">${ago(stat.created)}</span><//>` : null}
      ${stat.modified ? html`<${Fact} name="Modified">${moment(stat.modified)} <span class="muted">${ago(stat.modified)}</span><//>` : null}
      <${Fact} name="Version">${stat.version}<//>
      <${Fact} name="Children">${count(stat.children)}<//>
      <${Fact} name="Next sequential child"><span class="code">${stat.next_sequence}</span><//>
      <${Fact} name="Created by zxid"><span class="code">${stat.czxid}</span><//>
      <${Fact} name="Modified by zxid"><span class="code">${stat.mzxid}</span><//>
      <${Fact} name="Children changed by zxid"><span class="code">${stat.pzxid}</span><//>
    </dl>
    <h3>Who may do what</h3>
    <ul class="plain">${node.acl.map((each) => html`<li><b>${visible(each.scheme === "world" ? "everyone" : `${each.scheme}:${each.id}`)}</b>${": "}
      ${each.permissions === "cdrwa" ? "everything" : Array.from(each.permissions, (letter) => PERMISSIONS[letter]).join(", ") || "nothing"}</li>`)}</ul>
    ${node.quota ? html`<h3>Quota</h3><p>Limits <span class="code">${visible(node.quota.limits)}</span>, used <span class="code">${visible(node.quota.used)}</span></p>` : null}
    ${node.watches?.length ? html`<h3>Watches on it</h3><ul class="plain">${node.watches.map((each) => html`<li>${each.kind}: <${SessionLink} id=${each.session} address=${each.address} /></li>`)}</ul>` : null}
    <p class="buttons">
      <button onClick=${reload}>Reload</button>
      ${can("set") && node.data && textOf(decodeBase64(node.data.base64)) !== null && decodeBase64(node.data.base64).length === node.data.size && !textOf(decodeBase64(node.data.base64)).includes("\r")
        ? html`<button onClick=${() => (trusted ? edit() : needToken(edit))}>Edit…</button>` : null}
      ${can("create") && !stat.owner ? html`<${NewChild} node=${node} open=${open} trusted=${trusted} needToken=${needToken} />` : null}
      ${can("set_acl") ? html`<${NewAcl} node=${node} open=${open} trusted=${trusted} needToken=${needToken} />` : null}
      ${can("delete") && node.path !== "/" ? html`<button class="danger" onClick=${() => open({
        question: "Delete the node", dangerous: true, then: link("tree", parentOf(node.path)),
        detail: html`<p><bdi class="code">${visible(node.path)}</bdi> of version ${stat.version} is deleted${stat.children ? `; it has ${count(stat.children)} children, so that the server will refuse` : ""}${stat.owner ? "; a client that holds a lock by it loses the lock without noticing" : ""}.</p>`,
        action: () => change("delete", { path: node.path, version: stat.version }),
      })}>Delete…</button>` : null}
    </p>`;
}

function NewChild({ node, open, trusted, needToken }) {
  const [name, setName] = useState(null);
  const [data, setData] = useState("");
  if (name === null) return html`<button onClick=${() => (trusted ? setName("") : needToken(() => setName("")))}>New child…</button>`;
  const go = (event) => {
    event.preventDefault();
    const path = join(node.path, name);
    open({
      question: "Create the node",
      detail: html`<p>A persistent node <bdi class="code">${visible(path)}</bdi> that everyone may read and change, with ${bytes(new TextEncoder().encode(data).length)}.</p>`,
      action: () => change("create", { path, base64: encodeBase64(new TextEncoder().encode(data)) }),
    });
    setName(null);
  };
  return html`<form onSubmit=${go} class="inline"><label>Name <input required value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <label>Data <input value=${data} onInput=${(event) => setData(event.target.value)} /></label><button type="submit">Create…</button></form>`;
}

function NewAcl({ node, open, trusted, needToken }) {
  const [text, setText] = useState(null);
  const now = node.acl.map((each) => `${each.scheme}:${each.id}:${each.permissions}`).join(", ");
  if (text === null) return html`<button onClick=${() => (trusted ? setText(now) : needToken(() => setText(now)))}>Change the ACL…</button>`;
  const go = (event) => {
    event.preventDefault();
    const acl = text.split(",").map((part) => part.trim());
    open({
      question: "Change the ACL",
      detail: html`<p>From <span class="code">${visible(now)}</span> to <span class="code">${visible(acl.join(", "))}</span>, if nobody has changed it since version ${node.stat.acl_version}.</p>`,
      action: () => change("set_acl", { path: node.path, acl, version: node.stat.acl_version }),
    });
    setText(null);
  };
  return html`<form onSubmit=${go} class="inline"><label>ACL <input size="40" value=${text} onInput=${(event) => setText(event.target.value)} /></label><button type="submit">Change…</button></form>`;
}

// --- sessions ---

export function Sessions({ about, rest, trusted, needToken }) {
  return rest ? html`<${Session} id=${rest} about=${about} trusted=${trusted} needToken=${needToken} />` : html`<${SessionList} about=${about} />`;
}

function SessionList() {
  const [text, setText] = useState("");
  const [total, setTotal] = useState(null);
  const [problem, setProblem] = useState(null);
  const [refresh, setRefresh] = useState(0);
  const [load, setLoad] = useState(null);
  useEffect(() => {
    const next = async (offset, limit) => {
      const answer = await ask("sessions", { text, offset, limit });
      setTotal(answer.total);
      return answer.rows;
    };
    setLoad(() => next);
    next(0, 1).then(() => setProblem(null), setProblem);
  }, [text, refresh]);
  const row = (each) => html`<a class="code" href=${link("sessions", each.id)}>${each.id}</a>
    <span>${each.address ? visible(each.address) : "✕ not connected"}</span><span>heard ${duration(each.heard)} ago, timeout ${duration(each.timeout)}</span>
    <span class="muted">${count(each.ephemerals)} ephemeral, ${several(each.watches, "watch", "watches")}, ${several(each.requests, "request", "requests")}</span>`;
  return html`<h1>Sessions</h1>
    <p class="search"><label>Id or address has <input id="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button onClick=${() => setRefresh(refresh + 1)}>Reload</button></p>
    <${Problem} error=${problem} />
    <section class="card"><h2 data-test="total">${total === null ? "" : total === 1 ? "1 session" : `${count(total)} sessions`}</h2>
    ${total && load ? html`<${LongList} total=${total} load=${load} row=${row} label="Sessions" tall=${560} height=${matchMedia("(max-width: 600px)").matches ? 104 : 28} />` : null}</section>`;
}

function Session({ id, about, trusted, needToken }) {
  const [refresh, setRefresh] = useState(0);
  const [asking, setAsking] = useState(null);
  const { answer, error } = useAnswer("session", { id }, refresh, 2000);
  const open = (dialog) => (trusted ? setAsking(dialog) : needToken(() => setAsking(dialog)));
  const can = (action) => about.changes.includes(action);
  return html`<h1>Session <span class="code">${visible(id)}</span></h1>
    <p><a href=${link("sessions")}>All sessions</a></p>
    <${Problem} error=${error} />
    ${answer && !answer.alive ? html`<p class="problem">This session is not alive.</p>` : null}
    ${answer?.alive ? html`<div class="split"><section class="card" aria-label="Session">
      <dl class="facts">
        <${Fact} name="Client">${answer.address ? visible(answer.address) : "✕ not connected"}<//>
        ${answer.since ? html`<${Fact} name="Connected since">${moment(answer.since)} <span class="muted">${ago(answer.since)}</span><//>` : null}
        ${answer.timeout ? html`<${Fact} name="Timeout">${duration(answer.timeout)}<//>` : null}
        ${answer.heard !== undefined ? html`<${Fact} name="Last heard">${duration(answer.heard)} ago<//>
        <${Fact} name="Expires if silent">in ${duration(answer.expires)}<//>` : null}
        <${Fact} name="Requests">${count(answer.requests)}, the last ${answer.last || "none"}<//>
        ${answer.identities ? html`<${Fact} name="Identities">${visible(answer.identities.join(", "))}<//>` : null}
      </dl>
      <p class="buttons">
        ${can("drop") && answer.address ? html`<button onClick=${() => open({
          question: "Disconnect the client",
          detail: html`<p>Its connection is closed. The session stays alive, and the client reconnects.</p>`,
          action: () => change("drop", { session: id }),
        })}>Disconnect…</button>` : null}
        ${can("expire") ? html`<button class="danger" onClick=${() => open({
          question: "Expire the session", dangerous: true,
          detail: html`<p>The session ends now. Its ${several(answer.ephemerals, "ephemeral node is", "ephemeral nodes are")} deleted: locks and elections pass on to others.</p>`,
          action: () => change("expire", { session: id }),
        })}>Expire…</button>` : null}
      </p>
    </section>
    <section class="card"><h2>${several(answer.ephemerals, "ephemeral node", "ephemeral nodes")}</h2>
      <ul class="plain">${answer.owned.map((path) => html`<li key=${path}><${NodeLink} path=${path} /></li>`)}</ul>
      ${answer.watches !== undefined ? html`<h2>${several(answer.watches, "watch", "watches")}</h2>
      <ul class="plain">${(answer.watched || []).map((each) => html`<li key=${each.kind + each.path}>${each.kind}: <${NodeLink} path=${each.path} /></li>`)}</ul>` : null}
    </section></div>` : null}
    ${about.views.includes("history") ? html`<section class="card"><h2>Its life</h2><${Life} id=${id} refresh=${refresh} /></section>` : null}
    ${asking ? html`<${Confirm} ...${asking} onCancel=${() => setAsking(null)} onDone=${() => {
      setAsking(null);
      setRefresh(refresh + 1);
    }} />` : null}`;
}

const MARKS = { opened: "●", resumed: "◐", closed: "■", expired: "✕", ended: "■" };

function Life({ id, refresh }) {
  const { answer } = useAnswer("history", { session: id, limit: 200 }, refresh);
  const entries = answer ? [...answer.entries].reverse() : [];
  const first = entries[0]?.time;
  const span = Math.max(1, (entries.at(-1)?.time || 0) - (first || 0));
  return html`${entries.length > 1 ? html`<div class="life" role="img" aria-label=${`From ${moment(first)} to ${moment(entries.at(-1).time)}: ${entries.length} transactions`}>
      ${entries.map((each, number) => html`<span key=${number} class=${MARKS[each.kind] ? "mark" : "tick"} style=${{ left: `${((each.time - first) / span) * 98}%` }} title=${`${each.kind} ${moment(each.time)}`}>${MARKS[each.kind] || ""}</span>`)}
    </div>` : null}<${Entries} query=${{ session: id }} refresh=${refresh} />`;
}

// --- locks ---

const nameOf = (entry) => (typeof entry.data === "string" ? entry.data : `${atob(entry.data.base64).length} bytes`);

function Who({ entry, addresses, holds }) {
  const held = holds && entry.held_since > entry.since + 0.5 ? entry.held_since : null;
  return html`<b><bdi>${visible(nameOf(entry)) || "somebody"}</bdi></b>${entry.reader ? " as a reader" : ""}
    ${entry.session ? html` (<${SessionLink} id=${entry.session} address=${addresses?.[entry.session]} />)` : null} ${held ? html`since ${moment(held * 1000)} <span class="muted">${ago(held * 1000)}, in line since ${moment(entry.since * 1000)}</span>`
      : html`${holds ? "since" : "in line since"} ${moment(entry.since * 1000)} <span class="muted">${ago(entry.since * 1000)}</span>`}`;
}

export function Locks({ rest }) {
  const { answer, error } = useAnswer("locks", {}, 0, 1000);
  const [text, setText] = useState(rest || "");
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (answer) setLast(answer);
  }, [answer]);
  useEffect(() => setText(rest || ""), [rest]);
  const known = answer || last;
  const lines = known ? known.shared.filter((each) => each.path.includes(text)) : [];
  const waiting = lines.reduce((sum, each) => sum + each.waiters.length, 0);
  return html`<h1>Locks</h1>
    <p class="search"><label>Path has <input id="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label></p>
    <${Problem} error=${error} />
    ${known ? html`<p role="status" data-test="deadlocks" class=${known.deadlocks.length ? "health bad" : "health good"}>
      ${known.deadlocks.length ? html`<b>✕ ${known.deadlocks.length === 1 ? "A deadlock" : `${known.deadlocks.length} deadlocks`}</b>` : html`<b>✓ No deadlock</b>`}
      ${` ${several(lines.length, "lock or the like", "locks and the like")}, ${count(waiting)} waiting`}</p>` : null}
    ${(known?.deadlocks || []).filter((circle) => circle.some((wait) => wait.lock.includes(text))).map((circle, number) => html`<section class="card" key=${number}><h2>Deadlock of ${circle.length} clients</h2><${Circle} circle=${circle} />
      <ol>${circle.map((wait) => html`<li><b>${visible(nameOf(wait.waiter))}</b> (<${SessionLink} id=${wait.waiter.session} />) waits for <${NodeLink} path=${wait.lock} />, and <b>${visible(nameOf(wait.holder))}</b> holds it</li>`)}</ol></section>`)}
    ${known && !lines.length ? html`<p class="muted">${known.shared.length ? "None has that in its path." : "No lock, election, semaphore or queue is in use."}</p>` : null}
    ${lines.slice(0, 200).map((each) => html`<section class="card lock" key=${each.path + each.kind} data-path=${each.path}>
      <h2><a href=${link("locks", each.path)}><bdi>${visible(each.path)}</bdi></a> <span class="muted">${each.kind}, ${each.naming}${each.size === null ? "" : `, ${count(each.size)} entries`}</span> <a class="small" href=${link("tree", each.path)}>node</a></h2>
      ${each.holders.length ? html`<h3>Held by</h3><ul class="plain holders">${each.holders.map((entry) => html`<li key=${entry.node}><${Who} entry=${entry} addresses=${known.addresses} holds />${entry.token ? html` <span class="muted" title="the zxid at which its node was created">token ${entry.token}</span>` : null}</li>`)}</ul>` : html`<p>Nobody holds it.</p>`}
      ${each.waiters.length ? html`<h3>${count(each.waiters.length)} waiting, in order</h3><ol class="waiters">${each.waiters.slice(0, 100).map((entry) => html`<li key=${entry.node}><${Who} entry=${entry} addresses=${known.addresses} /></li>`)}</ol>` : null}
    </section>`)}
    ${known?.left_out ? html`<p>${count(known.left_out)} nodes are left out, because there are so many, or they have so many children.</p>` : null}
    ${lines.length > 200 ? html`<p>${count(lines.length - 200)} more: narrow the path.</p>` : null}`;
}

// Who waits for whom, as a ring with an arrow from each client to the one that it waits for.
function Circle({ circle }) {
  const size = 260;
  const middle = size / 2;
  const radius = 80;
  const places = circle.map((_, number) => {
    const angle = (2 * Math.PI * number) / circle.length - Math.PI / 2;
    return [middle + radius * Math.cos(angle), middle + radius * Math.sin(angle)];
  });
  return html`<svg viewBox=${`0 0 ${size * 1.6} ${size}`} class="circle" role="img" aria-label=${circle.map((wait) => `${nameOf(wait.waiter)} waits for ${nameOf(wait.holder)}`).join(", ")}>
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" class="arrow" /></marker></defs>
    <g transform=${`translate(${size * 0.3} 0)`}>
    ${places.map(([x, y], number) => {
      const [to, end] = places[(number + 1) % places.length];
      const length = Math.hypot(to - x, end - y) || 1;
      const dx = ((to - x) / length) * 14;
      const dy = ((end - y) / length) * 14;
      const bend = circle.length === 2 ? 30 : 0;
      return html`<path key=${number} class="edge" marker-end="url(#arrow)" d=${`M${x + dx} ${y + dy} Q${(x + to) / 2 + (bend * (end - y)) / length} ${(y + end) / 2 - (bend * (to - x)) / length} ${to - dx} ${end - dy}`} />`;
    })}
    ${places.map(([x, y], number) => html`<g key=${`n${number}`}><circle cx=${x} cy=${y} r="12" class="dot" /><text x=${x} y=${y < middle ? y - 18 : y + 26} text-anchor="middle">${visible(nameOf(circle[number].waiter)).slice(0, 28)}</text></g>`)}
    </g></svg>`;
}

// --- history ---

export function History({ about, rest }) {
  const [text, setText] = useState(rest || "");
  useEffect(() => setText(rest || ""), [rest]);
  const go = (event) => {
    event.preventDefault();
    location.hash = link("history", text.trim());
  };
  const query = !rest ? {} : rest.startsWith("0x") ? { session: rest } : { path: rest };
  return html`<h1>History</h1>
    <form class="search" onSubmit=${go}><label>Of the node or session <input id="search" size="40" value=${text} placeholder="/path or 0x1a2b" onInput=${(event) => setText(event.target.value)} /></label><button type="submit">Show</button>
      ${rest ? html`<a href=${link("history")}>everything</a>` : null}</form>
    <section class="card"><${Entries} query=${query} key=${rest} every=${rest ? 2000 : 1000} files=${about.files} /></section>`;
}

const DONE = { create: "created", set: "set", delete: "deleted", "set ACL": "ACL changed", check: "checked" };

function Entries({ query, refresh, every, files }) {
  const [more, setMore] = useState([]);
  const [looked, setLooked] = useState(null);
  const { answer, error } = useAnswer("history", { ...query, limit: 100 }, refresh, every);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (answer) setLast(answer);
  }, [answer]);
  const known = answer || last;
  if (!known) return html`<${Problem} error=${error} />`;
  const entries = [...known.entries, ...more];
  const look = async () => {
    setLooked({ busy: true });
    try {
      const before = entries.at(-1)?.zxid || undefined;
      const next = await ask("history", { ...query, before, limit: 100, files: 1 });
      setMore((have) => [...have, ...next.entries]);
      setLooked({ found: next.entries.length });
    } catch (problem) {
      setLooked({ problem });
    }
  };
  const inFiles = !files ? null : html`<p>${looked?.busy ? "Reading the log files…" : looked?.found === 0 ? "The log files have no more." : html`<button onClick=${look}>Look in the log files</button>`}
    <${Problem} error=${looked?.problem} /></p>`;
  if (!entries.length) return html`<p class="muted">Nothing is kept of it: the last ${count(known.kept)} transactions do not have it.</p>${inFiles}`;
  const earlier = async () => {
    const before = entries.at(-1).number.toString(16);
    const next = await ask("history", { ...query, before, limit: 100 });
    setMore((have) => [...have, ...next.entries]);
  };
  return html`<${Problem} error=${error} /><ul class="entries" data-test="entries">${entries.map((each, number) => html`<li key=${each.number || `file${each.zxid}`}>
      <time datetime=${new Date(each.time).toISOString()}>${moment(each.time)}</time>
      <span>${MARKS[each.kind] ? html`<b>${MARKS[each.kind]} session ${each.kind}</b> ` : each.kind === "multi" ? html`<b>multi</b> ` : null}
        ${each.changes.slice(0, 20).map(([op, path, size], at) => html`${at ? ", " : ""}${DONE[op] || op} <${NodeLink} path=${path} />${size ? ` (${bytes(size)})` : ""}`)}
        ${each.changes.length > 20 || each.left_out ? ` and ${count(each.changes.length - Math.min(20, each.changes.length) + each.left_out)} more` : ""}
        <span class="because">${because(each)}</span></span>
      <span class="muted code">${each.zxid || ""}</span></li>`)}</ul>
    ${known.entries.length === 100 && entries.at(-1).number > 1 && !looked ? html`<button onClick=${earlier}>Earlier</button>` : null}${inFiles}`;
}

function because(entry) {
  const who = entry.session ? html`<${SessionLink} id=${entry.session} address=${entry.address} />` : null;
  if (entry.kind === "expired") return html` because session ${who} expired: ${entry.why}`;
  if (entry.kind === "closed") return entry.changes.length ? html` because session ${who} was closed by its client` : html` ${who} by its client`;
  if (entry.kind === "ended") return html` because session ${who} ended; the log does not tell why`;
  if (entry.why) return ` ${entry.session ? "" : "by the server: "}${entry.why}`;
  return html` by session ${who}`;
}
