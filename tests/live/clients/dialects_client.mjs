// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// dialects_client.mjs MODULES BASE-URL KIND SCRIPT BODY [COUNT]
//
// Asks one answer after the other of KIND (anthropic, ollama.chat, ollama.generate, responses, chat) with the vendor's
// own npm package out of the folder MODULES. SCRIPT goes into the header x-script, BODY into the request; with
// `"stream": false` in it the answer comes in one piece.
//
// Prints one JSON object an answer, of what the package made of it: id, model, text, thinking, tools (id, name,
// arguments), finish, usage (the package's own object), and times: CLOCK_MONOTONIC in ns of each piece of text,
// thinking or arguments as the program got it.

import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, baseURL, kind, script, bodyText, count = "1"] = process.argv.slice(2);
if (!bodyText) {
  console.error("usage: dialects_client.mjs MODULES BASE-URL KIND SCRIPT BODY [COUNT]");
  process.exit(2);
}
const require = createRequire(join(modules, "package.json"));
const headers = { "x-script": script };
const messages = [{ role: "user", content: "Hi" }];
const extra = JSON.parse(bodyText);
const streamed = extra.stream !== false;

function nothing() {
  return { id: null, model: null, text: "", thinking: "", tools: [], finish: null, usage: null, times: [] };
}

// Notes a piece of the answer that is not empty.
function piece(seen, where, text) {
  if (!text) return;
  seen.times.push(Number(process.hrtime.bigint()));
  if (where) seen[where] += text;
}

// --- Anthropic

function anthropicMessage(seen, m) {
  Object.assign(seen, { id: m.id, model: m.model, finish: m.stop_reason, usage: m.usage });
  const of = (type) => m.content.filter((block) => block.type === type);
  seen.text = of("text").map((b) => b.text).join("");
  seen.thinking = of("thinking").map((b) => b.thinking).join("");
  seen.tools = of("tool_use").map((b) => ({ id: b.id, name: b.name, arguments: JSON.stringify(b.input) }));
}

async function anthropic(seen) {
  const { Anthropic } = require("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL, apiKey: "none", maxRetries: 0, defaultHeaders: headers });
  const body = { model: "tiny-1", max_tokens: 64, messages, ...extra };
  delete body.stream;
  if (!streamed) return anthropicMessage(seen, await client.messages.create(body));
  const stream = client.messages.stream(body);
  for await (const event of stream) {
    const d = event.delta ?? {};
    if (event.type === "content_block_delta") piece(seen, null, d.text ?? d.thinking ?? d.partial_json);
  }
  anthropicMessage(seen, await stream.finalMessage());
}

// --- Ollama

function ollamaPart(seen, part) {
  const message = part.message ?? { content: part.response, thinking: part.thinking };
  piece(seen, "thinking", message.thinking);
  piece(seen, "text", message.content);
  for (const call of message.tool_calls ?? []) {
    seen.tools.push({ id: call.id, name: call.function.name, arguments: JSON.stringify(call.function.arguments) });
  }
  if (message.tool_calls) piece(seen, null, "tools");
  seen.model = part.model;
  if (part.done) Object.assign(seen, { finish: part.done_reason, usage: { ...part, context: undefined } });
}

async function ollama(seen) {
  const { Ollama } = require("ollama");
  const client = new Ollama({ host: baseURL, headers });
  const call = kind === "ollama.chat" ? "chat" : "generate";
  const ask = call === "chat" ? { messages } : { prompt: "Hi" };
  const answer = await client[call]({ model: "tiny-1", stream: true, ...ask, ...extra });
  if (!streamed) return ollamaPart(seen, answer);
  for await (const part of answer) ollamaPart(seen, part);
}

// --- OpenAI

function openai() {
  const { OpenAI } = require("openai");
  return new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: "none", maxRetries: 0, defaultHeaders: headers });
}

// The package does not take over what response.incomplete says: `last` is the response of the last event.
function response(seen, r, last = r) {
  Object.assign(seen, { id: r.id, model: r.model, usage: last.usage });
  seen.finish = last.incomplete_details?.reason ?? last.status;
  const of = (type) => r.output.filter((item) => item.type === type);
  const texts = (items) => items.flatMap((item) => item.content).map((c) => c.text).join("");
  seen.text = texts(of("message"));
  seen.thinking = texts(of("reasoning"));
  seen.tools = of("function_call").map((f) => ({ id: f.call_id, name: f.name, arguments: f.arguments }));
}

async function responses(seen) {
  const body = { model: "tiny-1", input: "Hi", ...extra };
  if (!streamed) return response(seen, await openai().responses.create(body));
  const stream = openai().responses.stream(body);
  let last = {};
  for await (const event of stream) {
    last = event.response ?? last;
    if (/\.delta$/.test(event.type)) piece(seen, null, event.delta);
  }
  response(seen, await stream.finalResponse(), last);
}

function completion(seen, c) {
  const [choice] = c.choices;
  Object.assign(seen, { id: c.id, model: c.model, usage: c.usage, finish: choice.finish_reason });
  seen.text = choice.message.content ?? "";
  seen.tools = (choice.message.tool_calls ?? []).map((t) => ({ id: t.id, ...t.function }));
  for (const t of seen.tools) delete t.parsed_arguments;
}

async function chat(seen) {
  const body = { model: "tiny-1", messages, ...extra };
  if (!streamed) return completion(seen, await openai().chat.completions.create(body));
  const stream = openai().chat.completions.stream({ stream_options: { include_usage: true }, ...body });
  for await (const chunk of stream) {
    const delta = chunk.choices[0]?.delta ?? {};
    piece(seen, "thinking", delta.reasoning_content ?? delta.reasoning);
    piece(seen, null, delta.content);
    for (const call of delta.tool_calls ?? []) piece(seen, null, call.function?.name || call.function?.arguments);
  }
  completion(seen, await stream.finalChatCompletion());
}

const kinds = { anthropic, "ollama.chat": ollama, "ollama.generate": ollama, responses, chat };
let failed = 0;
for (let i = 0; i < Number(count); i++) {
  const seen = nothing();
  try {
    await kinds[kind](seen);
  } catch (e) {
    seen.error = String(e.stack ?? e);
    failed = 1;
  }
  console.log(JSON.stringify(seen));
}
process.exit(failed);
