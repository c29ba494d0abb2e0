// The page: controls, tables and charts over the draws of draw.js. Text from the release enters as text, never as markup.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("release").textContent);
const posterior = new Posterior(data);
const { names } = posterior;
const index = data.model.index;
const tauName = data.model.index_name === "tau" ? "τ" : data.model.index_name;
const listed = index !== null && (index.kind === "levels" || posterior.kind === "draws");
const MANY = 2 ** 19; // draws × levels of a process beyond which a slow map draws fewer

// Numbers and text ----------------------------------------------------------------------------------------------------

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const esc = (text) => String(text).replace(/[&<>"']/g, (c) => escapes[c]);

/** Digits that a reader needs: four significant ones, no exponent up to ten million, with a true minus sign. */
function show(x, digits = 4) {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x), short = Number(x.toPrecision(digits));
  const text = size !== 0 && (size < 1e-4 || size >= 1e7) ? short.toExponential() : String(short);
  return text.replace(/-/g, "−");
}
const percent = (x) => `${(100 * x).toFixed(0)} %`;
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/** Round places for ticks between low and high: about `count`, and three where that is fewer. */
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const first = [1, 2, 5, 10].find((x) => x * power >= raw);
  const places = (step) => {
    const out = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) out.push(i * step);
    return out.map((x) => Number(x.toPrecision(12)));
  };
  const found = places(first * power);
  return found.length < 3 ? places((first === 5 ? 2 : first / 2) * power) : found;
}

// State and draws -----------------------------------------------------------------------------------------------------

const state = { tau: null, level: 0.95, draws: 2000, seed: 1, shown: 0, terms: [], at: {} };
let cache = new Map();

/** Draws in original units at the levels, kept until the seed or their number changes. */
function drawsAt(levels, count = state.draws) {
  const asked = listed ? data.grid : levels; // listed levels are drawn once, jointly
  const key = `${asked}|${count}`;
  if (!cache.has(key)) {
    if (cache.size > 40) cache = new Map();
    cache.set(key, posterior.sample(count, asked, state.seed));
  }
  const found = cache.get(key);
  if (levels === null) return found;
  return levels.map((level, i) => (listed ? found[data.grid.findIndex((v) => close(v, level))] : found[i]));
}

const here = () => (index === null ? null : [state.tau]);
const column = (draws, c) => Float64Array.from({ length: draws.length / names.length }, (_, r) => draws[r * names.length + c]);

/** Fewer draws for the curve over many levels, where the map is slow. */
function processDraws() {
  const cost = posterior.kind === "generator" ? 20 : Math.max(1, names.length ** 2 / 16);
  const most = Math.floor(MANY / (data.grid.length * cost));
  return listed ? state.draws : Math.min(state.draws, Math.max(300, most));
}

// Charts --------------------------------------------------------------------------------------------------------------

/** An SVG with axes; `body(x, y)` draws inside, given the two scales. */
function chart({ width, height, x, y, name, label, xlabel, yticks = true, body }) {
  const wide = (places) => 7.6 * Math.max(...places.map((v) => show(v).length)); // of labels, in the font of the page
  const ys = yticks ? ticks(y[0], y[1], 4) : [];
  const left = yticks ? Math.max(52, 12 + wide(ys)) : 12, right = 12, top = name ? 26 : 10, bottom = xlabel ? 38 : 24;
  const sx = (v) => left + ((v - x[0]) / (x[1] - x[0])) * (width - left - right);
  const sy = (v) => height - bottom - ((v - y[0]) / (y[1] - y[0])) * (height - top - bottom);
  let out = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${esc(label)}">`;
  if (name) out += `<text class="name" x="${left}" y="15">${esc(name)}</text>`;
  const many = width > 400 ? 8 : 5, fit = Math.floor((width - left - right) / (wide(ticks(x[0], x[1], many)) + 14));
  const xs = ticks(x[0], x[1], Math.max(2, Math.min(many, fit)));
  for (const v of xs) {
    const half = wide([v]) / 2, at = Math.min(Math.max(sx(v), half), width - half); // no label leaves the picture
    out += `<line class="tick" x1="${sx(v)}" x2="${sx(v)}" y1="${top}" y2="${height - bottom}"/>`;
    out += `<text x="${at}" y="${height - bottom + 15}" text-anchor="middle">${show(v)}</text>`;
  }
  if (yticks) {
    for (const v of ys) {
      out += `<line class="tick" x1="${left}" x2="${width - right}" y1="${sy(v)}" y2="${sy(v)}"/>`;
      out += `<text x="${left - 6}" y="${sy(v) + 4}" text-anchor="end">${show(v)}</text>`;
    }
  }
  if (xlabel) out += `<text x="${(left + width - right) / 2}" y="${height - 5}" text-anchor="middle">${esc(xlabel)}</text>`;
  out += body(sx, sy);
  out += `<path class="axis" d="M${left} ${top}V${height - bottom}H${width - right}"/></svg>`;
  return out;
}

const line = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

/** A Gaussian kernel estimate over a grid, by binning; null where the draws do not vary. */
function kernelDensity(values, m) {
  const spread = Math.min(m.sd, m.quartiles / 1.349 || m.sd);
  const width = 0.9 * spread * values.length ** -0.2;
  if (!(width > 1e-12 * Math.max(Math.abs(m.mean), 1e-300))) return null;
  const low = Math.max(m.least, m.mean - 5 * m.sd) - 3 * width, high = Math.min(m.most, m.mean + 5 * m.sd) + 3 * width;
  const bins = 256, step = (high - low) / (bins - 1), counts = new Float64Array(bins);
  for (const v of values) {
    const at = (v - low) / step, i = Math.floor(at);
    if (i < 0 || i >= bins - 1) continue;
    counts[i] += 1 - (at - i);
    counts[i + 1] += at - i;
  }
  const reach = Math.ceil((4 * width) / step), out = [];
  for (let i = 0; i < bins; i++) {
    let sum = 0;
    for (let j = Math.max(0, i - reach); j <= Math.min(bins - 1, i + reach); j++) {
      sum += counts[j] * Math.exp(-0.5 * (((i - j) * step) / width) ** 2);
    }
    out.push([low + i * step, sum]);
  }
  return out;
}

function densityChart(target, values, what, most = 560) {
  const width = Math.max(300, Math.min(most, target.clientWidth || most)); // text keeps its size on a phone
  const m = moments(values, state.level);
  const curve = kernelDensity(values, m);
  if (curve === null) {
    target.innerHTML = `<p class="quiet">All draws equal ${esc(show(m.mean))}.</p>`;
    return m;
  }
  const top = Math.max(...curve.map((p) => p[1])) * 1.08;
  const label = `Density of ${what}: mean ${show(m.mean)}, ${interval(m)}.`;
  target.innerHTML = chart({
    width, height: 210, x: [curve[0][0], curve[curve.length - 1][0]], y: [0, top], label, xlabel: what, yticks: false,
    body: (sx, sy) => {
      const inside = curve.filter(([v]) => v >= m.lower && v <= m.upper).map(([v, p]) => [sx(v), sy(p)]);
      let out = "";
      if (inside.length > 1) {
        out += `<path class="band" d="${line([[inside[0][0], sy(0)], ...inside, [inside[inside.length - 1][0], sy(0)]])}Z"/>`;
      }
      out += `<path class="line" d="${line(curve.map(([v, p]) => [sx(v), sy(p)]))}"/>`;
      out += `<line class="mean" x1="${sx(m.mean)}" x2="${sx(m.mean)}" y1="${sy(0)}" y2="${sy(top / 1.08)}"/>`;
      if (curve[0][0] < 0 && curve[curve.length - 1][0] > 0) {
        out += `<line class="zero" x1="${sx(0)}" x2="${sx(0)}" y1="${sy(0)}" y2="${sy(top)}"/>`;
      }
      return out;
    },
  });
  return m;
}

const interval = (m) => `${show(100 * state.level)} % interval ${show(m.lower)} to ${show(m.upper)}`;

/** Mean and band over the index. `rows`: [{tau, mean, lower, upper, known}]. */
function processChart(rows, name, width, height) {
  const last = rows.length - 1;
  let low = Math.min(...rows.map((r) => r.lower)), high = Math.max(...rows.map((r) => r.upper));
  const pad = 0.06 * (high - low) || 1e-9 * Math.max(1, Math.abs(high)) || 1;
  low -= pad;
  high += pad;
  const from = last ? rows[0].tau : rows[0].tau - 0.1, to = last ? rows[last].tau : rows[0].tau + 0.1;
  const edge = 0.03 * (to - from);
  const label = `${name} over ${tauName}: mean ${show(rows[0].mean)} at ${show(rows[0].tau)}, ${show(rows[last].mean)} at ` +
    `${show(rows[last].tau)}; band of pointwise ${show(100 * state.level)} % intervals.`;
  return chart({
    width, height, x: [from - edge, to + edge], y: [low, high], name, label, xlabel: tauName,
    body: (sx, sy) => {
      const upper = rows.map((r) => [sx(r.tau), sy(r.upper)]), lower = rows.map((r) => [sx(r.tau), sy(r.lower)]).reverse();
      let out = "";
      for (let i = 0; i < last; i++) { // a stretch with an end that is not identified is grey and hatched
        const known = rows[i].known && rows[i + 1].known, corners = [upper[i], upper[i + 1], lower[last - i - 1], lower[last - i]];
        out += `<path class="${known ? "band" : "unknown"}" d="${line(corners)}Z"/>`;
      }
      if (low < 0 && high > 0) out += `<line class="zero" x1="${sx(from - edge)}" x2="${sx(to + edge)}" y1="${sy(0)}" y2="${sy(0)}"/>`;
      out += `<line class="here" x1="${sx(state.tau)}" x2="${sx(state.tau)}" y1="${sy(low)}" y2="${sy(high)}"/>`;
      out += `<path class="line" d="${line(rows.map((r) => [sx(r.tau), sy(r.mean)]))}"/>`;
      for (const r of rows) {
        if (last === 0) out += `<line class="line" x1="${sx(r.tau)}" x2="${sx(r.tau)}" y1="${sy(r.lower)}" y2="${sy(r.upper)}"/>`;
        if (!r.known || rows.length <= 12) {
          out += `<circle class="${r.known ? "dot" : "hollow"}" cx="${sx(r.tau)}" cy="${sy(r.mean)}" r="${r.known ? 2.6 : 4}"/>`;
        }
      }
      return out;
    },
  });
}

/** The interval of one coefficient on its own scale, with 0 in sight. */
function bar(m, known) {
  const low = Math.min(m.lower, 0), high = Math.max(m.upper, 0), width = high - low || 1;
  const x = (v) => 4 + ((v - low) / width) * 136;
  return `<svg viewBox="0 0 144 22" aria-hidden="true" focusable="false"><line class="zero" x1="${x(0)}" x2="${x(0)}" y1="2" y2="20"/>` +
    `<line class="${known ? "line" : "zero"}" x1="${x(m.lower)}" x2="${x(m.upper)}" y1="11" y2="11"/>` +
    `<circle class="${known ? "dot" : "hollow"}" cx="${x(m.mean)}" cy="11" r="3.5"/></svg>`;
}

// Sections ------------------------------------------------------------------------------------------------------------

function renderCoefficients() {
  const [draws] = drawsAt(here());
  const parts = posterior.columns(here())?.[0] ?? null;
  const ends = show(100 * state.level);
  const heads = ["Mean", `${ends} % lower`, `${ends} % upper`, "interval and 0", "sd"];
  if (parts) heads.push("sampling sd", "privacy sd", "privacy share");
  const at = index === null ? "" : ` at ${tauName} = ${show(state.tau)}`;
  let out = `<caption class="quiet">Posterior of each coefficient${esc(at)}, in the units of the data</caption>`;
  out += `<thead><tr><th class="text" scope="col">Coefficient</th>${heads.map((h) => `<th scope="col">${esc(h)}</th>`).join("")}</tr></thead><tbody>`;
  const hidden = [];
  names.forEach((name, c) => {
    const m = moments(column(draws, c), state.level), part = parts?.[c], known = part?.identified ?? true;
    if (!known) hidden.push(name);
    out += `<tr${known ? "" : ' class="hidden-row"'}><th scope="row">${esc(name)}${known ? "" : "<br> (not identified)"}</th>`;
    out += `<td>${show(m.mean)}</td><td>${show(m.lower)}</td><td>${show(m.upper)}</td><td class="bar">${bar(m, known)}</td><td>${show(m.sd, 3)}</td>`;
    if (part) {
      out += known
        ? `<td>${show(part.sampling_sd, 3)}</td><td>${show(part.privacy_sd, 3)}</td><td>${percent(part.privacy_share)}</td>`
        : "<td>–</td><td>–</td><td>–</td>";
    }
    out += "</tr>";
  });
  $("coefficients").innerHTML = `${out}</tbody>`;
  let notes = "";
  if (parts) {
    notes += "<p class=\"quiet\">The square of sd is the sum of the squares of its sampling and privacy parts, up to draws cut at the " +
      "parameter box. The sampling part would be there without any privacy; the privacy part is the price of the noise, and " +
      "its share is that of the variance.</p>";
  }
  if (hidden.length) {
    notes += `<p class="quiet">Not identified at this ε: ${esc(hidden.join(", "))}. The noise hides them, and their intervals say little more than was known before.</p>`;
  }
  $("coefficient-notes").innerHTML = notes;
}

function renderDensity() {
  const [draws] = drawsAt(here());
  const what = names[state.shown] + (index === null ? "" : ` at ${tauName} = ${show(state.tau)}`);
  const m = densityChart($("density"), column(draws, state.shown), what);
  $("density-caption").textContent = `${what}: mean ${show(m.mean)}, sd ${show(m.sd, 3)}, ${interval(m)} (shaded), probability ${m.positive.toFixed(3)} of being above 0.`;
}

/** Moments over the grid of each of the functions of the draws at a level; `key` says what they depend on. */
function processRows(key, values) {
  const full = `process|${key}|${state.level}`;
  if (!cache.has(full)) {
    const draws = drawsAt(data.grid, processDraws()), parts = posterior.columns(data.grid);
    const rows = (value) => data.grid.map((tau, i) => ({ tau, ...moments(value(draws[i]), state.level), parts: parts?.[i] }));
    cache.set(full, values.map(rows));
  }
  return cache.get(full);
}

function renderProcess() {
  if (index === null) return;
  const found = processRows("coefficients", names.map((_, c) => (draws) => column(draws, c)));
  const series = found.map((rows, c) => rows.map((r) => ({ ...r, known: r.parts?.[c].identified ?? true })));
  $("process").innerHTML = series.map((rows, c) => `<div class="chart">${processChart(rows, names[c], 300, 210)}</div>`).join("");
  let table = `<thead><tr><th class="text" scope="col">Coefficient</th><th scope="col">${esc(tauName)}</th><th scope="col">Mean</th><th scope="col">Lower</th><th scope="col">Upper</th></tr></thead><tbody>`;
  series.forEach((rows, c) => {
    for (const r of rows) {
      table += `<tr><th scope="row">${esc(names[c])}${r.known ? "" : " (not identified)"}</th><td>${show(r.tau)}</td><td>${show(r.mean)}</td><td>${show(r.lower)}</td><td>${show(r.upper)}</td></tr>`;
    }
  });
  $("process-table").innerHTML = `${table}</tbody>`;
  const count = processDraws();
  $("process-note").textContent = `Each coefficient over ${tauName}: posterior mean and pointwise ${show(100 * state.level)} % intervals, from ` +
    `${plural(count, "draw")}. The dotted line is at ${tauName} = ${show(state.tau)}.` +
    (posterior.kind === "local" ? " Hollow grey points and hatched bands are not identified." : "");
}

/** Draws of Σ weight·coefficient, jointly over the levels that occur. */
function contrastDraws(terms) {
  const levels = index === null ? null : [...new Set(terms.map((t) => t.tau))].sort((a, b) => a - b);
  const draws = drawsAt(levels), total = new Float64Array(state.draws);
  for (const { weight, coefficient, tau } of terms) {
    const values = draws[levels === null ? 0 : levels.indexOf(tau)];
    for (let r = 0; r < total.length; r++) total[r] += weight * values[r * names.length + coefficient];
  }
  return total;
}

function renderContrast() {
  const bad = $("contrast").querySelector(":invalid");
  if (bad) {
    $("contrast-result").textContent = "A field above is empty or outside its range.";
    $("contrast-density").innerHTML = "";
    return;
  }
  const signed = (w) => `${w < 0 ? "− " : "+ "}${Math.abs(w) === 1 ? "" : `${show(Math.abs(w))} × `}`;
  const text = state.terms.map((t) => `${signed(t.weight)}${names[t.coefficient]}${index === null ? "" : ` at ${tauName} = ${show(t.tau)}`}`).join(" ").replace(/^\+ /, "");
  const m = densityChart($("contrast-density"), contrastDraws(state.terms), text);
  $("contrast-result").textContent = `${text}: mean ${show(m.mean)}, sd ${show(m.sd, 3)}, ${interval(m)}, probability ${m.positive.toFixed(3)} of being above 0.`;
}

/** A factor of a term at a value of its column: a dummy, a curve (a polynomial from each of its starts), a logarithm or a power. */
function factorAt(f, x) {
  if ("code" in f) return Number(x === f.code);
  if (!("starts" in f)) return f.log ? Math.log(x) : x ** f.power;
  const which = f.starts.slice(1).filter((start) => start <= x).length;
  return f.pieces[which].reduce((v, c) => v * (x - f.starts[which]) + c, 0);
}

/** The row of the design at the chosen covariates: products of factors. */
function designRow(at) {
  const row = new Float64Array(names.length);
  for (const { coefficient, factors } of data.terms) {
    row[coefficient] = factors.reduce((v, f) => v * factorAt(f, at[f.column]), 1);
  }
  return row;
}

function predictionValues(row, draws) {
  const d = names.length;
  return Float64Array.from({ length: draws.length / d }, (_, r) => {
    let sum = 0;
    for (let c = 0; c < d; c++) sum += row[c] * draws[r * d + c];
    if (data.model.kind === "poisson") return Math.exp(sum);
    return data.model.kind === "logistic" ? 1 / (1 + Math.exp(-sum)) : sum;
  });
}

function predictionName(tau) {
  const y = data.model.response ?? "the response";
  if (data.model.kind === "quantile") return `quantile of ${y}${tau ? ` at τ = ${show(state.tau)}` : ""}`;
  if (data.model.kind === "logistic") return `probability of ${y} = 1`;
  if (data.model.kind === "poisson") return `mean of ${y}, for one unit of exposure`;
  return `location of ${y}`;
}

function renderPrediction() {
  if (data.terms === null) return;
  if ($("prediction").querySelector(":invalid")) {
    $("prediction-result").textContent = "A value is empty or outside its declared range: nothing was estimated there.";
    for (const id of ["prediction-density", "prediction-process"]) $(id).innerHTML = "";
    return;
  }
  const row = designRow(state.at), [draws] = drawsAt(here());
  const m = densityChart($("prediction-density"), predictionValues(row, draws), predictionName(true), 400);
  $("prediction-result").textContent = `Fitted ${predictionName(true)}: mean ${show(m.mean)}, sd ${show(m.sd, 3)}, ${interval(m)}.`;
  if (index !== null) {
    const [found] = processRows(`prediction ${row}`, [(values) => predictionValues(row, values)]);
    const rows = found.map((r) => ({ ...r, known: true }));
    $("prediction-process").innerHTML = processChart(rows, `fitted ${predictionName(false)}`, 400, 210);
  }
}

// Controls ------------------------------------------------------------------------------------------------------------

const options = (list, chosen) => list.map(([value, text]) => `<option value="${esc(value)}"${value === chosen ? " selected" : ""}>${esc(text)}</option>`).join("");
const coefficientOptions = (chosen) => options(names.map((name, i) => [i, name]), chosen);

/** A control for a level of the index: a list, or a number inside the interval. */
function levelControl(id, label, value, slider = false) {
  if (listed) {
    const items = options(data.grid.map((v) => [v, show(v)]), value);
    return `<label for="${id}">${esc(label)}</label><select id="${id}">${items}</select>`;
  }
  const range = `min="${index.low}" max="${index.high}"`;
  const number = `<input id="${id}" type="number" ${range} step="any" value="${value}" required>`;
  if (!slider) return `<label for="${id}">${esc(label)}</label>${number}`;
  const slide = `<input id="${id}-slider" type="range" ${range} step="0.005" value="${value}" aria-label="${esc(label)}, slider">`;
  return `<label for="${id}">${esc(label)}</label><div class="pair">${slide}${number}</div>`;
}

function renderTerms() {
  $("contrast-terms").innerHTML = state.terms.map((t, i) => {
    const field = (inner) => `<div class="field">${inner}</div>`;
    let out = `<fieldset class="term" data-term="${i}"><legend>Term ${i + 1}</legend>`;
    out += field(`<label for="weight${i}">Weight</label><input id="weight${i}" type="number" step="any" value="${t.weight}" required>`);
    out += field(`<label for="coefficient${i}">Coefficient</label><select id="coefficient${i}">${coefficientOptions(t.coefficient)}</select>`);
    if (index !== null) out += field(levelControl(`at${i}`, tauName, t.tau));
    if (state.terms.length > 1) out += field(`<button type="button" data-remove="${i}">Remove term ${i + 1}</button>`);
    return `${out}</fieldset>`;
  }).join("");
}

function readTerms() {
  state.terms = state.terms.map((_, i) => ({
    weight: Number($(`weight${i}`).value),
    coefficient: Number($(`coefficient${i}`).value),
    tau: index === null ? null : Number($(`at${i}`).value),
  }));
}

/** What `pgbb sample --out` writes: the same column names, one row a draw. */
function csv(all) {
  const levels = index === null ? null : all ? data.grid : [state.tau];
  const draws = drawsAt(levels), d = names.length;
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const several = levels !== null && levels.length > 1;
  const heads = draws.flatMap((_, i) => names.map((name) => quote(several ? `${name}[${Number(levels[i].toPrecision(6))}]` : name)));
  const rows = [heads.join(",")];
  for (let r = 0; r < state.draws; r++) {
    const cells = [];
    for (const values of draws) for (let c = 0; c < d; c++) cells.push(values[r * d + c]);
    rows.push(cells.join(","));
  }
  return `${rows.join("\n")}\n`;
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv($("which").value === "all")], { type: "text/csv" }));
  link.download = `${data.file}-draws.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  $("status").textContent = `${plural(state.draws, "draw")} written to ${link.download}.`;
}

/** Read the controls; redraw what depends on them. `stale`: seed or number changed, so nothing may be kept. */
function update(stale = false) {
  const invalid = $("controls").querySelector(":invalid");
  if (invalid) {
    $("status").textContent = `${invalid.labels?.[0]?.textContent ?? "A field"} must lie between ${invalid.min} and ${invalid.max}.`;
    return;
  }
  state.level = Number($("level").value) / 100;
  state.draws = Number($("draws").value);
  state.seed = Number($("seed").value);
  if (index !== null) state.tau = Number($("tau").value);
  if (stale) cache = new Map();
  const start = performance.now();
  drawsAt(here());
  const spent = performance.now() - start;
  renderCoefficients();
  renderDensity();
  renderProcess();
  renderContrast();
  renderPrediction();
  const at = index === null ? "" : ` at ${tauName} = ${show(state.tau)}`;
  const joint = listed && data.grid.length > 1 ? ` (all ${data.grid.length} levels jointly)` : "";
  const took = stale ? `${joint} in ${spent < 1 ? "less than 1" : spent.toFixed(0)} ms` : "";
  let text = `${plural(state.draws, "draw")}${at}${took}, seed ${state.seed}.`;
  const { stored, embedded } = posterior.settings;
  if (posterior.kind === "draws" && state.draws > embedded) text += ` They repeat the ${plural(embedded, "draw")} in this page.`;
  if (posterior.kind === "draws" && embedded < stored) text += ` The file holds ${plural(stored, "draw")}; this page carries ${embedded.toLocaleString("en")}.`;
  $("status").textContent = text;
}

function setUp() {
  if (index !== null) {
    const middle = listed ? data.grid[Math.floor(data.grid.length / 2)] : Number(((index.low + index.high) / 2).toPrecision(4));
    $("tau-field").hidden = false;
    $("tau-field").innerHTML = levelControl("tau", `Level ${tauName}`, middle, true);
    $("process-section").hidden = false;
    if (data.model.kind !== "quantile") $("process-title").textContent = `Over ${tauName}`;
    if (!listed) {
      $("tau-slider").addEventListener("input", () => {
        $("tau").value = $("tau-slider").value;
        later();
      });
      $("tau").addEventListener("input", () => { $("tau-slider").value = $("tau").value; });
    }
  }
  const slope = names.length > 1 ? 1 : 0;
  $("shown").innerHTML = coefficientOptions(slope);
  state.shown = slope;
  $("which").innerHTML = index === null
    ? "<option value=\"one\">all coefficients</option>"
    : `<option value="one">at the chosen ${esc(tauName)}</option><option value="all">at ${data.grid.length} levels, jointly</option>`;
  const ends = index === null ? [null, null] : [data.grid[0], data.grid[data.grid.length - 1]];
  state.terms = [{ weight: 1, coefficient: slope, tau: ends[1] }];
  if (ends[0] !== ends[1]) state.terms.push({ weight: -1, coefficient: slope, tau: ends[0] });
  else if (names.length > 2) state.terms.push({ weight: -1, coefficient: 2, tau: ends[0] });
  $("contrast-note").textContent = "A weighted sum of coefficients" +
    (index === null ? "." : `, within one ${tauName} or across several: draws are joint, so the uncertainty they share is counted once.`);
  renderTerms();
  setUpPrediction();
  let waiting = 0;
  function later(stale = false) {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => update(stale));
  }
  for (const id of ["tau", "level"]) $(id)?.addEventListener("input", () => later());
  for (const id of ["draws", "seed"]) $(id).addEventListener("input", () => later(true));
  $("shown").addEventListener("input", () => { state.shown = Number($("shown").value); renderDensity(); });
  $("again").addEventListener("click", () => {
    $("seed").value = (Number($("seed").value) + 1) % 4294967296;
    update(true);
  });
  $("download").addEventListener("click", download);
  for (const id of ["controls", "contrast", "prediction"]) $(id).addEventListener("submit", (event) => event.preventDefault());
  $("contrast").addEventListener("input", () => { readTerms(); renderContrast(); });
  $("contrast-add").addEventListener("click", () => {
    state.terms.push({ ...state.terms[state.terms.length - 1] });
    renderTerms();
    renderContrast();
    $(`weight${state.terms.length - 1}`).focus();
  });
  $("contrast-terms").addEventListener("click", (event) => {
    const at = event.target.dataset?.remove;
    if (at === undefined) return;
    state.terms.splice(Number(at), 1);
    renderTerms();
    renderContrast();
    $("contrast-add").focus();
  });
  update(true);
}

function setUpPrediction() {
  if (data.terms === null) {
    $("prediction-note").textContent = data.model.formula === null
      ? "This model has no formula, so there are no covariates to predict at."
      : "The formula cannot be evaluated in this page, so it offers no prediction. In Python, release.predict does.";
    $("prediction-body").hidden = true;
    return;
  }
  $("prediction-note").textContent = `The posterior of the fitted ${predictionName(false)} at covariates of your choice, inside their declared ranges. ` +
    "It is an interval of the fit, not of a new response.";
  const needed = [...new Set(data.terms.flatMap((t) => t.factors.map((f) => f.column)))];
  $("prediction").innerHTML = needed.map((name, i) => {
    const declared = data.columns[name];
    if (declared.levels) return `<div class="field"><label for="x${i}">${esc(name)}</label><select id="x${i}">${options(declared.levels.map((v, code) => [code, v]), 0)}</select></div>`;
    if (declared.flag) return `<div class="field"><label for="x${i}">${esc(name)}</label><select id="x${i}">${options(declared.flag.map((word, code) => [code, word]), 0)}</select></div>`;
    const [low, high] = declared.range, middle = Number(((low + high) / 2).toPrecision(4));
    return `<div class="field"><label for="x${i}">${esc(name)} (${show(low)} to ${show(high)})</label><input id="x${i}" type="number" min="${low}" max="${high}" step="any" value="${middle}" required></div>`;
  }).join("");
  const read = () => needed.forEach((name, i) => { state.at[name] = Number($(`x${i}`).value); });
  read();
  $("prediction").addEventListener("input", () => { read(); renderPrediction(); });
  $("prediction-process-figure").hidden = index === null;
}

// What tests and curious readers may call.
window.pgbb = {
  posterior, state, moments, eigh, csv, designRow,
  forward: (u, tau) => posterior.forward(u, tau),
  drawLocal: (levels, m, z) => posterior.drawLocal(levels, m, z),
  sample: (m, levels, seed) => posterior.sample(m, levels, seed),
};
setUp();
