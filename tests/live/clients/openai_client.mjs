// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// openai_client.mjs MODULES BASE-URL COUNT CONCURRENCY BODY
//
// Does COUNT streamed chat completions, CONCURRENCY at a time, with npm's "openai" package out of the
// folder MODULES. BODY is a JSON object merged into each request; where it holds "max_tokens" as a list,
// request i takes entry i modulo its length. Prints one JSON object a request: index, id, usage, frames,
// token_frames, finish, error.

import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, baseURL, count, concurrency, bodyText] = process.argv.slice(2);
if (!bodyText) {
  console.error("usage: openai_client.mjs MODULES BASE-URL COUNT CONCURRENCY BODY");
  process.exit(2);
}
const require = createRequire(join(modules, "package.json"));
const { OpenAI } = require("openai");
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const body = JSON.parse(bodyText);
let next = 0;
let failed = 0;

function request(index) {
  const merged = {
    model: "tiny",
    messages: [{ role: "user", content: "Hi" }],
    stream: true,
    stream_options: { include_usage: true },
    ...body,
  };
  if (Array.isArray(merged.max_tokens)) merged.max_tokens = merged.max_tokens[index % merged.max_tokens.length];
  return merged;
}

async function one(index) {
  const seen = { index, id: null, usage: null, frames: 0, token_frames: 0, finish: null, error: null };
  try {
    for await (const chunk of await client.chat.completions.create(request(index))) {
      seen.frames += 1;
      seen.id = chunk.id;
      seen.usage = chunk.usage ?? seen.usage;
      const choice = chunk.choices[0];
      if (choice?.delta?.content || choice?.delta?.reasoning || choice?.delta?.reasoning_content) seen.token_frames += 1;
      seen.finish = choice?.finish_reason ?? seen.finish;
    }
  } catch (e) {
    seen.error = String(e.message ?? e);
    failed += 1;
  }
  console.log(JSON.stringify(seen));
}

async function worker() {
  while (next < Number(count)) await one(next++);
}

await Promise.all(Array.from({ length: Number(concurrency) }, worker));
process.exit(failed ? 1 : 0);
