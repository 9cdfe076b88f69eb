// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/policies/engine"
)

// corpusProcess is the environment variable of the process that evaluates the whole corpus.
const corpusProcess = "SLUICE_CORPUS_PROCESS"

// One process evaluates all hostile policies, with the limits of an installation, for two projects, and stays
// under 512 MiB. Guards invariant 10 of the design.
func TestHostilePoliciesFitInOneProcess(t *testing.T) {
	if os.Getenv(corpusProcess) != "" {
		evaluateCorpus(t)
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), corpusProcess+"=1", "GOGC=100", "GOMEMLIMIT=384MiB")
	output, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.4000s", err, output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "MiB") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func evaluateCorpus(t *testing.T) {
	var sources []engine.Source
	for i, name := range slices.Sorted(maps.Keys(hostilePolicies)) {
		sources = append(sources, engine.Source{Name: fmt.Sprint("hostile-", i), Rego: "package hostile\n\n" + hostilePolicies[name].rule})
	}
	e := newEngineWithOptions(t, engine.Options{Limits: engine.Limits{Request: time.Minute}}, sources...)
	for project := range 2 {
		in := podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`)
		in.Subject.Project = fmt.Sprint("project-", project)
		outcome, err := e.Evaluate(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if len(outcome.Failures) != len(sources) {
			t.Errorf("%d of %d policies failed", len(outcome.Failures), len(sources))
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("the peak of the memory is known only on Linux")
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var peak int
	if _, err := fmt.Sscan(after, &peak); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d policies, peak %d MiB", len(sources), peak>>10)
	if peak > 512<<10 {
		t.Errorf("the process took %d MiB, want at most 512", peak>>10)
	}
}
