// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// usage: bulk.js PORT: GET gives 8 MiB of nothing, POST streams a chat answer of five tokens of 2000 bytes each.
"use strict";
const http = require("http");

function chunk(model, delta, finish) {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", model, choices })}\n\n`;
}

function answer(order, response) {
  let left = 5;
  response.writeHead(200, { "content-type": "text/event-stream" });
  const timer = setInterval(() => {
    if (left--) {
      response.write(chunk(order.model, { content: "x".repeat(2000) }, null));
      return;
    }
    clearInterval(timer);
    response.end(`${chunk(order.model, {}, "stop")}data: [DONE]\n\n`);
  }, 20);
}

http
  .createServer((request, response) => {
    const pieces = [];
    if (request.method === "GET") {
      response.writeHead(200, { "content-type": "application/octet-stream", "content-length": 8 << 20 });
      response.end(Buffer.alloc(8 << 20));
      return;
    }
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => answer(JSON.parse(Buffer.concat(pieces)), response));
  })
  .listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
