// What everything else uses: the data, unpacked; elements; numbers and times as people read them.
"use strict";

// A packed block: base64 of gzip, so that nothing in it can be taken for markup.
async function unpackText(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const unpack = async (id) => JSON.parse(await unpackText(id));

// Makes an element. Words are always text: what a producer wrote is never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const STATES = {
  i: { name: "insufficient", words: "nothing can be said", height: 2 },
  c: { name: "calm", words: "calm", height: 5 },
  f: { name: "faster", words: "drifting, faster", height: 8 },
  w: { name: "workload", words: "the workload alone changed", height: 11 },
  s: { name: "slower", words: "drifting, slower", height: 15 },
};
const LETTERS = "icfws";

const two = (number) => String(number).padStart(2, "0");

function clock(time_s, withSeconds = true) {
  const t = new Date(time_s * 1000);
  const day = `${t.getUTCFullYear()}-${two(t.getUTCMonth() + 1)}-${two(t.getUTCDate())}`;
  const hour = `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}`;
  return `${day} ${hour}${withSeconds ? ":" + two(t.getUTCSeconds()) : ""}`;
}

// In the largest unit of which there are at least two, as the command line has it.
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  for (const [unit_s, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * unit_s) {
      const number = seconds / unit_s;
      return `${number < 10 ? number.toFixed(1).replace(/\.0$/, "") : Math.round(number)} ${unit}`;
    }
  }
  return `${Math.round(seconds)} s`;
}

function short(number, digits = 3) {
  if (number === null || number === undefined) return "-";
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e6 || size < 1e-4) return number.toExponential(1);
  return String(Number(number.toPrecision(digits)));
}

// Whole from ten on, two digits below.
const rounded = (number) => (number >= 10 ? count(Math.round(number)) : short(number, 2));
const count = (number) => number.toLocaleString("en-US");
const plural = (number, one, many = one + "s") => `${count(number)} ${number === 1 ? one : many}`;

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const engineOf = (stream) => stream.engine ?? (stream.signal ? "all engines" : "the cell");
const labelOf = (stream) => `${stream.signal ?? "presence"} of ${engineOf(stream)}`;

// With the cell, where there are several.
function placeOf(report, number) {
  const stream = report.streams[number];
  return report.source.cells.length > 1 ? `${labelOf(stream)}, ${stream.cell}` : labelOf(stream);
}

function mutedWords(muted) {
  const rules = Object.entries(muted);
  return rules.length ? rules.map(([rule, n]) => `${n} ${rule.replaceAll("_", " ")}`).join(", ") : "none";
}

// What is unpacked of a stream once somebody looks at it, by number.
const details = new Map();

async function detailsOf(number) {
  if (!details.has(number)) details.set(number, await unpack(`stream-${number}`));
  return details.get(number);
}

// What a stream's time line says at a time, with units; one line of words each.
function valuesAt(line, at_s) {
  if (!line) return [];
  let low = 0;
  let high = line.time_s.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.time_s[middle] <= at_s) low = middle + 1;
    else high = middle;
  }
  const n = low - 1;
  if (n < 0 || at_s >= line.time_s[n] + line.width_s) return [];
  const { p99_least_s: least, p99_most_s: most } = line;
  const words = [];
  if (most[n] !== null) {
    const p99 = least[n] < most[n] ? `${short(least[n])} to ${short(most[n])}` : short(most[n]);
    words.push(`P99 ${p99} s${line.threshold_s[n] === null ? "" : `, threshold ${short(line.threshold_s[n])} s`}`);
  }
  if (line.kl_nats[n] !== null) {
    const parts = line.service_nats[n] === null ? "" : ` (service ${short(line.service_nats[n])}, workload ${short(line.workload_nats[n])})`;
    words.push(`KL ${short(line.kl_nats[n])} nats${parts}`);
  }
  if (line.evidence_nats[n] !== null) {
    words.push(`evidence ${short(line.evidence_nats[n])} nats, a drift from ${short(line.evidence_limit_nats[n])} on`);
  }
  words.push(`${plural(line.samples[n], "sample")}${line.verdicts[n] > 1 ? " at most" : ""}`);
  return words;
}

function showTip(event, words) {
  const tip = byId("tip");
  tip.textContent = words;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  const below = event.clientY + 18;
  tip.style.top = `${below + height > innerHeight ? event.clientY - height - 12 : below}px`;
}

const hideTip = () => { byId("tip").hidden = true; };

// Sets a canvas to the size that it is shown in, and returns its context in CSS pixels.
function canvasOf(canvas, height) {
  const width = Math.max(10, canvas.clientWidth);
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width];
}
