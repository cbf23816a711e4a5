// SPDX-License-Identifier: BSD-3-Clause
// The heading, the lists at the side, the search, and what mouse and keys do.

function showHeading() {
  const start = story.start_realtime_ns ? new Date(story.start_realtime_ns / 1e6).toISOString().replace("T", " ").replace("Z", " UTC") : "";
  document.title = `${story.source} – Faultline story`;
  byId("title").textContent = `Story of ${story.source}`;
  const counted = (count, what) => `${numberText(count)} ${what}${count === 1 ? "" : "s"}`;
  const facts = [story.origin, counted(story.events, "event"), counted(story.connections.length, "connection"), durationText(story.duration_ns), start];
  if (story.lost_events) facts.push(`${numberText(story.lost_events)} older events overwritten`);
  if (story.other_frames) facts.push(`${numberText(story.other_frames)} other frames`);
  if (story.invalid_packets) facts.push(`${numberText(story.invalid_packets)} unreadable packets`);
  byId("facts").textContent = [...facts, ...story.notes].filter(Boolean).join(" · ");
}

function showFindings() {
  byId("finding-count").textContent = story.findings.length || "";
  const cards = story.findings.map((finding) => {
    const numbers = element("span", {class: "numbers"}, `${connectionText(finding)}, at ${durationText(finding.begin_ns)}. ${finding.text}`);
    return element("button", {type: "button", class: "card finding", onclick: () => showRow(finding)}, element("b", {}, finding.rule), numbers);
  });
  byId("findings").replaceChildren(...cards.length ? cards : [element("p", {class: "none"}, "No rule of thumb finds trouble.")]);
}

function showConnections() {
  const filter = byId("connection-filter").value.trim().toLowerCase(), most = 300;
  const fits = story.connections.map((one, index) => ({one, index})).filter(({one}) => !filter || one.ends.some((end) => endText(end).toLowerCase().includes(filter)));
  const cards = fits.slice(0, most).map(({one, index}) => {
    const [a, b] = one.ends, again = a.retransmitted_packets + b.retransmitted_packets, naks = a.sequence_naks + b.sequence_naks, rnr = a.rnr_naks + b.rnr_naks;
    const bad = [again && `${numberText(again)} again`, naks && `${numberText(naks)} NAK`, rnr && `${numberText(rnr)} RNR`].filter(Boolean).join(", ");
    const numbers = element("span", {class: "numbers"}, `${one.service} · ${numberText(a.sent_packets)} → · ${numberText(b.sent_packets)} ← `);
    if (bad) numbers.append(element("span", {class: "bad"}, bad));
    return element("button", {type: "button", class: "card", "data-connection": index, onclick: () => chooseConnection(index)}, element("b", {}, `${endText(a)}`),
      element("b", {}, `${endText(b)}`), numbers);
  });
  if (fits.length > most) cards.push(element("p", {class: "none"}, `${fits.length - most} more: enter a part of an address`));
  byId("connection-count").textContent = story.connections.length;
  byId("connections").replaceChildren(...cards);
  markCurrent();
}

function markCurrent() {
  for (const card of document.querySelectorAll("[data-connection]")) card.setAttribute("aria-current", Number(card.dataset.connection) === view.connection);
}

function showLegend() {
  const present = new Set(events.class);
  byId("legend").replaceChildren(...CLASSES.map((one, index) => {
    const chip = element("button", {type: "button", class: "chip", "aria-pressed": true, title: one.help, "data-class": index, onclick: () => {
      view.hidden ^= 1 << index;
      chip.setAttribute("aria-pressed", (view.hidden >> index & 1) === 0);
      draw();
    }}, element("i", {style: `--c:var(${one.color})`}), one.name);
    chip.hidden = !present.has(index);
    return chip;
  }));
}

// All words of the search are in the event's text, or "psn N" is its PSN.
function findMatches() {
  const needle = byId("search").value.trim().toLowerCase();
  view.needle = needle;
  if (!needle) {
    view.isMatch = null;
    view.matches = new Uint32Array(0);
    byId("search-count").textContent = "";
    return;
  }
  const psn = /^psn[ :]?(\d+)$/.exec(needle), words = needle.split(/\s+/);
  const known = new Map();
  const fits = (i) => {
    if (psn) return psnOf(i) === Number(psn[1]);
    if (events.kind[i] === CONTROL) return words.every((word) => textOf(i).toLowerCase().includes(word));
    // Events with the same text but for PSN and length are tested once.
    const key = events.kind[i] * 16777216 + events.code[i] * 65536 + events.syndrome[i] * 256 + (events.flags[i] >> 2 & 0xff) + (events.flags[i] >> 10 & 3) * 4294967296;
    let answer = known.get(key);
    if (answer === undefined) {
      const text = textOf(i).toLowerCase();
      answer = words.every((word) => text.includes(word));
      if (!/\d/.test(needle)) known.set(key, answer);
    }
    return answer;
  };
  const found = [];
  for (const i of view.order) if (fits(i)) found.push(i);
  view.matches = Uint32Array.from(found);
  const set = new Set(found);
  view.isMatch = (i) => set.has(i);
  byId("search-count").textContent = found.length ? `${numberText(found.length)} found` : "none found";
}

function nextMatch(way) {
  const found = view.matches;
  if (found.length === 0) return;
  const from = view.selected >= 0 ? view.selected : way > 0 ? -1 : Infinity;
  let next = way > 0 ? found.find((i) => i > from) : found.findLast((i) => i < from);
  next ??= way > 0 ? found[0] : found[found.length - 1];
  byId("search-count").textContent = `${numberText(found.indexOf(next) + 1)} of ${numberText(found.length)}`;
  select(next, true);
}

function usePane(canvas, timeOf, along, eventAt) {
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    hideTip();
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways) return zoomAt(timeOf(event), 1.0018 ** event.deltaY);
    const step = (event.deltaX || event.deltaY) / 800 * (view.end - view.begin);
    setWindow(view.begin + step, view.end + step);
  }, {passive: false});
  canvas.addEventListener("dblclick", () => setWindow(...wholeTime()));
  let down = null;
  canvas.addEventListener("pointerdown", (event) => {
    down = {at: event[along], begin: view.begin, end: view.end, moved: false};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!down) return showTip(event, eventAt(event.offsetX, event.offsetY));
    const moved = event[along] - down.at;
    if (Math.abs(moved) > 3) down.moved = true;
    if (!down.moved) return;
    hideTip();
    const length = along === "offsetX" ? canvas.clientWidth - psnPane.left - psnPane.right : canvas.clientHeight - ladder.top - ladder.bottom;
    const step = moved / length * (down.end - down.begin);
    setWindow(down.begin - step, down.end - step);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (down && !down.moved) select(eventAt(event.offsetX, event.offsetY), false);
    down = null;
  });
  canvas.addEventListener("pointerleave", hideTip);
}

function showTip(event, i) {
  if (i < 0) return hideTip();
  const tip = byId("tip");
  tip.textContent = `${textOf(i)}\n${durationText(events.time[i])} · from ${endText(chosen().ends[fromSecond(i) ? 1 : 0])}`;
  tip.hidden = false;
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
}

const hideTip = () => { byId("tip").hidden = true; };

function stepSelection(way) {
  const at = view.selected < 0 ? windowRange()[0] - way : view.order.indexOf(view.selected);
  const next = Math.min(Math.max(at + way, 0), view.order.length - 1);
  select(view.order[next], true);
}

function onKey(event) {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  const length = view.end - view.begin, middle = (view.begin + view.end) / 2;
  const actions = {
    "+": () => zoomAt(middle, .5), "=": () => zoomAt(middle, .5), "-": () => zoomAt(middle, 2), 0: () => setWindow(...wholeTime()),
    ArrowLeft: () => setWindow(view.begin - length / 4, view.end - length / 4), ArrowRight: () => setWindow(view.begin + length / 4, view.end + length / 4),
    ArrowDown: () => stepSelection(1), ArrowUp: () => stepSelection(-1), "/": () => byId("search").focus(), Escape: () => select(-1),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function useControls() {
  const middle = () => (view.begin + view.end) / 2;
  byId("zoom-in").addEventListener("click", () => zoomAt(middle(), .5));
  byId("zoom-out").addEventListener("click", () => zoomAt(middle(), 2));
  byId("zoom-all").addEventListener("click", () => setWindow(...wholeTime()));
  byId("previous-match").addEventListener("click", () => nextMatch(-1));
  byId("search").addEventListener("input", () => { findMatches(); draw(); });
  byId("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.shiftKey) return;
    event.preventDefault();
    nextMatch(-1);
  });
  byId("search-form").addEventListener("submit", (event) => { event.preventDefault(); nextMatch(1); });
  byId("connection-filter").addEventListener("input", showConnections);
  for (const tab of document.querySelectorAll("#tabs [role=tab]")) tab.addEventListener("click", () => showTable(tab.dataset.table));
  byId("rows").addEventListener("scroll", () => { if (view.table === "events") fillEvents(byId("rows")); });
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); draw(); });
  useOverview();
  usePane(byId("psn"), (event) => psnPane.timeOf(event.offsetX), "offsetX", psnEventAt);
  usePane(byId("ladder"), (event) => ladder.timeOf(event.offsetY), "offsetY", ladderEventAt);
}

async function start() {
  readColors();
  showHeading();
  await loadEvents();
  showLegend();
  showFindings();
  showConnections();
  useControls();
  // The connection with the first finding, or with the most events.
  const busiest = story.connections.reduce((best, one, index) => one.events > story.connections[best].events ? index : best, 0);
  chooseConnection(story.findings.length ? story.findings[0].connection : busiest);
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.ready = String(Math.round(performance.now())); }));
}
start();
