// The view of test servers: faults, held requests, clients, clock, snapshots, recordings. It uses the control API.
import {
  html,
  useState,
  useEffect,
  Problem,
  NodeLink,
  visible,
  visibleText,
  count,
  moment,
  command,
  listCommands,
  untilShown,
} from "./lib.js";

export function Tests() {
  const [faults, setFaults] = useState([]);
  const [ops, setOps] = useState([]);
  const [report, setReport] = useState("");
  const [problem, setProblem] = useState(null);
  const [lost, setLost] = useState(null);
  const [said, setSaid] = useState("");
  const [snapshots, setSnapshots] = useState([]);
  const [recording, setRecording] = useState(null);
  const [recorded, setRecorded] = useState(null);
  const look = async () => {
    try {
      const [now, last, text] = await Promise.all([
        command("faults"),
        command("ops", { last: 300 }),
        command("report"),
      ]);
      setFaults(now);
      setOps(
        last
          .filter((each) => each.op !== "ping")
          .slice(-30)
          .toReversed(),
      );
      setReport(text);
      setLost(null);
    } catch (error) {
      setLost(error);
    }
  };
  useEffect(() => {
    let timer = null;
    let isEnded = false;
    const go = async () => {
      await untilShown();
      if (!isEnded) await look();
      if (!isEnded) timer = setTimeout(go, 1000);
    };
    go();
    return () => {
      isEnded = true;
      clearTimeout(timer);
    };
  }, []);
  const run = async (text, name, parameters) => {
    try {
      const result = await command(name, parameters);
      setProblem(null);
      setSaid(text);
      await look();
      return result;
    } catch (error) {
      setProblem(error);
      return undefined;
    }
  };
  const held = sectionOf(report, "requests that are held or delayed");
  return html`<h1>Tests</h1>
    <${Problem} error=${problem || lost} /><p role="status" class="good">${said ? `✓ ${said}` : ""}</p>
    <div class="columns">
      <section class="card"><h2>Faults</h2>
        ${
          faults.length
            ? html`<ul class="plain" data-test="faults">${faults.map(
                (each) =>
                  html`<li key=${each.fault}><span class="code">${visible(each.text)}</span>${" "}
          <b>${count(each.hits)} hit</b> of ${count(each.seen)}${each.held_too_long ? ", held too long" : ""}${" "}
          ${each.holds ? html`<button onClick=${() => run("released", "release", { fault: each.fault })}>Release</button> ` : null}
          <button onClick=${() => run("ended", "end_fault", { fault: each.fault })}>End</button></li>`,
              )}</ul>`
            : html`<p class="muted">None is set.</p>`
        }
        <${NewFault} run=${run} />
      </section>
      <section class="card"><h2>Clients and connections</h2>
        <p class="buttons">${[
          ["Pause all", "pause", { who: "all" }],
          ["Resume all", "resume", { who: "all" }],
          ["Disconnect all", "drop", { who: "all" }],
          ["Expire all", "expire", { who: "all" }],
          ["Refuse connections", "refuse_connections", {}],
          ["Accept connections", "accept_connections", {}],
          ["Restart", "restart", {}],
          ["Heal everything", "heal", {}],
        ].map(
          ([text, name, parameters]) =>
            html`<button key=${text} onClick=${() => run(`${text}: done`, name, parameters)}>${text}</button>`,
        )}</p>
        <h2>Clock</h2><${Advance} run=${run} />
        <h2>Snapshots</h2>
        <p class="buttons"><button onClick=${async () => {
          const number = await run("snapshot taken", "snapshot");
          if (number !== undefined) setSnapshots([...snapshots, [number, new Date().toLocaleTimeString()]]);
        }}>Take a snapshot</button>
        ${snapshots.map(
          ([number, at]) =>
            html`<button key=${number}
          onClick=${() => run(`restored that of ${at}`, "restore", { snapshot: number })}>Restore that of ${at}
          </button>`,
        )}
        <button class="danger" onClick=${() => run("empty", "reset")}>Reset</button></p>
        <h2>Recording</h2>
        <p class="buttons">${
          recording === null
            ? html`<button onClick=${async () => setRecording((await run("recording", "start_recording")) ?? null)}>Record</button>`
            : html`<button class="primary" onClick=${async () => {
                setRecorded((await run("recorded", "stop_recording", { recording })) ?? null);
                setRecording(null);
              }}>Stop recording</button>`
        }</p>
        ${recorded ? html`<${Requests} ops=${recorded} />` : null}
      </section>
    </div>
    ${
      held.length
        ? html`<section class="card" data-test="held"><h2>Held or delayed requests</h2>
      <ul class="plain code">${held.map(
        (line, number) =>
          html`<li key=${number}><b class="bad">● waits</b> ${visible(line)}
      </li>`,
      )}</ul></section>`
        : null
    }
    <section class="card"><h2>Last requests <span class="muted">without pings</span></h2><${Requests} ops=${ops} />
      </section>
    <section class="card"><h2>Report</h2><pre class="data" tabindex="0">${visibleText(report)}</pre></section>`;
}

function sectionOf(report, title) {
  const lines = report.split("\n");
  const first = lines.indexOf(`${title}:`) + 1;
  const end = lines.findIndex((line, number) => number >= first && !line.startsWith("  "));
  return first ? lines.slice(first, end < 0 ? undefined : end).map((line) => line.trim()) : [];
}

function Outcome({ each }) {
  const error = each.error === null ? "no reply" : each.error;
  return html`<span class=${error ? "bad" : "good"}>${error ? `✕ ${error}` : "✓ ok"}</span>
    ${each.fault ? html` ${error ? "by" : "with"} <span class="code">${visible(each.fault)}</span>` : null}`;
}

function Requests({ ops }) {
  if (!ops.length) return html`<p class="muted">None.</p>`;
  return html`<table data-test="ops"><thead><tr><th>time</th><th>result</th><th>operation</th><th>client</th></tr>
    </thead><tbody>${ops.map(
      (each, number) =>
        html`<tr key=${number}><td>${moment(each.time * 1000).slice(11)}</td><td><${Outcome} each=${each} /></td><td>
        ${each.op} ${each.path ? html`<${NodeLink} path=${each.path} />` : null}</td>
        <td class="code">${each.client || ""}</td></tr>`,
    )}</tbody></table>`;
}

function Advance({ run }) {
  const [seconds, setSeconds] = useState("10");
  return html`<form class="inline" onSubmit=${(event) => {
    event.preventDefault();
    run(`advanced by ${seconds} s`, "advance", { seconds: Number(seconds) });
  }}><label>Seconds <input size="6" inputmode="decimal" required value=${seconds}
    onInput=${(event) => setSeconds(event.target.value)} /></label><button
    type="submit">Advance a manual clock</button></form>`;
}

function NewFault({ run }) {
  const [action, setAction] = useState("lose_reply");
  const [value, setValue] = useState("");
  const [op, setOp] = useState("");
  const [path, setPath] = useState("");
  const [times, setTimes] = useState("");
  const [known, setKnown] = useState({ action: { choices: [action] } });
  useEffect(() => {
    listCommands()
      .then((answer) => setKnown(answer.commands.fault.parameters))
      .catch(() => {});
  }, []);
  const needed = Object.keys(known).find((name) => known[name].required_for?.includes(action));
  const isNumber = needed && known[needed].type === "number";
  const begin = (event) => {
    event.preventDefault();
    const parameters = { action };
    if (op) parameters.op = op;
    if (path) parameters.path = path;
    if (times) parameters.times = Number(times);
    if (needed) parameters[needed] = isNumber ? Number(value) : value;
    run("the fault is set", "fault", parameters);
  };
  return html`<form class="inline" onSubmit=${begin}>
    <label>Action <select value=${action}
      onChange=${(event) => setAction(event.target.value)}>${known.action.choices.map(
        (each) =>
          html`<option
      key=${each} value=${each} selected=${each === action}>${each}</option>`,
      )}</select></label>
    ${
      needed
        ? html`<label>${needed} <input required size="10" value=${value}
      placeholder=${isNumber ? "1" : "NO_NODE"} onInput=${(event) => setValue(event.target.value)} />
      </label>`
        : null
    }
    <label>Operation <input size="10" value=${op} placeholder="all" onInput=${(event) => setOp(event.target.value)} />
      </label>
    <label>Path <input size="14" value=${path} placeholder="/a/*" onInput=${(event) => setPath(event.target.value)} />
      </label>
    <label>Times <input size="4" inputmode="numeric" value=${times} placeholder="any"
      onInput=${(event) => setTimes(event.target.value)} /></label>
    <button type="submit">Set the fault</button></form>`;
}
