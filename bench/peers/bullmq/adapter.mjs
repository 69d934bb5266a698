// BullMQ with Redis on a Unix socket, without persistence: two processes, for there are two cores, 100 jobs at a time
// in each (50 for the 5 ms jobs), as its page on concurrency advises: its default is 1. Finished jobs are removed, as
// its page on production advises. Jobs in bulk by addBulk. A lock of 15 s, looked after every 5 s, instead of 30 s
// each. Schedules are its job schedulers.

import { Queue, Worker } from "bullmq";
import { atAPace, batches, main, sleep, started, timed, untilTold } from "../common.mjs";
import { readFileSync } from "node:fs";

const connection = { path: process.env.BENCH_REDIS_URL, maxRetriesPerRequest: null };
const defaultJobOptions = { removeOnComplete: true, removeOnFail: 1000 };

async function open(task) {
  const queue = new Queue(task, { connection, defaultJobOptions });
  await queue.waitUntilReady();
  return queue;
}

async function setup() {
  const { version } = JSON.parse(readFileSync("node_modules/bullmq/package.json"));
  return { version };
}

async function submit({ how, task, ...wish }) {
  const queue = await open(task);
  const answer = await timed(async () => {
    if (how === "single") {
      for (let i = wish.first ?? 0; i < (wish.first ?? 0) + wish.count; i++) {
        await queue.add(task, { number: i });
      }
    } else {
      for (const [due, numbers] of batches(wish, 1_000)) {
        const delay = due ? Math.max(due - Date.now(), 0) : undefined;
        await queue.addBulk(numbers.map((number) => ({ name: task, data: { number }, opts: { delay } })));
      }
    }
  });
  await queue.close();
  return answer;
}

async function trickle(wish) {
  const queue = await open("noop");
  await atAPace(wish, (number) => queue.add("noop", { number }));
  await queue.close();
}

async function schedule({ count, every }) {
  const queue = await open("noop");
  const rule = every === "minute" ? { pattern: "* * * * *" } : { pattern: "* * * * * *" };
  for (let low = 0; low < count; low += 100) {
    const numbers = Array.from({ length: Math.min(100, count - low) }, (_, i) => low + i);
    const template = (number) => ({ name: "noop", data: { number } });
    await Promise.all(numbers.map((n) => queue.upsertJobScheduler(`s${n}`, rule, template(n))));
  }
  await queue.close();
}

async function work({ slots, task, hold = 0 }) {
  const run = async (job) => {
    started.note(job.data.number);
    if (task === "hold") await sleep(hold);
  };
  const worker = new Worker(task, run, {
    connection,
    concurrency: task === "hold" ? slots : 100,
    lockDuration: 15_000,
    stalledInterval: 5_000,
  });
  worker.on("error", (error) => console.error(error));
  await untilTold();
  await worker.close(true);
}

await main({ setup, submit, trickle, schedule, work });
