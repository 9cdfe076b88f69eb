// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"sluice.dev/policies/engine"
)

// Limits limit the check of one policy.
type Limits struct {
	// CPU is the processor time for one policy. The start of the child does not count.
	CPU time.Duration `json:"cpu"`
	// MemoryBytes is the memory of the whole child (RLIMIT_DATA).
	MemoryBytes uint64 `json:"memoryBytes"`
}

// DefaultLimits are the limits of the webhook and lifecycle. Their containers need this memory
// beside their own.
var DefaultLimits = Limits{CPU: 2 * time.Second, MemoryBytes: 256 << 20}

// startupCPU is the processor time of a child beside that for its policies.
const startupCPU = 10 * time.Second

// othersPerLimit is the number of libraries and importers beside a policy for which its limit of processor time is doubled.
const othersPerLimit = 50

// Process checks policies in child processes, one at a time. It is safe for concurrent use.
type Process struct {
	limits     Limits
	executable string
	slot       chan struct{}
}

// NewProcess returns a Process. The program must call [RunIfChild] first in main.
func NewProcess(limits Limits) (*Process, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program to check policies with: %w", err)
	}
	return &Process{limits: limits, executable: executable, slot: make(chan struct{}, 1)}, nil
}

// Check checks one policy in a child process, and warns of its conflicts in an environment; see
// [Conflicts]. If that reaches the limits again, or the context ends meanwhile, there are no
// warnings about conflicts. The error is not the policy's fault: the context ended, or no child
// could run.
func (p *Process) Check(ctx context.Context, source engine.Source, environment Environment) (Result, error) {
	work := job{Sources: []engine.Source{source}, Others: related(source, environment.Policies), Limits: p.limits}
	// What is compiled beside the policy is not the policy's work.
	work.Limits.CPU += time.Duration(len(work.Others)) * p.limits.CPU / othersPerLimit
	environment.Policies = relevantPolicies(source, environment.Policies)
	if size := totalBytes(environment.Policies); size > 0 && size <= maxEnvironmentBytes {
		work.Environment = &environment
	}
	results, err := p.run(ctx, work)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// Compile compiles policies as the engine will, in one child, and in a further one after each
// policy that reaches a limit, each with the libraries that it imports. It returns a result for each of them.
func (p *Process) Compile(ctx context.Context, sources []engine.Source, libraries ...engine.Source) ([]Result, error) {
	return p.run(ctx, job{Sources: sources, Others: libraries, CompileOnly: true, Limits: p.limits})
}

// run works on a job in one child after another, until all sources have a result.
func (p *Process) run(ctx context.Context, work job) ([]Result, error) {
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the check of another policy: %w", ctx.Err())
	}
	all := make([]Result, 0, len(work.Sources))
	for len(all) < cap(all) {
		rest := work
		rest.Sources = work.Sources[len(all):]
		results, err := p.runChild(ctx, rest)
		all = append(all, results...)
		if err == nil {
			continue
		}
		var limit exhaustedError
		if !errors.As(err, &limit) {
			return nil, err
		}
		name := work.Sources[len(all)].Name
		all = append(all, Result{Exhausted: true, Problems: []engine.Problem{{Policy: name, Message: limit.Error()}}})
	}
	return all, nil
}

// exhaustedError reports that a policy ended a child.
type exhaustedError struct{ reason string }

func (e exhaustedError) Error() string {
	return "the policy cannot be compiled: " + e.reason + "; split it, or simplify its expressions"
}

// runChild runs one child. It returns the results before a policy that ended the child, and
// then an exhaustedError.
func (p *Process) runChild(ctx context.Context, work job) ([]Result, error) {
	input, err := json.Marshal(work)
	if err != nil {
		return nil, fmt.Errorf("encode policies: %w", err)
	}
	stderr := limitedBuffer{limit: 4 << 10}
	stdout := limitedBuffer{limit: (len(work.Sources) + 2) * maxResultBytes}
	child := exec.CommandContext(ctx, p.executable, childCommand)
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(input), &stdout, &stderr
	// One processor: the webhook answers requests meanwhile. The child needs nothing else of
	// the environment.
	child.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	// What the collector kept for later is room for the child: both share the memory of a container.
	debug.FreeOSMemory()
	ended := child.Run()
	var results []Result
	decoder := json.NewDecoder(&stdout.kept)
	if err := decoder.Decode(&Result{}); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("start a child process to check policies: %w: %s", errors.Join(ended, err), stderr.kept.String())
	}
	for len(results) < len(work.Sources) {
		var result Result
		if err := decoder.Decode(&result); err != nil {
			break // the child ended before or while it wrote this result
		}
		results = append(results, result)
	}
	switch {
	case len(results) == len(work.Sources):
		var conflicts Result
		if work.Environment != nil && decoder.Decode(&conflicts) == nil {
			results[0].Warnings = append(results[0].Warnings, conflicts.Warnings...)
		}
		return results, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("check policies: %w", ctx.Err())
	}
	return results, p.explainEnd(ended, stderr.kept.String())
}

// explainEnd returns the error of a child that ended too early.
func (p *Process) explainEnd(ended error, stderr string) error {
	var exit *exec.ExitError
	if !errors.As(ended, &exit) {
		return fmt.Errorf("check policies in a child process: %w", errors.Join(ended, io.ErrUnexpectedEOF))
	}
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	killed := exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	switch {
	case exit.ExitCode() == exitCPU:
		return exhaustedError{fmt.Sprintf("it needs more than %s of processor time", p.limits.CPU)}
	case killed && exit.UserTime()+exit.SystemTime() < startupCPU:
		// The limits end a child with an exit code, or with SIGKILL after more processor time.
		return fmt.Errorf("the child process that checks policies was killed, probably since its container has no memory left: try again; "+
			"the container needs %d MiB beside the memory of its own process", p.limits.MemoryBytes>>20)
	case !exit.Exited():
		return exhaustedError{fmt.Sprintf("it needs more than %s of processor time, or %d MiB of memory (%s)", p.limits.CPU, p.limits.MemoryBytes>>20, exit)}
	case strings.Contains(stderr, "out of memory"), strings.Contains(stderr, "cannot allocate memory"):
		return exhaustedError{fmt.Sprintf("it needs more than %d MiB of memory", p.limits.MemoryBytes>>20)}
	case strings.Contains(stderr, "stack overflow"), strings.Contains(stderr, "stack exceeds"):
		return exhaustedError{"its expressions nest too deep"}
	}
	return exhaustedError{"the compiler ended: " + line}
}

// maxEnvironmentBytes limits the policies that a child gets to look for conflicts.
const maxEnvironmentBytes = 8 << 20

func totalBytes(sources []engine.Source) (size int) {
	for i := range sources {
		size += len(sources[i].Rego) + len(sources[i].Parameters)
	}
	return size
}

// maxResultBytes limits the JSON of one result: a hundred problems of 2 KiB, escaped.
const maxResultBytes = 1 << 20

// limitedBuffer keeps the first bytes that are written to it.
type limitedBuffer struct {
	kept  bytes.Buffer
	limit int
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(text []byte) (int, error) {
	b.kept.Write(text[:min(len(text), max(0, b.limit-b.kept.Len()))])
	return len(text), nil
}
