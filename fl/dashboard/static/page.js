"use strict";
// Draws what the server sends. All text goes in as text, never as HTML.
const $ = id => document.getElementById(id);
const seen = { run: {}, columns: [], rows: [], privacy: null, noise: [], radio: null, nodes: [], waterfall: [] };
const STATES = ["sound", "plan", "authorise", "transmit", "receive", "done"];
const LABELS = {
  "paper-claim": "as published; not proven for several local SGD steps with update clipping",
  "record": "one record of one client; earned by local.mode = 'record' only",
  "client": "all data of one client, always",
};
const CAUSES = {
  thermal: "thermal noise", jammer: "jammer", csi: "channel estimate", phase: "phase drift", timing: "timing drift",
  clipping: "clipping", quantisation: "quantisation", backoff: "back-off", other: "not explained",
};

const real = value => typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;
const finite = value => Number.isFinite(real(value)) ? real(value) : null;
const shown = (value, digits = 4) => {
  const number = real(value);
  if (Number.isNaN(number)) return "–";
  if (!Number.isFinite(number)) return "infinite";
  const small = number !== 0 && Math.abs(number) < 1e-3, large = Math.abs(number) >= 1e6;
  const rounded = Number(number.toPrecision(digits));
  return small || large ? rounded.toExponential() : String(rounded);
};
// Without the minus of what rounds to zero.
const fixed = (value, digits) => { const text = value.toFixed(digits); return Number(text) === 0 ? text.replace("-", "") : text; };
// Close to 1, what is missing says more than nines do.
const confidence = value => finite(value) !== null && value > .999 && value < 1 ? `1 − ${shown(1 - value, 2)}` : shown(value);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const make = (tag, kind = "", text = "") => {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== "") element.textContent = text;
  return element;
};
// The number as it was sent goes with its text, for whoever reads the page by machine.
const put = (id, text, value) => {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
  if (value !== undefined) element.dataset.value = String(value);
};
const column = name => { const place = seen.columns.indexOf(name); return seen.rows.map(row => finite(row[place])); };
const last = name => seen.rows.length ? seen.rows[seen.rows.length - 1][seen.columns.indexOf(name)] : null;
const unpack = text => {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
};

// ---- curves -----------------------------------------------------------------------------------------------------
const plots = {};
function plot(id, series, data, options = {}) {
  const box = $(id), size = { width: Math.max(box.clientWidth, 120), height: box.clientHeight || 240 };
  const key = JSON.stringify([series.map(s => [s.label, s.stroke, s.dash]), options.x, options.y, theme()]);
  if (plots[id] && plots[id].key === key) { plots[id].chart.setData(data); return; }
  if (plots[id]) plots[id].chart.destroy();
  const legendFill = (self, place) => self.series[place].stroke(self, place);
  const axis = label => ({
    label, labelSize: 18, labelFont: "12px system-ui, sans-serif", font: "12px system-ui, sans-serif",
    stroke: colour("dim"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 },
  });
  const whole = (self, splits) => splits.map(v => options.whole && !Number.isInteger(v) ? null : v);
  const chart = new uPlot({
    ...size, legend: { live: false, markers: { fill: legendFill } }, cursor: { show: false }, padding: [8, 10, 0, 0],
    scales: { x: { time: false }, y: options.range ? { range: options.range } : {} },
    axes: [{ ...axis(options.x), size: 34, splits: undefined, filter: whole }, { ...axis(options.y), size: 54 }],
    series: [{}, ...series.map(s => ({ width: 1.6, points: { show: data[0].length < 2 }, ...s }))],
    bands: options.bands || [],
  }, data, box);
  plots[id] = { chart, key };
  // The legend is part of the box's height.
  const legend = box.querySelector(".u-legend");
  const fit = () => {
    const width = box.clientWidth;
    if (width) chart.setSize({ width, height: Math.max(110, box.clientHeight - legend.offsetHeight - 2) });
  };
  fit();
  if (!box.watched) { box.watched = new ResizeObserver(() => plots[id].fit()); box.watched.observe(box); }
  plots[id].fit = fit;
}

const scoreName = () => seen.run.score || "accuracy";
function drawLearning() {
  if (!seen.rows.length) return;
  const x = column("uplink"), few = x.length < 40;
  const line = (label, stroke, more = {}) => ({ label, stroke: colour(stroke), points: { show: few, size: 4 }, ...more });
  // A share of right answers is a percentage; R² stands as it is, and may be below 0.
  const name = scoreName(), whole = name === "accuracy", score = column("accuracy").map(v => v === null || !whole ? v : 100 * v);
  plot("plot-accuracy", [line(`test ${name}`, "blue")], [x, score], whole
    ? { x: "uplink", y: "%", whole: true, range: (u, low, high) => low === null ? [0, 100] : [Math.max(0, Math.min(low - 3, high - 8)), Math.min(100, high + 3)] }
    : { x: "uplink", y: name, whole: true });
  plot("plot-loss", [line("training", "blue"), line("test", "orange", { dash: [6, 3] })],
    [x, column("loss"), column("test_loss")], { x: "uplink", y: "loss", whole: true });
  const { budget_epsilon: budget, target_epsilon: target, label } = seen.run;
  const goal = budget > 0 ? budget : target, epsilons = column("epsilon");
  const goalName = budget > 0 ? `budget ${shown(budget)}` : `target ${shown(target)}`;
  plot("plot-epsilon", [line(`ε (${label})`, "blue"), line(goalName, "red", { dash: [6, 4], points: { show: false } })],
    [x, epsilons, x.map(() => goal)], { x: "uplink", y: "ε", whole: true, range: (u, low, high) => [0, Math.max(high || 0, goal || 0) * 1.08 || 1] });
  put("epsilon-label", epsilons.some(v => v === null) ? "infinite where there is no line" : "");
  const radio = seen.run.kind === "radio";
  plot("plot-backoff", [line("clients that back off", "orange")], [x, column("backed_off")],
    { x: "uplink", y: "clients", whole: true, range: (u, low, high) => [0, Math.max(high || 0, 1) * 1.1] });
  put("backoff-note", `in uplink ${shown(last("uplink"))}: ${shown(last("backed_off"))} of them, largest s = ${shown(last("backoff_max"))}`
    + (radio ? "" : "; clients' own s_i are in no file of a run without radios"));
}

function drawTiles() {
  const { run } = seen, accuracy = last("accuracy") ?? run.accuracy, loss = last("loss") ?? run.loss;
  const name = scoreName(), known = finite(accuracy) !== null;
  put("accuracy", name !== "accuracy" ? shown(accuracy) : known ? `${(100 * real(accuracy)).toFixed(2)} %` : "–", accuracy);
  put("score-name", `Test ${name}`);
  put("score-title", name === "accuracy" ? "Accuracy" : name);
  put("loss", shown(loss), loss);
  put("loss-note", seen.rows.length ? `test ${shown(last("test_loss"))}` : "");
  const made = last("uplink") ?? run.done ?? 0;
  put("uplinks", run.uplinks ? `${made} / ${run.uplinks}` : "–", made);
  put("uplinks-note", seen.rows.length ? `${shown(last("rounds"))} model steps, ${shown(last("seconds"), 3)} s each uplink` : "");
  put("sigma", shown(last("sigma")), last("sigma"));
  $("progress").style.width = `${run.uplinks ? 100 * made / run.uplinks : 0}%`;
  const first = seen.privacy && seen.privacy.authorised && seen.privacy.statements[0];
  const goal = run.budget_epsilon > 0 ? `of a budget of ${shown(run.budget_epsilon)}` : `target ${shown(run.target_epsilon)}, no budget`;
  const spent = first ? first.epsilon[run.accountant] ?? first.epsilon.exact : null;
  put("epsilon", first ? shown(spent) : "–", spent);
  put("epsilon-note", first ? `${goal}; ${first.label}, ${first.conditions}; accountant ${run.accountant}` : "");
}

function drawPrivacy() {
  const box = $("privacy"), said = seen.privacy, { run } = seen;
  box.replaceChildren();
  if (!said || said.authorised === 0) { box.append(make("p", "note", "nothing was sent yet")); return; }
  if (said.error) { box.append(make("p", "chip bad", "the privacy of this run is unknown, so infinite")); box.append(make("p", "note", said.error)); return; }
  const goal = run.budget_epsilon > 0 ? run.budget_epsilon : run.target_epsilon;
  for (const one of said.statements) {
    const row = make("div", "statement"), name = make("div"), values = make("div"), why = make("div", "why");
    row.dataset.label = one.label;
    name.append(make("b", "", one.label));
    if (one.label === said.claimed) { name.append(" ", make("span", "chip", "claimed")); }
    for (const [accountant, epsilon] of Object.entries(one.epsilon)) {
      const line = make("div"), number = make("b", "", `ε = ${shown(epsilon)}`);
      number.dataset.accountant = accountant;
      number.dataset.value = String(epsilon);
      line.append(number, ` ${accountant}`);
      values.append(line);
    }
    const spent = real(one.epsilon[run.accountant] ?? one.epsilon.exact), share = goal ? spent / goal : NaN;
    const meter = make("div", "meter"), filled = make("div", share > 1 ? "over" : "");
    filled.style.width = `${Math.min(100, 100 * (Number.isFinite(share) ? share : 1))}%`;
    meter.append(filled);
    meter.title = `${shown(spent)} of ${shown(goal)}`;
    const kind = run.budget_epsilon > 0 ? "budget" : "target";
    const whose = one.label === said.claimed ? "" : `, which is for ${said.claimed}`;
    values.append(meter, make("small", "why", Number.isFinite(share) ? `${share < 10 ? `${shown(100 * share, 3)} %` : `${shown(share, 3)} times`} ${share < 10 ? "of " : ""}the ${kind} ${shown(goal)}${whose}` : `beyond any ${kind}`));
    why.append(make("div", "", LABELS[one.label] || ""), make("div", "", one.conditions), make("div", "", one.trust.join("; ")));
    row.append(name, values, why);
    box.append(row);
  }
  const more = said.authorised - said.accounted;
  box.append(make("p", "note", `${said.authorised} transmissions charged, ${said.accounted} accounted for`
    + (more ? `; ${more} without account, which count without the jammer` : "")
    + (said.resumes ? `; resumed ${said.resumes} times` : "")));
}

// ---- the radio --------------------------------------------------------------------------------------------------
let spectrumRange = [-140, 0];
function drawRadio() {
  const radio = seen.radio;
  if (!radio || radio.error) { if (radio) put("spectrum-note", radio.error); return; }
  const of = `uplink ${radio.uplink}`, spacing = radio.sample_rate_hz / radio.fft_size / 1e6, half = radio.fft_size / 2;
  const x = radio.spectrum_db.map((_, place) => (place - half) * spacing);
  const noise = new Array(x.length).fill(null);
  radio.subcarriers.forEach((number, place) => { noise[number + half] = radio.noise_db[place]; });
  const row = seen.rows.find(found => found[0] === radio.uplink) || [];
  const [sigma, alpha] = ["sigma", "alpha_u"].map(name => finite(row[seen.columns.indexOf(name)]));
  // A DC offset is no part of the payload and would set the scale; the window spreads it over three bins.
  const scale = radio.spectrum_db.filter((_, place) => Math.abs(place - half) > 1).concat(radio.noise_db);
  spectrumRange = [Math.min(...scale) - 2, Math.max(...scale) + 4];
  const counted = sigma && alpha ? 10 * Math.log10(2 * (sigma * alpha) ** 2 / radio.sample_rate_hz) : null;
  plot("plot-spectrum", [
    { label: "payload, as received", stroke: colour("blue"), points: { show: false } },
    { label: "noise in the silence before", stroke: colour("orange"), points: { show: false } },
    { label: "noise that the ledger counts on", stroke: colour("red"), dash: [6, 4], points: { show: false } },
  ], [x, radio.spectrum_db, noise, x.map(() => counted)], { x: "MHz from the carrier", y: "dBFS/Hz", range: () => spectrumRange });
  put("spectrum-note", of);
  drawSum(radio, sigma);
  drawChannels(radio, of);
  drawBackoffs(radio);
  drawBudget(radio, row, of);
}

function canvas(id) {
  const element = $(id), scale = window.devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = element.parentElement;
  if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
    element.width = Math.round(width * scale); element.height = Math.round(height * scale);
  }
  const pen = element.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

function drawSum(radio, sigma) {
  const { pen, width, height } = canvas("sum"), cells = unpack(radio.cells);
  let reach = 3 * (sigma || 0);
  for (const value of cells) reach = Math.max(reach, Math.abs(value));
  reach = 1.06 * reach || 1;
  const left = 46, bottom = 30, side = Math.max(60, Math.min(width - left - 8, height - bottom - 8));
  const x0 = left + (width - left - side) / 2, y0 = 6, at = value => side * (value + reach) / (2 * reach);
  pen.strokeStyle = colour("line"); pen.strokeRect(x0, y0, side, side);
  pen.strokeStyle = colour("grid");
  for (const [a, b, c, d] of [[0, side / 2, side, side / 2], [side / 2, 0, side / 2, side]]) {
    pen.beginPath(); pen.moveTo(x0 + a, y0 + b); pen.lineTo(x0 + c, y0 + d); pen.stroke();
  }
  pen.fillStyle = colour("blue"); pen.globalAlpha = Math.min(.8, Math.max(.25, 700 / cells.length));
  for (let place = 0; place < cells.length; place += 2) pen.fillRect(x0 + at(cells[place]) - 1, y0 + side - at(cells[place + 1]) - 1, 2, 2);
  pen.globalAlpha = 1;
  if (sigma) {
    pen.strokeStyle = colour("red"); pen.lineWidth = 1.5; pen.beginPath();
    pen.arc(x0 + side / 2, y0 + side / 2, side * sigma * Math.sqrt(-2 * Math.log(.05)) / (2 * reach), 0, 2 * Math.PI); pen.stroke();
  }
  pen.fillStyle = colour("dim"); pen.font = "12px system-ui, sans-serif"; pen.textAlign = "center";
  for (const value of [-reach / 1.06, 0, reach / 1.06]) {
    pen.textAlign = "center"; pen.fillText(shown(value, 2), x0 + at(value), y0 + side + 14);
    pen.textAlign = "right"; pen.fillText(shown(value, 2), x0 - 5, y0 + side - at(value) + 4);
  }
  pen.textAlign = "center"; pen.fillText("I in units of τ (Q upwards)", x0 + side / 2, y0 + side + 27);
  put("sum-note", `uplink ${radio.uplink}, ${radio.cells_shown} of ${radio.cells_received} cells; ring: 95 % of the noise alone`);
}

const LINES = [["blue"], ["orange"], ["green"], ["red"], ["purple"], ["text"], ["sky", [6, 4]], ["dim", [2, 3]]];
function drawChannels(radio, of) {
  const many = radio.names.length > LINES.length;
  const order = many ? radio.links.map((link, place) => [link.weakest_db, place]).sort((a, b) => a[0] - b[0]).slice(0, LINES.length).map(pair => pair[1])
    : radio.names.map((_, place) => place);
  const low = radio.subcarriers[0], high = radio.subcarriers[radio.subcarriers.length - 1];
  const x = Array.from({ length: high - low + 1 }, (_, place) => low + place);
  const rows = order.map(place => { const y = new Array(x.length).fill(null); radio.subcarriers.forEach((number, bin) => { y[number - low] = radio.channels_db[place][bin]; }); return y; });
  plot("plot-channels", order.map((place, line) => ({ label: radio.names[place], stroke: colour(LINES[line][0]), dash: LINES[line][1], points: { show: false } })), [x, ...rows],
    { x: "subcarrier", y: "gain in dB" });
  put("channels-note", many ? `${of}, the ${LINES.length} weakest of ${radio.names.length}` : of);
  const table = make("table"), head = table.createTHead().insertRow();
  for (const [name, kind] of [["transmitter", ""], ["gain, dB", "n"], ["weakest", "n"], ["delay, samples", "n"], ["CFO, Hz", "n"]]) head.append(make("th", kind, name));
  for (const place of order) {
    const link = radio.links[place], line = table.insertRow();
    line.dataset.name = link.name;
    line.append(make("td", "", link.name));
    for (const [key, digits] of [["gain_db", 2], ["weakest_db", 2], ["delay_samples", 3], ["cfo_hz", 1]]) {
      const cell = make("td", "n", fixed(link[key], digits)); cell.dataset[key.replace(/_(.)/g, (_, c) => c.toUpperCase())] = String(link[key]); line.append(cell);
    }
  }
  $("links").replaceChildren(table);
}

function bars(entries) {
  const box = make("div", "bars");
  for (const { name, share, text, kind, value } of entries) {
    const meter = make("div", "meter"), filled = make("div", kind || "");
    filled.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
    meter.append(filled);
    const number = make("span", "n", text);
    number.dataset.name = name; number.dataset.value = String(value);
    box.append(make("span", "", name), meter, number);
  }
  return box;
}

function drawBackoffs(radio) {
  const clients = radio.links.filter(link => link.backoff !== null).sort((a, b) => b.backoff - a.backoff).slice(0, 12);
  const largest = Math.max(2, ...clients.map(link => Number.isFinite(link.backoff) ? link.backoff : 1));
  $("backoffs").replaceChildren(bars(clients.map(link => ({
    name: link.name, value: link.backoff, share: (link.backoff - 1) / (largest - 1), kind: "added",
    text: link.backoff > 1 ? `s = ${shown(link.backoff)}` : "full power, s = 1",
  }))));
}

function drawBudget(radio, row, of) {
  const value = name => finite(row[seen.columns.indexOf(name)]), nmse = value("nmse_db");
  const parts = Object.keys(CAUSES).map(cause => [cause, value(`nmse_${cause}`)]).filter(pair => pair[1] !== null);
  if (nmse === null || !parts.length) { $("budget").replaceChildren(make("p", "note", "not known here: only a simulation in one process knows the exact sum")); return; }
  const db = parts.map(([cause, part]) => [cause, part, 10 * Math.log10(Math.abs(part))]).sort((a, b) => b[2] - a[2]);
  const top = db[0][2];
  $("budget").replaceChildren(bars(db.map(([cause, part, level]) => ({
    name: part < 0 ? "explained too much" : CAUSES[cause], share: (level - top + 60) / 60, value: part,
    kind: cause === "thermal" || cause === "jammer" ? "intended" : "added",
    text: part === 0 ? "none" : level < top - 60 ? "negligible" : `${fixed(level, 1)} dB`,
  }))));
  put("budget-note", `${of}, NMSE ${fixed(nmse, 2)} dB, thermal floor ${shown(value("thermal_db"), 4)} dB; blue is the noise that privacy needs`, nmse);
}

function drawNoise() {
  const good = seen.noise.filter(line => finite(line.noise_var_real) !== null && line.ci);
  if (!seen.noise.length) return;
  const db = value => finite(value) > 0 ? 10 * Math.log10(2 * value) : null;
  if (good.length) {
    const edge = label => ({ label, class: "edge", stroke: "transparent", width: 0, points: { show: false } });
    const few = good.length < 40, line = (label, stroke) => ({ label, stroke: colour(stroke), points: { show: few, size: 4 } });
    plot("plot-noise", [edge("a"), edge("b"), line("in silence", "blue"), edge("c"), edge("d"), line("with the jammer", "orange")], [
      good.map((one, place) => one.attempt ? one.uplink + .1 * one.attempt : one.uplink ?? place),
      good.map(one => db(one.ci[1])), good.map(one => db(one.ci[0])), good.map(one => db(one.noise_var_real)),
      good.map(one => one.with_jammer_ci ? db(one.with_jammer_ci[1]) : null), good.map(one => one.with_jammer_ci ? db(one.with_jammer_ci[0]) : null),
      good.map(one => db(one.with_jammer_var_real)),
    ], { x: "uplink", y: "dBFS", whole: true, bands: [{ series: [1, 2], fill: colour("blue") + "40" }, { series: [4, 5], fill: colour("orange") + "40" }] });
  }
  const now = seen.noise[seen.noise.length - 1];
  put("noise-note", now.error ? "" : `variance ${shown(now.noise_var_real)} per axis in [${shown(now.ci && now.ci[0])}, ${shown(now.ci && now.ci[1])}]`, now.noise_var_real);
  put("noise-verdict", now.error ? `uplink ${now.uplink}: ${now.error}` : `uplink ${now.uplink}: interval at confidence ${confidence(now.confidence)}; counted ${shown(now.bound_var_real)} (${now.source}); ${now.verdict}`, now.bound_var_real);
}

// ---- waterfall: newest at the bottom, rows as they came ---------------------------------------------------------
const LADDER = [[12, 7, 60], [62, 15, 110], [142, 41, 105], [206, 70, 75], [246, 120, 40], [252, 190, 60], [252, 255, 164]];
function shade(share) {
  const place = Math.max(0, Math.min(.9999, share)) * (LADDER.length - 1), low = Math.floor(place), part = place - low;
  return [0, 1, 2].map(c => LADDER[low][c] + part * (LADDER[low + 1][c] - LADDER[low][c]));
}
const TABLE = Array.from({ length: 256 }, (_, place) => shade(place / 255));
function drawWaterfall() {
  const falls = seen.waterfall;
  if (!falls.length) return;
  const bins = falls[falls.length - 1].bins, same = falls.filter(fall => fall.bins === bins);
  const rows = same.reduce((sum, fall) => sum + fall.rows, 0), all = new Float32Array(rows * bins);
  let place = 0;
  for (const fall of same) { all.set(fall.values, place); place += fall.values.length; }
  const sorted = Float32Array.from(all).sort(), low = sorted[Math.floor(.02 * sorted.length)], high = sorted[Math.floor(.998 * sorted.length)];
  const image = new ImageData(bins, rows);
  for (let i = 0; i < all.length; i++) {
    const [r, g, b] = TABLE[Math.max(0, Math.min(255, Math.round(255 * (all[i] - low) / (high - low || 1))))];
    image.data.set([r, g, b, 255], 4 * i);
  }
  const scratch = document.createElement("canvas");
  scratch.width = bins; scratch.height = rows; scratch.getContext("2d").putImageData(image, 0, 0);
  const { pen, width, height } = canvas("waterfall"), left = 54, bottom = 34, w = width - left - 10, h = height - bottom - 4;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(scratch, left, 2, w, h);
  pen.fillStyle = colour("dim"); pen.font = "12px system-ui, sans-serif"; pen.textAlign = "right";
  let y = 2, free = 0;
  for (const fall of same) {
    const step = h * fall.rows / rows;
    if (y >= free) { pen.fillText(`${fall.uplink}`, left - 6, Math.min(y + 12, height - bottom)); free = y + 16; }
    y += step;
  }
  pen.save(); pen.translate(12, 2 + h / 2); pen.rotate(-Math.PI / 2); pen.textAlign = "center"; pen.fillText("uplink", 0, 0); pen.restore();
  const rate = seen.radio && seen.radio.sample_rate_hz ? seen.radio.sample_rate_hz / 1e6 : null;
  pen.textAlign = "center";
  if (rate) for (const part of [-.5, -.25, 0, .25, .5]) pen.fillText(shown(part * rate, 3), left + (part + .5) * w * .97 + .015 * w, height - bottom + 16);
  pen.fillText("MHz from the carrier", left + w / 2, height - 4);
  put("waterfall-note", `${shown(low, 4)} to ${shown(high, 4)} dBFS/Hz, newest below`);
}

// ---- nodes and log ----------------------------------------------------------------------------------------------
function drawNodes() {
  $("nodes").replaceChildren(...seen.nodes.map(node => {
    const box = make("div", `node ${node.state === "failed" ? "failed" : node.state === "ready" ? "idle" : ""}`);
    box.dataset.name = node.name; box.dataset.state = node.state;
    const at = node.uplink === null || node.uplink === undefined ? "" : `, uplink ${node.uplink}`;
    box.append(make("b", "", node.name), make("span", "", `${node.role || "node"}: ${node.state}${at}`));
    if (node.reason) box.append(make("div", "", node.reason));
    return box;
  }));
}

let logTimer = 0;
function drawLog() {
  // Hundreds of lines, a few times a second at most.
  if (!logTimer) logTimer = setTimeout(() => { logTimer = 0; fillLog(seen.log); }, 250);
}
function fillLog(lines) {
  const box = $("log"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  box.replaceChildren(...lines.map(line => {
    const row = make("div", ["warning", "error", "critical"].includes(line.level) ? (line.level === "warning" ? "warning" : "error") : "");
    row.append(make("time", "", line.time.slice(11, 19)), line.text);
    return row;
  }));
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function drawRun() {
  const { run } = seen, radio = run.kind === "radio";
  document.title = `${run.name || run.folder}: airdp`;
  put("name", run.name || run.folder);
  put("description", [run.description, run.algorithm && `algorithm ${run.algorithm}`, run.lab && `lab ${run.lab}`, run.kind && `uplink ${run.kind}`].filter(Boolean).join(" · "));
  if (run.kind) document.body.dataset.kind = run.kind;
  const chip = $("status");
  put("status", connected ? run.status : `${run.status}; the page's server has gone`);
  chip.className = `chip ${run.status === "running" ? "good" : run.status === "finished" ? "" : "warn"}`;
  const state = run.status === "running" && run.state ? run.state.state : "";
  const names = radio ? STATES : STATES.filter(name => ["authorise", "done"].includes(name));
  $("states").replaceChildren(...(run.kind && run.status === "running" ? names : []).map(name => make("li", name === state ? "now" : "", name)));
  const problems = [...(run.problems || []), ...(run.damaged_lines ? [`metrics.jsonl: ${run.damaged_lines} lines cannot be read`] : [])];
  put("problems", problems.join(" · ")); $("problems").hidden = !problems.length;
  put("footer", `folder ${run.folder} · last event ${run.last_time ? run.last_time.replace("T", " ").slice(0, 19) + " UTC" : "not known"} · read-only`);
}

// ---- frames -----------------------------------------------------------------------------------------------------
let connected = false, wanted = new Set();
const DRAW = { run: () => { drawRun(); drawTiles(); }, metrics: () => { drawLearning(); drawTiles(); drawRadio(); }, privacy: () => { drawPrivacy(); drawTiles(); }, noise: drawNoise, radio: drawRadio, waterfall: drawWaterfall, nodes: drawNodes };
function draw() { const now = wanted; wanted = new Set(); for (const name of now) DRAW[name](); document.body.dataset.frames = String(frames); }
function want(...names) { if (!wanted.size) requestAnimationFrame(draw); names.forEach(name => wanted.add(name)); }
let frames = 0, shownRun = "";
function take(frame) {
  frames += 1;
  const told = JSON.stringify(frame.run);
  if (told !== shownRun) { shownRun = told; seen.run = frame.run; want("run"); }
  if (frame.metrics) {
    seen.columns = frame.metrics.columns;
    seen.rows = seen.rows.slice(0, frame.metrics.from).concat(frame.metrics.rows);
    want("metrics");
  }
  if ("privacy" in frame) { seen.privacy = frame.privacy; want("privacy"); }
  if (frame.noise) { seen.noise = frame.noise; want("noise"); }
  if (frame.radio) { seen.radio = frame.radio; want("radio"); }
  for (const fall of frame.waterfalls || []) {
    seen.waterfall = seen.waterfall.filter(old => old.uplink < fall.uplink).concat({ ...fall, values: unpack(fall.db) }).slice(-12);
    want("waterfall");
  }
  if (frame.nodes) { seen.nodes = frame.nodes; want("nodes"); }
  if (frame.log) { seen.log = frame.log; drawLog(); }
}
function connect() {
  const url = new URL("socket", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.search = location.search;
  const socket = new WebSocket(url);
  socket.onopen = () => { connected = true; Object.assign(seen, { rows: [], waterfall: [] }); shownRun = ""; };
  socket.onmessage = message => take(JSON.parse(message.data));
  socket.onclose = () => { connected = false; want("run"); setTimeout(connect, 2000); };
}

// ---- light and dark ---------------------------------------------------------------------------------------------
const dark = matchMedia("(prefers-color-scheme: dark)"), themes = ["auto", "light", "dark"];
function theme() { return (document.documentElement.dataset.theme || "auto") + dark.matches; }
function again() { want(...Object.keys(DRAW).filter(name => seen.rows.length || name === "run")); }
$("theme").onclick = () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
  if (next === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
  put("theme-name", next);
  again();
};
dark.addEventListener("change", again);
new ResizeObserver(() => { if (seen.radio) want("radio", "waterfall"); }).observe(document.body);
connect();
