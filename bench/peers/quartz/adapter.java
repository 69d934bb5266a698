// Quartz: its JDBC store on PostgreSQL, one process of 100 threads, not clustered, which spares it locks. Up to 100
// triggers are acquired at a time (its default is 1) within the lock that this needs, and 20 connections by HikariCP,
// as its pages on configuration and performance advise for many short jobs. A job is a trigger of one of two stored
// jobs. In bulk by scheduleJobs, which stores one trigger after the other in one transaction. Its schedules are cron
// triggers. An idle scheduler looks every second, the shortest it allows, instead of every 30: it isn't told of what
// another process stores. After a crash it recovers jobs when a scheduler of the same name starts.

import java.io.IOException;
import java.util.Date;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.quartz.CronScheduleBuilder;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.Scheduler;
import org.quartz.SchedulerException;
import org.quartz.Trigger;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;

class Adapter {
    static Common.Recorder started;
    static double hold;

    public static class Noop implements Job {
        public void execute(JobExecutionContext context) {
            started.note(Integer.parseInt(context.getMergedJobDataMap().getString("number")));
        }
    }

    public static class Hold implements Job {
        public void execute(JobExecutionContext context) {
            started.note(Integer.parseInt(context.getMergedJobDataMap().getString("number")));
            Common.hold(hold);
        }
    }

    static Scheduler open(int threads) throws SchedulerException {
        var said = new Properties();
        said.putAll(Map.of(
                "org.quartz.scheduler.instanceName", "bench",
                "org.quartz.scheduler.idleWaitTime", "1000",
                "org.quartz.scheduler.batchTriggerAcquisitionMaxCount", "" + threads,
                "org.quartz.threadPool.threadCount", "" + threads,
                "org.quartz.jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX",
                "org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate",
                "org.quartz.jobStore.acquireTriggersWithinLock", "true",
                "org.quartz.jobStore.useProperties", "true",
                "org.quartz.jobStore.dataSource", "bench"));
        said.putAll(Map.of(
                "org.quartz.dataSource.bench.provider", "hikaricp",
                "org.quartz.dataSource.bench.driver", "org.postgresql.Driver",
                "org.quartz.dataSource.bench.URL", Common.jdbcUrl(),
                "org.quartz.dataSource.bench.user", Common.user(),
                "org.quartz.dataSource.bench.password", "",
                "org.quartz.dataSource.bench.maxConnections", "20"));
        return new StdSchedulerFactory(said).getScheduler();
    }

    static JobDetail job(String name) {
        return JobBuilder.newJob(name.equals("hold") ? Hold.class : Noop.class)
                .withIdentity(name).storeDurably().requestRecovery().build();
    }

    static Map<String, Object> setup(Common.Wish wish) throws Exception {
        try (var pool = Common.pool(1); var connection = pool.getConnection(); var order = connection.createStatement()) {
            order.execute(tables());
        }
        var scheduler = open(1);
        for (var name : new String[] {"noop", "hold"}) scheduler.addJob(job(name), true);
        return Map.of("version", scheduler.getMetaData().getVersion());
    }

    static String tables() throws IOException {
        try (var file = Scheduler.class.getResourceAsStream("/org/quartz/impl/jdbcjobstore/tables_postgres.sql")) {
            return new String(file.readAllBytes());
        }
    }

    static Trigger trigger(String task, int number, Date due) {
        var made = TriggerBuilder.newTrigger().withIdentity("t" + number).forJob(task).usingJobData("number", "" + number);
        return (due == null ? made.startNow() : made.startAt(due)).build();
    }

    static Map<String, Object> submit(Common.Wish wish) throws Exception {
        var scheduler = open(1);
        scheduler.checkExists(org.quartz.JobKey.jobKey("noop"));
        return Common.timed(() -> {
            for (var batch : Common.batches(wish, 1_000)) {
                var due = batch.due() == null ? null : Date.from(batch.due());
                if (wish.text("how").equals("single")) {
                    for (int n = batch.first(); n < batch.last(); n++) scheduler.scheduleJob(trigger(wish.task(), n, due));
                } else {
                    Set<Trigger> all = new HashSet<>();
                    for (int n = batch.first(); n < batch.last(); n++) all.add(trigger(wish.task(), n, due));
                    scheduler.scheduleJobs(Map.of(job(wish.task()), all), true);
                }
            }
        });
    }

    static Map<String, Object> trickle(Common.Wish wish) throws Exception {
        var scheduler = open(1);
        Common.atAPace(wish, n -> {
            try {
                scheduler.scheduleJob(trigger("noop", n, null));
            } catch (SchedulerException error) {
                throw new IllegalStateException(error);
            }
        });
        return Map.of();
    }

    static Map<String, Object> schedule(Common.Wish wish) throws Exception {
        var scheduler = open(1);
        var rule = wish.text("every").equals("second") ? "* * * * * ?" : "0 * * * * ?";
        for (int low = 0; low < wish.count("count"); low += 1_000) {
            Set<Trigger> all = new HashSet<>();
            for (int n = low; n < Math.min(low + 1_000, wish.count("count")); n++) {
                all.add(TriggerBuilder.newTrigger().withIdentity("s" + n).forJob("noop")
                        .usingJobData("number", "" + n).withSchedule(CronScheduleBuilder.cronSchedule(rule)).build());
            }
            scheduler.scheduleJobs(Map.of(job("noop"), all), true);
        }
        return Map.of();
    }

    static Map<String, Object> work(Common.Wish wish) throws Exception {
        started = new Common.Recorder("started");
        hold = wish.number("hold");
        open(wish.task().equals("hold") ? wish.count("slots") : 100).start();
        Common.untilTold();
        return Map.of();
    }

    public static void main(String[] args) {
        Common.main(args, Map.of(
                "setup", Adapter::setup, "submit", Adapter::submit, "trickle", Adapter::trickle,
                "schedule", Adapter::schedule, "work", Adapter::work));
    }
}
