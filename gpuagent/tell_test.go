// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/gpuagent/config"
	"sluice.dev/gpuagent/plugin"
)

// A plugin that was told is not told again at each look because of another process that
// could not be: it would never come to offer anything.
func TestAPluginIsNotToldAtEachLook(t *testing.T) {
	proc := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args, cmd.Env = []string{"nvidia-device-plugin"}, append(os.Environ(), "SLUICE_TEST_PLUGIN=1")
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
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if said := bufio.NewScanner(out); !said.Scan() {
		t.Fatal("the plugin says nothing")
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.Symlink("/proc/"+pid, filepath.Join(proc, pid)); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(proc, "7000001") // of which nobody can say whether it may be told
	if err := errors.Join(os.Mkdir(odd, 0o700), os.WriteFile(filepath.Join(odd, "cmdline"), []byte("nvidia-device-plugin\x00"), 0o600),
		os.WriteFile(filepath.Join(odd, "status"), []byte("Name:\tx\n"), 0o600)); err != nil {
		t.Fatal(err)
	}

	a := &agent{log: logr.Discard(), cfg: &config.Config{Intervals: config.Intervals{Retry: metav1.Duration{Duration: time.Hour}}}}
	a.plugin = plugin.Finder{Proc: proc, Command: "nvidia-device-plugin"}
	a.told = told{path: t.TempDir()}
	a.layout.recovered = true
	if err := a.told.load(); err != nil {
		t.Fatal(err)
	}
	l := looked(1, observed(one, "MIG-a"))
	a.tell(l)
	if a.layout.untold == nil || a.told.again.IsZero() {
		t.Fatalf("untold %v, again at %v", a.layout.untold, a.told.again)
	}
	if err := os.RemoveAll(odd); err != nil {
		t.Fatal(err)
	}
	if a.tell(l); a.layout.untold == nil {
		t.Error("told again at once")
	}
	a.told.again = time.Now().Add(-time.Second)
	if a.tell(l); a.layout.untold != nil || len(a.told.news(l)) != 0 {
		t.Errorf("%v", a.layout.untold)
	}
}

// An agent that ends between a change and the signal leaves it to the next, even where
// the driver has given the devices the UUIDs that they had before.
func TestNextAgentTellsWhatThisOneDidNot(t *testing.T) {
	s := &told{path: t.TempDir()}
	if err := s.load(); err != nil {
		t.Fatal(err)
	}
	l := looked(1, observed(one, "MIG-a"))
	if err := s.keep(s.news(l)); err != nil {
		t.Fatal(err)
	}
	if err := s.forget(); err != nil {
		t.Fatal(err)
	}
	next := &told{path: s.path}
	if err := next.load(); err != nil || len(next.news(l)) != 1 {
		t.Errorf("%v, %v", next.news(l), err)
	}
	if err := next.forget(); err != nil {
		t.Errorf("twice: %v", err)
	}
	if _, err := os.Stat(s.file()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
