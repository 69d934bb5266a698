// River: one process, whose goroutines use both cores, as its own benchmark runs it: 2,000 workers for no-ops and
// 100 for the 5 ms jobs, at most 2 ms between two fetches while there is work and 20 ms without (its defaults are
// 100 ms and a second), woken by LISTEN/NOTIFY, a pool of ten connections. In bulk by InsertManyFast, which is COPY.
// Completed jobs are kept for a day, as by default. Due jobs are moved to the queue every five seconds, which can't
// be set. Schedules are periodic jobs, which live in the memory of the leader.

package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type noopArgs struct {
	Number int `json:"number"`
}

func (noopArgs) Kind() string { return "noop" }

type holdArgs struct {
	Number int `json:"number"`
}

func (holdArgs) Kind() string { return "hold" }

type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	started *Recorder
}

func (w *noopWorker) Work(_ context.Context, job *river.Job[noopArgs]) error {
	w.started.Note(job.Args.Number)
	return nil
}

type holdWorker struct {
	river.WorkerDefaults[holdArgs]
	started *Recorder
	hold    time.Duration
}

func (w *holdWorker) Work(ctx context.Context, job *river.Job[holdArgs]) error {
	w.started.Note(job.Args.Number)
	select {
	case <-time.After(w.hold):
	case <-ctx.Done():
	}
	return nil
}

var background = context.Background()

func pool() *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(os.Getenv("BENCH_DATABASE_URL"))
	check(err)
	config.MaxConns = 10
	made, err := pgxpool.NewWithConfig(background, config)
	check(err)
	check(made.Ping(background))
	return made
}

func open(config *river.Config) *river.Client[pgx.Tx] {
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	made, err := river.NewClient(riverpgxv5.New(pool()), config)
	check(err)
	return made
}

func args(task string, number int) river.JobArgs {
	if task == "hold" {
		return holdArgs{number}
	}
	return noopArgs{number}
}

func setup(Wish) map[string]any {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool()), nil)
	check(err)
	_, err = migrator.Migrate(background, rivermigrate.DirectionUp, nil)
	check(err)
	return map[string]any{"version": versionOf("github.com/riverqueue/river")}
}

func submit(wish Wish) map[string]any {
	client := open(&river.Config{})
	return timed(func() {
		if wish.How == "single" {
			for number := wish.First; number < wish.First+wish.Count; number++ {
				_, err := client.Insert(background, args(wish.Task, number), nil)
				check(err)
			}
			return
		}
		for _, batch := range wish.batches(10_000) {
			insertMany(client, wish.Task, batch)
		}
	})
}

func insertMany(client *river.Client[pgx.Tx], task string, batch Batch) {
	opts := &river.InsertOpts{}
	if batch.Due != nil {
		opts.ScheduledAt = *batch.Due
	}
	jobs := make([]river.InsertManyParams, 0, batch.Last-batch.First)
	for number := batch.First; number < batch.Last; number++ {
		jobs = append(jobs, river.InsertManyParams{Args: args(task, number), InsertOpts: opts})
	}
	_, err := client.InsertManyFast(background, jobs)
	check(err)
}

func trickle(wish Wish) map[string]any {
	client := open(&river.Config{})
	atAPace(wish, func(number int) {
		_, err := client.Insert(background, noopArgs{number}, nil)
		check(err)
	})
	return nil
}

// each is a schedule at the beginning of each period.
type each time.Duration

func (e each) Next(current time.Time) time.Time {
	return current.Truncate(time.Duration(e)).Add(time.Duration(e))
}

func periodic(wish Wish) []*river.PeriodicJob {
	period := each(time.Minute)
	if wish.Every == "second" {
		period = each(time.Second)
	}
	jobs := make([]*river.PeriodicJob, 0, wish.Schedules)
	for number := range wish.Schedules {
		construct := func() (river.JobArgs, *river.InsertOpts) { return noopArgs{number}, nil }
		jobs = append(jobs, river.NewPeriodicJob(period, construct, nil))
	}
	return jobs
}

func work(wish Wish) map[string]any {
	started := openRecorder("started")
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{started: started})
	hold := time.Duration(wish.Hold * float64(time.Second))
	river.AddWorker(workers, &holdWorker{started: started, hold: hold})
	slots := 2_000
	if wish.Task == "hold" {
		slots = wish.Slots
	}
	client := open(&river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		JobTimeout:        -1,
		PeriodicJobs:      periodic(wish),
		Workers:           workers,
	})
	check(client.Start(background))
	untilTold()
	check(client.StopAndCancel(background))
	return nil
}

func main() {
	run(map[string]func(Wish) map[string]any{
		"setup": setup, "submit": submit, "trickle": trickle, "work": work,
	})
}
