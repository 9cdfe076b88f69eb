// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"sluice.dev/policies/engine"
)

// childCommand is the hidden first argument of a child process.
const childCommand = "compile-policy"

// job is what a child reads from its standard input. It writes an empty Result
// once it is ready, and then one for each source, in order, each as a line of JSON. With an
// environment it writes another one with the conflicts of an accepted policy.
type job struct {
	Sources []engine.Source `json:"sources"`
	// Others are the libraries, and the policies that may import one of the sources.
	Others      []engine.Source `json:"others,omitempty"`
	Environment *Environment    `json:"environment,omitempty"`
	// CompileOnly: only compile, as the engine will.
	CompileOnly bool   `json:"compileOnly"`
	Limits      Limits `json:"limits"`
}

// RunIfChild runs the checks and ends the process if the process is a child of [Process].
// Otherwise it returns at once. Each program that uses a Process calls it first in main.
func RunIfChild() {
	if len(os.Args) == 2 && os.Args[1] == childCommand {
		os.Exit(runChild(os.Stdin, os.Stdout, os.Stderr))
	}
}

// exitCPU is the exit code of a child that used too much processor time.
const exitCPU = 124

// runChild checks the policies of a job, and returns the exit code.
func runChild(stdin io.Reader, stdout, stderr io.Writer) int {
	var work job
	if err := json.NewDecoder(stdin).Decode(&work); err != nil {
		fmt.Fprintf(stderr, "read policies: %v\n", err)
		return 2
	}
	if err := setLimits(work.Limits, len(work.Sources)); err != nil {
		fmt.Fprintf(stderr, "limit the resources: %v\n", err)
		return 2
	}
	// The collector works harder before the memory ends, and a recursion ends before it.
	debug.SetMemoryLimit(int64(work.Limits.MemoryBytes / 2))
	debug.SetMaxStack(int(work.Limits.MemoryBytes / 4))
	// The libraries are compiled once, and are no policy's work.
	if _, err := newEngine(); err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	var start atomic.Int64
	start.Store(int64(processorTime()))
	go endAtLimit(&start, work.Limits.CPU)
	results := json.NewEncoder(stdout)
	// The first line tells that the child is ready. What ends it afterwards is a policy.
	if err := results.Encode(Result{}); err != nil {
		fmt.Fprintf(stderr, "write result: %v\n", err)
		return 2
	}
	for _, source := range work.Sources {
		start.Store(int64(processorTime()))
		var result Result
		if work.CompileOnly {
			result = compile(source, work.Others).truncated()
		} else {
			result = Check(source, work.Others...).truncated()
		}
		if err := results.Encode(result); err != nil {
			fmt.Fprintf(stderr, "write result: %v\n", err)
			return 2
		}
		if work.Environment == nil || len(result.Problems) > 0 {
			continue
		}
		start.Store(int64(processorTime()))
		conflicts, err := Conflicts(context.Background(), source, *work.Environment)
		if err != nil {
			fmt.Fprintf(stderr, "look for conflicts: %v\n", err)
			return 2
		}
		if err := results.Encode(Result{Warnings: conflicts}.truncated()); err != nil {
			fmt.Fprintf(stderr, "write result: %v\n", err)
			return 2
		}
	}
	return 0
}

// truncated returns the result with messages of limited length. OPA's messages can contain a
// large type.
func (r Result) truncated() Result {
	for _, list := range [][]engine.Problem{r.Problems, r.Warnings} {
		for i := range list {
			if text := list[i].Message; len(text) > maxMessageBytes {
				list[i].Message = strings.ToValidUTF8(text[:maxMessageBytes], "") + "…"
			}
		}
	}
	return r
}

// maxMessageBytes limits the length of a message.
const maxMessageBytes = 2 << 10

// endAtLimit ends the process when the policy that started at start has used its processor
// time.
func endAtLimit(start *atomic.Int64, limit time.Duration) {
	for {
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // machine time: the interval of checks
		if processorTime()-time.Duration(start.Load()) > limit {
			os.Exit(exitCPU)
		}
	}
}
