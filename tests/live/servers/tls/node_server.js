// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Streams chat completions through node's http, https and http2. usage: node_server.js PORT|PATH WITNESS-LOG PEM 1.1|2
//
// Answers and logs as app.py says. PEM "-": no TLS, of HTTP/2 then by prior knowledge.
"use strict";
const fs = require("fs");

const [port, logPath, pem, version] = process.argv.slice(2);
if (!version) {
  console.error("usage: node_server.js PORT|PATH WITNESS-LOG PEM 1.1|2");
  process.exit(2);
}
fs.writeFileSync(logPath, "");
let number = 0;

const now = () => Number(process.hrtime.bigint());
const until = (at) => new Promise((resolve) => setTimeout(resolve, Math.max(0, (at - now()) / 1e6)));

class Answer {
  constructor(order, peer, response) {
    this.order = { model: "tiny", max_tokens: 16, gap_ms: 20, prefill_ms: 30, ...order };
    this.id = `chatcmpl-${this.order.model}-${++number}`;
    this.base = { request: this.id, id: this.id, peer: peer ?? null, model: this.order.model };
    this.response = response;
    this.lines = [];
    this.waiting = [];
  }

  frame(kind, obj, tokens = 0) {
    const text = typeof obj === "string" ? obj : JSON.stringify(obj);
    const line = { ...this.base, kind, choice: 0, tokens, before_ns: now(), after_ns: null };
    this.lines.push(line);
    this.waiting.push(
      new Promise((resolve) =>
        this.response.write(`data: ${text}\n\n`, () => {
          line.after_ns = now();
          resolve();
        }),
      ),
    );
  }

  chunk(choices, more) {
    return { id: this.id, object: "chat.completion.chunk", created: 1, model: this.order.model, choices, ...more };
  }

  choice(delta, finish = null) {
    return this.chunk([{ index: 0, delta, finish_reason: finish }]);
  }

  async stream() {
    const { model, max_tokens: total, gap_ms: gap, prefill_ms: prefill } = this.order;
    let at = now() + prefill * 1e6;
    this.response.writeHead(200, { "content-type": "text/event-stream" });
    this.frame("role", this.choice({ role: "assistant", content: "" }));
    for (let i = 0; i < total; i++) {
      await until(at);
      at += gap * (500 + ((i * 377) % 1001)) * 1e3;
      this.frame("token", this.choice({ content: `${model}:${i} ` }), 1);
    }
    this.frame("finish", this.choice({}, "length"));
    if (this.order.stream_options?.include_usage) {
      const usage = { prompt_tokens: 7, completion_tokens: total, total_tokens: 7 + total };
      this.frame("usage", this.chunk([], { usage }));
    }
    this.frame("done", "[DONE]");
    await Promise.all(this.waiting);
    this.response.end();
    this.lines.push({ ...this.base, kind: "end", outcome: "done", completion_tokens: total });
    fs.appendFileSync(logPath, this.lines.map((line) => JSON.stringify(line) + "\n").join(""));
  }
}

function handle(request, response) {
  const pieces = [];
  const peer = request.socket.remotePort;
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    if (request.url === "/v1/chat/completions") new Answer(JSON.parse(Buffer.concat(pieces)), peer, response).stream();
    else response.writeHead(404).end();
  });
}

const tls = pem === "-" ? {} : { key: fs.readFileSync(pem), cert: fs.readFileSync(pem) };
let server;
if (version === "2") {
  const http2 = require("http2");
  server = pem === "-" ? http2.createServer(handle) : http2.createSecureServer(tls, handle);
} else if (pem === "-") server = require("http").createServer(handle);
else server = require("https").createServer(tls, handle);
if (port.includes("/")) server.listen(port);
else server.listen(Number(port), "127.0.0.1");
