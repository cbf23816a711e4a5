// SPDX-License-Identifier: BSD-3-Clause
// What is shown: the connection, the window of time, the chosen event; canvases of the screen's resolution.

const view = {
  connection: 0, order: new Uint32Array(0), begin: 0, end: 1, selected: -1, hidden: 0, table: "events",
  matches: new Uint32Array(0), isMatch: null, needle: "",
};
const byId = (id) => document.getElementById(id);
const chosen = () => story.connections[view.connection];
const SHORTEST_NS = 20;

let colors = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  colors = {classes: CLASSES.map((one) => value(one.color))};
  for (const name of ["text", "quiet", "line", "grid", "panel", "accent", "stall", "match", "fault", "retransmitted"])
    colors[name] = value(`--${name}`);
}

// Fits the canvas to its box and returns {context, width, height} in CSS pixels.
function prepare(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.floor(box.width)), height = Math.max(1, Math.floor(box.height));
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
  return {context, width, height};
}

const isShown = (i) => (view.hidden >> events.class[i] & 1) === 0;

// The places of the window's events in view.order: [first, last).
function windowRange() {
  return [lowerBound(view.order, view.begin), lowerBound(view.order, view.end + .5)];
}

function wholeTime() {
  const order = view.order;
  if (order.length === 0) return [0, 1];
  const first = events.time[order[0]], last = events.time[order[order.length - 1]];
  const margin = Math.max((last - first) * .015, 500);
  return [first - margin, last + margin];
}

// The time of the traffic: control calls are long before and after it.
function trafficTime() {
  const order = view.order, isTraffic = (i) => events.kind[i] !== CONTROL && events.kind[i] !== INVALIDATION;
  const first = order.find(isTraffic), last = order.findLast(isTraffic);
  if (first === undefined || last === order[order.length - 1] && first === order[0]) return wholeTime();
  const length = events.time[last] - events.time[first], margin = Math.max(length * .015, 500);
  return [events.time[first] - margin, events.time[last] + margin];
}

function setWindow(begin, end) {
  const [first, last] = wholeTime();
  let length = Math.min(Math.max(end - begin, SHORTEST_NS), last - first);
  begin = Math.min(Math.max(begin, first), last - length);
  view.begin = begin;
  view.end = begin + length;
  draw();
}

function zoomAt(time, factor) {
  setWindow(time - (time - view.begin) * factor, time + (view.end - time) * factor);
}

function chooseConnection(index) {
  view.connection = index;
  view.order = events.of[index];
  view.selected = -1;
  [view.begin, view.end] = trafficTime();
  findMatches();
  markCurrent();
  draw();
}

function select(i, reveal) {
  if (i >= 0 && events.connection[i] !== view.connection) chooseConnection(events.connection[i]);
  view.selected = i;
  if (i >= 0 && reveal && (events.time[i] < view.begin || events.time[i] > view.end)) {
    const half = (view.end - view.begin) / 2;
    setWindow(events.time[i] - half, events.time[i] + half);
  }
  draw();
  if (i >= 0) showInTable(i);
}

let drawing = false;
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawOverview();
    drawPsn();
    drawLadder();
    drawTable();
    byId("window-text").textContent = `${durationText(view.end - view.begin)} from ${durationText(view.begin)}`;
  });
}

// Round steps of an axis: 1, 2 or 5 times a power of ten.
function stepOf(range, most) {
  const raw = range / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw) ?? raw;
}

function* ticks(begin, end, most) {
  const step = stepOf(end - begin, most);
  for (let value = Math.ceil(begin / step) * step; value <= end; value += step) yield [value, step];
}

function tickText(ns, step) {
  const [unit, name] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  return `${(ns / unit).toFixed(digits)} ${name}`;
}

const ofConnection = (rows) => rows.filter((row) => row.connection === view.connection);
