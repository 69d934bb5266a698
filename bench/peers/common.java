// What the adapters in Java share; the same records as in common.py, in a file mapped into memory. PostgreSQL is
// reached by its Unix socket, as by all others, for which its driver needs a socket factory.

import com.zaxxer.hikari.HikariDataSource;
import java.lang.management.ManagementFactory;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;
import java.util.regex.Pattern;

class Common {
    static final int SIZE = 12;
    static final int ROOM = 4_000_000; // records; the file is sparse
    static final int MOMENTS = 100;

    /** Notes that something happened to a job, from any thread. */
    static class Recorder {
        private final MappedByteBuffer place;
        private final AtomicInteger next = new AtomicInteger();

        Recorder(String name) throws Exception {
            var path = Path.of(System.getenv("BENCH_RECORDS"), name + "-" + ProcessHandle.current().pid());
            try (var file = FileChannel.open(
                    path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                place = file.map(FileChannel.MapMode.READ_WRITE, 0, (long) SIZE * ROOM);
            }
            place.order(ByteOrder.LITTLE_ENDIAN);
        }

        /** The moment first: the number is what says that the record is there. */
        void note(int number) {
            int at = next.getAndIncrement() * SIZE;
            var now = Instant.now();
            place.putDouble(at + 4, now.getEpochSecond() + now.getNano() / 1e9);
            place.putInt(at, number + 1);
        }
    }

    /** What a command is told: a flat object in JSON. */
    static class Wish {
        private static final Pattern FIELD = Pattern.compile("\"(\\w+)\":\\s*(\"([^\"]*)\"|[^,}\\s]+)");
        private final Map<String, String> fields = new HashMap<>();

        Wish(String json) {
            var found = FIELD.matcher(json);
            while (found.find()) {
                fields.put(found.group(1), found.group(3) != null ? found.group(3) : found.group(2));
            }
        }

        String text(String name) {
            return fields.getOrDefault(name, "");
        }

        double number(String name) {
            var given = fields.get(name);
            return given == null || given.equals("null") ? 0 : Double.parseDouble(given);
        }

        int count(String name) {
            return (int) number(name);
        }

        /** The task's name: plain functions and coroutines are the same here. */
        String task() {
            return text("task").equals("hold") ? "hold" : "noop";
        }
    }

    /** The jobs to submit together, as in common.py; due is null for those that are due now. */
    record Batch(Instant due, int first, int last) {}

    static List<Batch> batches(Wish wish, int size) {
        int first = wish.count("first"), count = wish.count("count");
        double due = wish.number("due"), spread = wish.number("spread");
        var made = new ArrayList<Batch>();
        if (due == 0 || spread == 0) {
            var moment = due == 0 ? null : moment(due);
            for (int low = first; low < first + count; low += size) {
                made.add(new Batch(moment, low, Math.min(low + size, first + count)));
            }
            return made;
        }
        for (int step = 0; step < MOMENTS; step++) {
            int low = first + (int) ((long) count * step / MOMENTS);
            int high = first + (int) ((long) count * (step + 1) / MOMENTS);
            if (low < high) made.add(new Batch(moment(due + spread * step / MOMENTS), low, high));
        }
        return made;
    }

    static Instant moment(double epoch) {
        return Instant.ofEpochMilli((long) (epoch * 1000));
    }

    interface Work {
        void run() throws Exception;
    }

    /** What only the measured part took: starting and connecting are left out. */
    static Map<String, Object> timed(Work work) throws Exception {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime(), began = System.nanoTime();
        work.run();
        return Map.of(
                "seconds", (System.nanoTime() - began) / 1e9,
                "cpu", (system.getProcessCpuTime() - cpu) / 1e9);
    }

    static void atAPace(Wish wish, IntConsumer submit) throws Exception {
        var sent = new Recorder("sent");
        for (int number = wish.count("first"); number < wish.count("first") + wish.count("count"); number++) {
            sent.note(number);
            submit.accept(number);
            Thread.sleep((long) (1000 / wish.number("rate")));
        }
    }

    static void untilTold() throws Exception {
        var told = new CountDownLatch(1);
        sun.misc.Signal.handle(new sun.misc.Signal("TERM"), signal -> told.countDown());
        told.await();
    }

    static void hold(double seconds) {
        try {
            Thread.sleep((long) (seconds * 1000));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static java.util.regex.Matcher parts() {
        var parts = Pattern.compile("postgresql://([^@]+)@/([^?]+)\\?host=([^&]+)&port=(\\d+)")
                .matcher(System.getenv("BENCH_DATABASE_URL"));
        if (!parts.matches()) throw new IllegalStateException("not a URL of a Unix socket");
        return parts;
    }

    static String user() {
        return parts().group(1);
    }

    /** The URL of the driver, from postgresql://user@/database?host=folder&port=number. */
    static String jdbcUrl() {
        var parts = parts();
        var folder = java.net.URLDecoder.decode(parts.group(3), java.nio.charset.StandardCharsets.UTF_8);
        return "jdbc:postgresql://localhost/" + parts.group(2) + "?user=" + parts.group(1)
                + "&sslmode=disable&gssEncMode=disable&reWriteBatchedInserts=true"
                + "&socketFactory=org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg"
                + "&socketFactoryArg=" + folder + "/.s.PGSQL." + parts.group(4);
    }

    static HikariDataSource pool(int size) {
        var made = new HikariDataSource();
        made.setJdbcUrl(jdbcUrl());
        made.setMaximumPoolSize(size);
        return made;
    }

    interface Command {
        Map<String, Object> run(Wish wish) throws Exception;
    }

    static void main(String[] args, Map<String, Command> commands) {
        try {
            var answer = commands.get(args[0]).run(new Wish(args.length > 1 ? args[1] : "{}"));
            var said = new ArrayList<String>();
            answer.forEach((name, value) -> said.add(
                    "\"" + name + "\": " + (value instanceof String ? "\"" + value + "\"" : value)));
            System.out.println("{" + String.join(", ", said) + "}");
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.err.println(error);
            Runtime.getRuntime().halt(1);
        }
    }
}
