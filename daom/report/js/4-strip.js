// The strips: every stream over time, one row each. Only the rows in view are in the page.
"use strict";

const ROW_HEIGHT = 24;
const STRIP_HEIGHT = 18;
const OVERSCAN = 6;
const MOST_ROWS = 19;
const LEAST_S = 10;

class Strips {
  constructor(report, openStream) {
    this.report = report;
    this.openStream = openStream;
    this.range = [report.source.start_s, report.source.end_s];
    this.whole = [...this.range];
    this.chosen = null;
    this.facts = report.streams.map((stream, number) => factsOf(stream, number, report));
    this.order = [];
    this.live = new Map();
    this.hatches = {};
    this.viewport = byId("viewport");
    this.rows = byId("rows");
    this.onRange = () => {};
    this.viewport.addEventListener("scroll", () => this.fill());
    for (const id of ["search", "only", "sort"]) byId(id).addEventListener("input", () => this.choose());
    const buttons = { whole: () => this.zoom(this.whole, true), "zoom-in": () => this.scale(0.5), "zoom-out": () => this.scale(2), earlier: () => this.scale(1, -0.5), later: () => this.scale(1, 0.5) };
    for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
    new ResizeObserver(() => this.fill()).observe(this.viewport);
    this.choose();
  }

  // Chooses which streams are shown, and their order.
  choose() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const only = byId("only").value;
    const wanted = (fact) => words.every((word) => fact.text.includes(word)) && (only === "all" || fact[only] > 0);
    const by = ORDERS[byId("sort").value];
    this.order = this.facts.filter(wanted).sort((a, b) => by(a, b) || a.number - b.number).map((fact) => fact.number);
    byId("shown").textContent = this.order.length === this.facts.length
      ? plural(this.facts.length, "stream") : `${this.order.length} of ${plural(this.facts.length, "stream")}`;
    this.rows.style.height = `${this.order.length * ROW_HEIGHT}px`;
    this.viewport.style.height = `${Math.min(MOST_ROWS, Math.max(1, this.order.length)) * ROW_HEIGHT}px`;
    this.viewport.scrollTop = 0;
    this.empty();
    this.fill();
  }

  empty() {
    for (const row of this.live.values()) row.remove();
    this.live.clear();
  }

  // Puts the rows that are in view into the page, and takes out those that are not.
  fill(all = false) {
    const top = this.viewport.scrollTop;
    const first = all ? 0 : Math.max(0, Math.floor(top / ROW_HEIGHT) - OVERSCAN);
    const shown = Math.ceil(this.viewport.clientHeight / ROW_HEIGHT) + 2 * OVERSCAN;
    const last = all ? this.order.length : Math.min(this.order.length, first + shown);
    const wanted = new Set(this.order.slice(first, last));
    for (const [number, row] of this.live) {
      if (!wanted.has(number)) { row.remove(); this.live.delete(number); }
    }
    for (let place = first; place < last; place += 1) {
      const number = this.order[place];
      let row = this.live.get(number);
      if (!row) {
        row = this.makeRow(number);
        this.rows.append(row);
        this.live.set(number, row);
        this.draw(row.querySelector("canvas"), number);
      }
      row.style.top = `${place * ROW_HEIGHT}px`;
    }
  }

  makeRow(number) {
    const stream = this.report.streams[number];
    const fact = this.facts[number];
    const cell = this.report.source.cells.length > 1 ? stream.cell : "";
    const label = make("span", { class: "label", title: `${labelOf(stream)} (${stream.cell})` },
      labelOf(stream), make("span", { class: "small" }, cell));
    const canvas = make("canvas", { "aria-hidden": "true" });
    const ratio = stream.worst_over_threshold;
    const row = make("button", {
      type: "button", class: "row", role: "listitem", "data-stream": number, "aria-label": fact.words,
      "aria-pressed": String(number === this.chosen),
    }, label, canvas, make("span", { class: "figure" }, ratio === null ? "" : `${short(ratio, 2)} ×`));
    row.addEventListener("click", () => { if (!this.dragged) this.openStream(number); });
    canvas.addEventListener("mousemove", (event) => this.hover(event, number));
    canvas.addEventListener("mouseleave", () => { this.hovered = null; hideTip(); });
    canvas.addEventListener("pointerdown", (event) => this.drag(event, canvas));
    return row;
  }

  mark(number) {
    this.chosen = number;
    for (const [other, row] of this.live) row.setAttribute("aria-pressed", String(other === number));
  }

  // Opens the stream that is so many rows further down.
  async step(rows) {
    const place = this.order.indexOf(this.chosen);
    const next = Math.max(0, Math.min(this.order.length - 1, place < 0 ? 0 : place + rows));
    if (!this.order.length || next === place) return;
    const top = next * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.viewport;
    if (top < scrollTop) this.viewport.scrollTop = top;
    else if (top + ROW_HEIGHT > scrollTop + clientHeight) this.viewport.scrollTop = top + ROW_HEIGHT - clientHeight;
    this.fill();
    this.live.get(this.order[next])?.focus({ preventScroll: true });
    await this.openStream(this.order[next], null, false);
  }

  // Makes the time that is shown so many times as long around its middle, and moves it by a share of itself.
  scale(times, share = 0) {
    const [from_s, to_s] = this.range;
    const middle_s = (from_s + to_s) / 2 + share * (to_s - from_s);
    const half_s = Math.max(LEAST_S, (to_s - from_s) * times) / 2;
    // Moved to an edge it keeps its length.
    const shift_s = Math.max(0, this.whole[0] - middle_s + half_s) - Math.max(0, middle_s + half_s - this.whole[1]);
    this.zoom([middle_s - half_s + shift_s, middle_s + half_s + shift_s], true);
  }

  zoom(range, tell) {
    const [start_s, end_s] = this.whole;
    this.range = [Math.max(start_s, range[0]), Math.min(end_s, range[1])];
    const isWhole = this.range[0] === start_s && this.range[1] === end_s;
    for (const id of ["whole", "zoom-out", "earlier", "later"]) byId(id).disabled = isWhole;
    this.redraw();
    if (tell) this.onRange(this.range);
  }

  redraw() {
    this.hatches = {};
    drawAxis(byId("axis"), this.range);
    for (const [number, row] of this.live) this.draw(row.querySelector("canvas"), number);
  }

  // Draws a stream: of the buckets that share a pixel the one that matters most.
  draw(canvas, number) {
    const stream = this.report.streams[number];
    const fact = this.facts[number];
    const [context, width] = canvasOf(canvas, STRIP_HEIGHT);
    const [start_s, end_s] = this.range;
    const scale = width / Math.max(1, end_s - start_s);
    const x = (time_s) => (time_s - start_s) * scale;
    context.fillStyle = colour("episode");
    for (const episode of fact.episodes) {
      context.fillRect(x(episode.start_s), 0, Math.max(2, x(episode.end_s) - x(episode.start_s)), STRIP_HEIGHT);
    }
    const pixels = new Int8Array(Math.ceil(width)).fill(-1);
    for (const [from_s, letters] of stream.strip) {
      for (let n = 0; n < letters.length; n += 1) {
        const left = x(from_s + n * stream.width_s);
        const right = left + stream.width_s * scale;
        if (right < 0 || left >= width) continue;
        const state = LETTERS.indexOf(letters[n]);
        const last = Math.min(pixels.length - 1, Math.max(Math.floor(left), Math.ceil(right) - 1));
        for (let p = Math.max(0, Math.floor(left)); p <= last; p += 1) pixels[p] = Math.max(pixels[p], state);
      }
    }
    this.drawRuns(context, pixels);
    context.fillStyle = colour("alert");
    for (const alert of fact.fired) {
      const left = x(alert.fired_s);
      const wide = Math.max(3, x(alert.resolved_s ?? this.whole[1]) - left);
      if (left + wide < 0 || left > width) continue;
      context.fillRect(left, 0, wide, STRIP_HEIGHT);
    }
    context.fillStyle = colour("mute");
    for (const mute of fact.mutes) {
      const at = x(mute.time_s);
      context.beginPath();
      context.moveTo(at - 3.5, 0);
      context.lineTo(at + 3.5, 0);
      context.lineTo(at, 6);
      context.fill();
    }
  }

  drawRuns(context, pixels) {
    let begin = 0;
    for (let p = 1; p <= pixels.length; p += 1) {
      if (p < pixels.length && pixels[p] === pixels[begin]) continue;
      if (pixels[begin] >= 0) {
        const state = STATES[LETTERS[pixels[begin]]];
        context.fillStyle = state.name === "workload" ? this.hatch(context) : colour(state.name);
        context.fillRect(begin, STRIP_HEIGHT - state.height, p - begin, state.height);
      }
      begin = p;
    }
  }

  hatch(context) {
    this.hatches.workload ??= hatched(context);
    return this.hatches.workload;
  }

  timeAt(event, canvas) {
    const [start_s, end_s] = this.range;
    const { left, width } = canvas.getBoundingClientRect();
    return start_s + ((event.clientX - left) / width) * (end_s - start_s);
  }

  hover(event, number, canvas = event.currentTarget) {
    if (this.dragging) return;
    const at_s = this.timeAt(event, canvas);
    const slack_s = (3 / canvas.clientWidth) * (this.range[1] - this.range[0]);
    const fact = this.facts[number];
    const stream = this.report.streams[number];
    const words = [`${labelOf(stream)}, ${clock(at_s)}`];
    const letter = letterAt(stream, at_s);
    words.push(letter ? STATES[letter].words : "no verdict");
    this.hovered = event;
    if (details.has(number)) words.push(...valuesAt(details.get(number).line, at_s));
    // Currenttarget is gone by then: the words are made again for the same place.
    else detailsOf(number).then(() => { if (this.hovered === event) this.hover(event, number, canvas); });
    for (const a of fact.fired.filter((a) => a.fired_s - slack_s <= at_s && at_s <= (a.resolved_s ?? this.whole[1]) + slack_s).slice(0, 4)) {
      words.push(`${a.severity} ${a.name} since ${clock(a.fired_s)}: ${a.words.summary ?? ""}`);
    }
    for (const m of fact.mutes.filter((m) => Math.abs(m.time_s - at_s) <= 2 * slack_s).slice(0, 3)) {
      words.push(`muted ${m.name}: ${m.rule}: ${m.why}`);
    }
    for (const e of fact.episodes.filter((e) => e.start_s <= at_s && at_s <= e.end_s)) {
      words.push(`label: ${e.kind}${e.note ? ": " + e.note : ""}`);
    }
    showTip(event, words.join("\n"));
  }

  // Dragging along a row zooms into the time that was dragged over.
  drag(event, canvas) {
    if (event.button !== 0) return;
    const from = event.clientX;
    const from_s = this.timeAt(event, canvas);
    this.dragged = false;
    const move = (e) => {
      if (Math.abs(e.clientX - from) < 5) return;
      this.dragging = this.dragged = true;
      const times = [from_s, this.timeAt(e, canvas)].sort((a, b) => a - b);
      showTip(e, `${clock(times[0])}\nto ${clock(times[1])} (${duration(times[1] - times[0])})`);
    };
    const end = (e) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      if (!this.dragging) return;
      this.dragging = false;
      hideTip();
      const times = [from_s, this.timeAt(e, canvas)].sort((a, b) => a - b);
      if (times[1] - times[0] > 1) this.zoom(times, true);
      // The click that ends a drag chooses nothing.
      setTimeout(() => { this.dragged = false; });
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }
}

const ORDERS = {
  matters: (a, b) => b.pages - a.pages || b.alerts - a.alerts || b.muted - a.muted || b.slower - a.slower || b.ratio - a.ratio,
  slower: (a, b) => b.slower - a.slower,
  ratio: (a, b) => b.ratio - a.ratio,
  name: (a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0),
};

// What sorting, filtering and drawing need to know of a stream.
function factsOf(stream, number, report) {
  const states = stream.states;
  const judged = states.calm + states.faster + states.workload + states.slower;
  const fired = report.alerts.filter((a) => a.stream === number && a.fired_s !== null);
  const mutes = report.muted.filter((m) => m.stream === number);
  const model = report.source.cells.find((c) => c.cell === stream.cell)?.model ?? stream.cell;
  const episodes = report.episodes.filter((e) => concerns(e, model, stream));
  const text = `${stream.signal ?? "presence"} ${engineOf(stream)} ${stream.cell}`.toLowerCase();
  const slower = judged ? states.slower / judged : 0;
  const words = `${labelOf(stream)}: ${plural(fired.length, "alert")}, ${plural(mutes.length, "muted alert")}, `
    + `${Math.round(slower * 100)} % of the time drifting slower`;
  return {
    number, text, words, fired, mutes, episodes, slower,
    alerts: fired.length,
    pages: fired.filter((a) => a.severity !== "info").length,
    muted: mutes.length,
    drifting: states.faster + states.workload + states.slower,
    ratio: stream.worst_over_threshold ?? 0,
  };
}

function concerns(episode, model, stream) {
  return (!episode.model || episode.model === model)
    && (!episode.engine || !stream.engine || episode.engine === stream.engine)
    && (!episode.signal || !stream.signal || episode.signal === stream.signal);
}

function letterAt(stream, time_s) {
  for (const [from_s, letters] of stream.strip) {
    const place = Math.floor((time_s - from_s) / stream.width_s);
    if (place >= 0 && place < letters.length) return letters[place];
  }
  return null;
}

function hatched(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour("workload");
  pen.lineWidth = 2;
  for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

const STEPS_S = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800, 1209600];

function drawAxis(canvas, [start_s, end_s]) {
  const [context, width] = canvasOf(canvas, 22);
  const span_s = Math.max(1, end_s - start_s);
  const step_s = STEPS_S.find((step) => (span_s / step) * 105 <= width) ?? STEPS_S.at(-1) * Math.ceil(span_s / STEPS_S.at(-1) / 8);
  context.fillStyle = colour("quiet");
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  let day = "";
  for (let t = Math.ceil(start_s / step_s) * step_s; t <= end_s; t += step_s) {
    const x = ((t - start_s) / span_s) * width;
    const [date, time] = clock(t, step_s < 60).split(" ");
    const words = step_s >= 86400 ? date.slice(5) : date === day ? time : `${date.slice(5)} ${time}`;
    day = date;
    context.fillRect(x, 16, 1, 6);
    if (x + context.measureText(words).width + 4 < width) context.fillText(words, x + 4, 11);
  }
}

function drawLegend() {
  const swatch = (paint) => {
    const canvas = make("canvas", { width: 22, height: STRIP_HEIGHT, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    paint(context);
    return canvas;
  };
  const items = [...LETTERS].map((letter) => {
    const state = STATES[letter];
    return [state.words, (c) => {
      c.fillStyle = state.name === "workload" ? hatched(c) : colour(state.name);
      c.fillRect(0, STRIP_HEIGHT - state.height, 22, state.height);
    }];
  });
  items.push(["alert firing", (c) => { c.fillStyle = colour("alert"); c.fillRect(0, 0, 22, STRIP_HEIGHT); }]);
  items.push(["muted alert", (c) => { c.fillStyle = colour("mute"); c.beginPath(); c.moveTo(6, 2); c.lineTo(16, 2); c.lineTo(11, 11); c.fill(); }]);
  items.push(["labelled incident", (c) => { c.fillStyle = colour("episode"); c.fillRect(0, 0, 22, STRIP_HEIGHT); }]);
  byId("legend").replaceChildren(...items.map(([words, paint]) => make("li", {}, swatch(paint), words)));
}
