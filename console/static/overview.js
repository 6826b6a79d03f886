// The overview: facts, problems and charts of the server.
import uPlot from "./vendor/uPlot.js";
import {
  html,
  useState,
  useEffect,
  useRef,
  ask,
  command,
  Problem,
  Table,
  NodeLink,
  SessionLink,
  Fact,
  visible,
  count,
  several,
  bytes,
  duration,
  moment,
  link,
} from "./lib.js";

const CHARTS = [
  {
    title: "Requests per second",
    series: [
      ["all", "requests"],
      ["writes", "writes"],
    ],
  },
  {
    title: "Latency in ms, 99th percentile of a minute",
    series: [
      ["reads", "read_ms"],
      ["writes", "write_ms"],
    ],
  },
  {
    title: "Sessions and watches",
    series: [
      ["sessions", "sessions"],
      ["watches", "watches"],
    ],
  },
  { title: "Nodes", series: [["nodes", "nodes"]] },
  { title: "Memory, MB", series: [["memory", "memory", 1 / 1048576]] },
];

// Times of an axis, with the date at midnight.
const timesOf = (u, seconds, axis, space, step) =>
  seconds.map((each) => {
    const [day, time] = moment(each * 1000).split(" ");
    return time === "00:00:00" ? day.slice(5) : time.slice(0, step < 60 ? 8 : 5);
  });

const MISSED = 5; // seconds without a sample after which the samples are requested again

// The ranges of the charts, in seconds; longer ones show the highest value of each minute.
const RANGES = [
  ["10 minutes", 600],
  ["An hour", 3600],
  ["A day", 86400],
];

function useRows(live, range) {
  const [rows, setRows] = useState([]);
  const isDay = range > 3600;
  const shown = useRef(isDay);
  shown.current = isDay;
  const load = () =>
    ask("samples", { day: isDay ? 1 : "" }).then(
      (answer) => isDay === shown.current && setRows(answer.rows),
      () => {},
    );
  useEffect(() => {
    load();
    const timer = isDay ? setInterval(() => document.hidden || load(), 60000) : null;
    return () => clearInterval(timer);
  }, [isDay]);
  useEffect(() => {
    if (!live?.sample || isDay) return;
    if (rows.length && live.sample[0] - rows.at(-1)[0] > MISSED) load(); // the page was hidden, or the server away
    setRows((before) =>
      before.length && before.at(-1)[0] >= live.sample[0] ? before : [...before.slice(-3599), live.sample],
    );
  }, [live]);
  const first = (rows.at(-1)?.[0] || 0) - range;
  return rows.filter((row) => row[0] > first);
}

function Charts({ columns, live }) {
  const [range, setRange] = useState(3600);
  const rows = useRows(live, range);
  const known = ({ title, series }) => ({ title, series: series.filter(([, name]) => columns.includes(name)) });
  const shown = CHARTS.map(known).filter(({ series }) => series.length);
  return html`<p class="buttons" role="group" aria-label="Range of the charts">${RANGES.map(
    ([name, seconds]) =>
      html`<button key=${name} aria-pressed=${seconds === range} onClick=${() => setRange(seconds)}>${name}</button>`,
  )} ${range > 3600 ? html`<span class="muted">the highest value of each minute</span>` : null}</p>
    <div class="charts">${shown.map(
      (chart) => html`<${Chart} key=${chart.title} ...${chart} columns=${columns} rows=${rows} />`,
    )}</div>`;
}

// The members of a test cluster, with what a test can do to each of them.
function Members({ live, isTest }) {
  const [problem, setProblem] = useState(null);
  const run = (name, parameters) => () => command(name, parameters).then(() => setProblem(null), setProblem);
  const all = live.members.map((each) => each.index);
  const buttons = (each) => {
    const member = each.index;
    const others = all.filter((index) => index !== member);
    const offered =
      each.status === "down"
        ? [["Start", "start_member", { member }]]
        : [
            ["Stop", "stop_member", { member }],
            ["Kill", "kill_member", { member }],
            each.paused ? ["Resume", "resume_member", { member }] : ["Pause", "pause_member", { member }],
            each.lag ? ["Catch up", "lag", { member, seconds: 0 }] : ["Lag 10 s", "lag", { member, seconds: 10 }],
            ["Isolate", "partition", { groups: [[member], others] }],
          ];
    return html`<span class="members">${offered.map(
      ([text, name, parameters]) =>
        html`<button key=${text} aria-label=${`${text}: member ${member}`} onClick=${run(name, parameters)}>${text}</button>`,
    )}</span>`;
  };
  return html`<section class="card"><h2>Members</h2><${Problem} error=${problem} />
    <${Table} test="members" heads=${["member", "address", "role", "now", ["behind by", "n"], ["lags by", "n"], ...(isTest ? [""] : [])]}
      rows=${live.members.map((each) => [
        each.index,
        html`<a href=${`?member=${each.index}`}>${each.index}</a>${each.index === live.member ? " (shown)" : ""}`,
        each.hosts,
        each.role,
        each.paused ? "paused" : each.status,
        several(each.behind, "transaction", "transactions"),
        duration(each.lag),
        ...(isTest ? [buttons(each)] : []),
      ])} />${isTest ? html`<p class="buttons"><button onClick=${run("heal", {})}>Heal the network and all faults</button></p>` : null}
    </section>`;
}

const SERVER = [
  "server",
  "now",
  ["connections", "n"],
  ["requests per second", "n"],
  ["average ms", "n"],
  ["outstanding", "n"],
  ["nodes", "n"],
];

// The servers of a console for several servers.
const Servers = ({ servers }) =>
  html`<section class="card"><h2>Servers</h2>
  <${Table} test="servers" heads=${SERVER}
    rows=${servers.map((each) => [
      each.address,
      each.address,
      each.problem
        ? html`<span class="bad">✕ ${visible(each.problem)}</span>`
        : html`<span class="good">✓ ${each.mode}</span>`,
      ...[each.connections, each.rate, each.ms, each.outstanding, each.nodes].map(count),
    ])} /></section>`;

const DARK = matchMedia("(prefers-color-scheme: dark)");

function useScheme() {
  const [isDark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const change = () => setDark(DARK.matches);
    DARK.addEventListener("change", change);
    return () => DARK.removeEventListener("change", change);
  }, []);
  return isDark;
}

function Chart({ title, series, columns, rows }) {
  const scheme = useScheme();
  const place = useRef(null);
  const plot = useRef(null);
  const data = [
    rows.map((row) => row[0]),
    ...series.map(([, name, factor]) => rows.map((row) => row[columns.indexOf(name)] * (factor || 1))),
  ];
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color("--text"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line") },
    };
    // Without a cursor, the legend shows the latest values.
    const legend = (shown) => (u, value, at) => {
      const latest = value ?? u.data[at].at(-1);
      return latest === undefined ? "" : shown(latest);
    };
    plot.current = new uPlot(
      {
        width: Math.max(240, place.current.clientWidth),
        height: 170,
        cursor: { y: false },
        legend: { live: true },
        axes: [
          { ...axis, values: timesOf, space: 80 },
          { ...axis, size: 62 },
        ],
        scales: { y: { range: (u, low, high) => [0, Math.max(high, 1) * 1.05] } },
        series: [
          { label: "Time", value: legend((seconds) => moment(seconds * 1000)) },
          // The second line is dashed, so that colour is not all that tells them apart.
          ...series.map(([label], number) => ({
            label,
            value: legend((value) => count(Math.round(value * 100) / 100)),
            stroke: color(`--series-${number}`),
            width: 2,
            dash: number ? [6, 4] : undefined,
            points: { show: false },
          })),
        ],
      },
      data,
      place.current,
    );
    const resize = new ResizeObserver(() =>
      plot.current.setSize({ width: Math.max(240, place.current.clientWidth), height: 170 }),
    );
    resize.observe(place.current);
    return () => {
      resize.disconnect();
      plot.current.destroy();
    };
  }, [scheme]);
  useEffect(() => plot.current.setData(data), [rows]);
  const last = rows.length
    ? series.map(([label], number) => `${label} ${count(Math.round(data[number + 1].at(-1) * 10) / 10)}`)
    : [];
  return html`<figure class="card"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: ${last.join(", ")} now`}></div></figure>`;
}

// What is wrong with a cluster, in the words of its report: a divided network, and members that are paused, late or down.
function troubleOf({ members, report }) {
  const first = report.length - members.length; // a line for each member comes last
  return report.filter((line, number) => {
    const each = members[number - first];
    return each
      ? each.paused || each.lag || each.behind || !["leader", "follower", "observer"].includes(each.status)
      : line.startsWith("the network is divided");
  });
}

const troubleOfServers = (servers) =>
  (servers || []).filter((each) => each.problem).map((each) => `${each.address} ${each.problem}`);

export const problemsOf = (live) => (live.members ? troubleOf(live) : troubleOfServers(live.servers));

export function Overview({ about, live, problem, locks }) {
  if (!live) return html`<${Problem} error=${problem} /><p class="muted pad">Waiting for the server…</p>`;
  const disk = live.disk;
  const problems = problemsOf(live);
  const deadlocks = locks?.circles ? several(locks.circles, "deadlock", "deadlocks") : "";
  const isCounted = about.orders.includes("writes");
  const used = disk ? 1 - disk.free / disk.total : 0;
  const warning = deadlocks
    ? `✕ Serving, with ${deadlocks}`
    : problems.length && "! Serving, with problems in the cluster";
  const verdict = problem ? "! Not heard from" : live.health ? "✕ Not ready" : warning || "✓ Serving";
  const isBad = live.health || deadlocks;
  return html`<h1>Overview</h1>
    <div class=${problem ? "health warn" : isBad ? "health bad" : problems.length ? "health warn" : "health good"}
      role="status" data-test="health">
      <b>${verdict}</b> ${visible(problem?.message || live.health || `${live.mode}, up for ${duration(live.uptime)}`)}
      ${deadlocks ? html` <a href="#/locks">Which clients wait for each other</a>` : null}
      ${
        problems.length
          ? html`<ul class="plain" data-test="problems">${problems.map(
              (line) =>
                html`<li
        key=${line}>${visible(line)}</li>`,
            )}</ul>`
          : null
      }
    </div>
    ${live.members ? html`<${Members} live=${live} isTest=${about.kind === "test"} />` : null}
    ${live.servers ? html`<${Servers} servers=${live.servers} />` : null}
    <dl class="facts">
      ${
        locks
          ? html`<${Fact} name="Locks"><a href=${link("locks")}>${count(locks.locks)}</a><//>
      <${Fact} name="Waiting for them">${several(locks.waiters, "client", "clients")}<//>
      ${
        locks.longest
          ? html`<${Fact} name="Longest wait">${duration(Math.max(0, locks.now - locks.longest.since))}${" "}
          <span class="muted">for</span> <a href=${link("locks", locks.longest.path)}><bdi>${visible(locks.longest.path)}</bdi></a><//>`
          : null
      }`
          : null
      }
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
    <p class="disk" data-test="disk">${
      disk
        ? html`<label>Disk of <bdi>${visible(disk.folder)}
          </bdi>: ${Math.round(used * 100)} % used, ${bytes(disk.free)} of ${bytes(disk.total)} free${" "}
          <meter min="0" max="1" low="0.8" high="0.95" optimum="0" value=${used}></meter></label>`
        : about.kind === "remote"
          ? "The free disk space of a remote server is unknown."
          : "No data directory: everything is in memory."
    }</p>
    <div class="columns">
      <section class="card"><h2>Busiest clients</h2>
        ${
          live.clients.length
            ? html`<${Table} test="clients" heads=${["client", ["a second", "n"], ["requests", "n"], ...(isCounted ? [["writes in 10 min", "n"]] : []), "last"]}
          rows=${live.clients.map((each) => [
            each.address,
            html`${each.address} ${each.session ? html`<${SessionLink} id=${each.session} />` : ""}`,
            count(each.rate),
            count(each.requests),
            ...(isCounted ? [count(each.writes)] : []),
            each.last,
          ])} />${
            isCounted ? html`<p><a href=${link("sessions", "by writes")}>Which clients write most</a></p>` : null
          }`
            : html`<p class="muted">No client is connected, or the server does not tell.</p>`
        }
      </section>
      <section class="card"><h2>Busiest paths <span class="muted">(by their first two parts, from a sample)</span></h2>
        ${
          live.paths.length
            ? html`<${Table} test="paths" heads=${["path", ["sampled", "n"], ["ms", "n"]]} rows=${live.paths.map(
                (each) => [
                  each.path,
                  each.path === "others" ? "others" : html`<${NodeLink} path=${each.path} />`,
                  count(each.requests),
                  each.ms,
                ],
              )} />`
            : html`<p class="muted">No request has been sampled yet.</p>`
        }
      </section>
    </div>
    <${Charts} columns=${about.columns} live=${live} />`;
}
