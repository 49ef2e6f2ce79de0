// Brings it all into the page.
"use strict";

async function main() {
  const root = document.documentElement;
  root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const report = await unpack("overview");
  const { source } = report;
  byId("title").textContent = source.name.split("/").at(-1) || source.name;
  byId("title").title = source.name;
  byId("range").textContent = `${clock(source.start_s)} to ${clock(source.end_s)} UTC, ${duration(source.end_s - source.start_s)}; `
    + `${plural(source.engines, "engine")}, judged by ${report.settings[0].name} of DAOM ${report.daom}`;
  const warnings = byId("warnings");
  warnings.hidden = !report.warnings.length;
  warnings.replaceChildren(...report.warnings.map((words) => make("li", {}, words)));

  let view = null;
  const strips = new Strips(report, (...asked) => open(...asked));
  view = new StreamView(report, strips);
  strips.onRange = (range) => view.zoom(range);

  const failed = (error) => {
    warnings.hidden = false;
    warnings.append(make("li", {}, `The report could not be drawn: ${error.message}`));
    throw error;
  };
  async function open(number, range = null, scroll = true) {
    if (number === undefined) return;
    history.replaceState(null, "", `#stream-${number}`);
    await view.open(number, range).catch(failed);
    if (scroll) byId("stream-title").scrollIntoView({ block: "start", behavior: "auto" });
  }
  const goTo = (episode) => {
    const fact = strips.facts.find((f) => f.fired.length && f.episodes.includes(episode))
      ?? strips.facts.find((f) => f.episodes.includes(episode));
    if (fact) open(fact.number, [episode.start_s, episode.end_s]);
  };

  const draw = () => {
    drawCards(report);
    drawSettings(report, open);
    drawEpisodes(report, goTo);
    drawAlerts(report, open);
    drawMuted(report, open);
    drawRead(report);
    drawLegend();
    strips.redraw();
  };
  draw();
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    draw();
    if (view.number !== null) view.drawChart(view.range());
  });
  listenToKeys(strips);
  addEventListener("resize", () => { strips.fill(); draw(); });
  addEventListener("beforeprint", () => { strips.fill(true); });
  addEventListener("afterprint", () => { strips.empty(); strips.fill(); });

  const asked = Number(/^#stream-(\d+)$/.exec(location.hash)?.[1] ?? strips.order[0]);
  if (report.streams[asked]) await open(asked, null, false);
  root.dataset.ready = "yes";
}

main();
