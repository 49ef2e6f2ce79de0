// One stream: its chart, its alerts and their causes, what was muted, how its threshold moved.
"use strict";

// Plotly takes some HTML in its words: what is shown is text.
const plain = (words) => String(words).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
// As much of it as is read at a glance, in lines that leave something of the chart to be seen.
const folded = (words) => plain(words).replace(/(.{40,60}) /g, "$1<br>");
const key = (paint, words) => `<span style="color:${colour(paint)}">${words}</span>`;
const ms = (time_s) => time_s * 1000;
const MOST_BANDS = 200;

let plotly = null;

// Plotly is unpacked once a chart is wanted: the overview does without.
function loadPlotly() {
  plotly ??= unpackText("plotly").then((text) => new Promise((done, failed) => {
    const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const script = make("script", { src: url });
    script.onload = () => { URL.revokeObjectURL(url); done(window.Plotly); };
    script.onerror = () => failed(new Error("the chart library could not be unpacked"));
    document.head.append(script);
  }));
  return plotly;
}

class StreamView {
  constructor(report, strips) {
    this.report = report;
    this.strips = strips;
    this.number = null;
    this.setRange = null;
    byId("log").addEventListener("change", () => this.drawChart(this.range()));
  }

  range() {
    return this.strips.range;
  }

  async open(number, range = null) {
    const opened = (this.number = number);
    this.strips.mark(number);
    const stream = this.report.streams[number];
    byId("stream-title").textContent = placeOf(this.report, number);
    byId("stream-state").textContent = newestWords(stream);
    const { line } = await detailsOf(number);
    if (this.number !== opened) return;
    byId("log").checked = line !== null && isWide(line);
    this.drawLists();
    if (range) {
      const around_s = Math.max(300, (range[1] - range[0]) * 0.75);
      this.strips.zoom([range[0] - around_s, range[1] + around_s], false);
    }
    await this.drawChart(this.range());
  }

  // The chart in one piece: lanes of alerts on top, then P99, KL and evidence over one time axis.
  async drawChart(range) {
    const chart = byId("chart");
    const { line } = details.get(this.number);
    const Plotly = await loadPlotly();
    const lanes = lanesOf(this.report, this.number);
    const layout = this.layout(lanes, line !== null, range);
    const traces = [...laneTraces(this.report, this.number, lanes), ...(line ? lineTraces(this.report, this.number, line) : [])];
    chart.style.height = `${layout.height}px`;
    await Plotly.react(chart, traces, layout, {
      responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"],
    });
    chart.removeAllListeners("plotly_relayout");
    chart.on("plotly_relayout", (change) => this.follow(change));
    chart.dataset.stream = String(this.number);
  }

  // The strips show what the chart shows.
  follow(change) {
    if (change["xaxis.autorange"]) this.strips.zoom(this.strips.whole, true);
    const from = change["xaxis.range[0]"] ?? change["xaxis.range"]?.[0];
    const to = change["xaxis.range[1]"] ?? change["xaxis.range"]?.[1];
    if (from === undefined || to === undefined) return;
    const time_s = (value) => (typeof value === "number" ? value : Date.parse(String(value).replace(" ", "T") + "Z")) / 1000;
    this.strips.zoom([time_s(from), time_s(to)], false);
  }

  zoom(range) {
    const chart = byId("chart");
    if (chart.dataset.stream !== undefined) window.Plotly.relayout(chart, { "xaxis.range": range.map(ms) });
  }

  layout(lanes, hasLine, range) {
    const top = 26 * lanes.length + 16;
    const height = 70 + top + (hasLine ? 570 : 0);
    const inner = height - 70;
    const at = (pixels) => Math.max(0, 1 - pixels / inner);
    const axis = { gridcolor: colour("grid"), zeroline: false, linecolor: colour("line") };
    const panel = (from, to, more = {}) => ({ ...axis, domain: [at(to), at(from)], ...more });
    const title = (from, words) => ({
      x: 0, y: at(from), xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, text: words, yshift: 2,
    });
    const isLog = byId("log").checked;
    const layout = {
      height,
      margin: { l: 150, r: 16, t: 30, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", size: 12.5, color: colour("text") },
      hovermode: "x unified", hoversubplots: "axis",
      hoverlabel: { bgcolor: colour("ground"), bordercolor: colour("line"), font: { color: colour("text"), size: 12.5 }, namelength: -1 },
      showlegend: false,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("accent") },
      xaxis: {
        ...axis, type: "date", range: range.map(ms), anchor: hasLine ? "y4" : "y", showspikes: true, spikemode: "across",
        spikethickness: 1, spikecolor: colour("quiet"), spikedash: "dot", hoverformat: "%Y-%m-%d %H:%M:%S",
      },
      yaxis: {
        ...axis, domain: [at(top), 1], range: [lanes.length - 0.5, -0.5], tickvals: lanes.map((_, n) => n),
        ticktext: lanes.map((lane) => plain(lane.name.length > 24 ? `…${lane.name.slice(-23)}` : lane.name)), fixedrange: true, showgrid: false,
      },
      shapes: bands(this.report, this.number),
      annotations: bandLabels(this.report, this.number),
    };
    if (hasLine) {
      Object.assign(layout, {
        yaxis2: panel(top + 24, top + 270, isLog ? { type: "log", dtick: "D2", minor: { dtick: "D1" } } : { rangemode: "tozero" }),
        yaxis3: panel(top + 306, top + 430, { rangemode: "tozero" }),
        yaxis4: panel(top + 466, top + 570, { type: "log", dtick: 1 }),
      });
      layout.annotations.push(
        title(top + 24, `<b>P99</b>, seconds: ${key("accent", "━ measured")}  ${key("alert", "╍ threshold in force")}  ${key("quiet", "┈ static threshold")}`),
        title(top + 306, `<b>KL</b>, nats: ${key("text", "━ KL")}  ${key("service", "■ service's part")}  ${key("workload", "▨ workload's part")}`),
        title(top + 466, `<b>Evidence</b>, nats: ${key("accent", "━ the strongest")}  ${key("alert", "╍ a drift from here on")}`));
    }
    return layout;
  }

  drawLists() {
    const { report, number } = this;
    const { moves } = details.get(number);
    const alerts = report.alerts.filter((a) => a.stream === number);
    const mutes = report.muted.filter((m) => m.stream === number);
    const causes = report.causes.filter((c) => c.stream === number);
    byId("stream-lists").replaceChildren(
      make("div", {}, make("h3", {}, "Alerts and root causes"), ...alertCards(alerts, causes)),
      make("div", {}, make("h3", {}, "Muted, and why"), mutedTable(mutes), make("h3", {}, "How the threshold moved"), movesTable(moves)));
  }
}

// A range of two orders of magnitude is easier to read with equal ratios as equal distances.
function isWide(line) {
  const known = line.p99_most_s.filter((value) => value !== null && value > 0);
  if (!known.length) return false;
  return Math.max(...known) / median(known) > 10;
}

function newestWords(stream) {
  const { states, newest } = stream;
  const judged = states.calm + states.faster + states.workload + states.slower;
  if (!newest) return "no verdicts: what is said of it is about its presence";
  const share = (n) => `${short((100 * n) / judged, 2)} %`;
  const drifts = [["slower", states.slower], ["faster", states.faster], ["workload alone", states.workload]]
    .filter(([, n]) => n).map(([name, n]) => `${share(n)} drifting (${name})`);
  const told = judged ? `of the time judged: ${share(states.calm)} calm${drifts.length ? ", " + drifts.join(", ") : ""}` : "never judged";
  const last = newest.p99_s === null ? newest.why ?? "" : `P99 at the end ${short(newest.p99_s)} s, threshold ${short(newest.threshold_s)} s`;
  return [told, last].filter(Boolean).join("; ");
}

// What the lanes on top of the chart show: labels, this report's alerts, what it muted, the others.
function lanesOf(report, number) {
  const lanes = [];
  if (report.labels) lanes.push({ name: "labels", kind: "labels" });
  lanes.push({ name: report.settings[0].name, kind: "alerts", setting: 0 }, { name: "muted", kind: "muted" });
  report.settings.slice(1).forEach((setting, n) => lanes.push({ name: setting.name, kind: "alerts", setting: n + 1 }));
  return lanes;
}

function laneTraces(report, number, lanes) {
  const end_s = report.source.end_s;
  const facts = factsOf(report.streams[number], number, report);
  return lanes.flatMap((lane, y) => {
    if (lane.kind === "labels") {
      return facts.episodes.map((e) => bar(y, e.start_s, e.end_s, `label: ${e.kind}${e.note ? ": " + e.note : ""}`, colour("accent"), 10));
    }
    if (lane.kind === "muted") return facts.mutes.length ? [muteMarks(facts.mutes, y)] : [];
    const own = report.settings[lane.setting].alerts.filter((a) => a[0] === number).slice(0, MOST_BANDS * 2);
    const pending = lane.setting ? [] : report.alerts.filter((a) => a.stream === number && a.pending_s !== null && a.fired_s !== null);
    return [
      ...pending.map((a) => bar(y, a.began_s, a.fired_s, `pending since ${clock(a.began_s)}`, colour("slower"), 5)),
      ...own.map(([, fired_s, resolved_s, severity]) =>
        bar(y, fired_s, resolved_s ?? end_s, `${lane.name}: ${severity}, fired ${clock(fired_s)}`, colour(severity === "info" ? "accent" : "alert"), 12)),
      ...(own.length ? [firedMarks(own, y, lane.name)] : []),
    ];
  });
}

function bar(y, from_s, to_s, words, paint, width) {
  return {
    type: "scatter", mode: "lines", x: [ms(from_s), ms(to_s)], y: [y, y], line: { color: paint, width },
    text: [folded(words), folded(words)], hovertemplate: "%{text}<extra></extra>", xaxis: "x", yaxis: "y",
  };
}

// So that an alert that is shorter than a pixel is still seen.
function firedMarks(alerts, y, name) {
  return {
    type: "scatter", mode: "markers", x: alerts.map((a) => ms(a[1])), y: alerts.map(() => y), hoverinfo: "skip", name: plain(name),
    marker: { symbol: "triangle-right", size: 11, color: alerts.map((a) => colour(a[3] === "info" ? "accent" : "alert")) }, xaxis: "x", yaxis: "y",
  };
}

function muteMarks(mutes, y) {
  return {
    type: "scatter", mode: "markers", x: mutes.map((m) => ms(m.time_s)), y: mutes.map(() => y), xaxis: "x", yaxis: "y",
    marker: { symbol: "triangle-down", size: 11, color: colour("mute") },
    text: mutes.map((m) => folded(`muted ${m.name}: ${m.rule}: ${m.why}`)), hovertemplate: "%{text}<extra></extra>",
  };
}

function lineTraces(report, number, line) {
  const stream = report.streams[number];
  const [x, gaps] = timesOf(line);
  const cut = (values) => withGaps(values, gaps);
  const common = { type: "scatter", mode: "lines", x, connectgaps: false, xaxis: "x" };
  const unit = (words, of = " s") => `${words} %{y:.4g}${of}<extra></extra>`;
  const traces = [];
  const parts = line.p99_least_s.some((value, n) => value !== null && value < line.p99_most_s[n]);
  if (parts) {
    traces.push({ ...common, yaxis: "y2", y: cut(line.p99_least_s), line: { width: 0 }, hovertemplate: unit("P99 at least") });
    traces.push({ ...common, yaxis: "y2", y: cut(line.p99_most_s), line: { width: 0 }, fill: "tonexty", fillcolor: "rgba(120,150,200,.28)", hoverinfo: "skip" });
  }
  traces.push({ ...common, yaxis: "y2", y: cut(line.p99_most_s), line: { color: colour("accent"), width: 1.8 }, hovertemplate: unit(parts ? "P99 at most" : "P99") });
  traces.push({ ...common, yaxis: "y2", y: cut(line.threshold_s), line: { color: colour("alert"), width: 1.8, dash: "dash", shape: "hv" }, hovertemplate: unit("threshold in force") });
  const fixed = report.settings.find((s) => s.preset === null)?.limits.find((l) => l.cell === stream.cell && l.signal === stream.signal);
  if (fixed) {
    const from_s = fixed.since_s ?? report.source.start_s;
    traces.push({
      ...common, yaxis: "y2", y: cut(line.time_s.map((time_s) => (time_s + line.width_s >= from_s ? fixed.limit_s : null))),
      line: { color: colour("quiet"), width: 1.4, dash: "dot" }, hovertemplate: unit("static threshold"),
    });
  }
  const hasParts = line.workload_nats.some((value) => value !== null);
  const area = (y, name, paint) => ({
    ...common, yaxis: "y3", y: cut(y), stackgroup: "parts", stackgaps: "infer zero", line: { width: 0.5, color: colour(paint) },
    fillcolor: colour(paint), fillpattern: paint === "workload" ? { shape: "/", fgcolor: colour("ground"), size: 5, solidity: 0.25 } : undefined,
    hovertemplate: unit(name, " nats"),
  });
  if (hasParts) traces.push(area(line.workload_nats, "workload's part", "workload"), area(line.service_nats, "service's part", "service"));
  traces.push({ ...common, yaxis: "y3", y: cut(line.kl_nats), line: { color: colour("text"), width: 1.2 }, hovertemplate: unit("KL", " nats") });
  const positive = (values) => cut(values).map((value) => (value === null ? null : Math.max(0.1, value)));
  traces.push({ ...common, yaxis: "y4", y: positive(line.evidence_nats), line: { color: colour("accent"), width: 1.6 }, hovertemplate: unit("evidence", " nats") });
  traces.push({ ...common, yaxis: "y4", y: positive(line.evidence_limit_nats), line: { color: colour("alert"), width: 1.6, dash: "dash" }, hovertemplate: unit("a drift from", " nats") });
  return traces;
}

// The end of each bucket, when its verdict came; where buckets are missing, a gap in every line.
function timesOf(line) {
  const x = [];
  const gaps = [];
  line.time_s.forEach((time_s, n) => {
    if (n && time_s - line.time_s[n - 1] > 1.5 * line.width_s) { gaps.push(n); x.push(ms(line.time_s[n - 1] + 1.5 * line.width_s)); }
    x.push(ms(time_s + line.width_s));
  });
  return [x, new Set(gaps)];
}

function withGaps(values, gaps) {
  if (!gaps.size) return values;
  return values.flatMap((value, n) => (gaps.has(n) ? [null, value] : [value]));
}

function bands(report, number) {
  const facts = factsOf(report.streams[number], number, report);
  const band = (from_s, to_s, fill, line) => ({
    type: "rect", xref: "x", yref: "paper", x0: ms(from_s), x1: ms(to_s), y0: 0, y1: 1, layer: "below", fillcolor: fill, line,
  });
  const bounds = { width: 1, dash: "dot", color: colour("accent") };
  return [
    ...facts.episodes.slice(0, MOST_BANDS).map((e) => band(e.start_s, e.end_s, colour("episode"), bounds)),
    ...facts.fired.slice(0, MOST_BANDS).map((a) => band(a.fired_s, a.resolved_s ?? report.source.end_s, colour("band"), { width: 0 })),
  ];
}

function bandLabels(report, number) {
  const facts = factsOf(report.streams[number], number, report);
  const { start_s, end_s } = report.source;
  const label = (time_s, words, paint, shift) => ({
    x: ms(time_s), y: 1, xref: "x", yref: "paper", yanchor: "bottom", xanchor: time_s > start_s + 0.9 * (end_s - start_s) ? "right" : "left", yshift: shift, showarrow: false,
    text: plain(words), font: { size: 12, color: paint },
  });
  const many = facts.episodes.length + facts.fired.length > 12;
  if (many) return [];
  return [
    ...facts.episodes.map((e) => label(e.start_s, e.kind, colour("accent"), 13)),
    ...facts.fired.map((a) => label(a.fired_s, `${a.severity} alert`, colour("alert"), 0)),
  ];
}

function alertCards(alerts, causes) {
  if (!alerts.length && !causes.length) return [make("p", { class: "hint" }, "There was none.")];
  const used = new Set();
  const cards = alerts.slice(0, 100).map((alert) => {
    const own = causes.filter((c) => c.onset_s === alert.began_s && c.name === alert.name);
    own.forEach((c) => used.add(c));
    const fired = alert.fired_s !== null;
    const when = fired
      ? `${alert.severity}, fired ${clock(alert.fired_s)}, ${alert.resolved_s ? `resolved after ${duration(alert.resolved_s - alert.fired_s)}` : "not resolved"}`
      : `pending from ${clock(alert.pending_s ?? alert.began_s)}, never fired`;
    const words = ["summary", "body", "tail", "load", "measurement_change"].map((name) => alert.words[name]).filter(Boolean);
    return make("div", { class: `alert ${fired ? "" : "pending"}` },
      make("p", { class: "name" }, `${alert.name}: ${when}`),
      ...words.map((text) => make("p", {}, text)),
      make("p", { class: "small" }, [`condition since ${clock(alert.began_s)}`, attributionWords(alert.attribution)].filter(Boolean).join("; ")),
      ...own.flatMap((trigger) => causeRows(trigger)));
  });
  const rest = causes.filter((c) => !used.has(c)).slice(0, 100).map((trigger) => make("div", { class: "alert pending" },
    make("p", { class: "name" }, `${trigger.name}: looked into at ${clock(trigger.time_s)}, onset ${clock(trigger.onset_s)}`), ...causeRows(trigger)));
  if (alerts.length > 100) rest.push(make("p", { class: "hint" }, `and ${count(alerts.length - 100)} more`));
  return [...cards, ...rest];
}

function causeRows(trigger) {
  return trigger.causes.map((cause) => {
    const fill = make("span", {});
    fill.style.width = `${Math.round(100 * cause.score)}%`;
    return make("div", { class: "cause" }, make("div", { class: "bar", title: `score ${cause.score}` }, fill),
      make("div", {}, make("span", { class: "name" }, cause.cause.replaceAll("_", " ")), ` (${short(cause.score, 2)})`,
        make("div", { class: "small" }, cause.evidence.join("; "))));
  });
}

function mutedTable(mutes) {
  if (!mutes.length) return make("p", { class: "hint" }, "Nothing was muted.");
  const rows = mutes.slice(0, 100).map((m) => make("tr", {}, cell(clock(m.time_s)),
    make("td", {}, make("span", { class: "name" }, m.rule.replaceAll("_", " ")), make("div", { class: "small" }, `${m.severity ?? ""} ${m.name}`)),
    make("td", {}, m.why, make("div", { class: "small" }, m.until_s ? `until ${clock(m.until_s)}` : ""))));
  if (mutes.length > 100) rows.push(make("tr", {}, cell(`and ${count(mutes.length - 100)} more`)));
  return make("table", {}, heading(["When (UTC)"], ["Rule"], ["Why"]), make("tbody", {}, ...rows));
}

function movesTable(moves) {
  if (!moves.length) return make("p", { class: "hint" }, "It was never set.");
  const rows = moves.map((m) => make("tr", {}, cell(clock(m.time_s)), cell(m.previous_s === null ? `set to ${short(m.threshold_s)} s` : `${short(m.previous_s)} → ${short(m.threshold_s)} s`), cell(m.why)));
  const table = make("table", {}, heading(["When (UTC)"], ["Moved"], ["Why"]), make("tbody", {}, ...rows));
  return moves.length > 12 ? make("details", {}, make("summary", {}, `${moves.length} moves (the first ${moves.length})`), table) : table;
}
