"use strict";
// The answers of a server; see page.js.

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) })
    .catch(() => { throw new Error("The server does not answer."); });
  const answer = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(answer.error.message ?? answer.error);
  return answer;
}

const backend = {
  start: async () => {},
  predict: async item => (
    await post(`/v1/models/${encodeURIComponent(model.name)}:predict`, { instances: [item] })
  ).predictions[0],
  embed: async (texts, done) => {
    const { data } = await post("/v1/embeddings", { input: texts });
    done(texts.length);
    return data.map(({ embedding }) => embedding);
  },
  requests(path, body) {
    const url = location.origin + path, json = JSON.stringify(body);
    const python = [
      "import json, urllib.request", "",
      `body = ${json}`,
      'headers = {"Content-Type": "application/json"}',
      `request = urllib.request.Request("${url}", json.dumps(body).encode(), headers)`,
      "print(json.load(urllib.request.urlopen(request)))",
    ];
    const quoted = `'${json.replaceAll("'", "'\\''")}'`;
    return [["curl", `curl ${url} -H 'Content-Type: application/json' -d ${quoted}`], ["Python", python.join("\n")]];
  },
};
