// The page checks itself: it unpacks the release file that it carries, and says what it found. Nothing is fetched.

const bytesOf = (text) => Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");
const utf8 = (bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes);

/** The members of a zip archive by name. */
async function unzipped(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error("no archive");
  const members = new Map();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const method = view.getUint16(at + 10, true), size = view.getUint32(at + 20, true), name = view.getUint16(at + 28, true);
    const skip = view.getUint16(at + 30, true) + view.getUint16(at + 32, true), start = view.getUint32(at + 42, true);
    const label = utf8(bytes.subarray(at + 46, at + 46 + name));
    const from = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
    const packed = bytes.subarray(from, from + size);
    if (members.has(label) || (method !== 0 && method !== 8)) throw new Error("an odd archive");
    const plain = method === 0 ? packed : new Uint8Array(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer());
    members.set(label, plain);
    at += 46 + name + skip;
  }
  return members;
}

/** log Φ(x), by the series of erf near 0 and by a continued fraction in the tails. */
function logNormal(x) {
  if (x > 3) return Math.log1p(-Math.exp(logNormal(-x)));
  if (x > -3) {
    let term = x, sum = x;
    for (let k = 1; Math.abs(term) > 1e-18 * Math.abs(sum) && k < 200; k++) sum += term *= (x * x) / (2 * k + 1);
    return Math.log(0.5 + sum * Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI));
  }
  let tail = 0;
  for (let k = 200; k > 0; k--) tail = k / (-x + tail);
  return -0.5 * x * x - 0.5 * Math.log(2 * Math.PI) - Math.log(-x + tail);
}

/** The smallest ε at which answers with Gaussian noise over all records, of joint distance μ, are (ε, δ)-private. */
function gaussianEpsilon(mu, delta) {
  const failure = (e) => {
    const first = logNormal(mu / 2 - e / mu), second = e + logNormal(-mu / 2 - e / mu);
    return Math.exp(first) * -Math.expm1(Math.min(second - first, 0));
  };
  if (failure(0) <= delta) return 0;
  let low = 0, high = mu ** 2 / 2 + mu * Math.sqrt(2 * Math.log(1 / delta)) + 1e-9;
  for (let i = 0; i < 200; i++) {
    const middle = (low + high) / 2;
    if (failure(middle) > delta) low = middle;
    else high = middle;
  }
  return high;
}

/** The distance of all answers together; null where a mechanism needs more than a formula. */
function distance(certificate) {
  const { mechanism, sigma } = certificate;
  const parts = mechanism.mechanisms ?? [mechanism], scales = mechanism.scales ?? [1];
  let square = 0;
  for (const [i, m] of parts.entries()) {
    if (m.blocks !== 1 || m.sampling_rate !== 1 || m.alpha) return null;
    square += m.steps * m.draws_per_step * ((2 * m.clip) / (m.n * sigma * scales[i])) ** 2;
  }
  return Math.sqrt(square);
}

/** Whether the numbers that the page draws from are those of the file; tensors that are kept in another form are passed over. */
function sameNumbers(file) {
  const size = Number(new DataView(file.buffer, file.byteOffset, 8).getBigUint64(0, true));
  const head = JSON.parse(utf8(file.subarray(8, 8 + size)));
  for (const [name, held] of Object.entries(data.payload.tensors)) {
    const stored = head[name];
    if (!stored || stored.dtype !== { f8: "F64", f4: "F32" }[held.dtype] || String(stored.shape) !== String(held.shape)) continue;
    const [from, to] = stored.data_offsets, here = bytesOf(held.data), there = file.subarray(8 + size + from, 8 + size + to);
    if (here.length !== there.length || here.some((b, i) => b !== there[i])) return false;
  }
  return true;
}

/** What was found: [good, sentence] each; good is null where this browser cannot tell. */
async function findings() {
  const members = await unzipped(bytesOf($("file").textContent));
  const manifest = JSON.parse(utf8(members.get("manifest.json"))), out = [];
  const wrong = [];
  for (const [name, bytes] of members) {
    if (name === "manifest.json" || name === "signature.json") continue;
    if (hex(await crypto.subtle.digest("SHA-256", bytes)) !== manifest.sha256[name]) wrong.push(name);
  }
  const missing = Object.keys(manifest.sha256).filter((name) => !members.has(name));
  out.push(wrong.length + missing.length
    ? [false, `Changed or missing after publication: ${[...wrong, ...missing].join(", ")}.`]
    : [true, `All ${Object.keys(manifest.sha256).length} parts of the file have the hashes of its manifest.`]);
  out.push(sameNumbers(members.get("payload.safetensors"))
    ? [true, "The numbers that this page draws from are those of the file."]
    : [false, "The numbers that this page draws from are NOT those of the file."]);
  const certificate = JSON.parse(utf8(members.get("certificate.json")));
  const mu = certificate.non_private ? null : distance(certificate);
  if (certificate.non_private) out.push([false, "The fit ran without noise: there is no ε to check."]);
  else if (mu === null) out.push([null, "ε of this method needs more than a browser: pgbb verify recomputes it."]);
  else {
    const found = gaussianEpsilon(mu, certificate.delta), text = `ε = ${show(found, 5)} at δ = ${show(certificate.delta)}`;
    out.push(found <= certificate.epsilon * (1 + 1e-6)
      ? [true, `Recomputed here from the description of the mechanism: ${text}; claimed ε = ${show(certificate.epsilon)}.`]
      : [false, `The claim is false: the mechanism gives ${text}, more than the claimed ε = ${show(certificate.epsilon)}.`]);
  }
  out.push(await signatureOf(members));
  return out;
}

async function signatureOf(members) {
  if (!members.has("signature.json")) return [null, "The file is not signed."];
  const signed = JSON.parse(utf8(members.get("signature.json"))), raw = bytesOf(signed.public_key);
  let key;
  try {
    key = await crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
  } catch {
    return [null, "This browser cannot check ed25519 signatures: pgbb verify does."];
  }
  const good = await crypto.subtle.verify({ name: "Ed25519" }, key, bytesOf(signed.signature), members.get("manifest.json"));
  const who = btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest("SHA-256", raw)))).replace(/=+$/, "").replace(/\+/g, "-").replace(/\//g, "_");
  return good ? [true, `Signed by SHA256:${who}: compare that with what the signer publishes elsewhere.`] : [false, "The signature does not belong to this content."];
}

async function checkPage() {
  const list = $("check-list"), marks = { true: "✓", false: "✗", null: "–" };
  let found;
  try {
    if (!globalThis.crypto?.subtle) throw new Error("no hashes");
    found = await findings();
  } catch (error) {
    found = globalThis.crypto?.subtle
      ? [[false, "The file in this page cannot be unpacked: it is damaged."]]
      : [[null, "This browser computes no hashes here: open the page from a file or by https."]];
  }
  list.replaceChildren(...found.map(([good, text]) => {
    const item = document.createElement("li");
    item.className = good === false ? "bad" : "";
    item.textContent = `${marks[good]} ${text}`;
    return item;
  }));
  $("check-summary").textContent = found.some(([good]) => good === false)
    ? "This page does not hold together. Do not use it; ask for the original."
    : "Nothing contradicts itself.";
}

function downloadRelease() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytesOf($("file").textContent)], { type: "application/octet-stream" }));
  link.download = `${data.file}.pgbb`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
if ($("file")) {
  $("release-download").addEventListener("click", downloadRelease);
  checkPage();
}
