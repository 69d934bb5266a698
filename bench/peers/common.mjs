// What the adapters in JavaScript share; the same records as in common.py. Node.js can't map files, so
// records gather for up to 5 ms and are appended: cheaper still, and as good unless the process is killed.

import { openSync, writeSync } from "node:fs";
import { join } from "node:path";

const SIZE = 12;
const ROOM = 4096;

export class Recorder {
  constructor(name) {
    this.name = name;
    this.buffer = Buffer.alloc(SIZE * ROOM);
    this.used = 0;
    this.timer = null;
    this.file = null;
    process.on("exit", () => this.flush());
  }

  note(number) {
    this.buffer.writeUInt32LE(number + 1, this.used);
    this.buffer.writeDoubleLE((performance.timeOrigin + performance.now()) / 1000, this.used + 4);
    this.used += SIZE;
    if (this.used === this.buffer.length) this.flush();
    else if (this.timer === null) this.timer = setTimeout(() => this.flush(), 5);
  }

  flush() {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (this.used === 0) return;
    this.file ??= openSync(join(process.env.BENCH_RECORDS, `${this.name}-${process.pid}`), "a");
    writeSync(this.file, this.buffer, 0, this.used);
    this.used = 0;
  }
}

export const started = new Recorder("started");
export const sent = new Recorder("sent");
export const databaseUrl = process.env.BENCH_DATABASE_URL;

// The jobs to submit together, as in common.py: [when they are due (a Date, or undefined), numbers].
export function* batches({ count, first = 0, due, spread = 0 }, size = 10_000) {
  const range = (low, high) => Array.from({ length: high - low }, (_, i) => low + i);
  const moment = due == null ? undefined : (step) => new Date((due + (spread * step) / 100) * 1000);
  if (!moment || !spread) {
    for (let low = first; low < first + count; low += size) {
      yield [moment?.(0), range(low, Math.min(low + size, first + count))];
    }
    return;
  }
  for (let step = 0; step < 100; step++) {
    const [low, high] = [step, step + 1].map((part) => first + Math.floor((count * part) / 100));
    if (low < high) yield [moment(step), range(low, high)];
  }
}

export const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

export async function atAPace({ count, first = 0, rate }, submit) {
  for (let i = first; i < first + count; i++) {
    sent.note(i);
    await submit(i);
    await sleep(1 / rate);
  }
  sent.flush();
}

// What only the measured part took: importing and connecting are left out.
export async function timed(work) {
  const cpu = process.cpuUsage();
  const began = performance.now();
  await work();
  const { user, system } = process.cpuUsage(cpu);
  return { seconds: (performance.now() - began) / 1000, cpu: (user + system) / 1e6 };
}

export const untilTold = () =>
  new Promise((done) => ["SIGTERM", "SIGINT"].forEach((name) => process.once(name, done)));

export async function main(commands) {
  const [, , name, wish] = process.argv;
  const answer = (await commands[name](JSON.parse(wish ?? "{}"))) ?? {};
  console.log(JSON.stringify(answer));
  process.exit(0);
}
