// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record reads the record of a test run in which failed tests were run again. It finds the tests that
// failed only at first, and the packages that ended before all of their tests had run: gotestsum runs only the
// failed tests of such a package again, which may be none, and reports success.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of the record, as `go test -json` writes it (https://pkg.go.dev/cmd/test2json).
type event struct {
	Action, Package, Test, Output string
}

// Result is the result of a run.
type Result struct {
	// flaky are the tests that failed and then passed, skipped those that failed and then were skipped.
	flaky, skipped []string
	// incomplete are the packages that ended before all of their tests had run, or with another exit status than
	// that of a failed test.
	incomplete []string
}

// packageState is what is known of a package while the record is read.
type packageState struct {
	// running are the tests that began and did not end.
	running map[string]bool
	// failed is true if a test failed since the package started.
	failed bool
	// exited is true if the package's program ended with another status than 0 and 1, which go test prints.
	exited bool
}

// Read reads events.
func Read(r io.Reader) (Result, error) {
	var (
		result   Result
		packages = map[string]*packageState{}
		last     = map[string]string{} // the last result of each test that failed
	)
	decoder := json.NewDecoder(r)
	for {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return Result{}, err
		}
		p := packages[e.Package]
		if p == nil || e.Action == "start" {
			p = &packageState{running: map[string]bool{}}
			packages[e.Package] = p
		}
		name := e.Package + " " + e.Test
		switch {
		case e.Action == "run":
			p.running[e.Test] = true
		case e.Test != "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail"):
			delete(p.running, e.Test)
			p.failed = p.failed || e.Action == "fail"
			if _, before := last[name]; before || e.Action == "fail" {
				last[name] = e.Action
			}
		case e.Test == "" && e.Action == "output":
			p.exited = p.exited || strings.HasPrefix(e.Output, "exit status ")
		case e.Action == "fail" && (!p.failed || p.exited || len(p.running) > 0):
			result.incomplete = append(result.incomplete, e.Package)
		}
	}
	for name, action := range last {
		switch action {
		case "pass":
			result.flaky = append(result.flaky, name)
		case "skip":
			result.skipped = append(result.skipped, name)
		}
	}
	slices.Sort(result.flaky)
	slices.Sort(result.skipped)
	return result, nil
}

// String returns a line for each problem, and nothing without one.
func (r Result) String() string {
	var text strings.Builder
	for _, name := range r.incomplete {
		fmt.Fprintf(&text, "incomplete: %s ended before all of its tests had run, or did not clean up\n", name)
	}
	for _, name := range r.skipped {
		fmt.Fprintf(&text, "skipped: %s failed, and was skipped when it was run again\n", name)
	}
	for _, name := range r.flaky {
		fmt.Fprintf(&text, "flaky: %s failed, and passed when it was run again: a defect to fix\n", name)
	}
	return text.String()
}

// Err returns an error if the run is incomplete.
func (r Result) Err() error {
	if n := len(r.incomplete) + len(r.skipped); n > 0 {
		return fmt.Errorf("%d packages or tests have no result", n)
	}
	return nil
}
