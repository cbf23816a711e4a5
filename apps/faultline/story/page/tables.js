// SPDX-License-Identifier: BSD-3-Clause
// The tables below the panes. That of the events has rows for the visible part only.

const ROW_PX = 22;
const MOST_ROWS = 200000;

function element(name, attributes, ...children) {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key === "onclick") one.addEventListener("click", value);
    else one.setAttribute(key, value);
  }
  one.append(...children);
  return one;
}

function tableOf(columns, rows) {
  const head = element("tr", {}, ...columns.map(([name, isNumber]) => element("th", isNumber ? {class: "number"} : {}, name)));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function rowOf(columns, values, attributes) {
  return element("tr", attributes, ...values.map((value, k) => element("td", columns[k][1] ? {class: "number"} : {}, value)));
}

const TABLES = {
  stalls: {
    columns: [["connection"], ["stall", true], ["from", true], ["cause"], ["first PSN", true], ["packets under way", true]],
    rows: () => story.stalls,
    values: (row) => [connectionText(row), durationText(row.end_ns - row.begin_ns), durationText(row.begin_ns), row.cause, String(row.psn), String(row.packets)],
    none: "No stall of 100 µs or more.",
  },
  faults: {
    columns: [["connection"], ["fault", true], ["from", true], ["first PSN", true], ["bytes", true]],
    rows: () => story.faults,
    values: (row) => [connectionText(row), durationText(row.end_ns - row.begin_ns), durationText(row.begin_ns), String(row.psn),
      row.length_bytes ? numberText(row.length_bytes) : "—"],
    none: "No page fault of a connection.",
  },
  requests: {
    columns: [["connection"], ["work request"], ["bytes", true], ["posted", true], ["to first packet", true], ["waited for"], ["to acknowledgement", true],
      ["to completion", true], ["status"], ["first PSN", true]],
    rows: () => story.requests,
    values: (row) => [connectionText(row), operationOf(row.operation), numberText(row.length_bytes), durationText(row.begin_ns), sincePost(row, row.first_packet_ns),
      row.waited_for === "nothing" ? "" : row.waited_for, sincePost(row, row.acknowledged_ns), sincePost(row, row.completed_ns),
      row.completed_ns === null ? "" : STATUS[row.status] ?? String(row.status), row.psn === null ? "—" : String(row.psn)],
    none: "No work request: a capture has none.",
  },
  controls: {
    columns: [["at", true], ["call"], ["took", true], ["result"]],
    rows: () => story.controls,
    values: (row) => [durationText(row.end_ns), row.text, durationText(row.duration_ns), row.error ? `errno ${row.error}` : "success"],
    none: "No control call: a capture has none.",
  },
  ends: {
    columns: [["connection"], ["sent by"], ["packets", true], ["payload bytes", true], ["retransmitted", true], ["ACKs", true], ["sequence NAKs", true],
      ["RNR NAKs", true], ["other NAKs", true]],
    rows: () => story.connections.flatMap((one, index) => one.ends.map((end, k) => ({connection: index, end: k, begin_ns: one.begin_ns, end_ns: one.end_ns, counts: end}))),
    values: (row) => [`${row.connection + 1}`, endText(row.counts), ...["sent_packets", "payload_bytes", "retransmitted_packets", "acks", "sequence_naks", "rnr_naks",
      "other_naks"].map((name) => numberText(row.counts[name]))],
    none: "",
  },
};

const sincePost = (row, time) => time === null ? "—" : durationText(time - row.begin_ns);
// The end of a work request's wait for its first packet.
const waitEnd = (row) => row.first_packet_ns ?? row.completed_ns ?? story.duration_ns;

const connectionText = (row) => {
  const {ends} = story.connections[row.connection];
  return `${endText(ends[row.end])} → ${endText(ends[1 - row.end])}`;
};

// Shows a row's time, with some of what is around it.
function showRow(row) {
  if (row.connection !== null && row.connection !== view.connection) chooseConnection(row.connection);
  const end = row.end_ns ?? row.completed_ns ?? row.acknowledged_ns ?? waitEnd(row);
  const margin = Math.max((end - row.begin_ns) * .4, 2000);
  setWindow(row.begin_ns - margin, end + margin);
}

function drawTable() {
  if (view.table !== "events") return;
  const box = byId("rows"), [first, last] = windowRange();
  const shown = [];
  // With every class shown the range is the list.
  if (view.hidden === 0) eventRows = {count: Math.min(last - first, MOST_ROWS), at: (k) => view.order[first + k]};
  else {
    for (let k = first; k < last && shown.length < MOST_ROWS; ++k) if (isShown(view.order[k])) shown.push(view.order[k]);
    eventRows = {count: shown.length, at: (k) => shown[k]};
  }
  byId("table-note").textContent = `${numberText(last - first)} events in the window${last - first > MOST_ROWS ? `, the first ${numberText(MOST_ROWS)} listed` : ""}`;
  fillEvents(box);
}

let eventRows = {count: 0, at: () => 0};
const EVENT_COLUMNS = [["time", true], ["since last", true], ["from"], ["event"], ["PSN", true], ["bytes", true], ["remarks"]];

function fillEvents(box) {
  const first = Math.max(0, Math.floor(box.scrollTop / ROW_PX) - 4);
  const last = Math.min(eventRows.count, first + Math.ceil(box.clientHeight / ROW_PX) + 8);
  const rows = [];
  const space = (count) => element("tr", {}, element("td", {colspan: EVENT_COLUMNS.length, style: `height:${count * ROW_PX}px;padding:0`}));
  if (first > 0) rows.push(space(first));
  for (let k = first; k < last; ++k) rows.push(eventRow(eventRows.at(k), k > 0 ? eventRows.at(k - 1) : -1));
  if (last < eventRows.count) rows.push(space(eventRows.count - last));
  box.replaceChildren(tableOf(EVENT_COLUMNS, rows));
}

function eventRow(i, before) {
  const color = element("i", {style: `--c:var(${CLASSES[events.class[i]].color})`});
  const remarks = [];
  const flags = events.flags[i];
  if (flags & RETRANSMITTED) remarks.push("sent before");
  if (flags & HELD) remarks.push("held");
  if (flags & PARKED) remarks.push("parked");
  if (flags & PAGE_FAULT) remarks.push("page fault");
  if (flags & PAGE_READY) remarks.push("page ready");
  if (flags & ACK_REQUEST) remarks.push("ACK requested");
  if (flags & SOLICITED) remarks.push("solicited");
  if (flags & MARKED) remarks.push("ECN mark");
  if (events.kind[i] === PACKET && (flags & RESPONSE) && events.code[i] !== SELECTIVE_ACK && story.opcodes[events.code[i]]) remarks.push(`MSN ${events.argument[i]}`);
  const attributes = {"data-event": i, "aria-selected": i === view.selected, onclick: () => select(i, true)};
  if (view.isMatch?.(i)) attributes.class = "match";
  if (flags & CUT_WINDOW) remarks.push("window cut by losses");
  if (events.kind[i] === CONTROL) remarks.push(`took ${durationText(story.controls[events.argument[i]].duration_ns)}`);
  const name = element("span", {}, color, nameOf(i));
  const row = rowOf(EVENT_COLUMNS, [durationText(events.time[i]), before < 0 ? "" : durationText(events.time[i] - events.time[before]),
    endText(chosen().ends[fromSecond(i) ? 1 : 0]), name, events.kind[i] === INVALIDATION || events.kind[i] === CONTROL ? "" : String(psnOf(i)),
    events.length[i] && events.kind[i] !== WAIT ? numberText(events.length[i]) : "", remarks.join(", ")], attributes);
  return row;
}

function showInTable(i) {
  if (view.table !== "events") return;
  requestAnimationFrame(() => {
    const [first] = windowRange(), box = byId("rows");
    let place = 0;
    if (view.hidden === 0) place = view.order.indexOf(i, first) - first;
    else while (place < eventRows.count && eventRows.at(place) !== i) ++place;
    const top = place * ROW_PX;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 3 * ROW_PX) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
    fillEvents(box);
  });
}

function showTable(name) {
  view.table = name;
  for (const tab of document.querySelectorAll("#tabs [role=tab]")) tab.setAttribute("aria-selected", tab.dataset.table === name);
  byId("rows").scrollTop = 0;
  if (name === "events") return draw();
  const {columns, rows, values, none} = TABLES[name], list = rows();
  byId("table-note").textContent = list.length ? `${list.length} rows` : "";
  if (list.length === 0) return byId("rows").replaceChildren(element("p", {class: "none", style: "padding:0 12px"}, none));
  byId("rows").replaceChildren(tableOf(columns, list.map((row) => rowOf(columns, values(row), {onclick: () => showRow(row)}))));
}
