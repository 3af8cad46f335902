"use strict";
// Shows the numbers of numbers.json, which is asked for each second. Text is set, never parsed.

const SVG = "http://www.w3.org/2000/svg";
const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

function time(ns) {
  if (ns === null || ns === undefined) return "–";
  const [scale, unit] = UNITS.find(([scale]) => Math.abs(ns) >= scale) ?? UNITS.at(-1);
  return `${(ns / scale).toLocaleString("en", { maximumSignificantDigits: 4 })}\u00a0${unit}`;
}

const count = (number) => (number ?? 0).toLocaleString("en");
const label = (p) => `p${+(p * 100).toFixed(6)}`;

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  Object.assign(made, attributes);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function table(caption, heads, rows) {
  const made = element("table");
  made.append(element("caption", caption));
  const head = element("tr");
  head.append(...heads.map((text) => element("th", text, { scope: "col" })));
  made.append(head);
  for (const [cells, className = ""] of rows) {
    const row = element("tr", undefined, { className });
    row.append(...cells.map((text) => element("td", text)));
    made.append(row);
  }
  return made;
}

// Latency over percentile, both logarithmic: x is 1 / (1 - p).
function diagram(percentiles) {
  const [width, height, left, right, bottom] = [460, 240, 58, 26, 26];
  const shown = percentiles.filter((one) => one.value > 0);
  const made = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "latency over percentile, both axes logarithmic" });
  if (shown.length < 2) return made;
  const log = Math.log10;
  const [low, high] = [Math.floor(log(shown[0].value)),
    Math.max(Math.ceil(log(shown.at(-1).value)), Math.floor(log(shown[0].value)) + 1)];
  const [first, last] = [log(1 / (1 - shown[0].p)), log(1 / (1 - shown.at(-1).p))];
  const x = (p) => left + (width - left - right) * (log(1 / (1 - p)) - first) / (last - first);
  const y = (ns) => height - bottom - (height - bottom - 12) * (log(ns) - low) / (high - low);
  for (let decade = low; decade <= high; decade++) {
    const at = y(10 ** decade);
    made.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at }));
    made.append(drawn("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, time(10 ** decade)));
  }
  for (const { p } of shown.filter(({ p }) => p === 0.5 || /^0\.9+$/.test(`${p}`))) {
    made.append(drawn("text", { x: x(p), y: height - 8, "text-anchor": "middle" }, label(p)));
  }
  const points = shown.map(({ p, value }) => `${x(p).toFixed(1)},${y(value).toFixed(1)}`);
  made.append(drawn("polyline", { class: "curve", points: points.join(" ") }));
  return made;
}

function flow(one, several) {
  const made = element("section");
  if (several) made.append(element("h2", one.name));
  const numbers = element("dl", undefined, { className: "numbers" });
  const lost = one.lost ?? 0;
  const share = one.ingress ? ` (${(100 * lost / one.ingress).toPrecision(2)}\u00a0%)` : "";
  for (const [name, text, bad] of [
    ["before the device", count(one.ingress)],
    ["behind it", count(one.egress)],
    ["packets per second", count(Math.round(one.rate))],
    ["lost", count(lost) + (lost ? share : ""), lost > 0],
    ["left out", count(one.left_out)],
    ["worst", time(one.max_ns)],
    ...(one.tap_lost === undefined ? [] :
      [["stamps without room", count(one.tap_lost), one.tap_lost > 0]]),
  ]) {
    const box = element("div", undefined, { className: bad ? "bad" : "" });
    box.append(element("dt", name), element("dd", text));
    numbers.append(box);
  }
  const percentiles = one.percentiles ?? [];
  const supported = percentiles.filter((row) => row.supported);
  const both = element("div", undefined, { className: "both" });
  both.append(
    table("latency so far", ["percentile", "value", "95\u00a0% interval", "above"],
      percentiles.map((row) => [[label(row.p), time(row.value),
        row.low === null || row.high === null ? "–" : `${time(row.low)} … ${time(row.high)}`,
        count(row.above)], row.supported ? "" : "unsupported"])),
    diagram(supported));
  made.append(numbers, both);
  if (one.worst?.length) {
    made.append(table("worst packets so far", ["packet", "latency", "before the device, s"],
      one.worst.map((row) => [[row.key, time(row.latency), (row.ingress_ns / 1e9).toFixed(6)]])));
  }
  return made;
}

function show(numbers) {
  document.title = `${numbers.run} – tailtap`;
  document.getElementById("run").textContent = numbers.runs > 1
    ? `${numbers.run} (${numbers.number} of ${numbers.runs})` : numbers.run;
  const left = numbers.left_s === null ? "" : `, ${Math.ceil(numbers.left_s)} s left`;
  state(numbers.running ? `${Math.floor(numbers.elapsed_s)} s${left}` : "ended");
  document.getElementById("flows").replaceChildren(
    ...numbers.flows.map((one) => flow(one, numbers.flows.length > 1)));
  const incidents = document.getElementById("incidents");
  const found = numbers.incidents;
  incidents.hidden = !found;
  if (found) {
    incidents.querySelector("p").textContent = `${count(found.kept)} kept, ${count(found.dropped)} `
      + `not kept, ${count(found.late)} late packets${found.last ? `; the last: ${found.last}` : ""}`;
  }
  const causes = document.getElementById("causes");
  causes.hidden = !numbers.causes.length;
  causes.querySelector("table").replaceWith(table(
    "what made packets late", ["cause", "packets", "delay"],
    numbers.causes.map((row) => [[row.detail ? `${row.cause} (${row.detail})` : row.cause,
      count(row.packets), time(row.delay_ns)]])));
  const notes = [`A packet is lost when it has not come after ${time(numbers.window_ns)}. `
    + "Percentiles in italics have fewer than ten packets above them.", ...numbers.notes];
  if (numbers.trace_lost) notes.push(`${count(numbers.trace_lost)} records of the trace were lost.`);
  document.getElementById("notes").replaceChildren(...notes.map((text) => element("li", text)));
}

function state(text, lost = false) {
  const line = document.getElementById("state");
  line.textContent = text;
  line.className = lost ? "lost" : "";
}

async function look() {
  try {
    const answer = await fetch("numbers.json", { cache: "no-store" });
    if (answer.status === 200) show(await answer.json());
  } catch {
    state("the measurement has ended: its process has gone", true);
  }
  setTimeout(look, 1000);
}

look();
