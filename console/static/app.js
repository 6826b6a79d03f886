// The frame of the page: navigation, the token, and the connection that tells each second how the server is.
import {
  html,
  useState,
  useEffect,
  useRef,
  ask,
  setToken,
  hasToken,
  onRefused,
  setServerTime,
  untilShown,
  Problem,
  visible,
  several,
  duration,
} from "./lib.js";
import { render, useErrorBoundary } from "./vendor/htm-preact.js";
import { Overview, problemsOf } from "./overview.js";
import { Tree } from "./tree.js";
import { Sessions } from "./sessions.js";
import { Locks } from "./locks.js";
import { History } from "./history.js";
import { Tests } from "./tests.js";

const CLOCKS = 5000; // milliseconds: a larger difference of two clocks is shown

const VIEWS = {
  overview: ["Overview", Overview],
  tree: ["Tree", Tree],
  sessions: ["Sessions", Sessions],
  locks: ["Locks", Locks],
  history: ["History", History],
  tests: ["Tests", Tests],
};

function place() {
  const [, view, ...rest] = location.hash.split("/");
  let name = "";
  try {
    name = decodeURIComponent(rest.join("/"));
  } catch {
    // a link that somebody has cut
  }
  return { view: Object.hasOwn(VIEWS, view || "") ? view : "overview", rest: name };
}

const EVERY = 1000; // milliseconds between two requests for the overview
const LONGEST = 10000; // milliseconds until such a request is given up
const LATE = 3; // seconds without an answer after which the page says so

// Asks for the overview each second. A stream would take one of the six connections that a browser opens to a server,
// and would not notice that its connection is forgotten. `onReturn` is called when the server answers again.
function useLive(ready, onReturn) {
  const [state, setState] = useState({ live: null, problem: null });
  useEffect(() => {
    if (!ready) return undefined;
    const controller = new AbortController();
    let timer = null;
    let heard = Date.now();
    let isLost = false;
    const show = (problem) => setState((before) => ({ ...before, problem }));
    const watch = setInterval(() => {
      const silent = Math.round((Date.now() - heard) / 1000);
      if (document.hidden) heard = Date.now(); // nothing was requested
      else if (silent > LATE) show(new Error(`nothing heard from the server for ${silent} s; what is shown is old`));
    }, 1000);
    const go = async () => {
      if (document.hidden) {
        await untilShown();
        heard = Date.now();
      }
      if (controller.signal.aborted) return;
      try {
        const live = await ask("overview", {}, controller.signal, LONGEST);
        heard = Date.now();
        setServerTime(live.now);
        setState({ live: { ...live, ahead: live.now - heard }, problem: null });
        if (isLost) onReturn();
        isLost = false;
      } catch (error) {
        if (controller.signal.aborted) return;
        isLost = true;
        if (Number.isInteger(error.status)) {
          heard = Date.now();
          show(error);
        }
      }
      timer = setTimeout(go, EVERY);
    };
    go();
    return () => {
      controller.abort();
      clearTimeout(timer);
      clearInterval(watch);
    };
  }, [ready]);
  return state;
}

// The counts of locks, waiting clients and deadlocks, which are asked for less often than the rest.
function useLocks(ready) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (!ready) return undefined;
    let timer = null;
    let ended = false;
    const go = async () => {
      await untilShown();
      const began = performance.now();
      try {
        setFound(await ask("locks", { brief: 1 }));
      } catch {
        setFound(null); // the view of the locks says why
      }
      if (!ended) timer = setTimeout(go, Math.max(5000, 100 * (performance.now() - began)));
    };
    go();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [ready]);
  return found;
}

function Token({ reason, onDone, onCancel, problem }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} onCancel=${onCancel} onClose=${onCancel} aria-labelledby="token-title">
    <form onSubmit=${(event) => {
      event.preventDefault();
      onDone(new FormData(event.target).get("token"));
    }}>
    <h2 id="token-title">The token of the server</h2>
    ${reason ? html`<p>${reason}</p>` : null}
    <p>It was printed at the start, or is in the file of <code>--admin-token-file</code>. This tab remembers it until it is closed.</p>
    <${Problem} error=${problem} />
    <label>Token <input type="password" name="token" required autocomplete="off" /></label>
    <p class="buttons"><button type="button" onClick=${onCancel}>Cancel</button>
      <button type="submit" class="primary">Use it</button></p>
  </form></dialog>`;
}

// A view that this server does not have, such as that of test servers of a daemon.
function Missing() {
  return html`<p class="problem" data-test="missing">This server has no such view. <a
    href="#/overview">To the overview</a></p>`;
}

// A view that fails does not take the page with it: another one can be chosen, or this one tried again.
function Guarded({ View, ...given }) {
  const [error, again] = useErrorBoundary((problem) => console.error(problem));
  if (error)
    return html`<p class="problem" role="alert"
      data-test="failed">This view has failed: ${visible(error.message)} <button onClick=${again}>Try again</button>
      </p>`;
  return html`<${View} ...${given} />`;
}

function App() {
  const [where, setWhere] = useState(place());
  const [about, setAbout] = useState(null);
  const [problem, setProblem] = useState(null);
  const [asking, setAsking] = useState(false);
  const [reason, setReason] = useState("");
  const [wrong, setWrong] = useState(null);
  const main = useRef(null);
  const pending = useRef(null);
  const asked = useRef(0);
  const introduce = async () => {
    asked.current += 1;
    const number = asked.current;
    try {
      const answer = await ask("about");
      if (number !== asked.current) return; // a later request replaces this one, which may have had no token
      // Without a token, the server may tell nothing. What is being edited stays on the page.
      setAbout((before) => (answer.kind || !before?.kind ? answer : { ...before, trusted: false }));
      setProblem(null);
      if (!answer.kind) setAsking(true);
      if (answer.trusted && pending.current) {
        pending.current();
        pending.current = null;
      }
    } catch (error) {
      if (number === asked.current && !error.isOfToken) setProblem(error); // the dialog shows the others
    }
  };
  useEffect(() => {
    onRefused((error) => {
      setToken("");
      setReason("");
      setWrong(error);
      setAsking(true);
      introduce(); // what can be read without a token is shown
    });
    introduce();
    const move = () => {
      setWhere(place());
      main.current?.focus();
    };
    const key = (event) => {
      if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
      if (event.target.closest("input, textarea, dialog") || event.ctrlKey || event.altKey || event.metaKey) return;
      const number = Number(event.key) - 1;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (number >= 0 && number < 6) location.hash = `#/${Object.keys(VIEWS)[number]}`;
    };
    addEventListener("hashchange", move);
    addEventListener("keydown", key);
    setWhere(place()); // it may have changed before somebody listened
    return () => {
      removeEventListener("hashchange", move);
      removeEventListener("keydown", key);
    };
  }, []);
  const ready = Boolean(about?.kind);
  const locks = useLocks(ready);
  const { live, problem: lost } = useLive(ready, introduce);
  const useToken = async (value) => {
    setToken(value);
    setWrong(null);
    setAsking(false);
    await introduce();
  };
  // What was to be done goes on once the token is there. The reason says what needs it.
  const needToken = (then, why = "") => {
    pending.current = then || null;
    setReason(why);
    setWrong(null);
    setAsking(true);
  };
  const View = about?.views?.includes(where.view) ? VIEWS[where.view][1] : Missing;
  const shown = Object.entries(VIEWS).filter(([name]) => about?.views?.includes(name));
  useEffect(() => {
    document.title = `${VIEWS[where.view][0]}${where.rest ? ` ${visible(where.rest)}` : ""} – ${about?.name || "zoolet"}`;
  }, [where, about]);
  return html`<a class="skip" href="#main" onClick=${(event) => {
    event.preventDefault();
    main.current.focus();
  }}>To the content</a>
    <header><span class="brand">zoolet</span> <span
      class="muted name">${about?.name ? visible(about.name) : ""}${about?.version ? ` · ${about.version.split(",")[0]}` : ""}</span>
      <nav aria-label="Views">${shown.map(
        ([name, [title]], number) =>
          html`<a key=${name} href=${`#/${name}`}
        title=${`key ${number + 1}`} aria-current=${name === where.view ? "page" : undefined}>${title}</a>`,
      )}</nav>
      ${
        about?.members
          ? html`<nav aria-label="Members">${(live?.members || about.members).map(
              (each) =>
                html`<a key=${each.index} href=${`?member=${each.index}${location.hash}`}
        aria-current=${each.index === about.member ? "true" : undefined}>${each.index} ${each.status}</a>`,
            )}</nav>`
          : null
      }
      ${locks?.circles ? html`<a class="bad" href="#/locks">✕ ${several(locks.circles, "deadlock", "deadlocks")}</a>` : null}
      <span class="state" role="status">${
        lost
          ? html`<b class="bad">✕ ${visible(lost.message)}
        </b>`
          : live
            ? live.health
              ? html`<b class="bad">✕ not ready</b>`
              : problemsOf(live).length
                ? html`<a class="warn" href="#/overview">! problems</a>`
                : html`<span
        class="good">✓ live</span>`
            : ""
      }</span>
      ${
        about?.needs_token
          ? html`<button onClick=${() => {
              if (hasToken()) {
                setToken("");
                setAbout(null);
                introduce();
              } else needToken();
            }}>${about.trusted ? "Forget the token" : "Enter the token"}</button>`
          : null
      }
    </header>
    <main id="main" ref=${main} tabindex="-1">
      <${Problem} error=${problem} />
      ${
        ready
          ? html`<${Guarded} View=${View} about=${about} rest=${where.rest} live=${live} locks=${locks}
        problem=${lost} trusted=${about.trusted} needToken=${needToken} key=${where.view} />`
          : null
      }
    </main>
    ${asking ? html`<${Token} reason=${reason} onDone=${useToken} onCancel=${() => setAsking(false)} problem=${wrong} />` : null}
    <footer class="muted small">Keys: 1 to ${shown.length || 5} for the views, / for the search, Esc to leave it. Times are in the time zone of this browser.${
      Math.abs(live?.ahead || 0) > CLOCKS
        ? html` <b data-test="clock">The clock of the server is ${live.ahead > 0 ? "fast" : "slow"} by
        ${" "}${duration(Math.abs(live.ahead) / 1000)}, compared with the clock of this browser.</b>`
        : null
    }</footer>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
