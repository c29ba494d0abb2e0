// Draws from a release: pure functions of numbers, with neither page nor clock.
// The maps are those of pgbb.local and pgbb.payload, line by line; at the same
// randomness they give the same θ. The law of the randomness is at the end.

const VAGUE_SHARE = 0.01; // FREE in pgbb.local
const STEEPEST = 0.05; // least share of its curvature that a loss is taken to have left where its gradient bends
const HIDDEN_SHARE = 0.4; // a coefficient whose posterior has more than this share of its prior's spread is not identified
const CELLS = 2 ** 18; // random numbers of a chunk; bounds memory, not results

/** The embedded numbers {dtype, shape, data} as typed arrays. */
function decode(packed) {
  const raw = atob(packed.data);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return packed.dtype === "f4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}

// Small dense matrices, row by row in flat arrays ---------------------------------------------------------------------

/** L with LLᵀ = a, into `out`. */
function cholesky(a, d, out) {
  for (let i = 0; i < d; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = a[i * d + j];
      for (let k = 0; k < j; k++) sum -= out[i * d + k] * out[j * d + k];
      out[i * d + j] = i === j ? Math.sqrt(sum) : sum / out[j * d + j];
    }
  }
  return out;
}

/** x with LLᵀx = b, into `out`, which may be b. */
function solve(l, d, b, out) {
  for (let i = 0; i < d; i++) {
    let sum = b[i];
    for (let k = 0; k < i; k++) sum -= l[i * d + k] * out[k];
    out[i] = sum / l[i * d + i];
  }
  for (let i = d - 1; i >= 0; i--) {
    let sum = out[i];
    for (let k = i + 1; k < d; k++) sum -= l[k * d + i] * out[k];
    out[i] = sum / l[i * d + i];
  }
  return out;
}

/** Eigenvalues, increasing, and eigenvectors (columns) of a symmetric matrix: Householder, then implicit QL (EISPACK). */
function eigh(a, n) {
  const v = Float64Array.from(a), d = new Float64Array(n), e = new Float64Array(n);
  for (let j = 0; j < n; j++) d[j] = v[(n - 1) * n + j];
  for (let i = n - 1; i > 0; i--) {
    let scale = 0, h = 0;
    for (let k = 0; k < i; k++) scale += Math.abs(d[k]);
    if (scale === 0) {
      e[i] = d[i - 1];
      for (let j = 0; j < i; j++) {
        d[j] = v[(i - 1) * n + j];
        v[i * n + j] = 0;
        v[j * n + i] = 0;
      }
    } else {
      for (let k = 0; k < i; k++) {
        d[k] /= scale;
        h += d[k] * d[k];
      }
      let f = d[i - 1];
      let g = f > 0 ? -Math.sqrt(h) : Math.sqrt(h);
      e[i] = scale * g;
      h -= f * g;
      d[i - 1] = f - g;
      for (let j = 0; j < i; j++) e[j] = 0;
      for (let j = 0; j < i; j++) {
        f = d[j];
        v[j * n + i] = f;
        g = e[j] + v[j * n + j] * f;
        for (let k = j + 1; k < i; k++) {
          g += v[k * n + j] * d[k];
          e[k] += v[k * n + j] * f;
        }
        e[j] = g;
      }
      f = 0;
      for (let j = 0; j < i; j++) {
        e[j] /= h;
        f += e[j] * d[j];
      }
      const hh = f / (h + h);
      for (let j = 0; j < i; j++) e[j] -= hh * d[j];
      for (let j = 0; j < i; j++) {
        f = d[j];
        g = e[j];
        for (let k = j; k < i; k++) v[k * n + j] -= f * e[k] + g * d[k];
        d[j] = v[(i - 1) * n + j];
        v[i * n + j] = 0;
      }
    }
    d[i] = h;
  }
  for (let i = 0; i < n - 1; i++) {
    v[(n - 1) * n + i] = v[i * n + i];
    v[i * n + i] = 1;
    const h = d[i + 1];
    if (h !== 0) {
      for (let k = 0; k <= i; k++) d[k] = v[k * n + i + 1] / h;
      for (let j = 0; j <= i; j++) {
        let g = 0;
        for (let k = 0; k <= i; k++) g += v[k * n + i + 1] * v[k * n + j];
        for (let k = 0; k <= i; k++) v[k * n + j] -= g * d[k];
      }
    }
    for (let k = 0; k <= i; k++) v[k * n + i + 1] = 0;
  }
  for (let j = 0; j < n; j++) {
    d[j] = v[(n - 1) * n + j];
    v[(n - 1) * n + j] = 0;
  }
  v[n * n - 1] = 1;
  for (let i = 1; i < n; i++) e[i - 1] = e[i];
  e[n - 1] = 0;
  let shift = 0, size = 0;
  for (let l = 0; l < n; l++) {
    size = Math.max(size, Math.abs(d[l]) + Math.abs(e[l]));
    let m = l;
    while (m < n - 1 && Math.abs(e[m]) > 2 ** -52 * size) m++;
    if (m > l) {
      do {
        let g = d[l];
        let p = (d[l + 1] - g) / (2 * e[l]);
        let r = Math.hypot(p, 1);
        if (p < 0) r = -r;
        d[l] = e[l] / (p + r);
        d[l + 1] = e[l] * (p + r);
        const next = d[l + 1];
        let h = g - d[l];
        for (let i = l + 2; i < n; i++) d[i] -= h;
        shift += h;
        p = d[m];
        let c = 1, c2 = 1, c3 = 1, s = 0, s2 = 0;
        const el = e[l + 1];
        for (let i = m - 1; i >= l; i--) {
          c3 = c2;
          c2 = c;
          s2 = s;
          g = c * e[i];
          h = c * p;
          r = Math.sqrt(p * p + e[i] * e[i]);
          e[i + 1] = s * r;
          s = e[i] / r;
          c = p / r;
          p = c * d[i] - s * g;
          d[i + 1] = h + s * (c * g + s * d[i]);
          for (let k = 0; k < n; k++) {
            const x = v[k * n + i + 1], y = v[k * n + i];
            v[k * n + i + 1] = s * y + c * x;
            v[k * n + i] = c * y - s * x;
          }
        }
        p = (-s * s2 * c3 * el * e[l]) / next;
        e[l] = s * p;
        d[l] = c * p;
      } while (Math.abs(e[l]) > 2 ** -52 * size);
    }
    d[l] += shift;
    e[l] = 0;
  }
  const order = Array.from(d.keys()).sort((x, y) => d[x] - d[y]);
  const vectors = new Float64Array(n * n);
  for (let k = 0; k < n; k++) for (let j = 0; j < n; j++) vectors[k * n + j] = v[k * n + order[j]];
  return { values: Float64Array.from(order, (i) => d[i]), vectors };
}

/** V f(λ) Vᵀ, into `out`. */
function rebuilt(values, vectors, n, f, out) {
  const scaled = values.map(f);
  for (let i = 0; i < n; i++) {
    for (let j = i; j < n; j++) {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += vectors[i * n + k] * scaled[k] * vectors[j * n + k];
      out[i * n + j] = sum;
      out[j * n + i] = sum;
    }
  }
  return out;
}

/** base + noise in isometric coordinates, into `out`; returns the norm of the noise. */
function perturbed(base, sd, z, at, d, out) {
  let k = 0, square = 0;
  for (let i = 0; i < d; i++) {
    for (let j = i; j < d; j++, k++) {
      const x = sd[k] * z[at + k];
      square += x * x;
      const y = i === j ? x : x / Math.SQRT2;
      out[i * d + j] = base[i * d + j] + y;
      out[j * d + i] = base[j * d + i] + y;
    }
  }
  return Math.sqrt(square);
}

/** aᵀ-free product: row vector x times matrix a (d×d), into `out`. */
function times(x, a, at, d, out) {
  out.fill(0);
  for (let i = 0; i < d; i++) {
    const xi = x[i];
    if (xi !== 0) for (let j = 0; j < d; j++) out[j] += xi * a[at + i * d + j];
  }
  return out;
}

const close = (a, b) => Math.abs(a - b) <= 1e-12 + 1e-9 * Math.abs(b);
const any = (array) => array.some((x) => x !== 0);

// The payload "local" -------------------------------------------------------------------------------------------------

class LocalMap {
  constructor(settings, tensors, d) {
    this.t = tensors;
    this.d = d;
    this.floor = settings.floor;
    this.vague = settings.vague;
    this.packed = (d * (d + 1)) / 2;
    this.refresh();
  }

  /** What follows from the tensors alone: to be called again after one of them was changed. */
  refresh() {
    const { t, d } = this, size = d * d;
    this.count = t.center.length / d;
    this.k = t.privacy.length / this.count;
    this.knots = Array.from({ length: this.count }, (_, j) => {
      const base = t.curvature.subarray(j * size, (j + 1) * size);
      const sd = t.curvature_sd.subarray(j * this.packed, (j + 1) * this.packed);
      const noisy = any(sd);
      return {
        base, sd, noisy,
        smallest: eigh(base, d).values[0],
        factor: noisy ? null : cholesky(base, d, new Float64Array(size)),
        free: t.free && any(t.free.subarray(j * size, (j + 1) * size)) ? j * size : -1,
      };
    });
    const spectrum = eigh(t.sampling, d);
    const positive = spectrum.values.filter((x) => x > 1e-12 * spectrum.values[d - 1]);
    this.spread = any(t.sampling_sd);
    this.lowest = positive.length ? positive[0] : 0;
    this.room = positive.length === d ? this.lowest : 0;
    this.root = rebuilt(spectrum.values, spectrum.vectors, d, (x) => Math.sqrt(Math.max(x, 0)), new Float64Array(size));
    this.usual = new Float64Array(d); // variances of the sampling error
    if (!t.bend) return;
    const factor = cholesky(this.knots[0].base, d, new Float64Array(size));
    for (let i = 0; i < d; i++) {
      const column = solve(factor, d, this.root.subarray(i * d, (i + 1) * d), new Float64Array(d));
      for (let c = 0; c < d; c++) this.usual[c] += column[c] ** 2;
    }
  }

  /** [[knot, weight], …] for each level: interpolation linear in log τ/(1 − τ), exactly one knot where the level is one. */
  mix(levels) {
    if (levels === null) return [[[0, 1]]];
    const knots = this.t.knots;
    return levels.map((level) => {
      let nearest = 0;
      knots.forEach((x, j) => { if (Math.abs(x - level) < Math.abs(knots[nearest] - level)) nearest = j; });
      if (close(knots[nearest], level)) return [[nearest, 1]];
      let right = 1;
      while (right < knots.length - 1 && knots[right] < level) right++;
      const [left, here, end] = [knots[right - 1], level, knots[right]].map((v) => Math.log(v / (1 - v)));
      const share = (here - left) / (end - left);
      return [[right - 1, 1 - share], [right, share]];
    });
  }

  /** Where the sampling error is simulated: the knots where all levels are knots, else the levels; and each level's place. */
  path(levels) {
    if (levels === null) return { points: null, at: [0] };
    const knots = this.t.knots;
    const nearest = levels.map((v) => knots.reduce((b, x, j) => (Math.abs(x - v) < Math.abs(knots[b] - v) ? j : b), 0));
    if (levels.every((v, i) => close(knots[nearest[i]], v))) return { points: Array.from(knots), at: nearest };
    const order = levels.map((_, i) => i).sort((a, b) => levels[a] - levels[b]);
    const at = new Array(levels.length);
    order.forEach((i, place) => { at[i] = place; });
    return { points: order.map((i) => levels[i]), at };
  }

  /** How many standard normals m draws need, by stream; 0 where the stream is not used. */
  needs(levels, m) {
    const used = new Set(this.mix(levels).flat().filter(([, w]) => w !== 0).map(([j]) => j));
    const { points } = this.path(levels);
    return {
      privacy: m * this.k * this.d,
      path: m * (points === null ? 1 : points.length + 1) * this.d,
      spread: this.spread ? m * this.packed : 0,
      loose: this.vague ? m * this.d : 0,
      curvature: this.knots.map((knot, j) => (used.has(j) && knot.noisy ? m * this.packed : 0)),
    };
  }

  /** θ* = c − H*⁻¹(a + privacy noise + sampling noise) for given standard normals z; one array (m·d) a level, internal. */
  draw(levels, m, z) {
    const { t, d, k, packed } = this, size = d * d;
    const mix = this.mix(levels).map((row) => row.filter(([, w]) => w !== 0));
    const used = [...new Set(mix.flat().map(([j]) => j))];
    const { points, at } = this.path(levels);
    const steps = points === null ? 1 : points.length + 1;
    const out = mix.map(() => new Float64Array(m * d));
    const matrices = this.knots.map((knot) => (knot.noisy ? new Float64Array(size) : knot.base));
    const factors = this.knots.map((knot) => knot.factor ?? new Float64Array(size));
    const moves = this.knots.map(() => new Float64Array(d));
    const scratch = { x: new Float64Array(d), y: new Float64Array(d), loose: new Float64Array(d), m: new Float64Array(size) };
    const noisyRoot = new Float64Array(size), between = new Float64Array(size), error = new Float64Array(d);
    const walk = new Float64Array(steps * d), combined = new Float64Array(d);
    const fixed = mix.map((row) => {
      if (row.length === 1) return this.knots[row[0][0]].factor;
      if (row.some(([j]) => this.knots[j].noisy)) return null;
      return cholesky(this.combine(row, matrices, between), d, new Float64Array(size));
    });
    for (let r = 0; r < m; r++) {
      let root = this.root;
      if (this.spread) root = this.spreadRoot(z.spread, r * packed, scratch.m, noisyRoot);
      this.walk(points, steps, z.path, r * steps * d, walk);
      for (let c = 0; c < d; c++) scratch.loose[c] = this.vague ? this.vague * z.loose[r * d + c] : 0;
      for (const j of used) {
        const knot = this.knots[j];
        if (knot.noisy) {
          const norm = perturbed(knot.base, knot.sd, z.curvature[j], r * packed, d, matrices[j]);
          if (norm > (1 - this.floor) * knot.smallest) this.lift(matrices[j], this.floor * knot.smallest);
          cholesky(matrices[j], d, factors[j]);
        }
        const step = moves[j];
        for (let c = 0; c < d; c++) step[c] = t.gradient[j * d + c];
        for (let a = 0; a < k; a++) {
          const load = t.privacy[j * k + a], from = (r * k + a) * d;
          for (let c = 0; c < d; c++) step[c] += load * z.privacy[from + c];
        }
        solve(factors[j], d, step, step);
        for (let c = 0; c < d; c++) step[c] = -step[c];
        if (knot.free >= 0) {
          for (let c = 0; c < d; c++) scratch.x[c] = scratch.loose[c] - step[c];
          times(scratch.x, t.free, knot.free, d, scratch.y);
          for (let c = 0; c < d; c++) step[c] += scratch.y[c];
        }
      }
      for (let i = 0; i < mix.length; i++) {
        const row = mix[i];
        let factor = fixed[i];
        if (factor === null) {
          factor = row.length === 1 ? factors[row[0][0]] : cholesky(this.combine(row, matrices, between), d, scratch.m);
        }
        for (let c = 0; c < d; c++) scratch.x[c] = walk[at[i] * d + c];
        times(scratch.x, root, 0, d, error);
        solve(factor, d, error, error);
        combined.fill(0);
        for (const [j, w] of row) for (let c = 0; c < d; c++) combined[c] += w * moves[j][c];
        for (let c = 0; c < d; c++) combined[c] -= error[c];
        for (const [j, w] of row) {
          if (this.knots[j].free < 0) continue;
          times(error, t.free, this.knots[j].free, d, scratch.y);
          for (let c = 0; c < d; c++) combined[c] += w * scratch.y[c];
        }
        if (t.bend) {
          for (let c = 0; c < d; c++) {
            const step = combined[c] + t.skew[c] * (error[c] ** 2 - this.usual[c]);
            combined[c] = step / Math.max(1 + t.bend[c] * step, STEEPEST);
          }
        }
        for (let c = 0; c < d; c++) {
          let value = 0;
          for (const [j, w] of row) value += w * t.center[j * d + c];
          for (let b = 0; b < d; b++) value += combined[b] * t.frame[c * d + b];
          out[i][r * d + c] = Math.min(Math.max(value, t.low[c]), t.high[c]);
        }
      }
    }
    return out;
  }

  combine(row, matrices, out) {
    out.fill(0);
    for (const [j, w] of row) for (let c = 0; c < out.length; c++) out[c] += w * matrices[j][c];
    return out;
  }

  /** Raise eigenvalues to the floor, where one is below it. */
  lift(matrix, least) {
    const { values, vectors } = eigh(matrix, this.d);
    if (values[0] < least) rebuilt(values, vectors, this.d, (x) => Math.max(x, least), matrix);
  }

  spreadRoot(z, from, matrix, out) {
    const { t, d } = this, least = this.floor * this.lowest;
    const norm = perturbed(t.sampling, t.sampling_sd, z, from, d, matrix);
    const { values, vectors } = eigh(matrix, d);
    const lifted = norm > (1 - this.floor) * this.room && values[0] < least;
    return rebuilt(values, vectors, d, (x) => Math.sqrt(Math.max(x, lifted ? least : 0)), out);
  }

  /** d Brownian bridges at the points, or plain normals without an index. */
  walk(points, steps, z, from, out) {
    const d = this.d;
    if (points === null) {
      for (let c = 0; c < d; c++) out[c] = z[from + c];
      return;
    }
    for (let c = 0; c < d; c++) {
      let sum = 0;
      for (let s = 0; s < steps; s++) {
        const gap = (s < points.length ? points[s] : 1) - (s ? points[s - 1] : 0);
        sum += Math.sqrt(gap) * z[from + s * d + c];
        out[s * d + c] = sum;
      }
      for (let s = 0; s < points.length; s++) out[s * d + c] -= points[s] * sum;
    }
  }

  /** sampling_sd, privacy_sd, privacy_share and identified by coefficient, in the units to which `transform` leads. */
  columns(levels, transform) {
    const { t, d, k } = this, size = d * d;
    const lead = new Float64Array(size);
    for (let a = 0; a < d; a++) {
      for (let b = 0; b < d; b++) {
        for (let c = 0; c < d; c++) lead[a * d + b] += transform[a * d + c] * t.frame[c * d + b];
      }
    }
    if (t.bend) { // the slope of what bends a step, at the estimate
      const step = solve(cholesky(this.knots[0].base, d, new Float64Array(size)), d, t.gradient, new Float64Array(d));
      for (let c = 0; c < size; c++) lead[c] /= Math.max(1 - t.bend[c % d] * step[c % d], STEEPEST) ** 2;
    }
    const weight = this.knots.map(({ free }) => Array.from({ length: d }, (_, a) => {
      if (free < 0) return 0;
      const row = t.frame.subarray(a * d, (a + 1) * d);
      const image = times(row, t.free, free, d, new Float64Array(d));
      return row.reduce((s, x, i) => s + x * image[i], 0) / row.reduce((s, x) => s + x * x, 0);
    }));
    return this.mix(levels).map((row, i) => {
      const scale = levels === null ? 1 : levels[i] * (1 - levels[i]);
      const factor = cholesky(this.combine(row, this.knots.map((x) => x.base), new Float64Array(size)), d, new Float64Array(size));
      const own = row.map(([j]) => cholesky(this.knots[j].base, d, new Float64Array(size)));
      return Array.from({ length: d }, (_, a) => {
        const line = lead.subarray(a * d, (a + 1) * d);
        // Variances of the sampling error and of the noise along `mixed`, and along one line a knot.
        const variances = (mixed, single) => {
          const slope = solve(factor, d, mixed, new Float64Array(d));
          const image = times(slope, t.sampling, 0, d, new Float64Array(d));
          const slopes = own.map((l, s) => solve(l, d, single[s], new Float64Array(d)));
          let privacy = 0;
          for (let q = 0; q < k; q++) {
            for (let b = 0; b < d; b++) {
              let x = 0;
              row.forEach(([j, w], s) => { x += w * t.privacy[j * k + q] * slopes[s][b]; });
              privacy += x * x;
            }
          }
          return [Math.max(scale * slope.reduce((s, x, b) => s + x * image[b], 0), 0), privacy];
        };
        const [sampling, privacy] = variances(line, row.map(() => line));
        let touched = false;
        for (let b = 0; b < d; b++) {
          const loose = row.reduce((s, [j, w]) => s + w * weight[j][b], 0);
          if (transform[a * d + b] !== 0 && loose > VAGUE_SHARE) touched = true;
        }
        const total = sampling + privacy;
        const hidden = row.map(([j]) => (this.knots[j].free < 0 ? new Float64Array(d) : times(line, t.free, this.knots[j].free, d, new Float64Array(d))));
        const spread = row.reduce((sum, [, w], s) => sum + w * this.vague ** 2 * line.reduce((x, y, b) => x + y * hidden[s][b], 0), 0);
        const mixed = line.map((x, b) => x - row.reduce((sum, [, w], s) => sum + w * hidden[s][b], 0));
        const rest = variances(mixed, hidden.map((h) => line.map((x, b) => x - h[b])));
        if (spread > rest[0] + rest[1]) touched = true;
        if (t.prior && total > HIDDEN_SHARE ** 2 * line.reduce((sum, x, b) => sum + (x * t.prior[b]) ** 2, 0)) touched = true;
        return {
          sampling_sd: Math.sqrt(sampling),
          privacy_sd: Math.sqrt(privacy),
          privacy_share: privacy / (total > 0 ? total : 1),
          identified: !touched,
        };
      });
    });
  }
}

// The payload "generator" ---------------------------------------------------------------------------------------------

// docs/tools/dense.wat: a layer in 128-bit lanes, several times faster than the loop below; both give the same numbers.
const DENSE = "AGFzbQEAAAABCgFgBn9/f39/fwADAgEABQMBAAEHEgIGbWVtb3J5AgAFZGVuc2UAAAqHAwGEAwMFfwF9CXsgBUECdCEKIAAgAUECdGohCQNAIAMgBmohByAH/QAEACENIAf9AAQQIQ4gB/0ABCAhDyAH/QAEMCEQIAf9AARAIREgB/0ABFAhEiAH/QAEYCETIAf9AARwIRQgAiAGaiEIIAAhBwNAIAcqAgAhCyALQwAAAABcBEAgC/0TIQwgDSAMIAj9AAQA/eYB/eQBIQ0gDiAMIAj9AAQQ/eYB/eQBIQ4gDyAMIAj9AAQg/eYB/eQBIQ8gECAMIAj9AAQw/eYB/eQBIRAgESAMIAj9AARA/eYB/eQBIREgEiAMIAj9AARQ/eYB/eQBIRIgEyAMIAj9AARg/eYB/eQBIRMgFCAMIAj9AARw/eYB/eQBIRQLIAggCmohCCAHQQRqIQcgByAJSQ0ACyAEIAZqIQcgByAN/QsEACAHIA79CwQQIAcgD/0LBCAgByAQ/QsEMCAHIBH9CwRAIAcgEv0LBFAgByAT/QsEYCAHIBT9CwRwIAZBgAFqIQYgBiAKSQ0ACws=";

/** The compiled layer with room for `bytes`; null where the browser has no such lanes. */
function lanes(bytes) {
  try {
    const module = new WebAssembly.Module(Uint8Array.from(atob(DENSE), (c) => c.charCodeAt(0)));
    const { memory, dense } = new WebAssembly.Instance(module).exports;
    memory.grow(Math.ceil(bytes / 65536));
    return { buffer: memory.buffer, dense };
  } catch {
    return null;
  }
}

function plainDense(h, length, kernel, bias, z, width) {
  for (let j = 0; j < width; j++) z[j] = bias[j];
  for (let i = 0; i < length; i++) {
    const value = h[i];
    if (value === 0) continue;
    const row = i * width;
    for (let j = 0; j < width; j++) z[j] += value * kernel[row + j];
  }
}

class GeneratorMap {
  constructor(settings, tensors, d, fast = true) {
    this.t = tensors;
    this.d = d;
    this.fast = fast;
    this.inputs = tensors.input_shift.length;
    this.weights = settings.blocks + settings.pseudo_blocks;
    this.bounded = settings.clipped ? (v) => Math.min(Math.max(v, -1), 1) : Math.tanh;
    this.refresh();
  }

  /** Lay the layers out in one memory, their widths filled up with zeros: to be called again after a weight was changed. */
  refresh() {
    const { t, inputs } = this, widths = [];
    while (t[`kernel${widths.length}`]) widths.push(t[`bias${widths.length}`].length);
    const up = (n) => Math.ceil(n / 32) * 32;
    const rows = widths.map((_, i) => (i ? widths[i - 1] : 0) + inputs);
    const longest = up(Math.max(...widths) + inputs);
    const cells = widths.reduce((sum, w, i) => sum + (rows[i] + 1) * up(w), 2 * longest);
    const compiled = this.fast ? lanes(4 * cells) : null;
    const buffer = compiled ? compiled.buffer : new ArrayBuffer(4 * cells);
    let free = 0;
    const room = (n) => {
      const view = new Float32Array(buffer, free, n);
      free += 4 * n;
      return view;
    };
    this.x = new Float32Array(inputs);
    this.h = room(longest);
    this.z = room(longest);
    this.layers = widths.map((width, i) => {
      const kernel = room(rows[i] * up(width)), bias = room(up(width));
      for (let r = 0; r < rows[i]; r++) kernel.set(t[`kernel${i}`].subarray(r * width, (r + 1) * width), r * up(width));
      bias.set(t[`bias${i}`]);
      return { kernel, bias, width, padded: up(width), length: rows[i] };
    });
    this.dense = plainDense;
    if (compiled) {
      this.dense = (h, length, kernel, bias, z, width) =>
        compiled.dense(h.byteOffset, length, kernel.byteOffset, bias.byteOffset, z.byteOffset, width);
    }
  }

  /** center + radius·tanh(z), or with z clipped, at weights u[from …] and index τ, into out[to …]; internal. */
  forward(u, from, tau, out, to) {
    const { t, x, h, z, inputs, d } = this;
    for (let i = 0; i < inputs; i++) {
      const value = i < this.weights ? u[from + i] : tau;
      x[i] = (value - t.input_shift[i]) / t.input_scale[i];
      h[i] = x[i];
    }
    this.layers.forEach((layer, i) => {
      if (i > 0) {
        const width = this.layers[i - 1].width;
        for (let j = 0; j < width; j++) h[j] = z[j] > 0 ? z[j] : 0;
        h.set(x, width);
      }
      this.dense(h, layer.length, layer.kernel, layer.bias, z, layer.padded);
    });
    for (let c = 0; c < d; c++) out[to + c] = t.center[c] + t.radius[c] * this.bounded(z[c]);
  }

  draw(levels, m, u) {
    return (levels ?? [0]).map((tau) => {
      const out = new Float64Array(m * this.d);
      for (let r = 0; r < m; r++) this.forward(u, r * this.weights, tau, out, r * this.d);
      return out;
    });
  }
}

// Randomness ----------------------------------------------------------------------------------------------------------

/** A stream of its own for each (seed, number): sfc32, with normals by the polar method and gammas by Marsaglia and Tsang. */
class Stream {
  constructor(seed, number) {
    let mixed = (seed ^ Math.imul(number + 1, 0x9e3779b9)) >>> 0;
    const next = () => {
      mixed = (mixed + 0x9e3779b9) >>> 0;
      let x = mixed;
      x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
      x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
      return (x ^ (x >>> 15)) >>> 0;
    };
    this.a = next();
    this.b = next();
    this.c = next() ^ Math.floor(seed / 2 ** 32);
    this.n = 1;
    this.spare = null;
    for (let i = 0; i < 16; i++) this.bits();
  }

  bits() {
    const t = (((this.a + this.b) | 0) + this.n) | 0;
    this.n = (this.n + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = ((this.c << 21) | (this.c >>> 11)) + t | 0;
    return t >>> 0;
  }

  /** In (0, 1). */
  uniform() {
    return (this.bits() + 0.5) / 4294967296;
  }

  below(n) {
    return Math.floor(this.uniform() * n);
  }

  normal() {
    if (this.spare !== null) {
      const kept = this.spare;
      this.spare = null;
      return kept;
    }
    let x, y, s;
    do {
      x = 2 * this.uniform() - 1;
      y = 2 * this.uniform() - 1;
      s = x * x + y * y;
    } while (s >= 1 || s === 0);
    const scale = Math.sqrt((-2 * Math.log(s)) / s);
    this.spare = y * scale;
    return x * scale;
  }

  normals(count) {
    const out = new Float64Array(count);
    for (let i = 0; i < count; i++) out[i] = this.normal();
    return out;
  }

  gamma(shape) {
    if (shape < 1) return this.gamma(shape + 1) * this.uniform() ** (1 / shape);
    const d = shape - 1 / 3, c = 1 / Math.sqrt(9 * d);
    for (;;) {
      const x = this.normal(), v = (1 + c * x) ** 3;
      if (v > 0 && Math.log(this.uniform()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return d * v;
    }
  }
}

// One release ---------------------------------------------------------------------------------------------------------

/** The released posterior: `sample` draws in original units, one array (m·d) a level. */
class Posterior {
  constructor(data) {
    this.data = data;
    this.names = data.model.names;
    this.d = this.names.length;
    this.kind = data.payload.kind;
    this.settings = data.payload.settings;
    this.tensors = {};
    for (const [name, packed] of Object.entries(data.payload.tensors)) this.tensors[name] = decode(packed);
    this.transform = decode(data.model.transform);
    this.offset = decode(data.model.offset);
    if (this.kind === "local") this.map = new LocalMap(this.settings, this.tensors, this.d);
    if (this.kind === "generator") this.map = new GeneratorMap(this.settings, this.tensors, this.d);
  }

  toOriginal(internal) {
    const { d, transform, offset } = this, out = new Float64Array(internal.length);
    for (let r = 0; r < internal.length; r += d) {
      for (let a = 0; a < d; a++) {
        let sum = offset[a];
        for (let b = 0; b < d; b++) sum += transform[a * d + b] * internal[r + b];
        out[r + a] = sum;
      }
    }
    return out;
  }

  /** θ of a generator at one u, original units. */
  forward(u, tau) {
    const out = new Float64Array(this.d);
    this.map.forward(u, 0, tau, out, 0);
    return this.toOriginal(out);
  }

  /** θ of a local posterior at given standard normals, original units; see LocalMap.needs for their number. */
  drawLocal(levels, m, z) {
    return this.map.draw(levels, m, z).map((x) => this.toOriginal(x));
  }

  sample(m, levels, seed) {
    const draw = { local: this.sampleLocal, generator: this.sampleGenerator, draws: this.sampleDraws }[this.kind];
    return draw.call(this, m, levels, seed).map((x) => this.toOriginal(x));
  }

  sampleLocal(m, levels, seed) {
    const { map, d } = this, each = map.needs(levels, 1);
    const streams = ["privacy", "path", "spread", "loose"].map((_, i) => new Stream(seed, i));
    const bends = map.knots.map((_, j) => new Stream(seed, 4 + j));
    const total = each.privacy + each.path + each.spread + each.loose + each.curvature.reduce((a, b) => a + b, 0);
    const size = Math.max(1, Math.floor(CELLS / total));
    const out = (levels ?? [0]).map(() => new Float64Array(m * d));
    for (let start = 0; start < m; start += size) {
      const rows = Math.min(size, m - start);
      const part = map.draw(levels, rows, {
        privacy: streams[0].normals(rows * each.privacy),
        path: streams[1].normals(rows * each.path),
        spread: streams[2].normals(rows * each.spread),
        loose: streams[3].normals(rows * each.loose),
        curvature: bends.map((stream, j) => stream.normals(rows * each.curvature[j])),
      });
      part.forEach((values, i) => out[i].set(values, start * d));
    }
    return out;
  }

  /** (u, ũ) ~ Dirichlet(γ1_S, (α/S̃)1_S̃), one a row. */
  dirichlet(m, seed) {
    const { blocks, pseudo_blocks: pseudo, concentration, alpha } = this.settings;
    if (blocks === 1) return new Float64Array(m).fill(1);
    const width = blocks + pseudo, out = new Float64Array(m * width), stream = new Stream(seed, 0);
    for (let r = 0; r < m; r++) {
      let total = 0;
      for (let i = 0; i < width; i++) {
        out[r * width + i] = stream.gamma(i < blocks ? concentration : alpha / pseudo);
        total += out[r * width + i];
      }
      for (let i = 0; i < width; i++) out[r * width + i] /= total;
    }
    return out;
  }

  sampleGenerator(m, levels, seed) {
    return this.map.draw(levels, m, this.dirichlet(m, seed));
  }

  /** Rows of the stored draws: without replacement while they last, else with. */
  sampleDraws(m, levels, seed) {
    const { d } = this, stored = this.settings.index_values, stream = new Stream(seed, 0);
    const draws = this.tensors.draws, size = draws.length / d / (stored ? stored.length : 1);
    const order = Array.from({ length: size }, (_, i) => i);
    const rows = Array.from({ length: m }, (_, i) => {
      if (m > size) return stream.below(size);
      const other = i + stream.below(size - i);
      [order[i], order[other]] = [order[other], order[i]];
      return order[i];
    });
    return (levels ?? [null]).map((level) => {
      const base = level === null ? 0 : stored.findIndex((v) => close(v, level)) * size;
      const out = new Float64Array(m * d);
      rows.forEach((row, i) => { for (let c = 0; c < d; c++) out[i * d + c] = draws[(base + row) * d + c]; });
      return out;
    });
  }

  /** Parts of the variance and identification at each level; null unless the posterior is local. */
  columns(levels) {
    return this.kind === "local" ? this.map.columns(levels, this.transform) : null;
  }
}

// Tables of draws -----------------------------------------------------------------------------------------------------

/** Mean, sd, equal-tailed interval (linear between order statistics, as numpy's) and probability above 0. */
function moments(values, level) {
  const sorted = Float64Array.from(values).sort(), n = sorted.length;
  let mean = 0, square = 0, above = 0;
  for (const x of sorted) mean += x / n;
  for (const x of sorted) {
    square += (x - mean) ** 2;
    if (x > 0) above++;
  }
  const quantile = (p) => {
    const at = p * (n - 1), low = Math.floor(at);
    return sorted[low] + (at - low) * (sorted[Math.min(low + 1, n - 1)] - sorted[low]);
  };
  return {
    mean, sd: Math.sqrt(square / Math.max(n - 1, 1)), lower: quantile((1 - level) / 2), upper: quantile((1 + level) / 2),
    quartiles: quantile(0.75) - quantile(0.25), positive: above / n, least: sorted[0], most: sorted[n - 1],
  };
}
