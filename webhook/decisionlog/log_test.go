// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/policytime"
	"sluice.dev/webhook/decisionlog"
)

type v1Extra = authenticationv1.ExtraValue

var utc = time.UTC

// dropped returns how many records were dropped for a reason.
func dropped(t *testing.T, reason string) int {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "sluice_decision_records_dropped_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == reason {
				return int(metric.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// A log whose output blocks delays no request: it drops and counts what its queue cannot hold, and writes the rest later.
func TestBlockedOutputDelaysNoRequest(t *testing.T) {
	reader, writer := io.Pipe()
	log, err := decisionlog.New(decisionlog.Options{Output: writer, Objects: true, Mask: decisionlog.DefaultMask})
	if err != nil {
		t.Fatal(err)
	}
	before := dropped(t, "queue")
	const added = 5000
	var adders sync.WaitGroup
	for range 4 {
		adders.Go(func() {
			for range added / 4 {
				log.Add(entry(`{"spec":{}}`, ""))
			}
		})
	}
	adders.Wait() // it would never end
	lost := dropped(t, "queue") - before
	if lost < added-4096-1 || lost > added-4096 {
		t.Errorf("dropped %d of %d", lost, added)
	}
	lines := bufio.NewScanner(reader)
	for got := range added - lost {
		if !lines.Scan() {
			t.Fatalf("wrote %d, want %d: %v", got, added-lost, lines.Err())
		}
	}
	log.Close()
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("wrote more than %d", added-lost)
	}
}

// Large objects count by their bytes.
func TestQueueIsBoundedInBytes(t *testing.T) {
	_, writer := io.Pipe()
	log, err := decisionlog.New(decisionlog.Options{Output: writer, Objects: true})
	if err != nil {
		t.Fatal(err)
	}
	before := dropped(t, "queue")
	large := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for range 100 {
		log.Add(entry(large, ""))
	}
	if lost := dropped(t, "queue") - before; lost < 60 {
		t.Errorf("dropped %d of 100 megabytes", lost)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	log.Close()
}

// A folder that cannot be written is reported once, the records are counted, and written again as soon as it can be.
func TestFileRecovers(t *testing.T) {
	var reports []string
	var mu sync.Mutex
	logger := funcr.New(func(_, text string) { mu.Lock(); defer mu.Unlock(); reports = append(reports, text) }, funcr.Options{})
	folder := filepath.Join(t.TempDir(), "missing")
	path := filepath.Join(folder, "decisions.jsonl")
	log, err := decisionlog.New(decisionlog.Options{
		File: &decisionlog.File{Path: path, MaxBytes: 1 << 20, MaxFiles: 2}, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	before := dropped(t, "file")
	for range 20 {
		log.Add(entry(`{}`, ""))
	}
	deadline := policytime.MachineNow().Add(time.Minute)
	for dropped(t, "file")-before < 20 && policytime.MachineNow().Before(deadline) {
		log.Add(entry(`{}`, ""))
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for policytime.MachineNow().Before(deadline) {
		log.Add(entry(`{}`, ""))
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			break
		}
	}
	log.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() == 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("%d bytes, mode %v", info.Size(), info.Mode())
	}
	if len(reports) != 2 || !strings.Contains(reports[0], "Failed to write decision records") || !strings.Contains(reports[1], "again") {
		t.Errorf("reports: %q", reports)
	}
	if n, err := testutil.GatherAndCount(metrics.Registry, "sluice_decision_records_total"); err != nil || n == 0 {
		t.Errorf("%d series, %v", n, err)
	}
}

// The files together never exceed their bound, and have the newest records in order.
func TestFilesAreBounded(t *testing.T) {
	for _, files := range []int{1, 2, 5} {
		t.Run(strconv.Itoa(files), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d")
			if err := os.WriteFile(path+".7", []byte("of a larger maxFiles"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("0000 an incomplete line of a process that was killed"), 0o644); err != nil { //nolint:gosec // G306: its mode is corrected
				t.Fatal(err)
			}
			const maxBytes = 1000
			file := &decisionlog.File{Path: path, MaxBytes: maxBytes, MaxFiles: files}
			const last = 500
			for i := 1; i <= last; i++ {
				if _, err := file.Write(fmt.Appendf(nil, "%04d %s\n", i, strings.Repeat("x", i%40))); err != nil {
					t.Fatal(err)
				}
			}
			var text []byte
			for number := files; number >= 0; number-- {
				name := fmt.Sprintf("%s.%d", path, number)
				if number == 0 {
					name = path
				}
				part, err := os.ReadFile(name)
				if (err == nil) != (number < files) {
					t.Errorf("%s: %v", name, err)
				}
				if len(part) > maxBytes {
					t.Errorf("%s has %d bytes", name, len(part))
				}
				text = append(text, part...)
			}
			lines := slices.Collect(strings.Lines(string(text)))
			for i, line := range lines {
				if want := fmt.Sprintf("%04d ", last-len(lines)+1+i); !strings.HasPrefix(line, want) {
					t.Fatalf("line %d is %q, want %q", i, line, want)
				}
			}
			if _, err := file.Write(bytes.Repeat([]byte("x"), maxBytes+1)); err == nil {
				t.Error("a record larger than a file was written")
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		})
	}
}

// Only a regular file is opened: a pipe would block.
func TestFileIsRegular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file := &decisionlog.File{Path: path, MaxBytes: 1000, MaxFiles: 2}
	if _, err := file.Write([]byte("x\n")); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("the error is %v", err)
	}
}

// childFile is the environment variable with the file that a child process writes, until it is killed or its disk is full.
const childFile = "SLUICE_TEST_DECISIONS_FILE"

func TestChildWritesRecords(t *testing.T) {
	path := os.Getenv(childFile)
	if path == "" {
		t.Skip("it is for the child process of other tests")
	}
	if strings.HasSuffix(path, "full") {
		signal.Ignore(syscall.SIGXFSZ)
		const limit = 50_123 // within a line
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
	}
	log, err := decisionlog.New(decisionlog.Options{File: &decisionlog.File{Path: path, MaxBytes: 1 << 30, MaxFiles: 2}, Objects: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; !strings.HasSuffix(path, "full") || i < 500; i++ {
		log.Add(entry(`{"a":"`+strings.Repeat("x", i%3000)+`"}`, ""))
	}
	log.Close()
	if strings.HasSuffix(path, "full") && dropped(t, "file") == 0 {
		t.Error("the disk was not full")
	}
}

// child starts a process that writes records to a file.
func child(ctx context.Context, t *testing.T, path string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChildWritesRecords$", "-test.v")
	command.Env = append(os.Environ(), childFile+"="+path)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

// A full disk leaves only whole records.
func TestFullDiskLeavesWholeRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full")
	if err := child(t.Context(), t, path).Wait(); err != nil {
		t.Fatal(err)
	}
	records, skipped := read(t, path)
	if records == 0 || skipped != (decisionlog.Skipped{}) {
		t.Errorf("%d records, %+v", records, skipped)
	}
}

// A killed process leaves at most one incomplete line, which neither its readers nor the next process stumble over.
func TestKilledProcessLeavesWholeRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "killed")
	command := child(t.Context(), t, path)
	for { // the test's own time limit ends it
		if info, err := os.Stat(path); err == nil && info.Size() > 1<<20 {
			break
		}
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed
	before, skipped := read(t, path)
	if before == 0 || skipped.Broken+skipped.Other+skipped.TooLong > 0 || skipped.Incomplete > 1 {
		t.Errorf("%d records, %+v", before, skipped)
	}
	// A process that was killed within a line.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, text[:100]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if records, skipped := read(t, path); records != before || skipped.Incomplete != 1 {
		t.Errorf("%d records of %d, %+v", records, before, skipped)
	}
	log, err := decisionlog.New(decisionlog.Options{File: &decisionlog.File{Path: path, MaxBytes: 1 << 30, MaxFiles: 2}})
	if err != nil {
		t.Fatal(err)
	}
	log.Add(entry(`{}`, ""))
	log.Close()
	if records, skipped := read(t, path); records != before+1 || skipped.Broken != 1 {
		t.Errorf("%d records of %d, %+v", records, before+1, skipped)
	}
}

// read counts the records of a file, and what is skipped.
func read(t *testing.T, path string) (records int, skipped decisionlog.Skipped) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	return readAll(t, file)
}

func readAll(t *testing.T, source io.Reader) (records int, skipped decisionlog.Skipped) {
	t.Helper()
	reader, err := decisionlog.NewReader(source)
	if err != nil {
		return 0, skipped
	}
	for {
		line, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return records, reader.Skipped
		}
		if err != nil {
			return records, reader.Skipped
		}
		if _, err := decisionlog.Parse(line); err != nil {
			reader.Skipped.Count(err)
			continue
		}
		records++
	}
}
