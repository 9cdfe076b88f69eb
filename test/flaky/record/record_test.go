// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	const (
		start = `{"Action":"start","Package":"p"}`
		runA  = `{"Action":"run","Package":"p","Test":"TestA"}`
		failA = `{"Action":"fail","Package":"p","Test":"TestA"}`
		passA = `{"Action":"pass","Package":"p","Test":"TestA"}`
		skipA = `{"Action":"skip","Package":"p","Test":"TestA"}`
		runB  = `{"Action":"run","Package":"p","Test":"TestB"}`
		fail  = `{"Action":"fail","Package":"p"}`
		pass  = `{"Action":"pass","Package":"p"}`
		exit3 = `{"Action":"output","Package":"p","Output":"exit status 3\n"}`
		flaky = "flaky: p TestA failed, and passed when it was run again: a defect to fix\n"
		ended = "incomplete: p ended before all of its tests had run, or did not clean up\n"
		skips = "skipped: p TestA failed, and was skipped when it was run again\n"
	)
	tests := map[string]struct {
		events []string
		want   string
	}{
		"passed":                      {[]string{start, runA, passA, pass}, ""},
		"failed":                      {[]string{start, runA, failA, fail}, ""},
		"failed twice":                {[]string{start, runA, failA, fail, start, runA, failA, fail}, ""},
		"passed at the second run":    {[]string{start, runA, failA, fail, start, runA, passA, pass}, flaky},
		"skipped at the second run":   {[]string{start, runA, failA, fail, start, runA, skipA, pass}, skips},
		"another test passed":         {[]string{start, runA, failA, fail, start, runB, pass}, ""},
		"ended before the first test": {[]string{start, fail, start, pass}, ended},
		"ended within a test":         {[]string{start, runA, failA, runB, fail, start, runA, passA, pass}, ended + flaky},
		"failed and did not clean up": {[]string{start, runA, failA, exit3, fail, start, runA, passA, pass}, ended + flaky},
		"nothing":                     {nil, ""},
		"output":                      {[]string{start, `{"Action":"output","Package":"p","Output":"FAIL\n"}`, pass}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Read(strings.NewReader(strings.Join(tc.events, "\n")))
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if isComplete := !strings.Contains(tc.want, ended) && !strings.Contains(tc.want, skips); (got.Err() == nil) != isComplete {
				t.Errorf("complete %v: %v", isComplete, got.Err())
			}
		})
	}
}

func TestReadRejects(t *testing.T) {
	if _, err := Read(strings.NewReader(`{"Action":"start"} {`)); err == nil {
		t.Error("a record that is cut off is accepted")
	}
}
