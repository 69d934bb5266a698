// A worker for Rota that needs Node (18 or newer) and nothing else: no package, no database, only HTTP.
//
//     ROTA_URL=http://127.0.0.1:8400 ROTA_TOKEN=rota_... node worker.mjs

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const URL_ = (process.env.ROTA_URL ?? "http://127.0.0.1:8400") + "/v1/workers";
const SLOTS = Number(process.env.ROTA_SLOTS ?? 4);

class Gone extends Error {} // the server believes that this worker is dead

// Until there is an answer. Any call can be repeated: that is what ids and tokens are for.
async function call(path, body, { method = "POST", signal } = {}) {
  const headers = { Authorization: `Bearer ${process.env.ROTA_TOKEN}` };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body).replaceAll("\\u0000", "\\ufffd"); // NUL can't be stored
  }
  for (;;) {
    try {
      const signals = [AbortSignal.timeout(60_000), signal].filter(Boolean);
      const answer = await fetch(URL_ + path, { method, headers, body, signal: anyOf(signals) });
      if (answer.ok) return await answer.json();
      if (answer.status === 404 || answer.status === 410) throw new Gone();
      if (answer.status < 500 && answer.status !== 429) throw new RangeError(await answer.text());
    } catch (error) {
      if (error instanceof Gone || error instanceof RangeError || signal?.aborted) throw error;
      console.log("no answer, trying again:", error.message);
    }
    await sleep(1000);
  }
}

function anyOf(signals) {
  const first = new AbortController();
  for (const one of signals) {
    if (one.aborted) first.abort(one.reason);
    one.addEventListener("abort", () => first.abort(one.reason), { once: true });
  }
  return first.signal;
}

// What a handler is given. It should look at `stop` now and then, and return when it is aborted.
class Job {
  lines = 0;
  cancelled = false;
  lives = false; // whether the handler has given a sign of life since the last heartbeat
  stopping = new AbortController();
  stop = this.stopping.signal;

  constructor(worker, { job, token, task, payload, timeout }) {
    Object.assign(this, { worker, task, payload, timeout, ticket: { job, token } });
  }
  // To be called by a handler of a task with `heartbeat_timeout`, whenever it gets on.
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
    return call(`/${this.worker}/${what}`, { items: [{ ...this.ticket, ...said }] });
  }
  async run() {
    let outcome;
    const limit = Math.min((this.timeout ?? Infinity) * 1000, 2 ** 31 - 1);
    const overtime = setTimeout(() => this.stopping.abort(), limit);
    try {
      outcome = { outcome: "succeeded", result: (await HANDLERS[this.task](this)) ?? null };
      if (this.stop.aborted) throw new Error("took too long");
    } catch (error) {
      // Whatever a handler throws, the server decides what follows.
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
  jobs = new Set(); // all that run here, until their finish was answered
  leaving = new AbortController();

  async register() {
    const said = { id: randomUUID(), name: "javascript", slots: SLOTS, tasks: TASKS };
    const answer = await call("", said);
    [this.id, this.pause] = [answer.id, answer.heartbeat_seconds * 1000];
    console.log("registered", this.id);
  }
  async beat() {
    for (;;) {
      await sleep(this.pause, undefined, { ref: false });
      const jobs = [...this.jobs].filter((job) => job.worker === this.id);
      const alive = jobs.filter((job) => job.lives);
      for (const job of alive) job.lives = false;
      const tickets = (some) => some.map((job) => job.ticket);
      let answer;
      try {
        const said = { jobs: tickets(jobs), alive: tickets(alive) };
        answer = await call(`/${this.id}/heartbeat`, said);
      } catch (error) {
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
  // Waits for a free slot, then for work; and takes as much as it can start at once.
  async claim() {
    const max = SLOTS - this.jobs.size;
    if (max === 0) return await sleep(50);
    const worker = this.id;
    const said = { request: randomUUID(), max, wait: 20 };
    let jobs = [];
    try {
      ({ jobs } = await call(`/${worker}/claim`, said, { signal: this.leaving.signal }));
    } catch (error) {
      if (!(error instanceof Gone)) throw error;
      await sleep(1000); // the next heartbeat registers anew
    }
    for (const claimed of jobs) {
      const job = new Job(worker, claimed);
      this.jobs.add(job);
      job
        .run()
        .catch((error) => console.log("gone", job.task, job.ticket.job, error.message))
        .finally(() => this.jobs.delete(job));
    }
  }
  // What runs may end within ten seconds; the rest is given back.
  async leave() {
    for (let waited = 0; this.jobs.size && waited < 10_000; waited += 50) await sleep(50);
    const { returned } = await call(`/${this.id}`, undefined, { method: "DELETE" });
    console.log("left, returned", returned);
    process.exit();
  }
}

// -- what it can do

const HANDLERS = {
  greet: (job) => `Hello, ${job.payload.name}!`,
  divide: ({ payload: { a, b } }) => {
    if (b === 0) throw Object.assign(new Error("division by zero"), { name: "ZeroDivisionError" });
    return a / b;
  },
  // Something that lasts, tells how far it is, and can be stopped.
  count: async (job) => {
    const total = job.payload.to;
    await job.log(`counting to ${total}`);
    for (let done = 0; done < total; done++) {
      await sleep(100);
      if (job.stop.aborted) return done;
      job.alive();
      if (done % 10 === 0) await job.progress(done, total);
    }
    return total;
  },
};
const NUMBER = { required: true, types: ["number"] }; // a submit that doesn't fit is refused
const TASKS = [
  "greet",
  {
    name: "divide",
    retry: { max_attempts: 3, never_on: ["ZeroDivisionError"] },
    signature: { arguments: { a: NUMBER, b: NUMBER } },
  },
  {
    name: "count",
    timeout: 300,
    heartbeat_timeout: 60,
    signature: { arguments: { to: { required: true, types: ["integer"] } } },
  },
];

const worker = new Worker();
process.on("SIGTERM", () => worker.leaving.abort());
process.on("SIGINT", () => worker.leaving.abort());
await worker.register();
worker.beat();
try {
  while (!worker.leaving.signal.aborted) await worker.claim();
} catch (error) {
  if (!worker.leaving.signal.aborted) throw error;
}
await worker.leave();
