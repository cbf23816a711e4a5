// SPDX-License-Identifier: BSD-3-Clause
// The ladder: the two ends as lanes, time downwards, packets as arrows. Beside the lanes are the ends' own
// events, faults and stalls.

const ladder = {top: 34, bottom: 10, yOf: null, timeOf: null, lanes: [0, 0]};
const MOST_ARROWS = 900;

function drawLadder() {
  const {context, width, height} = prepare(byId("ladder"));
  const {top, bottom} = ladder, span = height - top - bottom;
  ladder.yOf = (time) => top + (time - view.begin) / (view.end - view.begin) * span;
  ladder.timeOf = (y) => view.begin + (y - top) / span * (view.end - view.begin);
  const side = Math.min(170, Math.max(96, width * .27));
  ladder.lanes = [side, width - side];
  const [first, last] = windowRange();
  let arrows = 0;
  for (let k = first; k < last && arrows <= MOST_ARROWS; ++k) arrows += events.kind[view.order[k]] === PACKET && isShown(view.order[k]);
  context.save();
  context.beginPath();
  context.rect(0, top - 6, width, span + 12);
  context.clip();
  drawLadderTimes(context, width);
  drawLadderShades(context);
  if (arrows > MOST_ARROWS) drawDense(context, first, last, height);
  else drawArrows(context, first, last);
  drawOwnEvents(context, first, last, height);
  drawSelected(context);
  context.restore();
  drawLanes(context, width, height);
  byId("ladder-note").textContent = arrows > MOST_ARROWS ? "— zoom in for single packets" : "";
}

function drawLanes(context, width, height) {
  context.fillStyle = colors.text;
  chosen().ends.forEach((end, k) => {
    const x = ladder.lanes[k];
    context.fillRect(x - 1, ladder.top - 6, 2, height - ladder.top - ladder.bottom + 6);
    context.textAlign = "center";
    const half = Math.min(x, width - x) - 4;
    context.fillText(end.address, Math.min(Math.max(x, half), width - half), 12);
    context.fillText(end.qpn ? `QP ${qpnText(end.qpn)}` : "QP unknown", x, 25);
  });
}

function drawLadderTimes(context, width) {
  context.textAlign = "right";
  for (const [time, step] of ticks(view.begin, view.end, 9)) {
    const y = Math.round(ladder.yOf(time)) + .5;
    context.fillStyle = colors.grid;
    context.fillRect(0, y, width, 1);
    context.fillStyle = colors.quiet;
    context.fillText(tickText(time, step), width - 4, y - 3);
  }
}

// Stalls beside the requester's lane, faults beside that of the end whose page is missing.
function drawLadderShades(context) {
  const bar = (row, end, color, side, text, lower = 0) => {
    if (row.end_ns < view.begin || row.begin_ns > view.end) return;
    const x = ladder.lanes[end] + (end === 0 ? -side - 5 : side), y = ladder.yOf(row.begin_ns), tall = Math.max(2, ladder.yOf(row.end_ns) - y);
    context.fillStyle = color;
    context.fillRect(x, y, 5, tall);
    if (tall < 26 + lower) return;
    context.fillStyle = colors.quiet;
    context.textAlign = end === 0 ? "right" : "left";
    const middle = (Math.max(y, ladder.top) + Math.min(y + tall, ladder.yOf(view.end))) / 2 + lower;
    context.fillText(text, end === 0 ? x - 4 : x + 9, middle);
    context.fillText(durationText(row.end_ns - row.begin_ns), end === 0 ? x - 4 : x + 9, middle + 13);
  };
  context.globalAlpha = .8;
  for (const stall of ofConnection(story.stalls)) bar(stall, stall.end, colors.retransmitted, 4, "stall");
  if (!(view.hidden >> PARKED_CLASS & 1)) for (const fault of ofConnection(story.faults)) bar(fault, fault.at, colors.fault, 4, "fault");
  context.globalAlpha = 1;
  if (!(view.hidden >> WAIT_CLASS & 1)) for (const wait of longestWaits()) bar(wait, 0, colors.classes[WAIT_CLASS], 11, `waits for ${wait.waited_for}`, 30);
}

// The waits of the table's work requests, those that overlap as one.
function longestWaits() {
  const waits = [];
  const rows = ofConnection(story.requests).map((row) => ({waited_for: row.waited_for, begin_ns: row.begin_ns, end_ns: waitEnd(row)}));
  for (const row of rows.filter((one) => one.end_ns > one.begin_ns).sort((a, b) => a.begin_ns - b.begin_ns)) {
    const last = waits[waits.length - 1];
    if (last && row.begin_ns <= last.end_ns && row.waited_for === last.waited_for) last.end_ns = Math.max(last.end_ns, row.end_ns);
    else waits.push(row);
  }
  return waits;
}

// An arrow begins at the time of transmission, or ends at the time of receipt; its slope is not the flight time.
function arrowOf(i, slope) {
  const y = ladder.yOf(events.time[i]), from = fromSecond(i) ? 1 : 0, received = (events.flags[i] & RECEIVED) !== 0;
  return {x0: ladder.lanes[from], x1: ladder.lanes[1 - from], y0: received ? y - slope : y, y1: received ? y : y + slope};
}

function drawArrows(context, first, last) {
  const count = Math.max(1, last - first), room = (ladder.yOf(view.end) - ladder.top) / count;
  const slope = Math.min(12, Math.max(2, room * .7));
  ladder.slope = slope;
  let textFree = -Infinity;
  context.textAlign = "center";
  for (let k = first; k < last; ++k) {
    const i = view.order[k];
    if (events.kind[i] !== PACKET || !isShown(i)) continue;
    const {x0, x1, y0, y1} = arrowOf(i, slope);
    context.strokeStyle = context.fillStyle = colors.classes[events.class[i]];
    context.lineWidth = view.isMatch?.(i) ? 2.5 : 1;
    drawArrow(context, x0, y0, x1, y1);
    const y = (y0 + y1) / 2 - 3;
    if (y < textFree + 12) continue;
    textFree = y;
    drawLabel(context, shorten(context, textOf(i), ladder.lanes[1] - ladder.lanes[0] - 30), (x0 + x1) / 2, y);
  }
}

function drawLabel(context, text, x, y) {
  const wide = context.measureText(text).width, color = context.fillStyle;
  context.fillStyle = colors.panel;
  context.globalAlpha = .85;
  context.fillRect(x - wide / 2 - 2, y - 9, wide + 4, 11);
  context.globalAlpha = 1;
  context.fillStyle = color;
  context.fillText(text, x, y);
}

function shorten(context, text, width) {
  while (text.length > 4 && context.measureText(text).width > width) text = text.includes(" · ") ? text.slice(0, text.lastIndexOf(" · ")) : `${text.slice(0, -2)}…`;
  return text;
}

function drawArrow(context, x0, y0, x1, y1) {
  const way = Math.sign(x1 - x0), end = x1 - way;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(end, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(end, y1);
  context.lineTo(end - way * 7, y1 - 3.5);
  context.lineTo(end - way * 7, y1 + 3.5);
  context.fill();
}

// Many packets: a line from lane to lane for each row of pixels, direction and class.
function drawDense(context, first, last, height) {
  const rows = [new Uint16Array(height), new Uint16Array(height)];
  for (let k = first; k < last; ++k) {
    const i = view.order[k];
    if (events.kind[i] !== PACKET || !isShown(i)) continue;
    const y = ladder.yOf(events.time[i]) | 0;
    if (y >= 0 && y < height) rows[fromSecond(i) ? 1 : 0][y] |= 1 << events.class[i];
  }
  const [left, right] = ladder.lanes, middle = (left + right) / 2;
  CLASSES.forEach((_, one) => {
    context.fillStyle = colors.classes[one];
    context.globalAlpha = one >= HELD_CLASS ? .9 : .35;
    for (let y = 0; y < height; ++y) {
      if (rows[0][y] >> one & 1) context.fillRect(left, y, middle - left - 1, 1);
      if (rows[1][y] >> one & 1) context.fillRect(middle + 1, y, right - middle - 1, 1);
    }
  });
  context.globalAlpha = 1;
}

// Calls, faults, timers and drops: a mark on the lane, with a text where there is room.
function drawOwnEvents(context, first, last, height) {
  const free = [-Infinity, -Infinity], drawn = [new Uint8Array(height + 1), new Uint8Array(height + 1)];
  for (let k = first; k < last; ++k) {
    const i = view.order[k];
    if (events.kind[i] === PACKET || !isShown(i)) continue;
    const end = fromSecond(i) ? 1 : 0, y = ladder.yOf(events.time[i]);
    if (y < 0 || y > height || drawn[end][y | 0]) continue;
    drawn[end][y | 0] = 1;
    const x = ladder.lanes[end];
    context.fillStyle = colors.classes[events.class[i]];
    context.beginPath();
    context.arc(x, y, 3.5, 0, 7);
    context.fill();
    if (y < free[end] + 12) continue;
    free[end] = y;
    context.textAlign = end === 0 ? "right" : "left";
    context.fillText(shorten(context, nameOf(i), ladder.lanes[0] - 16), end === 0 ? x - 12 : x + 12, y + 4);
  }
}

function drawSelected(context) {
  if (view.selected < 0) return;
  const y = ladder.yOf(events.time[view.selected]);
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.5;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(ladder.lanes[1] * 2, y);
  context.stroke();
  context.setLineDash([]);
}

// The event nearest to a height, within 8 pixels, or -1.
function ladderEventAt(_, y) {
  const near = 8, order = view.order, slope = (ladder.slope ?? 0) / 2;
  const first = lowerBound(order, ladder.timeOf(y - near - slope)), last = Math.min(lowerBound(order, ladder.timeOf(y + near)), first + 50000);
  let best = -1, least = near;
  for (let k = first; k < last; ++k) {
    const i = order[k];
    if (!isShown(i)) continue;
    const shift = events.kind[i] === PACKET ? (events.flags[i] & RECEIVED ? -slope : slope) : 0;
    const distance = Math.abs(ladder.yOf(events.time[i]) + shift - y);
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}
