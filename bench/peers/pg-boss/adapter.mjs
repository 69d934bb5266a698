// pg-boss: two processes, each with two fetchers of 500 jobs a batch that go on at once while batches are full,
// woken by LISTEN/NOTIFY, else looking twice a second, the shortest it allows. Jobs are completed a batch at a
// time, for its handler gets the whole batch. In bulk by insert(). For 5 ms jobs, 50 at a time in each process.

import { PgBoss } from "pg-boss";
import { atAPace, batches, databaseUrl, main, sleep, started, timed, untilTold } from "../common.mjs";
import { readFileSync } from "node:fs";

async function open(options = {}) {
  const boss = new PgBoss({ connectionString: databaseUrl, max: 10, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

const client = () => open({ supervise: false, schedule: false, migrate: false });

// Jobs of `keyed` belong to a group, of which one may run at a time. Those of the full one run until the end.
const inGroup = ({ key }) => (key ? { group: { id: key } } : {});
const FULL = 1_000_000;

async function setup() {
  const boss = await open();
  for (const name of ["noop", "hold", "keyed"]) await boss.createQueue(name, { retryLimit: 2, notify: true });
  await boss.stop();
  const { version } = JSON.parse(readFileSync("node_modules/pg-boss/package.json"));
  return { version };
}

async function submit({ how, task, ...wish }) {
  const boss = await client();
  const answer = await timed(async () => {
    if (how === "single") {
      for (let i = wish.first ?? 0; i < (wish.first ?? 0) + wish.count; i++) {
        await boss.send(task, { number: i });
      }
    } else {
      for (const [startAfter, numbers] of batches(wish)) {
        await boss.insert(task, numbers.map((number) => ({ data: { number }, startAfter, ...inGroup(wish) })));
      }
    }
  });
  await boss.stop();
  return answer;
}

async function trickle(wish) {
  const boss = await client();
  await atAPace(wish, (number) => boss.send(wish.task ?? "noop", { number }, inGroup(wish)));
  await boss.stop();
}

async function schedule({ count }) {
  const boss = await client();
  for (let number = 0; number < count; number++) {
    await boss.schedule("noop", "* * * * *", { number }, { key: `s${number}` });
  }
  await boss.stop();
}

async function workKeyed(boss, slots) {
  const run = async ([job]) => {
    started.note(job.data.number);
    if (job.data.number >= FULL) await sleep(3600);
  };
  await boss.work(
    "keyed",
    { batchSize: 1, localConcurrency: slots, groupConcurrency: 1, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 },
    run,
  );
  await untilTold();
  process.exit(0);
}

async function work({ slots, task, hold = 0 }) {
  const boss = await open({ cronMonitorIntervalSeconds: 1, cronWorkerIntervalSeconds: 1, useListenNotify: true });
  if (task === "keyed") return workKeyed(boss, slots);
  const run = async (jobs) => {
    for (const job of jobs) started.note(job.data.number);
    if (task === "hold") await sleep(hold);
  };
  const batchSize = task === "hold" ? slots : 500;
  for (let fetcher = 0; fetcher < (task === "hold" ? 1 : 2); fetcher++) {
    await boss.work(
      task,
      { batchSize, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5, burstWhenBatchFull: true },
      run,
    );
  }
  await untilTold();
  await boss.stop({ graceful: true, timeout: 3000 });
}

await main({ setup, submit, trickle, schedule, work });
