// node undici.cjs VERSION CALLS PARALLEL: what `python -m tests.e2e.clients` does, with node's own HTTP client.
"use strict";
const { createRequire } = require("node:module");
const { join } = require("node:path");
const tls = require("node:tls");
const undici = createRequire(join(process.env.HIVEMIND_TEST_NPM, "package.json"))("undici");

const [version, calls, parallel] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const agent = new undici.EnvHttpProxyAgent({ allowH2: version === "2", requestTls: { allowH2: version === "2" } });
const texts = { plain: {}, stream: {} };
const failed = [];
const versions = new Set();

// undici offers HTTP/1.1 before HTTP/2 and mitmproxy takes the first, so HTTP/2 is offered alone.
const connect = tls.connect;
tls.connect = (options, ...rest) => {
  if (version === "2") options.ALPNProtocols = ["h2"];
  const socket = connect(options, ...rest);
  socket.once("secureConnect", () => versions.add(socket.alpnProtocol === "h2" ? "HTTP/2" : "HTTP/1.1"));
  return socket;
};

async function ask(prompt, stream) {
  const answer = await undici.fetch("https://api.anthropic.com/v1/messages", {
    method: "POST",
    dispatcher: agent,
    headers: { "x-api-key": "sk-ant-test", "content-type": "application/json" },
    body: JSON.stringify({
      model: "claude-sonnet-5", max_tokens: 50, stream, messages: [{ role: "user", content: prompt }],
    }),
  });
  if (answer.status !== 200) throw new Error(`status ${answer.status}: ${await answer.text()}`);
  if (!stream) return (await answer.json()).content.map((block) => block.text).join("");
  const decoder = new TextDecoder();
  let body = "";
  for await (const chunk of answer.body) body += decoder.decode(chunk, { stream: true });
  const events = body.split("\n").filter((line) => line.startsWith("data:")).map((line) => JSON.parse(line.slice(5)));
  if (events.at(-1)?.type !== "message_stop") throw new Error(`the stream ends with ${body.slice(-200)}`);
  return events.filter((event) => event.type === "content_block_delta").map((event) => event.delta.text).join("");
}

async function main() {
  const todo = [];
  for (let n = 0; n < calls; n++) todo.push([n, false], [n, true]);
  const worker = async () => {
    for (let next = todo.shift(); next !== undefined; next = todo.shift()) {
      const [number, stream] = next;
      const kind = stream ? "stream" : "plain";
      try {
        texts[kind][number] = await ask(`undici ${number}`, stream);
      } catch (error) {
        failed.push(`${kind} ${number}: ${error} ${error.cause ?? ""}`);
      }
    }
  };
  await Promise.all(Array.from({ length: parallel }, worker));
  console.log(JSON.stringify({ texts, failed, versions: [...versions] }));
  await agent.close();
}

main();
