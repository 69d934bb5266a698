// JobRunr (the free version): one process of 100 worker threads, a pool of 20 connections, JSON by Jackson, no
// dashboard. Looks for work every 5 s instead of every 15; while there is work its threads take more at once. In bulk
// by a stream of jobs, as its documentation advises. Finished jobs are kept, as by default. What is due within the next
// look is started at once, so that a job may start seconds before it is due: that is its documented behaviour.

import java.time.Duration;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jobrunr.configuration.JobRunr;
import org.jobrunr.jobs.lambdas.JobRequest;
import org.jobrunr.jobs.lambdas.JobRequestHandler;
import org.jobrunr.scheduling.JobBuilder;
import org.jobrunr.scheduling.JobRequestScheduler;
import org.jobrunr.server.BackgroundJobServerConfiguration;
import org.jobrunr.storage.sql.common.SqlStorageProviderFactory;

class Adapter {
    static Common.Recorder started;
    static double hold;

    public record Noop(int number) implements JobRequest {
        public Class<NoopHandler> getJobRequestHandler() {
            return NoopHandler.class;
        }
    }

    public static class NoopHandler implements JobRequestHandler<Noop> {
        public void run(Noop job) {
            started.note(job.number());
        }
    }

    public record Hold(int number) implements JobRequest {
        public Class<HoldHandler> getJobRequestHandler() {
            return HoldHandler.class;
        }
    }

    public static class HoldHandler implements JobRequestHandler<Hold> {
        public void run(Hold job) {
            started.note(job.number());
            Common.hold(hold);
        }
    }

    static JobRequest request(Common.Wish wish, int number) {
        return wish.task().equals("hold") ? new Hold(number) : new Noop(number);
    }

    static JobRequestScheduler client() {
        return JobRunr.configure()
                .useStorageProvider(SqlStorageProviderFactory.using(Common.pool(4)))
                .initialize().getJobRequestScheduler();
    }

    static Map<String, Object> setup(Common.Wish wish) {
        client();
        return Map.of("version", System.getProperty("bench.version", ""));
    }

    static Map<String, Object> submit(Common.Wish wish) throws Exception {
        var client = client();
        return Common.timed(() -> {
            for (var batch : Common.batches(wish, 1_000)) {
                var numbers = IntStream.range(batch.first(), batch.last());
                if (wish.text("how").equals("single")) {
                    numbers.forEach(n -> client.enqueue(request(wish, n)));
                } else {
                    Stream<JobBuilder> jobs = numbers.mapToObj(n -> {
                        var made = JobBuilder.aJob().withJobRequest(request(wish, n));
                        return batch.due() == null ? made : made.scheduleAt(batch.due());
                    });
                    client.create(jobs);
                }
            }
        });
    }

    static Map<String, Object> trickle(Common.Wish wish) throws Exception {
        var client = client();
        Common.atAPace(wish, n -> client.enqueue(new Noop(n)));
        return Map.of();
    }

    static Map<String, Object> schedule(Common.Wish wish) {
        var client = client();
        for (int n = 0; n < wish.count("count"); n++) client.scheduleRecurrently("s" + n, "* * * * *", new Noop(n));
        return Map.of();
    }

    static Map<String, Object> work(Common.Wish wish) throws Exception {
        started = new Common.Recorder("started");
        hold = wish.number("hold");
        int threads = wish.task().equals("hold") ? wish.count("slots") : 100;
        JobRunr.configure()
                .useStorageProvider(SqlStorageProviderFactory.using(Common.pool(20)))
                .useBackgroundJobServer(BackgroundJobServerConfiguration
                        .usingStandardBackgroundJobServerConfiguration()
                        .andPollInterval(Duration.ofSeconds(5))
                        .andWorkerCount(threads)
                        .andInterruptJobsAwaitDurationOnStopBackgroundJobServer(Duration.ZERO))
                .initialize();
        Common.untilTold();
        return Map.of();
    }

    public static void main(String[] args) {
        Common.main(args, Map.of(
                "setup", Adapter::setup, "submit", Adapter::submit, "trickle", Adapter::trickle,
                "schedule", Adapter::schedule, "work", Adapter::work));
    }
}
