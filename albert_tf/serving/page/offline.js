"use strict";
// The answers of a model inside the page, computed by ONNX Runtime's WebAssembly in one thread; see page.js.
//
// Each part of the page is a script element with bytes that are compressed with gzip and written in base 85
// (`offline.packed`).

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

// Five digits are four bytes; of the last ones, there may be fewer.
function bytesOf(text) {
  const values = new Uint8Array(128);
  for (let digit = 0; digit < DIGITS.length; digit++) values[DIGITS.charCodeAt(digit)] = digit;
  const numGroups = Math.ceil(text.length / 5), missing = numGroups * 5 - text.length;
  const view = new DataView(new ArrayBuffer(numGroups * 4));
  const padded = text + "~".repeat(missing);  // the largest digit
  for (let group = 0, place = 0; group < numGroups; group++) {
    let value = 0;
    for (let i = 0; i < 5; i++) value = value * 85 + values[padded.charCodeAt(place++)];
    view.setUint32(4 * group, value);
  }
  return new Uint8Array(view.buffer, 0, numGroups * 4 - missing);
}

async function partOfPage(id) {
  const element = document.getElementById(id), packed = bytesOf(element.textContent);
  element.remove();  // its memory is not needed any more
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

// `compute` of predictors.js, with the files of the page that are named "NAME.onnx".
async function loadEngine() {
  const [program, wasm] = await Promise.all([partOfPage("engine.mjs"), partOfPage("engine.wasm")]);
  const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
  const ort = await import(url);
  URL.revokeObjectURL(url);
  ort.env.wasm.numThreads = 1;  // several need headers of a server
  ort.env.wasm.wasmBinary = wasm.buffer;

  const sessions = {};
  const session = name => {
    sessions[name] ??= partOfPage(`${name}.onnx`).then(content => ort.InferenceSession.create(content));
    return sessions[name];
  };
  await session("model");
  const run = async (name, features) => {
    const used = await session(name);
    const inputs = {};
    for (const input of used.inputNames) inputs[input] = tensorOf(ort, features[input]);
    return used.run(inputs);
  };
  // One run at a time, each after the one before it has ended, in whatever way.
  let last = Promise.resolve();
  return (name, features) => {
    last = last.catch(() => {}).then(() => run(name, features));
    return last;
  };
}

// Nested rows of integers as int64.
function tensorOf(ort, rows) {
  const dims = [];
  for (let part = rows; Array.isArray(part); [part] = part) dims.push(part.length);
  return new ort.Tensor("int64", BigInt64Array.from(rows.flat(dims.length - 1), BigInt), dims);
}

let predictor;
const untilNextTask = () => new Promise(resolve => { setTimeout(resolve); });

const backend = {
  async start(report) {
    report("unpacking the model …");
    const [compute, data] = await Promise.all([loadEngine(), partOfPage("tokenizer.json")]);
    const tokenizer = makeTokenizer(JSON.parse(new TextDecoder().decode(data)));
    predictor = makePredictor(model, tokenizer, compute);
    report("");
  },
  async predict(item) {
    await untilNextTask();
    return predictor.answer(item);
  },
  embed: (texts, done) => predictor.embed(texts, async number => {
    done(number);
    await untilNextTask();  // so that the page can be used meanwhile
  }),
  requests: () => [],
};
