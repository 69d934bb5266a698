// A worker for Rota that takes its jobs from Redis. It needs Node (18 or newer) and nothing else: no package,
// no database, no way to a server of Rota's.
//
//     ROTA_DISPATCH=redis://127.0.0.1:6379 ROTA_DISPATCH_SECRET=... node worker.mjs

import { createCipheriv, createDecipheriv, createHmac, randomBytes, randomUUID } from "node:crypto";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

const BROKER = new URL(process.env.ROTA_DISPATCH ?? "redis://127.0.0.1:6379");
const [SECRET] = process.env.ROTA_DISPATCH_SECRET.split(",");
const NAMESPACE = process.env.ROTA_NAMESPACE ?? "default";
const STREAMS = `${BROKER.pathname.slice(1) || "rota"}:${NAMESPACE}`;
const SLOTS = Number(process.env.ROTA_SLOTS ?? 4);

// -- Redis: commands as arrays of texts and buffers, answers as arrays, buffers and numbers

class Redis {
  waiting = [];
  rest = Buffer.alloc(0);

  async command(...parts) {
    if (!this.socket) await this.open();
    const pieces = [Buffer.from(`*${parts.length}\r\n`)];
    for (const part of parts) {
      const bytes = Buffer.isBuffer(part) ? part : Buffer.from(String(part));
      pieces.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from("\r\n"));
    }
    return await new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.socket.write(Buffer.concat(pieces));
    });
  }
  async open() {
    const socket = connect(Number(BROKER.port || 6379), BROKER.hostname);
    await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    socket.on("error", () => {});
    socket.on("close", () => this.lost(new Error("the connection was lost")));
    socket.on("data", (data) => this.receive(data));
    this.socket = socket;
    if (BROKER.password) await this.command("AUTH", BROKER.username || "default", decodeURIComponent(BROKER.password));
    if (BROKER.searchParams.get("db")) await this.command("SELECT", BROKER.searchParams.get("db"));
  }
  lost(error) {
    this.socket = undefined;
    this.rest = Buffer.alloc(0);
    for (const { reject } of this.waiting.splice(0)) reject(error);
  }
  receive(data) {
    this.rest = Buffer.concat([this.rest, data]);
    for (let found; (found = read(this.rest, 0)); this.rest = this.rest.subarray(found.end)) {
      const { resolve, reject } = this.waiting.shift();
      found.value instanceof Error ? reject(found.value) : resolve(found.value);
    }
  }
}

// One value of the protocol RESP 2, or undefined while it isn't complete.
function read(bytes, at) {
  const line = bytes.indexOf("\r\n", at);
  if (line < 0) return undefined;
  const text = bytes.toString("utf8", at + 1, line);
  let end = line + 2;
  switch (String.fromCharCode(bytes[at])) {
    case "+":
      return { value: text, end };
    case "-":
      return { value: new Error(text), end };
    case ":":
      return { value: Number(text), end };
    case "$":
      if (text === "-1") return { value: null, end };
      if (bytes.length < end + Number(text) + 2) return undefined;
      return { value: bytes.subarray(end, end + Number(text)), end: end + Number(text) + 2 };
    default: {
      if (text === "-1") return { value: null, end };
      const value = [];
      for (let left = Number(text); left > 0; left--) {
        const each = read(bytes, end);
        if (!each) return undefined;
        value.push(each.value);
        end = each.end;
      }
      return { value, end };
    }
  }
}

// -- messages: 1 byte version, 16 bytes worker, 12 bytes nonce, AES-256-GCM with its tag at the end

const keyOf = (worker, direction) =>
  createHmac("sha256", SECRET.trim()).update(["rota dispatch 1", NAMESPACE, direction, worker].join("\0")).digest();

function seal(worker, text) {
  const head = Buffer.concat([Buffer.from([1]), Buffer.from(worker, "hex")]);
  const nonce = randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", keyOf(worker, "call"), nonce).setAAD(head);
  return Buffer.concat([head, nonce, cipher.update(text), cipher.final(), cipher.getAuthTag()]);
}

function open(worker, message) {
  const cipher = createDecipheriv("aes-256-gcm", keyOf(worker, "answer"), message.subarray(17, 29));
  cipher.setAAD(message.subarray(0, 17)).setAuthTag(message.subarray(-16));
  return Buffer.concat([cipher.update(message.subarray(29, -16)), cipher.final()]).toString();
}

// -- calls: sent again under the same number until they are answered

class Gone extends Error {} // relays believe that this worker is dead
class NoAnswer extends Error {}

class Link {
  id = randomUUID().replaceAll("-", "");
  calls = new Redis();
  answers = new Redis(); // a connection of its own: reading blocks
  waiting = new Map();
  number = 0;

  async call(name, body = null, { once = false, patience = 3000 } = {}) {
    const number = ++this.number;
    const text = JSON.stringify({ id: number, call: name, body }).replaceAll("\\u0000", "\\ufffd");
    for (;;) {
      const { status, body: said } = await this.ask(number, seal(this.id, text), patience);
      if (status === 200) return said;
      if (status === 404 || status === 410) throw new Gone(said.detail);
      if (status && status < 500 && status !== 429) throw new RangeError(said.detail);
      if (status) await sleep(1000);
      if (once) throw new NoAnswer();
    }
  }
  async ask(number, message, patience) {
    const answered = new Promise((resolve) => this.waiting.set(number, resolve));
    const sent = this.calls.command("XADD", `${STREAMS}:calls`, "MAXLEN", "~", 100000, "*", "m", message);
    sent.catch((error) => console.log("not sent, trying again:", error.message));
    const answer = await Promise.race([answered, sleep(patience, {}, { ref: false })]);
    this.waiting.delete(number);
    return answer;
  }
  // Nobody waits for this answer any more. What it offers is given back: refused, if it was offered again since.
  unexpected(body) {
    const items = (body?.jobs ?? []).map(({ job, token }) => ({ job, token, outcome: "released", begun: false }));
    const held = (item) => [...worker.jobs].some((job) => same(item)(job.ticket));
    const others = items.filter((item) => !held(item));
    if (others.length) this.call("finish", { items: others }).catch((error) => console.log(error.message));
  }
  async listen() {
    const stream = `${STREAMS}:worker:${this.id}`;
    while (!this.closed) {
      try {
        const found = await this.answers.command("XREAD", "COUNT", 100, "BLOCK", 2000, "STREAMS", stream, "0");
        for (const [entry, [, message]] of found?.[0][1] ?? []) {
          await this.answers.command("XDEL", stream, entry);
          const answer = JSON.parse(open(this.id, message));
          if (this.waiting.has(answer.id)) this.waiting.get(answer.id)(answer);
          else this.unexpected(answer.body);
        }
      } catch (error) {
        console.log("can't listen, trying again:", error.message);
        await sleep(500);
      }
    }
  }
}

// What a handler is given. It should look at `stop` now and then, and return when it is aborted.
class Job {
  lines = 0;
  cancelled = false;
  lives = false; // whether the handler has given a sign of life since the last heartbeat
  stopping = new AbortController();
  stop = this.stopping.signal;

  constructor(link, { job, token, task, payload, timeout, go }) {
    Object.assign(this, { link, task, payload, timeout, go, ticket: { job, token } });
  }
  alive() {
    this.lives = true;
  }
  log(line) {
    return this.say("logs", { first: ++this.lines, lines: [line] });
  }
  progress(done, total) {
    return this.say("progress", { done, total });
  }
  say(what, said) {
    return this.link.call(what, { items: [{ ...this.ticket, ...said }] });
  }
  async run() {
    let outcome;
    const limit = Math.min((this.timeout ?? Infinity) * 1000, 2 ** 31 - 1);
    const overtime = setTimeout(() => this.stopping.abort(), limit);
    try {
      outcome = { outcome: "succeeded", result: (await HANDLERS[this.task](this)) ?? null };
      if (this.stop.aborted) throw new Error("took too long");
    } catch (error) {
      const { name: type, message, stack: traceback } = error;
      outcome = { outcome: "failed", error: { type, message, traceback } };
    }
    clearTimeout(overtime);
    if (this.cancelled) outcome = { outcome: "cancelled" };
    const [{ answer }] = (await this.say("finish", outcome)).items;
    console.log(answer, outcome.outcome, this.task, this.ticket.job);
  }
}

const same = (a) => (b) => a.job === b.job && a.token === b.token;

class Worker {
  jobs = new Set(); // all that are offered or run here, until their finish was answered
  seen = 0; // the highest token that was offered, or that a claim was answered with
  trusted = 0; // until when (performance.now) nobody can have declared us dead

  async register() {
    if (this.link) this.link.closed = true;
    this.link = new Link();
    this.link.listen();
    const sent = performance.now();
    const answer = await this.link.call("register", { name: "javascript", slots: SLOTS, tasks: TASKS });
    [this.pause, this.lease] = [answer.heartbeat_seconds * 1000, answer.lease_seconds * 1000];
    this.trusted = sent + this.lease;
    console.log("registered", this.link.id);
  }
  async beat() {
    for (;;) {
      await sleep(this.pause, undefined, { ref: false });
      const jobs = [...this.jobs].filter((job) => job.link === this.link);
      const alive = jobs.filter((job) => job.lives);
      for (const job of alive) job.lives = false;
      const tickets = (some) => some.map((job) => job.ticket);
      const sent = performance.now();
      let answer;
      try {
        const said = { jobs: tickets(jobs), alive: tickets(alive), seen: this.seen };
        answer = await this.link.call("heartbeat", said, { once: true, patience: this.pause });
        this.trusted = Math.max(this.trusted, sent + this.lease);
      } catch (error) {
        if (error instanceof NoAnswer) continue;
        if (!(error instanceof Gone)) throw error;
        answer = { cancel: [], lost: tickets(jobs) }; // another's by now
        await this.register();
      }
      for (const job of jobs) {
        job.cancelled ||= answer.cancel.some(same(job.ticket));
        if (job.cancelled || answer.lost.some(same(job.ticket))) job.stopping.abort();
      }
    }
  }
  // Waits for a free slot, then for work. A claim that isn't answered is repeated with the next attempt, or
  // what was claimed would be forgotten.
  async claim() {
    const max = SLOTS - this.jobs.size;
    if (max === 0) return await sleep(50);
    const link = this.link;
    const said = { request: randomUUID(), max, wait: Math.min(5, this.lease / 3000), attempt: 0 };
    for (;;) {
      said.attempt++;
      const sent = performance.now();
      try {
        const answer = await link.call("claim", said, { once: true, patience: said.wait * 1000 + 3000 });
        const { jobs } = answer;
        this.trusted = Math.max(this.trusted, sent + this.lease);
        this.seen = Math.max(this.seen, answer.seen);
        if (jobs.length) await this.begin(link, jobs.map((offer) => new Job(link, offer)));
        return;
      } catch (error) {
        if (error instanceof Gone) return await sleep(1000); // the next heartbeat registers anew
        if (!(error instanceof NoAnswer)) throw error;
      }
    }
  }
  // Starts what relays let go, in the offer or when asked, once, and only while the lease is sure to be good; gives
  // back the rest.
  async begin(link, offered) {
    for (const job of offered) {
      this.jobs.add(job);
      this.seen = Math.max(this.seen, job.ticket.token);
    }
    const sent = performance.now();
    const asked = offered.filter((job) => !job.go).map((job) => job.ticket);
    const { go } = asked.length ? await link.call("begin", { jobs: asked }) : { go: [] };
    const trusted = performance.now() < Math.min(this.trusted, sent + this.lease);
    for (const job of offered) {
      const starts = trusted && !this.leaving && (job.go || go.some(same(job.ticket))) && !job.stop.aborted;
      (starts ? job.run() : job.say("finish", { outcome: "released", begun: false }))
        .catch((error) => console.log("gone", job.task, job.ticket.job, error.message))
        .finally(() => this.jobs.delete(job));
    }
  }
  // What runs may end within ten seconds; the rest is given back.
  async leave() {
    this.leaving = true;
    for (let waited = 0; this.jobs.size && waited < 10_000; waited += 50) await sleep(50);
    const { returned } = await this.link.call("leave");
    console.log("left, returned", returned);
    process.exit();
  }
}

// -- what it can do

const HANDLERS = {
  greet: (job) => `Hello, ${job.payload.name}!`,
  count: async (job) => {
    const { to } = job.payload;
    await job.log(`counting to ${to}`);
    for (let done = 0; done < to; done++) {
      if (job.stop.aborted) throw new Error("stopped");
      if (done % 10 === 0) await job.progress(done, to);
      job.alive();
      await sleep(20);
    }
    return to;
  },
};
const TASKS = [
  { name: "greet", signature: { arguments: { name: { required: true, types: ["string"] } } } },
  { name: "count", heartbeat_timeout: 30, retry: { max_attempts: 3, base: 0.1 } },
];

const worker = new Worker();
await worker.register();
worker.beat();
process.on("SIGTERM", () => worker.leave());
process.on("SIGINT", () => worker.leave());
while (!worker.leaving) await worker.claim();
