// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/lab/cluster/kwok"
)

const pins = "../pins"

// stageRunnerDir is the folder of the stage runner; empty until a test needs it.
var stageRunnerDir string

// buildStageRunner builds kwok's own stage code as a program: testdata/stagelab, once, in
// the module that pins kwok.
var buildStageRunner = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "stagelab-")
	if err != nil {
		return "", err
	}
	stageRunnerDir = dir
	source, err := filepath.Abs("testdata/stagelab/main.go")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "stagelab")
	build := exec.Command("go", "build", "-o", program, source)
	build.Dir, build.Stderr = pins, os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	return program, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if stageRunnerDir != "" {
		os.RemoveAll(stageRunnerDir)
	}
	os.Exit(code)
}

// stageRunner runs one stage at a time, as kwok would with our configuration.
type stageRunner struct {
	t   *testing.T
	in  *json.Encoder
	out *bufio.Reader
}

type stageResult struct {
	Stages []string
	Delay  time.Duration
	Object json.RawMessage
	Patch  map[string]any
	Error  string
}

func startStageRunner(t *testing.T) *stageRunner {
	t.Helper()
	program, err := buildStageRunner()
	if err != nil {
		t.Fatalf("build kwok's stage code: %v", err)
	}
	config, err := kwok.Config()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kwok.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out) // until the program has read the end of its input
		if err := cmd.Wait(); err != nil {
			t.Errorf("stage runner: %v", err)
		}
	})
	return &stageRunner{t: t, in: json.NewEncoder(in), out: bufio.NewReader(out)}
}

// nextStage returns what kwok would do with the object. If several stages match, kwok
// chooses at random, which fails the test.
func (l *stageRunner) nextStage(object any) stageResult {
	l.t.Helper()
	if err := l.in.Encode(object); err != nil {
		l.t.Fatalf("write to the stage runner: %v", err)
	}
	line, err := l.out.ReadBytes('\n')
	if err != nil {
		l.t.Fatalf("read from the stage runner: %v", err)
	}
	var a stageResult
	if err := json.Unmarshal(line, &a); err != nil {
		l.t.Fatalf("response of the stage runner %s: %v", line, err)
	}
	if a.Error != "" {
		l.t.Fatalf("kwok: %s", a.Error)
	}
	if len(a.Stages) > 1 {
		l.t.Fatalf("kwok would choose at random among the stages %v", a.Stages)
	}
	return a
}

// runStage runs the stage named want on the pod. It returns the stage's delay and the pod
// after it.
func (l *stageRunner) runStage(pod *corev1.Pod, want string) (time.Duration, *corev1.Pod) {
	l.t.Helper()
	a := l.nextStage(pod)
	if len(a.Stages) == 0 || a.Stages[0] != want {
		l.t.Fatalf("kwok would run %v, want %s", a.Stages, want)
	}
	after := &corev1.Pod{}
	if err := json.Unmarshal(a.Object, after); err != nil {
		l.t.Fatal(err)
	}
	after.Kind, after.APIVersion = pod.Kind, pod.APIVersion
	return a.Delay, after
}

// assertNoStage fails the test if kwok would run a stage on the object.
func (l *stageRunner) assertNoStage(object any) {
	l.t.Helper()
	if a := l.nextStage(object); len(a.Stages) > 0 {
		l.t.Errorf("kwok would run %v, want no stage", a.Stages)
	}
}
