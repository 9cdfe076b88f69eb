// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record reads the record of a test run in which failed tests were run again. It finds the tests that
// failed only at first, and the packages that ended before all of their tests had run: gotestsum runs only the
// failed tests of such a package again, which may be none, and calls the run passed.
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
	Action, Package, Test string
}

// Result is the result of a run.
type Result struct {
	// flaky are the tests that failed only at first, incomplete the packages that ended before all of their
	// tests had run.
	flaky, incomplete []string
}

// packageState is what is known of a package while the record is read.
type packageState struct {
	// running are the tests that began and did not end.
	running map[string]bool
	// failed is true if a test failed since the package started.
	failed bool
}

// Read reads events. A test that failed is flaky if its last run did not fail.
func Read(r io.Reader) (Result, error) {
	var (
		result   Result
		packages = map[string]*packageState{}
		failed   = map[string]bool{} // the tests that failed, and whether their last run did not
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
			if e.Action == "fail" {
				p.failed, failed[name] = true, false
			} else if _, before := failed[name]; before {
				failed[name] = true
			}
		case e.Action == "fail" && (!p.failed || len(p.running) > 0):
			result.incomplete = append(result.incomplete, e.Package)
		}
	}
	for name, isFlaky := range failed {
		if isFlaky {
			result.flaky = append(result.flaky, name)
		}
	}
	slices.Sort(result.flaky)
	return result, nil
}

// String returns a line for each problem, and nothing without one.
func (r Result) String() string {
	var text strings.Builder
	for _, name := range r.incomplete {
		fmt.Fprintf(&text, "incomplete: %s ended before all of its tests had run\n", name)
	}
	for _, name := range r.flaky {
		fmt.Fprintf(&text, "flaky: %s failed, and not when it was run again: a defect to mend\n", name)
	}
	return text.String()
}

// Err returns an error if the run is incomplete.
func (r Result) Err() error {
	if len(r.incomplete) > 0 {
		return fmt.Errorf("%d packages ended before all of their tests had run", len(r.incomplete))
	}
	return nil
}
