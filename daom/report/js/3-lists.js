// Lists over all streams: what fired, what was muted and why, what was read.
"use strict";

function drawAlerts(report, openStream, shown = 50) {
  const fired = report.alerts.filter((alert) => alert.fired_s !== null);
  byId("alerts-title").textContent = `Alerts (${count(report.settings[0].fired)})`;
  const rows = fired.slice(0, shown).map((alert) => {
    const open = () => openStream(alert.stream, [alert.began_s, alert.resolved_s ?? report.source.end_s]);
    return make("tr", { class: "link", tabindex: 0, onclick: open, onkeydown: (e) => { if (e.key === "Enter") open(); } },
      cell(clock(alert.fired_s)),
      cell(alert.resolved_s ? duration(alert.resolved_s - alert.fired_s) : "not resolved", "num"),
      cell(alert.severity, alert.severity === "critical" ? "bad" : ""), cell(alert.name),
      cell(placeOf(report, alert.stream)),
      make("td", {}, alert.words.summary ?? "", make("div", { class: "small" }, attributionWords(alert.attribution))));
  });
  const names = [["Fired (UTC)"], ["Lasted", "num"], ["Severity"], ["Alert"], ["Of"], ["What it said"]];
  byId("alerts").replaceChildren(heading(...names), make("tbody", {}, ...rows));
  const more = byId("more-alerts");
  more.hidden = fired.length <= shown;
  more.onclick = () => drawAlerts(report, openStream, shown + 200);
}

// Why a rule mutes, in general; each muted alert says its own why.
const RULES = {
  maintenance: "a maintenance window was announced",
  not_drifting: "P99 above its threshold, in a distribution that has not changed",
  fleet_wide: "so many engines drift that the fleet's alert says it once",
  few_engines: "the fleet drifts because a few engines do: their own alerts say which",
  same_incident: "another alert already tells of it",
  drifts_itself: "slower than its peers, but it drifts from its own past, too: that alert says it",
  cooldown: "the same alert resolved only shortly before",
  not_sustained: "over before the pending time was",
};
const MOST_OF_A_RULE = 100;

function drawMuted(report, openStream) {
  const { muted } = report.settings[0];
  const total = Object.values(muted).reduce((sum, n) => sum + n, 0);
  byId("muted-title").textContent = `Muted, and why (${count(total)})`;
  const parts = Object.entries(muted).map(([rule, n]) => {
    const own = report.muted.filter((m) => m.rule === rule);
    const rows = own.slice(0, MOST_OF_A_RULE).map((m) => {
      const open = () => openStream(m.stream, [m.time_s, m.until_s ?? m.time_s]);
      return make("tr", { class: "link", tabindex: 0, onclick: open, onkeydown: (e) => { if (e.key === "Enter") open(); } },
        cell(clock(m.time_s)), cell(m.name), cell(placeOf(report, m.stream)),
        make("td", {}, m.why, m.until_s ? make("div", { class: "small" }, `until ${clock(m.until_s)}`) : null));
    });
    if (n > rows.length) rows.push(make("tr", {}, make("td", { colspan: 4, class: "small" }, `and ${count(n - rows.length)} more`)));
    return make("details", { open: total <= 20 },
      make("summary", {}, make("span", { class: "name" }, `${count(n)} by ${rule.replaceAll("_", " ")}`),
        RULES[rule] ? make("span", { class: "small" }, `: ${RULES[rule]}`) : null),
      make("div", { class: "scroll" }, make("table", {}, heading(["When (UTC)"], ["Alert"], ["Of"], ["Why"]), make("tbody", {}, ...rows))));
  });
  byId("muted").replaceChildren(...(parts.length ? parts : [make("p", { class: "hint" }, "Nothing was muted.")]));
}

const attributionWords = (attribution) => ({
  service: "the service changed", workload: "the traffic changed", mixed: "service and traffic changed",
}[attribution] ?? "");

function drawRead(report) {
  const { source } = report;
  const list = (title, rows) => make("div", {}, make("h3", {}, title), make("table", {}, make("tbody", {},
    ...rows.map(([name, value]) => make("tr", {}, cell(name), cell(value, "num"))))));
  const cells = source.cells.map((c) => [c.cell, plural(c.engines.length, "engine")]);
  const base = report.settings[0];
  const parts = [
    list("Cells", cells.slice(0, 40)),
    list("Said", Object.entries(base.counts).map(([kind, n]) => [kind, count(n)])),
    list("Read", [["values", count(source.values)], ["records", count(source.records)],
      ...Object.entries(source.not_used).map(([kind, n]) => [`not used: ${kind}`, count(n)]),
      ...Object.entries(source.counted).map(([what, n]) => [what.replaceAll("_", " "), count(n)])]),
  ];
  if (source.silences.length) {
    parts.push(list("Nothing was recorded", source.silences.slice(0, 40).map((s) =>
      [`${s.model} from ${clock(s.start_s)}`, duration(s.end_s - s.start_s)])));
  }
  byId("read").replaceChildren(...parts);
}
