// asynq with Redis on a Unix socket, without persistence: one process, whose goroutines use both cores, 200
// goroutines for no-ops (its default is one for each core) and 100 for the 5 ms jobs. Idle workers look every 10 ms
// and due tasks are forwarded every 100 ms, instead of every second and every five seconds. It has no call for many:
// in bulk is one by one from 50 goroutines on one client. It keeps due moments in whole seconds, so that a task may
// start up to a second early. Schedules are entries of its Scheduler, beside the worker.

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

var redis = asynq.RedisClientOpt{
	Network: "unix", Addr: os.Getenv("BENCH_REDIS_URL"), PoolSize: 50,
	ReadTimeout: time.Minute, WriteTimeout: time.Minute,
}

func task(name string, number int) *asynq.Task {
	return asynq.NewTask(name, binary.LittleEndian.AppendUint32(nil, uint32(number)))
}

func numberOf(task *asynq.Task) int {
	return int(binary.LittleEndian.Uint32(task.Payload()))
}

func setup(Wish) map[string]any {
	return map[string]any{"version": versionOf("github.com/hibiken/asynq")}
}

func kind(wish Wish) string {
	if wish.Task == "hold" {
		return "hold"
	}
	return "noop"
}

func submit(wish Wish) map[string]any {
	client := asynq.NewClient(redis)
	check(client.Ping())
	name, senders := kind(wish), 1
	if wish.How == "bulk" {
		senders = 50
	}
	return timed(func() {
		for _, batch := range wish.batches(10_000) {
			var options []asynq.Option
			if batch.Due != nil {
				options = append(options, asynq.ProcessAt(*batch.Due))
			}
			each(senders, batch, func(number int) {
				_, err := client.Enqueue(task(name, number), options...)
				check(err)
			})
		}
	})
}

// each calls for the numbers of a batch, from so many goroutines.
func each(senders int, batch Batch, call func(int)) {
	var next atomic.Int64
	next.Store(int64(batch.First))
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for number := int(next.Add(1) - 1); number < batch.Last; number = int(next.Add(1) - 1) {
				call(number)
			}
		})
	}
	all.Wait()
}

func trickle(wish Wish) map[string]any {
	client := asynq.NewClient(redis)
	atAPace(wish, func(number int) {
		_, err := client.Enqueue(task("noop", number))
		check(err)
	})
	return nil
}

func work(wish Wish) map[string]any {
	started := openRecorder("started")
	hold := time.Duration(wish.Hold * float64(time.Second))
	mux := asynq.NewServeMux()
	mux.HandleFunc("noop", func(_ context.Context, given *asynq.Task) error {
		started.Note(numberOf(given))
		return nil
	})
	mux.HandleFunc("hold", func(_ context.Context, given *asynq.Task) error {
		started.Note(numberOf(given))
		time.Sleep(hold)
		return nil
	})
	slots := 200
	if wish.Task == "hold" {
		slots = wish.Slots
	}
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency:              slots,
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		Logger:                   quiet{},
		ShutdownTimeout:          time.Second,
	})
	check(server.Start(mux))
	schedule(wish)
	untilTold()
	server.Shutdown()
	return nil
}

func schedule(wish Wish) {
	if wish.Schedules == 0 {
		return
	}
	every := "* * * * *"
	if wish.Every == "second" {
		every = "@every 1s"
	}
	scheduler := asynq.NewScheduler(redis, &asynq.SchedulerOpts{Logger: quiet{}})
	for number := range wish.Schedules {
		_, err := scheduler.Register(every, task("noop", number))
		check(err)
	}
	check(scheduler.Start())
}

type quiet struct{}

func (quiet) Debug(...any)      {}
func (quiet) Info(...any)       {}
func (quiet) Warn(...any)       {}
func (quiet) Error(said ...any) { fmt.Fprintln(os.Stderr, said...) }
func (quiet) Fatal(said ...any) { check(fmt.Errorf("%v", said)) }

func main() {
	run(map[string]func(Wish) map[string]any{
		"setup": setup, "submit": submit, "trickle": trickle, "work": work,
	})
}
