// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// ws_client.mjs MODULES URL CONNECTIONS TOKENS BODY
//
// Asks for OpenAI Realtime responses with npm's "ws" package out of the folder MODULES: on each of CONNECTIONS one for
// every number of the list TOKENS ("13,7"), one after another. BODY is a JSON object merged into each. Prints one JSON
// object a response: local (port), nr, id, usage, status, frames, token_frames, t_send_ns, t_end_ns, extensions.

import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, url, connections, tokens, bodyText] = process.argv.slice(2);
if (!bodyText) {
  console.error("usage: ws_client.mjs MODULES URL CONNECTIONS TOKENS BODY");
  process.exit(2);
}
const require = createRequire(join(modules, "package.json"));
const WebSocket = require("ws");
const body = JSON.parse(bodyText);
const asked = tokens.split(",").map(Number);
const now = () => Number(process.hrtime.bigint());

function connection() {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    let nr = 0;
    let seen = null;
    function ask() {
      seen = { local: socket._socket.localPort, nr, id: null, usage: null, status: null, frames: 0, token_frames: 0,
        t_send_ns: now(), t_end_ns: null, extensions: socket.extensions };
      socket.send(JSON.stringify({ type: "response.create", response: { max_output_tokens: asked[nr++], ...body } }));
    }
    socket.on("message", (data) => {
      const message = JSON.parse(data);
      if (message.type === "session.created") return ask();
      seen.frames += 1;
      if (message.type === "response.created") seen.id = message.response.id;
      if (message.type === "response.output_text.delta") seen.token_frames += 1;
      if (message.type !== "response.done") return undefined;
      Object.assign(seen, { usage: message.response.usage, status: message.response.status, t_end_ns: now() });
      console.log(JSON.stringify(seen));
      return nr < asked.length ? ask() : socket.close();
    });
    socket.on("error", reject);
    socket.on("close", () => (nr === asked.length && seen.t_end_ns ? resolve() : reject(new Error("closed early"))));
  });
}

await Promise.all(Array.from({ length: Number(connections) }, connection));
