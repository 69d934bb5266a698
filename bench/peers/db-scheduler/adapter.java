// db-scheduler: one process of 100 threads, which use both cores, with its strategy lock-and-fetch at 1.0 and 4.0
// times its threads, as its documentation advises for many jobs (0.5 and 1.0 for the 5 ms jobs); a pool of 20
// connections. Looks every 100 ms for due jobs instead of every ten seconds. In bulk by scheduleBatch. Heartbeats
// every 4 s, of which four may be missed, instead of six of five minutes. Schedules are recurring tasks with a cron
// expression, one for each.

import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerClient;
import com.github.kagkarlsson.scheduler.SchedulerName;
import com.github.kagkarlsson.scheduler.task.Task;
import com.github.kagkarlsson.scheduler.task.TaskInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.RecurringTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.github.kagkarlsson.scheduler.task.schedule.Schedules;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

class Adapter {
    static final String TABLE = """
            create table scheduled_tasks (
                task_name text not null, task_instance text not null, task_data bytea,
                execution_time timestamptz not null, picked boolean not null, picked_by text,
                last_success timestamptz, last_failure timestamptz, consecutive_failures int,
                last_heartbeat timestamptz, version bigint not null, priority smallint,
                primary key (task_name, task_instance));
            create index execution_time_idx on scheduled_tasks (execution_time);
            create index last_heartbeat_idx on scheduled_tasks (last_heartbeat);
            """;
    static Common.Recorder started;
    static double hold;

    static OneTimeTask<Integer> task(String name) {
        return Tasks.oneTime(name, Integer.class).execute((instance, context) -> {
            started.note(instance.getData());
            if (name.equals("hold")) Common.hold(hold);
        });
    }

    static Map<String, Object> setup(Common.Wish wish) throws Exception {
        try (var pool = Common.pool(1); var connection = pool.getConnection(); var order = connection.createStatement()) {
            order.execute(TABLE);
        }
        return Map.of("version", System.getProperty("bench.version", ""));
    }

    static Map<String, Object> submit(Common.Wish wish) throws Exception {
        var task = task(wish.task());
        var client = SchedulerClient.Builder.create(Common.pool(4), task).build();
        client.getScheduledExecution(task.instance("none"));
        return Common.timed(() -> {
            for (var batch : Common.batches(wish, 1_000)) {
                var due = batch.due() == null ? Instant.now() : batch.due();
                if (wish.text("how").equals("single")) {
                    for (int n = batch.first(); n < batch.last(); n++) client.schedule(task.instance("" + n, n), due);
                } else {
                    List<TaskInstance<?>> all = new ArrayList<>();
                    for (int n = batch.first(); n < batch.last(); n++) all.add(task.instance("" + n, n));
                    client.scheduleBatch(all, due);
                }
            }
        });
    }

    static Map<String, Object> trickle(Common.Wish wish) throws Exception {
        var task = task("noop");
        var client = SchedulerClient.Builder.create(Common.pool(1), task).build();
        Common.atAPace(wish, n -> client.schedule(task.instance("" + n, n), Instant.now()));
        return Map.of();
    }

    static List<RecurringTask<Void>> recurring(Common.Wish wish) {
        var rule = wish.text("every").equals("second") ? "* * * * * *" : "0 * * * * *";
        var made = new ArrayList<RecurringTask<Void>>();
        for (int n = 0; n < wish.count("schedules"); n++) {
            int number = n;
            made.add(Tasks.recurring("s" + n, Schedules.cron(rule))
                    .execute((instance, context) -> started.note(number)));
        }
        return made;
    }

    static Map<String, Object> work(Common.Wish wish) throws Exception {
        started = new Common.Recorder("started");
        hold = wish.number("hold");
        boolean ahead = wish.task().equals("noop"); // else it would hold more jobs than it has threads
        int threads = ahead ? 100 : wish.count("slots");
        var known = new ArrayList<Task<?>>(List.of(task("noop"), task("hold")));
        var scheduler = Scheduler.create(Common.pool(20), known)
                .startTasks(recurring(wish))
                .threads(threads)
                .pollUsingLockAndFetch(ahead ? 1.0 : 0.5, ahead ? 4.0 : 1.0)
                .pollingInterval(Duration.ofMillis(100))
                .heartbeatInterval(Duration.ofSeconds(4))
                .missedHeartbeatsLimit(4)
                .schedulerName(new SchedulerName.Fixed("bench-" + ProcessHandle.current().pid()))
                .shutdownMaxWait(Duration.ofMillis(100))
                .build();
        scheduler.start();
        Common.untilTold();
        return Map.of();
    }

    public static void main(String[] args) {
        Common.main(args, Map.of(
                "setup", Adapter::setup, "submit", Adapter::submit, "trickle", Adapter::trickle, "work", Adapter::work));
    }
}
