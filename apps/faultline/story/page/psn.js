// SPDX-License-Identifier: BSD-3-Clause
// The time-sequence diagram: one band for the requests of each end. A pixel is drawn once for each class, so
// that a million events cost no more than the pixels that they touch.

const psnPane = {left: 64, right: 8, bottom: 20, bands: [], xOf: null, timeOf: null};
const FEW_EVENTS = 1500;

// The window's range of PSNs of an end's requests, or null.
function psnRange(first, last, requester) {
  let low = Infinity, high = -Infinity;
  for (let k = first; k < last; ++k) {
    const i = view.order[k];
    if (events.kind[i] !== PACKET || events.code[i] === CNP || requesterOf(i) !== requester) continue;
    if (events.psn[i] < low) low = events.psn[i];
    if (events.psn[i] > high) high = events.psn[i];
  }
  return low <= high ? {low, high} : null;
}

function layOutBands(first, last, height) {
  const ranges = [0, 1].map((end) => ({end, range: psnRange(first, last, end)})).filter((one) => one.range !== null);
  const gap = 18, room = (height - psnPane.bottom - gap * ranges.length) / Math.max(1, ranges.length);
  psnPane.bands = ranges.map(({end, range}, k) => {
    const margin = Math.max(1, (range.high - range.low) * .06);
    const low = range.low - margin, high = range.high + margin, top = gap + k * (room + gap);
    return {end, low, high, top, room, y: (psn) => top + room - (psn - low) / (high - low) * room};
  });
}

function drawPsn() {
  const canvas = byId("psn"), {context, width, height} = prepare(canvas);
  const {left, right} = psnPane, span = width - left - right;
  psnPane.xOf = (time) => left + (time - view.begin) / (view.end - view.begin) * span;
  psnPane.timeOf = (x) => view.begin + (x - left) / span * (view.end - view.begin);
  const [first, last] = windowRange();
  layOutBands(first, last, height);
  drawTimeAxis(context, width, height);
  for (const band of psnPane.bands) {
    drawBandFrame(context, band, width);
    context.save();
    context.beginPath();
    context.rect(left, band.top, span, band.room);
    context.clip();
    drawShades(context, band);
    drawAcknowledged(context, band, first, last);
    drawPoints(context, band, first, last, width, height);
    context.restore();
  }
  if (psnPane.bands.length === 0) {
    context.fillStyle = colors.quiet;
    context.fillText("No packet in this time.", left + 12, 40);
  }
}

function drawTimeAxis(context, width, height) {
  context.textAlign = "center";
  for (const [time, step] of ticks(view.begin, view.end, width / 110)) {
    const x = Math.round(psnPane.xOf(time)) + .5;
    context.fillStyle = colors.grid;
    context.fillRect(x, 4, 1, height - psnPane.bottom - 4);
    context.fillStyle = colors.quiet;
    context.fillText(tickText(time, step), Math.min(Math.max(x, psnPane.left + 16), width - 34), height - 6);
  }
}

function drawBandFrame(context, band, width) {
  const ends = chosen().ends, from = ends[band.end], to = ends[1 - band.end];
  context.textAlign = "left";
  context.fillStyle = colors.quiet;
  context.fillText(`requests of ${endText(from)} to ${endText(to)}`, psnPane.left, band.top - 5);
  context.textAlign = "right";
  for (const [psn] of ticks(band.low, band.high, Math.max(2, band.room / 40))) {
    if (!Number.isInteger(psn)) continue;
    const y = Math.round(band.y(psn)) + .5;
    context.fillStyle = colors.grid;
    context.fillRect(psnPane.left, y, width - psnPane.left - psnPane.right, 1);
    context.fillStyle = colors.quiet;
    context.fillText(String((chosen().first_psn[band.end] + psn) & 0xffffff), psnPane.left - 6, y + 4);
  }
  context.strokeStyle = colors.line;
  context.lineWidth = 1;
  context.strokeRect(psnPane.left + .5, band.top + .5, width - psnPane.left - psnPane.right - 1, band.room - 1);
}

// Stalls are shaded, faults are bars at the PSN that waits.
function drawShades(context, band) {
  for (const stall of ofConnection(story.stalls)) {
    if (stall.end !== band.end || stall.end_ns < view.begin || stall.begin_ns > view.end) continue;
    const x = psnPane.xOf(stall.begin_ns), right = psnPane.xOf(stall.end_ns);
    context.fillStyle = colors.stall;
    context.fillRect(x, band.top, Math.max(1, right - x), band.room);
    if (right - x < 110) continue;
    context.fillStyle = colors.quiet;
    context.textAlign = "center";
    context.fillText(`stall ${durationText(stall.end_ns - stall.begin_ns)}: ${stall.cause}`, (Math.max(x, psnPane.left) + right) / 2, band.top + 14);
  }
  drawWaits(context, band);
  if (view.hidden >> PARKED_CLASS & 1) return;
  context.fillStyle = colors.fault;
  for (const fault of ofConnection(story.faults)) {
    if (fault.end !== band.end || fault.end_ns < view.begin || fault.begin_ns > view.end) continue;
    const x = psnPane.xOf(fault.begin_ns);
    context.globalAlpha = .75;
    context.fillRect(x, band.y(fault.relative_psn) - 2, Math.max(2, psnPane.xOf(fault.end_ns) - x), 4);
    context.globalAlpha = 1;
  }
}

// A work request without a packet: a thin bar at its first PSN, from the post to the packet.
function drawWaits(context, band) {
  if (view.hidden >> WAIT_CLASS & 1 || band.end !== 0) return;
  context.fillStyle = colors.classes[WAIT_CLASS];
  for (const request of ofConnection(story.requests)) {
    const end = waitEnd(request);
    if (request.psn === null || end < view.begin || request.begin_ns > view.end) continue;
    const x = psnPane.xOf(request.begin_ns);
    if (end > request.begin_ns) context.fillRect(x, band.y(request.relative_psn) - 1, Math.max(1, psnPane.xOf(end) - x), 2);
  }
}

// The line of acknowledged PSNs: a step at each answer.
function drawAcknowledged(context, band, first, last) {
  if (view.hidden >> ACKED & 1) return;
  context.strokeStyle = colors.classes[ACKED];
  context.lineWidth = 1.5;
  context.beginPath();
  let y = null, lastX = -1, lastY = -1;
  for (let k = first; k < last; ++k) {
    const i = view.order[k];
    if (events.kind[i] !== PACKET || (events.flags[i] & RESPONSE) === 0 || requesterOf(i) !== band.end || events.class[i] === NAK ||
        events.class[i] === RNR || events.code[i] === SELECTIVE_ACK) continue;
    const x = psnPane.xOf(events.time[i]), next = band.y(events.psn[i]);
    if (y !== null && next > y) continue;
    // Steps within one pixel are one.
    if (Math.abs(x - lastX) < .5 && Math.abs(next - lastY) < .5) continue;
    if (y === null) context.moveTo(x, next);
    else {
      context.lineTo(x, y);
      context.lineTo(x, next);
    }
    y = next;
    lastX = x;
    lastY = next;
  }
  context.stroke();
}

function drawPoints(context, band, first, last, width, height) {
  const few = last - first <= FEW_EVENTS;
  const size = few ? 5 : last - first < 20000 ? 3 : 2;
  const drawn = new Uint16Array(width * height);
  const points = CLASSES.map(() => []);
  for (let k = first; k < last; ++k) {
    const i = view.order[k];
    if (!isShown(i)) continue;
    const kind = events.kind[i];
    if ((kind !== PACKET && kind !== DROP && kind !== TIMER) || requesterOf(i) !== band.end || events.code[i] === CNP && kind === PACKET) continue;
    const x = psnPane.xOf(events.time[i]) | 0, y = band.y(events.psn[i]) | 0;
    if (y < 0 || y >= height || x < 0 || x >= width) continue;
    const one = events.class[i], at = y * width + x;
    if (drawn[at] >> one & 1) continue;
    drawn[at] |= 1 << one;
    points[one].push(x, y);
  }
  points.forEach((list, one) => {
    context.fillStyle = context.strokeStyle = colors.classes[one];
    for (let k = 0; k < list.length; k += 2) drawPoint(context, one, list[k], list[k + 1], size, few);
  });
  drawMarks(context, band, first, last, few);
}

// Trouble is larger than the usual, so that single events are seen.
function drawPoint(context, one, x, y, size, few) {
  const large = isTrouble(one) ? size + 1 : size, half = large / 2;
  if (few && (one === NAK || one === RNR)) {
    context.beginPath();
    context.moveTo(x, y - 7);
    context.lineTo(x + 6, y);
    context.lineTo(x, y + 7);
    context.lineTo(x - 6, y);
    context.fill();
  } else if (few && one === DROP_CLASS) {
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x - 4, y - 4);
    context.lineTo(x + 4, y + 4);
    context.moveTo(x + 4, y - 4);
    context.lineTo(x - 4, y + 4);
    context.stroke();
  } else if (few && one === ACKED) {
    context.beginPath();
    context.arc(x, y, 2.5, 0, 7);
    context.fill();
  } else {
    context.fillRect(x - half, y - half, large, large);
  }
}

// The chosen event and the matches of a search.
function drawMarks(context, band, first, last, few) {
  const ring = (i, color, radius) => {
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(psnPane.xOf(events.time[i]), band.y(events.psn[i]), radius, 0, 7);
    context.stroke();
  };
  if (view.isMatch && few)
    for (let k = first; k < last; ++k)
      if (view.isMatch(view.order[k]) && requesterOf(view.order[k]) === band.end) ring(view.order[k], colors.match, 6);
  if (view.selected >= 0 && requesterOf(view.selected) === band.end) ring(view.selected, colors.accent, 8);
}

// The event nearest to a point, within 12 pixels, or -1.
function psnEventAt(x, y) {
  const near = 12, order = view.order;
  const first = lowerBound(order, psnPane.timeOf(x - near)), last = Math.min(lowerBound(order, psnPane.timeOf(x + near)), first + 50000);
  let best = -1, least = near * near;
  for (let k = first; k < last; ++k) {
    const i = order[k];
    if (!isShown(i) || events.kind[i] !== PACKET && events.kind[i] !== DROP && events.kind[i] !== TIMER) continue;
    const band = psnPane.bands.find((one) => one.end === requesterOf(i));
    if (!band) continue;
    const distance = (psnPane.xOf(events.time[i]) - x) ** 2 + (band.y(events.psn[i]) - y) ** 2;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}
