// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/driver"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

const libraryPathVariable = "SLUICE_TEST_NVML_LIBRARY"

// noJournal is an empty journal that cannot be written.
type noJournal struct{}

func (noJournal) Load() ([]byte, error)     { return nil, fs.ErrNotExist }
func (noJournal) Replace([]byte) error      { return fs.ErrPermission }
func (noJournal) SetAside() (string, error) { return "", fs.ErrPermission }

// maxCallsAtRest is the limit of NVML calls of one pass for each GPU, without a change.
const maxCallsAtRest = 20

// TestCallsAtRest counts the calls of a pass through the real binding, on a C library of eight GPUs with
// seven instances and seven processes each. It runs in a process of its own, since a used library
// stays loaded.
func TestCallsAtRest(t *testing.T) {
	if path := os.Getenv(libraryPathVariable); path != "" {
		countCalls(t, driver.New(driver.Config{Path: path}))
		return
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler on this machine")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if out, err := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", path, "testdata/dgx.c").CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test itself
	child.Env = append(os.Environ(), libraryPathVariable+"="+path)
	out, err := child.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func countCalls(t *testing.T, library nvml.Library) {
	if err := library.Init(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = library.Shutdown() }()
	journal, err := partition.OpenJournal(noJournal{}, "here", "now")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	engine := &partition.Engine{Library: library, Journal: journal, Log: logr.Discard(), Now: func() time.Time { return now }}
	inventory := &status.Inventory{Library: library, ProcessOwner: noPods, Running: engine.Running}
	observe := func() (calls int, node status.Node) {
		before := totalCalls(t, library)
		gpus, err := engine.Observe(t.Context(), nil, func(context.Context, string) (map[string]partition.Holder, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		node = inventory.Observe(gpus, nil)
		return totalCalls(t, library) - before, node
	}
	first, node := observe()
	gpus := len(node.GPUs)
	if gpus != 8 || len(node.GPUs[7].Instances) != 7 || node.GPUs[7].Instances[6].UUID != "MIG-00000000-0000-4000-8000-000000000055" || len(node.Processes) != 56 {
		t.Fatalf("read %d GPUs and %d processes: %+v", gpus, len(node.Processes), node)
	}
	rest, again := observe()
	if len(again.Processes) != 56 || again.GPUs[7].Instances[6].UUID != "MIG-00000000-0000-4000-8000-000000000055" || again.GPUs[7].Instances[6].UsedMiB != 1024 {
		t.Errorf("the second pass lost something: %+v", again)
	}
	if rest > maxCallsAtRest*gpus {
		t.Errorf("%d calls at rest, %d a GPU; want at most %d", rest, rest/gpus, maxCallsAtRest)
	}
	// The driver reuses identifiers, so everything is read again after a minute.
	now = now.Add(time.Minute)
	late, _ := observe()
	if late <= rest {
		t.Errorf("%d calls a minute later, and %d before: nothing was read again", late, rest)
	}
	t.Logf("calls of a pass of %d GPUs: the first %d, then %d, and %d once a minute", gpus, first, rest, late)
}

func noPods(uint32) ([]types.UID, *v1alpha1.OtherProcess, error) { return nil, nil, nil }

// totalCalls returns the library's count, which it reports as the driver's version.
func totalCalls(t *testing.T, library nvml.Library) int {
	t.Helper()
	version, err := library.DriverVersion()
	if err != nil {
		t.Fatal(err)
	}
	count, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return count
}
