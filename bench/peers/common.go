// What the adapters in Go share; the same records as in common.py, in a file mapped into memory.

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	recordSize = 12
	recordRoom = 4_000_000 // records; the file is sparse
	moments    = 100
)

// Recorder notes that something happened to a job, from any goroutine.
type Recorder struct {
	place []byte
	next  atomic.Int64
}

func openRecorder(name string) *Recorder {
	path := filepath.Join(os.Getenv("BENCH_RECORDS"), fmt.Sprintf("%s-%d", name, os.Getpid()))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	check(err)
	defer file.Close()
	check(file.Truncate(recordSize * recordRoom))
	place, err := syscall.Mmap(int(file.Fd()), 0, recordSize*recordRoom,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	return &Recorder{place: place}
}

// Note writes the moment first: the number is what says that the record is there.
func (r *Recorder) Note(number int) {
	at := (r.next.Add(1) - 1) * recordSize
	moment := float64(time.Now().UnixNano()) / 1e9
	binary.LittleEndian.PutUint64(r.place[at+4:], math.Float64bits(moment))
	binary.LittleEndian.PutUint32(r.place[at:], uint32(number+1))
}

// Wish is what a command is told.
type Wish struct {
	Count     int      `json:"count"`
	First     int      `json:"first"`
	How       string   `json:"how"`
	Task      string   `json:"task"`
	Due       *float64 `json:"due"`
	Spread    float64  `json:"spread"`
	Rate      float64  `json:"rate"`
	Slots     int      `json:"slots"`
	Hold      float64  `json:"hold"`
	Schedules int      `json:"schedules"`
	Every     string   `json:"every"`
}

// Batch is the jobs to submit together, as in common.py; Due is nil for those that are due now.
type Batch struct {
	Due         *time.Time
	First, Last int
}

func (w Wish) batches(size int) []Batch {
	var made []Batch
	end := w.First + w.Count
	if w.Due == nil || w.Spread == 0 {
		var due *time.Time
		if w.Due != nil {
			due = moment(*w.Due)
		}
		for low := w.First; low < end; low += size {
			made = append(made, Batch{due, low, min(low+size, end)})
		}
		return made
	}
	for step := range moments {
		low, high := w.First+w.Count*step/moments, w.First+w.Count*(step+1)/moments
		if low < high {
			made = append(made, Batch{moment(*w.Due + w.Spread*float64(step)/moments), low, high})
		}
	}
	return made
}

func moment(epoch float64) *time.Time {
	made := time.Unix(0, int64(epoch*1e9))
	return &made
}

// timed gives what only the measured part took: connecting is left out.
func timed(work func()) map[string]any {
	began, cpu := time.Now(), used()
	work()
	return map[string]any{"seconds": time.Since(began).Seconds(), "cpu": used() - cpu}
}

func used() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// atAPace submits each job on its own, so many a second, having noted the moment.
func atAPace(wish Wish, submit func(int)) {
	sent := openRecorder("sent")
	for number := wish.First; number < wish.First+wish.Count; number++ {
		sent.Note(number)
		submit(number)
		time.Sleep(time.Duration(float64(time.Second) / wish.Rate))
	}
}

func untilTold() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	<-told
}

func versionOf(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return ""
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(commands map[string]func(Wish) map[string]any) {
	var wish Wish
	if len(os.Args) > 2 {
		check(json.Unmarshal([]byte(os.Args[2]), &wish))
	}
	command, known := commands[os.Args[1]]
	if !known {
		check(fmt.Errorf("no command %q", os.Args[1]))
	}
	answer := command(wish)
	if answer == nil {
		answer = map[string]any{}
	}
	check(json.NewEncoder(os.Stdout).Encode(answer))
}
