// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"sluice.dev/webhook/pod"
)

// corpusProcess is the environment variable of the process that answers the whole corpus.
const corpusProcess = "SLUICE_CORPUS_PROCESS"

// One process answers all hostile pods, four at a time, in both phases, and stays under 512 MiB. Guards invariant 10
// of the design.
func TestHostilePodsFitInOneProcess(t *testing.T) {
	if os.Getenv(corpusProcess) != "" {
		answerCorpus(t)
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

func answerCorpus(t *testing.T) {
	base := newSharedBase(t)
	mutator, validator := &pod.Mutator{Base: base}, &pod.Validator{Base: base}
	pods := rawHostilePods(t)
	work := make(chan []byte)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for raw := range work {
				mutator.Handle(t.Context(), createRequest(raw))
				validator.Handle(t.Context(), createRequest(raw))
			}
		})
	}
	for _, raw := range pods {
		work <- raw
	}
	close(work)
	workers.Wait()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("the peak of the memory is known only on Linux")
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var peak int
	if _, err := fmt.Sscan(after, &peak); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods, peak %d MiB", len(pods), peak>>10)
	if peak > 512<<10 {
		t.Errorf("the process took %d MiB, want at most 512", peak>>10)
	}
}
