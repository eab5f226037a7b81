// See transformers_js.py: answers to what is in input.json, in output.json beside it.
import fs from "fs";
import { AutoModel, AutoTokenizer, env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "models";
const { embedder, pretrained, texts, masked, tokenized } = JSON.parse(fs.readFileSync("input.json"));
const output = { version: env.version, vectors: {}, pooled: {}, ids: {} };
const tokenizer = await AutoTokenizer.from_pretrained(embedder);
for (const dtype of ["fp32", "q8", "q4"]) {
  const model = await AutoModel.from_pretrained(embedder, { dtype });
  const extract = await pipeline("feature-extraction", embedder, { dtype });
  output.vectors[dtype] = [];
  output.pooled[dtype] = [];
  for (const text of texts) {
    const { sentence_embedding: vector } = await model(await tokenizer(text));
    output.vectors[dtype].push(Array.from(vector.data));
    output.pooled[dtype].push(Array.from((await extract(text, { pooling: "mean", normalize: true })).data));
  }
}
const fill = await pipeline("fill-mask", pretrained, { dtype: "fp32" });
output.masks = await fill(masked);
for (const name of [embedder, pretrained]) {
  const { encode } = await AutoTokenizer.from_pretrained(name).then(each => (
    { encode: text => each.encode(text, { add_special_tokens: false }).map(Number) }));
  output.ids[name] = tokenized.map(encode);
}
fs.writeFileSync("output.json", JSON.stringify(output));
