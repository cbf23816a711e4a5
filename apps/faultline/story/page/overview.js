// SPDX-License-Identifier: BSD-3-Clause
// The strip above the panes: all events of the connection, the findings, and the window.

function overviewScale(width) {
  const [first, last] = wholeTime();
  return {first, last, x: (time) => (time - first) / (last - first) * width, time: (x) => first + x / width * (last - first)};
}

// Events per column of pixels, ordinary ones and those of trouble.
function countColumns(width, scale) {
  const usual = new Uint32Array(width), trouble = new Uint32Array(width);
  for (const i of view.order) {
    const x = Math.min(width - 1, Math.max(0, scale.x(events.time[i]) | 0));
    const one = events.class[i];
    if (isTrouble(one)) ++trouble[x];
    else ++usual[x];
  }
  return {usual, trouble};
}

let columnCache = {};
function drawOverview() {
  const {context, width, height} = prepare(byId("overview"));
  const scale = overviewScale(width);
  if (columnCache.connection !== view.connection || columnCache.width !== width)
    columnCache = {connection: view.connection, width, ...countColumns(width, scale)};
  const {usual, trouble} = columnCache;
  let most = 1;
  for (let x = 0; x < width; ++x) most = Math.max(most, usual[x] + trouble[x]);
  const room = height - 12;
  // A root keeps single events visible beside thousands.
  const tall = (count) => count === 0 ? 0 : Math.max(2, Math.sqrt(count / most) * room);
  for (let x = 0; x < width; ++x) {
    const all = tall(usual[x] + trouble[x]), bad = trouble[x] === 0 ? 0 : Math.max(2, all * trouble[x] / (usual[x] + trouble[x]));
    context.fillStyle = colors.classes[SENT];
    context.fillRect(x, height - 4 - all, 1, all - bad);
    context.fillStyle = colors.classes[AGAIN];
    context.fillRect(x, height - 4 - bad, 1, bad);
  }
  context.fillStyle = colors.retransmitted;
  for (const finding of ofConnection(story.findings))
    context.fillRect(scale.x(finding.begin_ns) - 1, 2, Math.max(4, scale.x(finding.end_ns) - scale.x(finding.begin_ns)), 4);
  const left = scale.x(view.begin), right = Math.max(scale.x(view.end), left + 2);
  context.fillStyle = colors.panel;
  context.globalAlpha = .6;
  context.fillRect(0, 0, left, height);
  context.fillRect(right, 0, width - right, height);
  context.globalAlpha = 1;
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.5;
  context.strokeRect(left, 1, right - left, height - 2);
}

// Drag within the window moves it; elsewhere it selects a new one. A click centres the window.
function useOverview() {
  const canvas = byId("overview");
  const timeAt = (event) => overviewScale(canvas.clientWidth).time(event.offsetX);
  canvas.addEventListener("pointerdown", (down) => {
    canvas.setPointerCapture(down.pointerId);
    const start = timeAt(down), {begin, end} = view, [first, last] = wholeTime();
    const moves = start > begin && start < end && end - begin < (last - first) * .98;
    let moved = false;
    const onMove = (event) => {
      const now = timeAt(event);
      if (Math.abs(event.clientX - down.clientX) < 3 && !moved) return;
      moved = true;
      if (moves) setWindow(begin + now - start, end + now - start);
      else setWindow(Math.min(start, now), Math.max(start, now));
    };
    const onUp = () => {
      canvas.removeEventListener("pointermove", onMove);
      if (!moved) setWindow(start - (end - begin) / 2, start + (end - begin) / 2);
    };
    canvas.addEventListener("pointermove", onMove);
    canvas.addEventListener("pointerup", onUp, {once: true});
  });
  canvas.addEventListener("dblclick", () => setWindow(...wholeTime()));
}
