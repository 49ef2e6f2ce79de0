// The figures on top, the settings side by side, the incidents, the list of alerts.

function card(what, number, more = "", kind = "") {
  return make("div", { class: "card" },
    make("div", { class: "what" }, what),
    make("div", { class: `number ${kind} ${number.length > 9 ? "long" : ""}` }, number),
    make("div", { class: "more" }, more));
}

function rateWords(rate) {
  if (!rate) return "nothing was judged";
  return `${rounded(rate.a_week)} (${rounded(rate.least)} to ${rounded(rate.most)})`;
}

function drawCards(report) {
  const { source } = report;
  const base = report.settings[0];
  const info = base.fired - base.paged;
  const mutes = Object.values(base.muted).reduce((sum, n) => sum + n, 0);
  const rate = base.paged_a_week;
  const cards = [
    card("Alerts fired", count(base.fired),
      !base.fired ? "" : info ? `${count(base.paged)} for a pager, ${count(info)} for information` : "for a pager"),
    weekCard(rate, base.observed_s),
    card("Muted", count(mutes), mutedWords(base.muted)),
  ];
  if (base.scores) cards.push(...scoreCards(base.scores.alerts));
  const cells = source.cells.length;
  const unusable = Object.entries(source.not_used);
  cards.push(
    card("Streams", count(source.streams), `${plural(source.engines, "engine")}, ${plural(cells, "cell")}`),
    card("Records", count(source.records), unusable.length
      ? "not used: " + unusable.map(([kind, n]) => `${count(n)} ${kind}`).join(", ") : "all could be used"));
  byId("cards").replaceChildren(...cards);
}

// What less than a week says of a week is a range; its middle would be read as more than it is.
function weekCard(rate, observed_s) {
  if (!rate) return card("Pages a week", "-", "nothing was judged");
  const judged = `${duration(observed_s)} judged`;
  const limits = `${rounded(rate.least)} to ${rounded(rate.most)}`;
  return observed_s < 7 * 86400
    ? card("Pages a week, 95 %", limits, `no more can be said from ${judged}`)
    : card("Pages a week", rounded(rate.a_week), `95 %: ${limits}, from ${judged}`);
}

function scoreCards(score) {
  const delays = score.delays.map((d) => d.delay_s).filter((d) => d !== null);
  const of = score.found + score.missed;
  const found = of ? `${score.found} of ${of}` : "none to find";
  const soon = !delays.length ? "" : delays.length === 1 ? `after ${duration(delays[0])}`
    : `after ${duration(median(delays))} (median), ${duration(Math.max(...delays))} at most`;
  return [
    card("Incidents found", found, soon, score.missed ? "bad" : of ? "good" : ""),
    card("False alarms", count(score.false_alarms), score.false_a_week
      ? `a week: ${rateWords(score.false_a_week)}` : "", score.false_alarms ? "bad" : ""),
  ];
}

function cell(content, kind = "") {
  return make("td", { class: kind }, content);
}

function heading(...names) {
  const cells = names.map(([name, kind = ""]) => make("th", { class: kind, scope: "col" }, name));
  return make("thead", {}, make("tr", {}, ...cells));
}

function drawSettings(report, openStream) {
  const labelled = report.labels;
  const table = byId("settings");
  const names = [["Setting"], ["When it paged"], ["Pages", "num"], ["A week (95 %)"], ["Muted"]];
  if (labelled) names.push(["Missed", "num"], ["Delay", "num"], ["False", "num"]);
  const most = Math.max(...report.settings.map((s) => s.paged_a_week?.most ?? 0), 1);
  const rows = report.settings.map((setting, number) => {
    const strip = make("canvas", { role: "img", "aria-label": pagesInWords(setting) });
    const row = make("tr", { class: number ? "" : "base" },
      make("td", {}, make("div", { class: "name" }, setting.name + (number ? "" : " (this report)")), ...differences(setting)),
      cell(strip, "wide"), cell(count(setting.paged), "num"),
      make("td", {}, rateWords(setting.paged_a_week), rateBar(setting.paged_a_week, most)),
      cell(make("span", { class: "small" }, mutedWords(setting.muted))));
    if (labelled) row.append(...scoreCells(setting.scores));
    return [row, strip, setting];
  });
  table.replaceChildren(heading(...names), make("tbody", {}, ...rows.map(([row]) => row)));
  for (const [, strip, setting] of rows) drawPages(strip, setting, report, openStream);
  byId("settings-hint").textContent =
    "All of them judged the same records, in one pass. A page is an alert that fires as warning or critical, counted once. "
    + "Small print and brackets are 95 % limits: what so much data can prove"
    + (labelled ? "; of the median delay only from six incidents on." : ".");
  byId("settings-notes").replaceChildren(...limitNotes(report));
}

function pagesInWords(setting) {
  const times = setting.alerts.slice(0, 20).map((alert) => clock(alert[1]));
  return `${setting.name} fired ${plural(setting.alerts.length, "alert")}${times.length ? " at " + times.join(", ") : ""}`;
}

function differences(setting) {
  if (!setting.judged) return [make("div", { class: "small bad" }, "came to judge nothing")];
  const told = setting.differs.map((d) => `${d.field}: ${JSON.stringify(d.here)}, not ${JSON.stringify(d.there)}`);
  if (setting.preset === null) told.unshift("P99 above a fixed limit for the pending time");
  const shown = told.slice(0, 6).map((words) => make("div", { class: "small" }, words));
  if (told.length > 6) shown.push(make("div", { class: "small", title: told.join("\n") }, `and ${told.length - 6} more`));
  return shown;
}

function scoreCells(scores) {
  const score = scores.alerts;
  const delays = score.delays.map((d) => d.delay_s).filter((d) => d !== null);
  const of = score.found + score.missed;
  const percent = (share) => `${Math.round(100 * share)}`;
  const under = (words) => make("div", { class: "small" }, words);
  const missed = make("td", { class: "num" }, make("span", { class: score.missed ? "bad" : "" }, `${score.missed} of ${of}`));
  if (score.missed_share) missed.append(under(`${score.missed_share.map(percent).join(" to ")} %`));
  const delay = make("td", { class: "num" }, duration(score.delay_s));
  if (score.delay_limits_s) delay.append(under(`${score.delay_limits_s.map(duration).join(" to ")}`));
  if (delays.length > 1) delay.append(under(`${duration(Math.max(...delays))} at most`));
  const falsely = make("td", { class: "num" }, count(score.false_alarms));
  if (score.false_a_week) falsely.append(under(`${rateWords(score.false_a_week)} a week`));
  return [missed, delay, falsely];
}

// A whisker from the lower to the upper limit, and a dot at the estimate; square roots, so that
// one noisy setting does not press the others flat.
function rateBar(rate, most) {
  if (!rate) return null;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 160 10");
  svg.setAttribute("width", "160");
  svg.setAttribute("height", "10");
  svg.setAttribute("aria-hidden", "true");
  const x = (value) => 4 + 152 * Math.sqrt(value / most);
  const part = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    svg.append(element);
  };
  part("line", { x1: x(rate.least), x2: x(rate.most), y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2 });
  for (const end of [rate.least, rate.most]) {
    part("line", { x1: x(end), x2: x(end), y1: 2, y2: 8, stroke: "currentColor", "stroke-width": 1.5 });
  }
  part("circle", { cx: x(rate.a_week), cy: 5, r: 3.5, fill: "currentColor" });
  return make("div", { title: "from the lower to the upper limit, the dot is the estimate" }, svg);
}

function drawPages(canvas, setting, report, openStream) {
  const { start_s, end_s } = report.source;
  const height = 26;
  const [context, width] = canvasOf(canvas, height);
  const x = (time_s) => (width * (time_s - start_s)) / Math.max(1, end_s - start_s);
  for (const episode of report.episodes) {
    context.fillStyle = colour("episode");
    context.fillRect(x(episode.start_s), 0, Math.max(3, x(episode.end_s) - x(episode.start_s)), height);
  }
  context.fillStyle = colour("line");
  context.fillRect(0, height - 4, width, 1);
  for (const [, fired_s, resolved_s, severity] of setting.alerts) {
    const left = Math.min(x(fired_s), width - 3);
    const pages = severity !== "info";
    context.fillStyle = colour(pages ? "alert" : "accent");
    context.fillRect(left, pages ? 4 : 12, Math.max(3, x(resolved_s ?? end_s) - left), pages ? 16 : 8);
  }
  const near = (event) => {
    const at_s = start_s + ((event.offsetX + 1) / width) * (end_s - start_s);
    const slack_s = (4 / width) * (end_s - start_s);
    return setting.alerts.filter((a) => a[1] - slack_s <= at_s && at_s <= (a[2] ?? end_s) + slack_s);
  };
  canvas.onmousemove = (event) => {
    const found = near(event).slice(0, 6).map((a) =>
      `${clock(a[1])} ${a[3]}: ${placeOf(report, a[0])}${a[2] ? `, resolved after ${duration(a[2] - a[1])}` : ""}`);
    if (found.length) showTip(event, found.join("\n"));
    else hideTip();
  };
  canvas.onmouseleave = hideTip;
  canvas.onclick = (event) => { const [first] = near(event); if (first) openStream(first[0]); };
}

function limitNotes(report) {
  const setting = report.settings.find((s) => s.preset === null);
  if (!setting) return [];
  const learned = setting.limits.filter((limit) => limit.source === "learned");
  if (!setting.limits.length) {
    return [make("p", { class: "hint" }, "sits2026 and the static threshold had no limit to go by: nothing was learned, and no slo_s is set.")];
  }
  const told = setting.limits.slice(0, 12).map((l) =>
    `${l.signal} of ${l.cell}: ${short(l.limit_s)} s${l.since_s ? ` from ${clock(l.since_s)} on` : ""}`);
  if (setting.limits.length > 12) told.push(`and ${setting.limits.length - 12} more`);
  const why = learned.length
    ? "No slo_s is set for them, so sits2026 and the static threshold go by what the default preset learned first of all engines together, the reference's P99 plus headroom: "
    : "sits2026 and the static threshold go by the configured slo_s: ";
  return [make("p", { class: "hint" }, why + told.join("; ") + ".")];
}

function drawEpisodes(report, goTo) {
  if (!report.labels) return;
  byId("episodes-section").hidden = false;
  if (!report.episodes.length) {
    byId("episodes-hint").textContent = "The label file says that nothing happened: every alert is a false one.";
    return;
  }
  byId("episodes-hint").textContent = "How long after its beginning each setting first paged for it; in brackets its first drifting verdict.";
  const names = [["Begins (UTC)"], ["Lasts", "num"], ["What"], ...report.settings.map((s) => [s.name, "num"])];
  const rows = report.episodes.map((episode, number) => {
    const about = [episode.kind, episode.model, episode.engine, episode.signal].filter(Boolean).join(" ");
    const row = make("tr", { class: "link", tabindex: 0, onclick: () => goTo(episode), onkeydown: (e) => { if (e.key === "Enter") goTo(episode); } },
      cell(clock(episode.start_s)), cell(duration(episode.end_s - episode.start_s), "num"),
      make("td", {}, about, make("div", { class: "small" }, episode.note ?? "")));
    for (const setting of report.settings) row.append(delayCell(setting.scores, number));
    return row;
  });
  byId("episodes").replaceChildren(heading(...names), make("tbody", {}, ...rows));
}

function delayCell(scores, episode) {
  const [alert, verdict] = ["alerts", "verdicts"].map((kind) => scores[kind].delays.find((d) => d.episode === episode));
  const words = (found) => (found.delay_s === null ? "missed" : duration(found.delay_s));
  const seen = verdict ? ` (${words(verdict)})` : "";
  if (!alert) return cell(`nobody to page${seen}`, "num");
  return cell(words(alert) + seen, `num ${alert.delay_s === null ? "bad" : ""}`);
}
