// graphile-worker: two processes, 100 jobs at a time in each (50 for the 5 ms jobs), a local queue of 1,000 in
// each and batched completion without delay, as on its own page on performance; a pool of ten connections. Jobs in bulk by addJobs. Cron items are told to one of the processes.

import { Logger, makeWorkerUtils, parseCronItems, run } from "graphile-worker";
import { atAPace, batches, databaseUrl, main, sleep, started, timed, untilTold } from "../common.mjs";
import { readFileSync } from "node:fs";

const quiet = () => (level, message) => {
  if (level === "error") console.error(message);
};

function preset({ slots = 1, task } = {}) {
  return {
    worker: {
      connectionString: databaseUrl,
      concurrentJobs: task === "hold" ? slots : 100,
      maxPoolSize: 10,
      pollInterval: 1000,
      localQueue: { size: 1000 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger: new Logger(quiet),
    },
  };
}

const utils = async () => makeWorkerUtils({ preset: preset() });

async function setup() {
  const made = await utils();
  await made.migrate();
  await made.release();
  const { version } = JSON.parse(readFileSync("node_modules/graphile-worker/package.json"));
  return { version };
}

async function submit({ how, task, ...wish }) {
  const made = await utils();
  await made.withPgClient((client) => client.query("select 1"));
  const answer = await timed(async () => {
    if (how === "single") {
      for (let i = wish.first ?? 0; i < (wish.first ?? 0) + wish.count; i++) {
        await made.addJob(task, { number: i });
      }
    } else {
      for (const [runAt, numbers] of batches(wish)) {
        const jobs = numbers.map((number) => ({ identifier: task, payload: { number }, runAt }));
        await made.addJobs(jobs);
      }
    }
  });
  await made.release();
  return answer;
}

async function trickle(wish) {
  const made = await utils();
  await atAPace(wish, (number) => made.addJob("noop", { number }));
  await made.release();
}

async function work({ hold = 0, schedules = 0, ...wish }) {
  const taskList = {
    noop: async ({ number }) => started.note(number),
    hold: async ({ number }) => {
      started.note(number);
      await sleep(hold);
    },
  };
  const items = Array.from({ length: schedules }, (_, number) => ({
    task: "noop",
    match: "* * * * *",
    identifier: `s${number}`,
    payload: { number },
  }));
  const runner = await run({
    preset: preset(wish),
    taskList,
    parsedCronItems: parseCronItems(items),
    noHandleSignals: true,
  });
  await untilTold();
  await runner.stop();
}

await main({ setup, submit, trickle, work });
