"use strict";
// The page: asks a person for texts, `backend` (server.js or offline.js) for the answers, and shows them.
//
//   backend.start()               promises that the model can be asked; `report` shows what happens until then
//   backend.predict(item)         promises the answer that `Predictor.predict` gives
//   backend.embed(texts, done)    promises a vector of each text, and calls done(number of texts so far)
//   backend.requests(path, body)  [[name, program], ...]: how to ask a server the same; none without a server

const model = JSON.parse(document.getElementById("model").textContent);
const find = selector => document.querySelector(selector);
const [form, fields, shown, errorLine, statusLine] = ["form", "#fields", "#answer", "#error", "#status"].map(find);
const [fileLabel, requestBox] = ["#file", "#request"].map(find);
const button = form.querySelector("button");

const MOST_RESULTS = 20, MOST_LINES_IN_REQUEST = 20, LINES_AT_A_TIME = 64;
const SEARCHED = "Returns are free for 30 days.\nThe battery charges in two hours.\nOur office in Oslo is closed in July."
  + "\nThe camera works under water.\nWrite to support if a parcel is late.";
const SEARCH = { name: "Search", button: "Search", hint: "Ranks lines by what they have to do with a query, as you type.",
  fields: [["query", 1, "can I take photos while diving?"], ["lines", 7, SEARCHED]] };

// What a person is asked for in each mode: the name of a field, its lines, an example. Other models get one field.
const ONE = (hint, lines, example) => [{ hint, fields: [["text", lines, example]] }];
const KINDS = {
  ClassificationPredictor: [{ hint: "Labels or scores a text, or two.",
    fields: [["text", 3, "It rains, and the streets are wet."], ["second text, if any", 2, ""]] }],
  PretrainedPredictor: [{ ...ONE("Fills [MASK]. Several lines are compared with each other.", 4,
    "She opened the [MASK] and looked out.")[0], name: "Fill and compare" }, SEARCH],
  EmbeddingPredictor: [{ ...ONE("Compares sentences, one per line.", 5,
    "A cat sleeps.\nA kitten takes a nap.\nThe tax law was changed.")[0], name: "Compare", button: "Compare" }, SEARCH],
  TaggingPredictor: ONE("Marks the names in a text.", 4, "Ada Lovelace lived in London."),
  SpanPredictor: [{ hint: "Finds the answer to a question in a context.",
    fields: [["context", 7, "Ada Lovelace was born in London in 1815."],
             ["question", 1, "Where was Ada Lovelace born?"]] }],
  ChoicePredictor: [{ hint: "Chooses the best answer to a question.",
    fields: [["article", 7, "Ann went to the market in the rain. She bought apples, but no pears."],
             ["question", 1, "What did Ann buy?"],
             ...["pears", "apples", "rain", "nothing"].map((text, i) => ["option " + "ABCD"[i], 1, text])] }],
};
KINDS.SpanOrNonePredictor = KINDS.SpanPredictor;
const modes = KINDS[model.kind] || [{ hint: "Expects " + model.expects + ".",
  fields: model.prompts.length ? model.prompts.map(name => [name, 2, ""]) : [["text", 4, ""]] }];
if (model.kind === "ClassificationPredictor" && model.num_texts) {
  modes[0].hint = model.num_texts === 1 ? "Labels or scores a text." : "Labels or scores two texts.";
  modes[0].fields = model.num_texts === 1 ? [modes[0].fields[0]]
    : [["first text", 3, "It rains."], ["second text", 2, "The streets are wet."]];
}

function node(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// --- Fields ---

let mode, inputs;
const isSearch = () => mode === SEARCH;
const valueOf = name => inputs.find(input => input.name === name).value;
const linesOf = text => text.split("\n").map(line => line.trim()).filter(Boolean);

function choose(chosen) {
  mode = chosen;
  find(".hint").textContent = mode.hint;
  button.textContent = mode.button || "Answer";
  fileLabel.hidden = !isSearch();
  for (const tab of document.querySelectorAll(".modes button")) tab.ariaPressed = String(tab.textContent === mode.name);
  inputs = mode.fields.map(([name, lines, value]) => node(lines > 1 ? "textarea" : "input", { name, value, rows: lines }));
  fields.replaceChildren(...inputs.map(input =>
    node("label", {}, input.name[0].toUpperCase() + input.name.slice(1), input)));
  if (!isSearch()) return;
  inputs.forEach(input => input.addEventListener("input", () => request(search)));
  const lines = inputs[1];
  lines.addEventListener("dragover", event => { event.preventDefault(); lines.classList.add("dropped"); });
  lines.addEventListener("dragleave", () => lines.classList.remove("dropped"));
  lines.addEventListener("drop", event => {
    lines.classList.remove("dropped");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    readFile(event.dataTransfer.files[0]);
  });
}

async function readFile(file) {
  inputs[1].value = await file.text();
  request(search);
}

// --- Requests ---

// An answer is shown only if no other request was made since. What `ask` shows, it shows by `put`.
let lastRequest = 0, isCurrent = () => true;
async function request(ask) {
  const number = ++lastRequest, started = performance.now();
  isCurrent = () => number === lastRequest;
  const isStill = isCurrent;
  button.disabled = true;
  errorLine.textContent = "";
  try {
    await ask(isStill);
    performance.mark("answer");  // for measurements
    if (isStill()) statusLine.textContent = `${Math.max(1, Math.round(performance.now() - started))} ms`;
  } catch (error) {
    if (isStill()) { errorLine.textContent = error.message; statusLine.textContent = ""; put(); }
  }
  if (isStill()) button.disabled = false;
}

async function predict(isStill, item) {
  showRequests(`/v1/models/${encodeURIComponent(model.name)}:predict`, { instances: [item] });
  const answer = await backend.predict(item);
  return isStill() ? answer : null;
}

async function ask(isStill) {
  if (isSearch()) return search(isStill);
  if (!inputs[0].value.trim()) throw new Error("Type a text first.");
  const values = Object.fromEntries(inputs.map(input => [input.name, input.value]));
  const text = inputs[0].value;
  const isPretrained = model.kind === "PretrainedPredictor";
  if (model.kind === "EmbeddingPredictor" || (isPretrained && !text.includes("[MASK]"))) {
    const lines = linesOf(text);
    if (lines.length < 2) throw new Error("Type at least two lines to compare" + (isPretrained ? ", or a [MASK]." : "."));
    showRequests("/v1/embeddings", { input: lines });
    const vectors = await backend.embed(lines, () => {});
    return isStill() ? showSimilarities(lines, vectors) : null;
  }
  const options = inputs.filter(input => input.name.startsWith("option ")).map(input => input.value);
  const item = itemOf(values, text, options);
  const answer = await predict(isStill, item);
  if (answer) show(answer, text, options);
}

function itemOf(values, text, options) {
  if (model.kind === "ClassificationPredictor") {
    const second = inputs[1]?.value ?? "";
    return second.trim() ? { text_a: text, text_b: second } : { text };
  }
  if (inputs.length === 1 && inputs[0].name === "text") return text;
  const item = Object.fromEntries(Object.entries(values).filter(([name]) => !name.startsWith("option ")));
  while (options.length > 2 && !options.at(-1).trim()) options.pop();  // a question with fewer options
  return options.length ? { ...item, options } : item;
}

// --- Search ---

const vectorOf = new Map();  // of each line that was searched

async function search(isStill) {
  const query = valueOf("query").trim(), lines = [...new Set(linesOf(valueOf("lines")))];
  if (!lines.length) throw new Error("Type or drop lines to search.");
  showRequests("/v1/rerank", { query, documents: lines.slice(0, MOST_LINES_IN_REQUEST) });
  const [queryVector] = query ? await backend.embed([query], () => {}) : [null];
  if (!isStill()) return;
  const missing = lines.filter(line => !vectorOf.has(line));
  const showRanked = () => {
    const ready = lines.filter(line => vectorOf.has(line));
    if (queryVector) showResults(ready, ready.map(line => similarity(queryVector, vectorOf.get(line))));
    else put();
  };
  for (let start = 0; start < missing.length && isStill(); start += LINES_AT_A_TIME) {
    const part = missing.slice(start, start + LINES_AT_A_TIME);
    statusLine.textContent = `reading line ${(start + 1).toLocaleString()} of ${missing.length.toLocaleString()} …`;
    const vectors = await backend.embed(part, () => {});
    part.forEach((line, i) => vectorOf.set(line, vectors[i]));
    if (isStill()) showRanked();
  }
  if (isStill()) showRanked();
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const SIMILARITIES = {
  cosine: (a, b) => dot(a, b) / (Math.hypot(...a) * Math.hypot(...b) || 1),
  dot,
  euclidean: (a, b) => -Math.hypot(...a.map((value, i) => value - b[i])),
  manhattan: (a, b) => -a.reduce((sum, value, i) => sum + Math.abs(value - b[i]), 0),
};
const similarity = SIMILARITIES[model.similarity || "cosine"];

// --- How a program asks the same ---

function showRequests(path, body) {
  const requests = backend.requests(path, body);
  requestBox.hidden = !requests.length;
  requestBox.querySelector("div").replaceChildren(...requests.flatMap(([name, program]) => {
    const copy = node("button", { type: "button", className: "small", textContent: "Copy" });
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(program);
      copy.textContent = "Copied";
    });
    return [node("h2", {}, name + " ", copy), node("pre", { textContent: program })];
  }));
}

// --- Answers ---

const put = (...nodes) => shown.replaceChildren(...nodes);
const heading = textContent => node("h2", { textContent });

function row(name, value, share, isBest = false, className = "row") {
  const bar = node("div");
  bar.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return node("div", { className: className + (isBest ? " best" : "") },
    node("span", { textContent: name }), node("div", { className: "bar" }, bar),
    node("span", { className: "number", textContent: value.toFixed(3) }));
}

function bars(probabilities, isBest = () => false, title = name => name) {
  return Object.entries(probabilities).sort((a, b) => b[1] - a[1])
    .map(([name, value]) => row(title(name), value, value, isBest(name)));
}

function marked(text, spans) {  // positions count characters, not units of UTF-16
  const characters = [...text], part = (start, end) => characters.slice(start, end).join("");
  const made = node("p", { className: "text" });
  let place = 0;
  for (const { start, end, label } of spans) {
    made.append(part(place, start), node("mark", {}, part(start, end), ...(label ? [node("small", { textContent: label })] : [])));
    place = end;
  }
  made.append(part(place));
  return made;
}

function show(answer, text, options) {
  if (answer.masks) showMasks(answer.masks, text);
  else if (answer.entities) {
    put(marked(text, answer.entities), ...(answer.entities.length ? [] : [node("p", { className: "hint", textContent: "No names found." })]));
  } else if ("start" in answer) {
    const found = answer.answer || "No answer in this context";
    put(heading(`${found} (${answer.probability.toFixed(3)})`), marked(text, answer.answer ? [answer] : []));
  } else if (answer.probabilities) {
    const best = answer.labels || [answer.label ?? answer.answer];
    const title = name => options.length ? `${name}: ${options["ABCD".indexOf(name)]}` : name;
    put(...bars(answer.probabilities, name => best.includes(name), title));
  } else {
    const numbers = Object.entries(answer).filter(([, value]) => typeof value === "number");
    put(...(numbers.length ? numbers.map(([name, value]) => heading(`${name}: ${value.toFixed(3)}`))
      : [node("pre", { className: "text", textContent: JSON.stringify(answer, null, 2) })]));
  }
}

function showMasks(masks, text) {
  const word = ({ token }) => token.replace("▁", "");
  const parts = text.split("[MASK]"), filled = node("p", { className: "text" }, parts[0]);
  masks.forEach((mask, i) => filled.append(node("mark", { textContent: word(mask[0]) }), parts[i + 1]));
  filled.append(...parts.slice(masks.length + 1).map(part => "[MASK]" + part));  // of a text that is too long
  const each = mask => bars(Object.fromEntries(mask.map(entry => [word(entry), entry.probability])));
  put(filled, ...masks.flatMap((mask, i) => [heading(masks.length > 1 ? `Mask ${i + 1}` : "Best words"), ...each(mask)]));
}

function showSimilarities(lines, vectors) {
  const head = node("tr", {}, node("td"), ...lines.map((line, i) => node("th", { textContent: i + 1, title: line })));
  const rows = vectors.map((vector, i) => node("tr", {},
    node("th", { scope: "row", textContent: `${i + 1}  ${lines[i]}` }),
    ...vectors.map((other, j) => {
      const value = similarity(vector, other), cell = node("td", { textContent: value.toFixed(2) });
      if (i === j) cell.className = "same";
      else cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(70 * Math.min(1, Math.max(0, value)))}%, transparent)`;
      return cell;
    })));
  put(heading("Similarity"), node("div", { className: "scroll" }, node("table", {}, head, ...rows)));
}

function showResults(lines, scores) {
  const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b).slice(0, MOST_RESULTS);
  const isCosine = (model.similarity || "cosine") === "cosine";
  const [least, most] = [Math.min(...order.map(i => scores[i])), Math.max(...order.map(i => scores[i]))];
  const share = score => (isCosine ? score : (score - least) / (most - least || 1));
  const best = `Best ${order.length} of ${lines.length.toLocaleString()} lines`;
  put(heading(best), ...order.map((i, rank) => row(lines[i], scores[i], share(scores[i]), !rank, "row found")));
}

// --- Start ---

document.title = model.name;
find("h1").textContent = model.name;
find("kbd").textContent = /Mac/.test(navigator.platform) ? "⌘ Enter" : "Ctrl Enter";
find(".about").textContent = model.about.join(" · ");
if (modes.length > 1) {
  find(".modes").append(...modes.map(each => {
    const tab = node("button", { type: "button", textContent: each.name });
    tab.addEventListener("click", () => { choose(each); request(ask); });
    return tab;
  }));
}
choose(modes[0]);
inputs[0].focus();
// Of a link such as ?text=A+[MASK]; the fields have their names above.
const given = new URLSearchParams(location.search);
inputs.forEach(input => { input.value = given.get(input.name) ?? input.value; });

form.addEventListener("submit", event => { event.preventDefault(); request(ask); });
addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
fileLabel.querySelector("input").addEventListener("change", event => {
  if (event.target.files.length) readFile(event.target.files[0]);
});
button.disabled = true;
backend.start(message => { statusLine.textContent = message; }).then(
  () => {
    button.disabled = false;
    if (inputs[0].value.trim()) request(ask);
  },
  error => { errorLine.textContent = error.message; statusLine.textContent = ""; },
);
