// SPDX-License-Identifier: BSD-3-Clause
"use strict";
// The story's events as columns, and what one event is. apps/faultline/story/model.hpp has the same values.

const story = JSON.parse(document.getElementById("summary").textContent);
const KINDS = ["packet", "post", "completion", "fault", "fault end", "invalidation", "timer", "congestion", "drop", "control call", "wait"];
const PACKET = 0, POST = 1, COMPLETION = 2, FAULT = 3, FAULT_END = 4, INVALIDATION = 5, TIMER = 6, CONGESTION = 7, DROP = 8,
  CONTROL = 9, WAIT = 10;
const SECOND_END = 1, RESPONSE = 2, RETRANSMITTED = 4, ACK_REQUEST = 8, MARKED = 16, PAGE_FAULT = 32, PAGE_READY = 64, HELD = 128,
  PARKED = 256, SOLICITED = 512, RECEIVED = 1024, CUT_WINDOW = 2048;
const ACK = 0x11, SELECTIVE_ACK = 0xc0, ATOMIC_ACK = 0x12, CNP = 0x81;

// What an event is drawn as. The order is that of drawing.
const CLASSES = [
  {name: "sent", color: "--sent", help: "request packets"},
  {name: "answers", color: "--answer", help: "READ responses and atomic answers"},
  {name: "acknowledged", color: "--ack", help: "ACKs, and the line of acknowledged PSNs"},
  {name: "calls", color: "--call", help: "work requests and completions"},
  {name: "held", color: "--held", help: "the receiver keeps the packet until an earlier one arrives"},
  {name: "parked", color: "--parked", help: "the receiver keeps the packet until a page is resident; page faults"},
  {name: "retransmitted", color: "--retransmitted", help: "sent before"},
  {name: "NAK", color: "--nak", help: "sequence errors and refusals"},
  {name: "RNR", color: "--rnr", help: "receiver not ready"},
  {name: "dropped", color: "--drop", help: "packets that a receiver dropped"},
  {name: "congestion", color: "--mark", help: "ECN marks, CNPs, changes of the rate; timers; invalidations"},
  {name: "control calls", color: "--control", help: "verbs calls that create, change and destroy objects"},
  {name: "waits", color: "--wait", help: "work requests that wait without a packet, and for what"},
];
const SENT = 0, ANSWER = 1, ACKED = 2, CALL = 3, HELD_CLASS = 4, PARKED_CLASS = 5, AGAIN = 6, NAK = 7, RNR = 8, DROP_CLASS = 9, OTHER = 10, CONTROL_CLASS = 11, WAIT_CLASS = 12;
const isTrouble = (one) => one >= HELD_CLASS && one < OTHER;
const NOT_STARTED = 0xffffffff;

const events = {count: story.events};

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function loadEvents() {
  const element = document.getElementById("columns");
  const packed = bytesOf(element.textContent.trim());
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const n = events.count;
  let at = 0;
  const column = (Type) => {
    const one = new Type(buffer, at, n);
    at += n * Type.BYTES_PER_ELEMENT;
    return one;
  };
  const low = column(Uint32Array), high = column(Uint32Array);
  events.psn = column(Int32Array);
  events.argument = column(Uint32Array);
  events.length = column(Uint32Array);
  events.connection = column(Uint16Array);
  events.flags = column(Uint16Array);
  events.kind = column(Uint8Array);
  events.code = column(Uint8Array);
  events.syndrome = column(Uint8Array);
  events.time = new Float64Array(n);
  events.class = new Uint8Array(n);
  let now = 0;
  for (let i = 0; i < n; ++i) {
    now += low[i] + high[i] * 4294967296;
    events.time[i] = now;
    events.class[i] = classOf(i);
  }
  sortByConnection();
}

// events.of[c]: the indexes of connection c's events, by time.
function sortByConnection() {
  const starts = new Uint32Array(story.connections.length + 1);
  for (let i = 0; i < events.count; ++i) ++starts[events.connection[i] + 1];
  for (let c = 0; c < story.connections.length; ++c) starts[c + 1] += starts[c];
  const next = starts.slice();
  const order = new Uint32Array(events.count);
  for (let i = 0; i < events.count; ++i) order[next[events.connection[i]]++] = i;
  events.of = story.connections.map((_, c) => order.subarray(starts[c], starts[c + 1]));
}

function classOf(i) {
  const flags = events.flags[i];
  switch (events.kind[i]) {
    case PACKET: break;
    case POST: case COMPLETION: return CALL;
    case FAULT: case FAULT_END: return PARKED_CLASS;
    case DROP: return DROP_CLASS;
    case CONTROL: return CONTROL_CLASS;
    case WAIT: return WAIT_CLASS;
    default: return OTHER;
  }
  const code = events.code[i];
  if (code === CNP) return OTHER;
  if (flags & RESPONSE) {
    if (code === SELECTIVE_ACK) return HELD_CLASS;
    if ((code & 0x1f) !== ACK) return flags & RETRANSMITTED ? AGAIN : ANSWER;
    const kind = events.syndrome[i] & 0x60;
    if (kind === 0x20) return flags & PAGE_FAULT ? PARKED_CLASS : RNR;
    if (kind === 0x60) return NAK;
    return flags & PAGE_FAULT ? PARKED_CLASS : ACKED;
  }
  if (flags & PARKED) return PARKED_CLASS;
  if (flags & HELD) return HELD_CLASS;
  return flags & RETRANSMITTED ? AGAIN : SENT;
}

const fromSecond = (i) => (events.flags[i] & SECOND_END) !== 0;
// The end whose requests the event's PSN counts.
const requesterOf = (i) => ((events.flags[i] & SECOND_END) !== 0) !== ((events.flags[i] & RESPONSE) !== 0) ? 1 : 0;
const psnOf = (i) => (story.connections[events.connection[i]].first_psn[requesterOf(i)] + events.psn[i]) & 0xffffff;

function lowerBound(order, time) {
  let low = 0, high = order.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events.time[order[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

const NAKS = ["PSN sequence error", "invalid request", "remote access error", "remote operational error", "invalid RD request"];
const RNR_MS = [655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36,
  20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52];

function answerText(i) {
  const syndrome = events.syndrome[i], kind = syndrome & 0x60, value = syndrome & 0x1f;
  if (kind === 0x20) return `RNR NAK, timer ${RNR_MS[value]} ms`;
  if (kind === 0x60) return `NAK: ${NAKS[value] ?? value}`;
  return value === 0x1f ? "ACK" : `ACK, credit code ${value}`;
}

const STATUS = ["success", "local length error", "local QP operation error", "local EEC operation error", "local protection error",
  "flushed", "memory window bind error", "bad response", "local access error", "remote invalid request", "remote access error",
  "remote operation error", "retries exceeded", "RNR retries exceeded"];
const DROPS = story.drop_reasons;
const OPERATIONS = ["WRITE", "WRITE with immediate", "SEND", "SEND with immediate", "READ", "compare and swap", "fetch and add", "local invalidate",
  "bind window", "SEND with invalidate", , , , , "FLUSH", "ATOMIC WRITE"];
const LOCAL = [7, 8];
const WAITS = story.waits;
const operationOf = (code) => OPERATIONS[code] ?? "request";
// Of a work request that did not start in the turn that found it. Local operations have no packet.
function waitText(i) {
  if (LOCAL.includes(events.code[i])) return "";
  const wait = events.argument[i], reason = WAITS[events.syndrome[i]] ?? "nothing";
  if (wait === NOT_STARTED) return `, never sent${reason === "nothing" ? "" : `, waits for ${reason}`}`;
  return wait === 0 ? "" : `, waits ${durationText(wait * 1000)} for ${reason}`;
}
const TIMERS = ["timer", "ACK timeout", "early probe"];

// A short name: the text of the ladder's arrows.
function nameOf(i) {
  const code = events.code[i], flags = events.flags[i];
  switch (events.kind[i]) {
    case POST: return `${operationOf(code)} posted${waitText(i)}`;
    case COMPLETION: return `completion: ${STATUS[code] ?? code}`;
    case FAULT: return "page fault";
    case FAULT_END: return "page resident";
    case INVALIDATION: return `invalidation of ${events.argument[i]} pages`;
    case TIMER: return TIMERS[code] ?? "timer";
    case CONGESTION: return `rate ${rateText(events.argument[i] * 1e6)}`;
    case DROP: return `dropped: ${DROPS[code] ?? code}`;
    case CONTROL: return story.controls[events.argument[i]].text;
    case WAIT: return `waits for ${WAITS[code] ?? code}${WAITS[code] === "window" ? ` of ${events.argument[i]} packets` : ""}${flags & CUT_WINDOW ? ", cut" : ""}`;
  }
  if (code === SELECTIVE_ACK) return `selective ACK, ${events.argument[i] & 0x1ff} held`;
  if ((code & 0x1f) === ACK && code !== CNP) return answerText(i) + (flags & PAGE_FAULT ? ", page fault" : "");
  return (story.opcodes[code] ?? `opcode ${code}`).replace(/^[A-Z]+\./, "").replaceAll("_", " ");
}

function textOf(i) {
  const kind = events.kind[i], flags = events.flags[i];
  let text = nameOf(i);
  if (kind === PACKET && events.code[i] !== CNP) text += ` · PSN ${psnOf(i)}`;
  if (kind === PACKET && (events.code[i] & 0x1f) === 0x0c) text += ` · ${events.argument[i]} B requested`;
  else if (kind === WAIT) text += ` · ${numberText(events.length[i])} work requests`;
  else if (events.length[i] && kind !== COMPLETION) text += ` · ${events.length[i]} B`;
  if (flags & RETRANSMITTED) text += " · again";
  if (flags & HELD) text += " · held";
  if (flags & PARKED) text += " · parked";
  if (flags & MARKED) text += " · ECN mark";
  return text;
}

function durationText(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
  if (size >= 1e3) return `${(ns / 1e3).toFixed(2)} µs`;
  return `${ns.toFixed(0)} ns`;
}
const rateText = (bytes) => bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB/s` : `${(bytes / 1e6).toFixed(1)} MB/s`;
const numberText = (value) => value.toLocaleString("en-US");
const qpnText = (qpn) => `0x${qpn.toString(16)}`;
const endText = (end) => end.qpn ? `${end.address} QP ${qpnText(end.qpn)}` : end.address;
