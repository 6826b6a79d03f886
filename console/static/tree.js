// The tree: a node, its children, its data and its changes, and the search.
import {
  html,
  useState,
  useEffect,
  useMemo,
  useRef,
  ask,
  change,
  lines,
  useAnswer,
  Refused,
  WORK,
  Problem,
  More,
  LongList,
  Confirm,
  NodeLink,
  SessionLink,
  Fact,
  visible,
  isCut,
  count,
  several,
  bytes,
  duration,
  moment,
  ago,
  FOR_CHANGES,
  decodeBase64,
  encodeBase64,
  textOf,
  link,
} from "./lib.js";
import { formsOf } from "./data.js";
import { Entries } from "./history.js";

const MAX_CRUMBS = 50; // levels of a path that are links
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
  const [edited, setEditing] = useState(null);
  const editing = edited?.path === path ? edited : null; // a text may come late
  const gone = error && error.status === 404;
  // What is being edited stays while it is asked for again, also if that fails.
  const isHidden = gone || error?.status === 401;
  const answer = newest || ((!isHidden || editing) && last?.path === path ? last : null);
  const [asking, setAsking] = useState(null);
  const [sort, setSort] = useState("name");
  // A node without children is shown with its siblings.
  const [folder, setFolder] = useState(null);
  useEffect(() => {
    if (newest || gone) setFolder(newest?.stat.children || path === "/" ? path : parentOf(path));
  }, [newest, gone, path]);
  return html`<h1>Tree</h1>
    <${Crumbs} path=${path} />
    <${Search} below=${path} trusted=${trusted} />
    <div class="split">
      ${
        folder
          ? html`<${Children} path=${folder} selected=${folder === path ? "" : path.slice(folder.length).replace("/", "")}
        sort=${sort} onSort=${setSort} refresh=${refresh} key=${`${sort} ${folder}`} />`
          : html`<section class="card" aria-label="Children"></section>`
      }
      <section class="card" aria-label="Node">
        ${
          gone
            ? html`<p class="problem" data-test="gone">There is no node <bdi>${visible(path)}
          </bdi>.</p>`
            : html`<${Problem} error=${error} />`
        }
        ${
          gone && about.views.includes("history")
            ? html`<h2>Why is it gone?</h2>
          <${Entries} query=${{ path }} />`
            : null
        }
        ${
          answer
            ? html`<${Node} node=${answer} editing=${editing} setEditing=${setEditing} about=${about} reload=${() => setRefresh(refresh + 1)}
            ask=${(dialog) => (trusted ? setAsking(dialog) : needToken(() => setAsking(dialog), FOR_CHANGES))} trusted=${trusted} needToken=${needToken} />`
            : null
        }
        ${
          answer && about.views.includes("history")
            ? html`<h2>History</h2>
          <${Entries} query=${{ path }} key=${path} refresh=${refresh} />`
            : null
        }
      </section>
    </div>
    ${
      asking
        ? html`<${Confirm} ...${asking} onCancel=${() => setAsking(null)} onDone=${() => {
            const { next, done } = asking;
            setAsking(null);
            if (done) done();
            setRefresh(refresh + 1);
            if (next) location.hash = next;
          }} />`
        : null
    }`;
}

function Crumbs({ path }) {
  const [typed, setTyped] = useState(path);
  useEffect(() => setTyped(path), [path]);
  const parts = path === "/" ? [] : path.slice(1).split("/");
  const hidden = Math.max(0, parts.length - MAX_CRUMBS);
  let at = parts.slice(0, hidden).reduce((above, part) => `${above}/${part}`, "");
  const go = (event) => {
    event.preventDefault();
    location.hash = link("tree", `/${(typed === path ? path : typed.trim()).replace(/^\/+|\/+$/g, "")}`);
  };
  return html`<form class="search" onSubmit=${go}><label>Path <input id="path" size="50" value=${typed}
      onInput=${(event) => setTyped(event.target.value)} /></label><button type="submit">Go</button></form>
    <nav aria-label="Path" class="crumbs"><a href=${link("tree", "/")}>/</a>${hidden ? ` … ${count(hidden)} levels … ` : ""}${parts
      .slice(hidden)
      .map((part, number) => {
        at += `/${part}`;
        return html`<span key=${at}>${number ? " / " : " "}<a href=${link("tree", at)}
      aria-current=${at === path ? "page" : undefined}><bdi>${visible(part)}</bdi></a></span>`;
      })}</nav>`;
}

const RENEWED = 500; // milliseconds between two renewals of a list that changes while it is read

const SORTS = { name: "name", time: "last change", size: "size" };

function Children({ path, selected, sort, onSort, refresh }) {
  const { answer, error } = useAnswer("children", { path, limit: 0 }, refresh, 2000);
  const [refusal, setRefusal] = useState(null); // why the server lists no rows
  const problem = error || refusal;
  const [found, setFound] = useState(null); // total and version of the list that is shown
  const [place, setPlace] = useState(null);
  const renewed = useRef(0);
  const [attempt, setAttempt] = useState(0);
  const hasFailed = useRef(false);
  useEffect(() => {
    if (!answer) return;
    setFound(answer);
    if (hasFailed.current) setAttempt(attempt + 1); // the server may list the rows by now
    hasFailed.current = false;
  }, [answer]);
  const load = useMemo(
    () => async (offset, limit) => {
      const began = Date.now();
      const part = await ask("children", { path, offset, limit, sort }).catch((reason) => {
        hasFailed.current = true;
        if (Number.isInteger(reason.status)) setRefusal(reason);
        throw reason;
      });
      setRefusal(null);
      const pause = Math.max(RENEWED, 4 * (Date.now() - began));
      if (part.version !== found?.version && Date.now() - renewed.current > pause) {
        renewed.current = Date.now();
        setFound(part);
      }
      return part.rows;
    },
    [refresh, found?.version, attempt],
  );
  const find = async ([name]) => (await ask("children", { path, limit: 0, sort, name })).at;
  useEffect(() => {
    if (selected) find([selected]).then(setPlace, () => {}); // the rows show why it fails
  }, [refresh, selected]);
  const row = ([name, below, size, kind, time]) =>
    html`${
      isCut(name)
        ? html`<bdi>${visible(name)}</bdi>`
        : html`<a href=${link("tree", join(path, name))} title=${visible(name)} aria-current=${name === selected ? "page" : undefined}><bdi>
      ${visible(name)}</bdi></a>`
    }
    <span class="muted">${below ? ` ${several(below, "child", "children")}` : ""} ${size ? bytes(size) : ""} ${SIGNS[kind] || ""}
      ${sort === "time" && time ? ` ${moment(time)}` : ""}</span>`;
  return html`<section class="card" aria-label="Children">
    <h2>${found ? several(found.total, "child", "children") : "Children"} of <bdi>${visible(path)}</bdi></h2>
    ${
      found?.total > 1 || problem
        ? html`<p><label>Sorted by <select value=${sort} onChange=${(event) => onSort(event.target.value)}>${Object.entries(
            SORTS,
          ).map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></label></p>`
        : null
    }
    ${problem && problem.status !== 404 ? html`<${Problem} error=${problem} />` : null}
    <div hidden=${Boolean(refusal)}>${
      found?.total
        ? html`<${LongList} total=${found.total} place=${place} load=${load} find=${find} row=${row} label="Children" />`
        : null
    }</div>
    ${path !== "/" ? html`<p><a href=${link("tree", parentOf(path))}>↑ up</a></p>` : null}
  </section>`;
}

function Search({ below, trusted }) {
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const [state, setState] = useState(null);
  const running = useRef(null);
  const results = useRef(null);
  useEffect(() => () => running.current?.abort(), []);
  useEffect(() => {
    if (results.current) results.current.open = false; // the node is shown where the results were
  }, [below]);
  const go = async (event) => {
    event.preventDefault();
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
  const stopped = state?.more ? ", and stopped" : "";
  const limits = trusted ? stopped : `${stopped}, without data that not everyone may read`;
  return html`<form role="search" onSubmit=${go} class="search">
      <label>Name <input id="search" value=${name} onInput=${(event) => setName(event.target.value)}
        placeholder="part, *.lock, /a/*/b" /></label>
      <label>and data contains <input value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button type="submit">Search below here</button>
      ${
        state
          ? html`<button type="button" onClick=${() => {
              running.current?.abort();
              setState(null);
            }}>Close</button>`
          : null
      }
    </form>
    ${
      state
        ? html`<details class="card" aria-live="polite" data-test="found" ref=${results} open><summary><h2>
          ${state.done ? "" : "Searching: "}${count(state.found.length)}${state.more ? " or more" : ""} found
          ${" "}among ${count(state.searched || 0)} nodes${limits}</h2></summary>
      <${Problem} error=${state.error} />
      <ul class="plain" onClick=${(event) => {
        if (event.target.closest("a")) results.current.open = false; // even if this node is shown already
      }}>${state.found.map(
        (each) =>
          html`<li key=${each.path}><${NodeLink} path=${each.path} /> <span
        class="muted">${bytes(each.bytes)} ${SIGNS[each.kind] || ""}</span></li>`,
      )}</ul></details>`
        : null
    }`;
}

const MAX_WHOLE = 1048576; // bytes of data that the server gives out

function Data({ node, trusted, needToken }) {
  const [shown, setShown] = useState(node.data);
  const [form, setForm] = useState("");
  // Asking again must not take back what was shown in whole.
  useEffect(() => setShown(node.data), [node.path, node.stat.mzxid, node.data === undefined]);
  const [data, forms] = useMemo(() => {
    if (!shown?.size) return [];
    const known = decodeBase64(shown.base64);
    return [known, formsOf(known, known.length === shown.size)];
  }, [shown]);
  const chosen = forms && (forms[form] ? form : ["JSON", "msgpack", "text", "hex"].find((name) => forms[name]));
  const text = useMemo(() => (chosen ? forms[chosen]() : ""), [forms, chosen]);
  if (!shown) {
    return html`<p>${bytes(node.secret)} of data that not everyone may read.
      ${trusted ? null : html` <button onClick=${() => needToken()}>Enter the token</button>`}</p>`;
  }
  if (shown.null) return html`<p>No data (null).</p>`;
  if (!shown.size) return html`<p>Empty data.</p>`;
  const isWhole = data.length === shown.size;
  return html`<div role="group" aria-label="Form of the data" class="buttons">${Object.keys(forms).map(
    (name) => html`<button key=${name} aria-pressed=${name === chosen} onClick=${() => setForm(name)}>${name}</button>`,
  )}
      <span class="muted">${bytes(shown.size)}${isWhole ? "" : `, the first ${bytes(data.length)} of them`}</span>
      ${
        isWhole || data.length >= MAX_WHOLE
          ? null
          : html`<button
        onClick=${async () => setShown((await ask("node", { path: node.path, whole: 1 })).data)}>
          ${shown.size > MAX_WHOLE ? `Show ${bytes(MAX_WHOLE)}` : "Show all"}</button>`
      }
    </div>
    <pre class=${`data ${chosen}`} tabindex="0" data-test="data">${text}</pre>`;
}

const FOR_EXPORTS = "An export contains the data of all nodes below this one. Not everyone may read them.";
const PERMISSIONS = { c: "create children", d: "delete children", r: "read", w: "write", a: "change the ACL" };
// Permissions as text: letters, or a number if there are other bits or none.
const allowed = (permissions) => {
  if (permissions === "cdrwa") return "everything";
  if (permissions === "0") return "nothing";
  if (/\d/.test(permissions)) return `permissions ${permissions}`;
  return Array.from(permissions, (letter) => PERMISSIONS[letter]).join(", ");
};

const LOCKS = 10; // paths of locks in a dialog

// What is lost with a node that is deleted, and with the nodes below it.
function Loss({ node, below }) {
  const owned = node.stat.owner ? " A client that holds a lock with it loses the lock without noticing." : "";
  if (!below)
    return html`<p><bdi class="code">${visible(node.path)}</bdi> will be deleted if it still has version ${node.stat.version}.${owned}</p>`;
  return html`<p><bdi class="code">${visible(node.path)}</bdi> and all nodes below it will be deleted one by one:
      ${" "}${several(below.nodes, "node", "nodes")} with ${bytes(below.bytes)} of data; ${several(below.ephemerals, "is", "are")} ephemeral.</p>
    ${
      below.held
        ? html`<p class="problem">${several(below.held, "lock is", "locks are")} held there. A
        client that holds one of them loses it without noticing:</p>
        <ul class="plain">${below.locks.slice(0, LOCKS).map((path) => html`<li key=${path}><bdi class="code">${visible(path)}</bdi></li>`)}</ul>
        <${More} all=${below.held} shown=${below.locks.slice(0, LOCKS)} />`
        : html`<p>No lock is held there.</p>`
    }`;
}

// Gives a text to the browser as a file.
function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// A node is the one that was shown if it was created by the same transaction. The versions of a new one start at 0 again.
const sameNode = ({ path, stat }) => ({ path, czxid: stat.czxid });

// Returns the text of a node for a form, which can hold text of a line feed for each line only.
async function textToEdit(path) {
  const node = await ask("node", { path, whole: 1 });
  const data = decodeBase64(node.data?.base64 || "");
  const text = textOf(data);
  let reason = null;
  if (!node.data) reason = "The console may not read its data";
  else if (data.length < node.data.size) reason = "Its data is longer than 1 MB";
  else if (text === null) reason = "Its data is not text";
  else if (text.includes("\r")) reason = "Its data contains carriage returns, which a browser would change";
  if (reason) throw new Refused("Not edited", `${reason}. Use edit of zoolet shell.`);
  return { ...sameNode(node), text, version: node.stat.version };
}

function Node({ node, editing, setEditing, about, reload, ask: open, trusted, needToken }) {
  const stat = node.stat;
  const [problem, setProblem] = useState(null);
  useEffect(() => setProblem(null), [node.path]);
  const remove = async () => {
    const { path } = node;
    const next = link("tree", parentOf(path));
    try {
      const below = stat.children ? await ask("subtree", { path }, undefined, WORK) : null;
      if (below?.more)
        throw new Refused(
          "Not deleted",
          "The node has more than 100,000 nodes below it. Use deleteall of zoolet shell.",
        );
      open({
        question: below ? `Delete ${several(below.nodes, "node", "nodes")}` : "Delete the node",
        dangerous: true,
        next,
        detail: html`<${Loss} node=${node} below=${below} />`,
        action: () =>
          below
            ? change("delete_all", { ...sameNode(node), nodes: below.nodes })
            : change("delete", { ...sameNode(node), version: stat.version }),
      });
    } catch (error) {
      setProblem(error);
    }
  };
  const exportAll = async () => {
    try {
      const nodes = await ask("export", { path: node.path }, undefined, WORK);
      download(`${node.path.split("/").pop() || "root"}.json`, JSON.stringify(nodes, null, 1));
    } catch (error) {
      setProblem(error);
    }
  };
  const can = (action) => about.changes.includes(action);
  const edit = () =>
    textToEdit(node.path).then((text) => setEditing((now) => (now?.path === text.path ? now : text)), setProblem);
  const save = () => {
    const value = new TextEncoder().encode(editing.text);
    open({
      question: "Set the data",
      detail: html`<p>The data of <bdi class="code">${visible(editing.path)}</bdi> will become the edited text of ${bytes(value.length)},
        if nobody has changed it since version ${editing.version}.</p>`,
      action: () =>
        change("set", {
          path: editing.path,
          czxid: editing.czxid,
          version: editing.version,
          base64: encodeBase64(value),
        }),
      done: () => setEditing(null),
    });
  };
  return html`<h2><bdi>${visible(node.path)}</bdi></h2>
    ${
      editing === null
        ? html`<${Data} node=${node} trusted=${trusted} needToken=${needToken} />`
        : html`<label>Data as text<textarea rows="10" value=${editing.text}
          onInput=${(event) => setEditing({ ...editing, text: event.target.value })}></textarea></label>
        ${
          editing.czxid !== stat.czxid
            ? html`<p class="problem">Another client has deleted the node and created it again.</p>`
            : editing.version !== stat.version
              ? html`<p
          class="problem">Another client has changed the data: its version is ${stat.version} now, and you edit version ${editing.version}.</p>`
              : null
        }
        <p class="buttons"><button onClick=${() => setEditing(null)}>Cancel</button>
          <button class="primary" onClick=${save}>Save…</button></p>`
    }
    <dl class="facts">
      <${Fact} name="Kind">${SIGNS[stat.kind] || stat.kind}${node.ttl ? ` of ${duration(node.ttl / 1000)}` : ""}<//>
      ${
        stat.owner
          ? html`<${Fact} name="Owner"><${SessionLink} id=${stat.owner} address=${node.owner_address} />
        <//>`
          : null
      }
      ${
        stat.created
          ? html`<${Fact} name="Created">${moment(stat.created)} <span class="muted">${ago(stat.created)}
        </span><//>`
          : null
      }
      ${
        stat.modified
          ? html`<${Fact} name="Modified">${moment(stat.modified)} <span
        class="muted">${ago(stat.modified)}</span><//>`
          : null
      }
      <${Fact} name="Version">${stat.version}<//>
      <${Fact} name="Children">${count(stat.children)}<//>
      <${Fact} name="Next sequential child"><span class="code">${stat.next_sequence}</span><//>
      <${Fact} name="Created by zxid"><span class="code">${stat.czxid}</span><//>
      <${Fact} name="Modified by zxid"><span class="code">${stat.mzxid}</span><//>
      <${Fact} name="Children changed by zxid"><span class="code">${stat.pzxid}</span><//>
    </dl>
    <h3>Who may do what</h3>
    <ul class="plain">${node.acl.map(
      (each) =>
        html`<li><b>${visible(each.scheme === "world" ? "everyone" : `${each.scheme}:${each.id}`)}</b>${": "}
      ${allowed(each.permissions)}</li>`,
    )}</ul><${More} all=${node.acl_size} shown=${node.acl} />
    ${
      node.quota
        ? html`<h3>Quota</h3><p>Limits <span class="code">${visible(node.quota.limits)}
      </span>, used <span class="code">${visible(node.quota.used)}</span></p>`
        : null
    }
    ${
      node.watches?.length
        ? html`<h3>Watches on it</h3><ul class="plain">${node.watches.map(
            (each) =>
              html`<li>
      ${each.kind}: <${SessionLink} id=${each.session} address=${each.address} /></li>`,
          )}</ul>`
        : null
    }
    <p class="buttons">
      <button onClick=${reload}>Reload</button>
      <button onClick=${() => (trusted ? exportAll() : needToken(exportAll, FOR_EXPORTS))}>Export as JSON</button>
      ${
        can("set") && node.data && !editing
          ? html`<button onClick=${() => (trusted ? edit() : needToken(edit, FOR_CHANGES))}>Edit…</button>`
          : null
      }
      ${
        can("create") && !stat.owner
          ? html`<${NewChild} key=${node.path} node=${node} open=${open} trusted=${trusted}
        needToken=${needToken} />`
          : null
      }
      ${
        can("set_acl") && node.acl_size === node.acl.length
          ? html`<${NewAcl} key=${node.path} node=${node} open=${open}
        trusted=${trusted} needToken=${needToken} fail=${setProblem} />`
          : null
      }
      ${can("delete") && node.path !== "/" ? html`<button class="danger" onClick=${remove}>Delete…</button>` : null}
    </p><${Problem} error=${problem} />`;
}

function NewChild({ node, open, trusted, needToken }) {
  const [name, setName] = useState(null);
  const [data, setData] = useState("");
  if (name === null)
    return html`<button onClick=${() => (trusted ? setName("") : needToken(() => setName(""), FOR_CHANGES))}>New child…</button>`;
  const go = (event) => {
    event.preventDefault();
    const path = join(node.path, name);
    open({
      question: "Create the node",
      detail: html`<p>A persistent node <bdi class="code">${visible(path)}
        </bdi> that everyone may read and change, with ${bytes(new TextEncoder().encode(data).length)}.</p>`,
      action: () => change("create", { path, base64: encodeBase64(new TextEncoder().encode(data)) }),
    });
    setName(null);
  };
  return html`<form onSubmit=${go} class="inline"><label>Name <input required value=${name}
    onInput=${(event) => setName(event.target.value)} /></label>
    <label>Data <input value=${data} onInput=${(event) => setData(event.target.value)} /></label>
      <button type="submit">Create…</button><button type="button" onClick=${() => setName(null)}>Cancel</button></form>`;
}

function NewAcl({ node, open, trusted, needToken, fail }) {
  const [form, setForm] = useState(null);
  const show = (now) => {
    const before = now.acl.map((each) => `${each.scheme}:${each.id}:${each.permissions}`).join(", ");
    setForm({ node: now, before, text: before });
  };
  // With the token, the answer has the hashes of passwords.
  const start = () => ask("node", { path: node.path }).then(show, fail);
  if (form === null)
    return html`<button onClick=${() => (trusted ? start() : needToken(start, FOR_CHANGES))}>Change the ACL…</button>`;
  const go = (event) => {
    event.preventDefault();
    const acl = form.text.split(/,\s*(?=\w+:)/).map((part) => part.trim()); // a name of x509 has commas
    const version = form.node.stat.acl_version;
    open({
      question: "Change the ACL",
      detail: html`<p>From <span class="code">${visible(form.before)}</span> to <span class="code">${visible(acl.join(", "))}
        </span>, if nobody has changed it since version ${version}.</p>`,
      action: () => change("set_acl", { ...sameNode(form.node), acl, version }),
    });
    setForm(null);
  };
  return html`<form onSubmit=${go} class="inline"><label>ACL <input size="40" value=${form.text}
    onInput=${(event) => setForm({ ...form, text: event.target.value })} /></label><button type="submit">Change…</button>
    <button type="button" onClick=${() => setForm(null)}>Cancel</button></form>`;
}
