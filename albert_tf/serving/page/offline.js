"use strict";
// The answers of a model inside the page, computed by ONNX Runtime's WebAssembly in one thread; see page.js.
//
// Each part of the page is a script element with bytes in base64, compressed with gzip.

async function partOfPage(id) {
  const element = document.getElementById(id), text = atob(element.textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
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
