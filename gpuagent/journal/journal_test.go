// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const gpu = "GPU-8f6e2a04-0000-0000-0000-000000000001"

var (
	small = Instance{Placement: Placement{"1g.10gb", 0}, ID: 1, UUID: "MIG-1"}
	large = Instance{Placement: Placement{"3g.40gb", 4}, ID: 2, UUID: "MIG-2"}
	began = Change{
		Before: Layout{MIG: true, Instances: []Placement{small.Placement}},
		Wanted: Layout{MIG: true, Instances: []Placement{large.Placement}},
		Next:   Call{Act: DestroyCompute, Instance: small, Compute: 3},
	}
)

func dir(t *testing.T) *Dir {
	t.Helper()
	d, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func open(t *testing.T, store Store) *Journal {
	t.Helper()
	j, err := Open(store, "dgx-1", "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestWhatWasWrittenIsReadAgain(t *testing.T) {
	d := dir(t)
	j := open(t, d)
	if err := j.Begin(gpu, began, []Instance{small}); err != nil {
		t.Fatal(err)
	}
	again := open(t, d)
	change, ok := again.Change(gpu)
	if !ok || cmp.Diff(began, change) != "" {
		t.Errorf("the change: %v %s", ok, cmp.Diff(began, change))
	}
	if diff := cmp.Diff([]Instance{small}, again.Instances(gpu)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{gpu}, again.Open()); diff != "" {
		t.Error(diff)
	}
	if err := again.End(gpu, []Instance{large}); err != nil {
		t.Fatal(err)
	}
	last := open(t, d)
	if _, ok := last.Change(gpu); ok || cmp.Diff([]Instance{large}, last.Instances(gpu)) != "" || last.Doubt() != "" {
		t.Errorf("after the end: %v %v %q", ok, last.Instances(gpu), last.Doubt())
	}
}

// What is written does not change with what the caller does to its slices.
func TestTheJournalKeepsCopies(t *testing.T) {
	j := open(t, dir(t))
	mine, change := []Instance{small}, began
	change.Before.Instances = []Placement{small.Placement}
	if err := j.Begin(gpu, change, mine); err != nil {
		t.Fatal(err)
	}
	mine[0].UUID, change.Before.Instances[0].Start = "MIG-9", 9
	kept, _ := j.Change(gpu)
	if j.Instances(gpu)[0] != small || kept.Before.Instances[0] != small.Placement {
		t.Error("the journal changed with its caller's slices")
	}
}

func TestNothingIsWrittenTwice(t *testing.T) {
	d := dir(t)
	writes := 0
	d.before = func(step string) error {
		if step == "rename" {
			writes++
		}
		return nil
	}
	j := open(t, d)
	for range 3 {
		if err := j.End(gpu, nil); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 0 {
		t.Errorf("%d writes of nothing", writes)
	}
	for range 3 {
		if err := j.End(gpu, []Instance{small}); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes of the same", writes)
	}
}

func TestAnotherBootForgets(t *testing.T) {
	d := dir(t)
	if err := open(t, d).Begin(gpu, began, []Instance{small}); err != nil {
		t.Fatal(err)
	}
	j, err := Open(d, "dgx-1", "boot-2")
	if err != nil {
		t.Fatal(err)
	}
	if len(j.Open()) != 0 || len(j.Instances(gpu)) != 0 || j.Doubt() != "" {
		t.Errorf("of the former boot there is still %v %v %q", j.Open(), j.Instances(gpu), j.Doubt())
	}
	if err := j.End(gpu, []Instance{large}); err != nil {
		t.Fatal(err)
	}
	if j, err = Open(d, "dgx-1", "boot-2"); err != nil || cmp.Diff([]Instance{large}, j.Instances(gpu)) != "" {
		t.Errorf("of this boot: %v %v", err, j.Instances(gpu))
	}
}

func TestWithoutNames(t *testing.T) {
	for _, names := range [][2]string{{"", "boot"}, {"node", ""}} {
		if _, err := Open(dir(t), names[0], names[1]); err == nil {
			t.Errorf("%q was opened", names)
		}
	}
}

// signed is a content with the right checksum, whatever it says.
func signed(body string) string {
	return fmt.Sprintf("sluice journal 1 sha256:%x\n%s", sha256.Sum256([]byte(body)), body)
}

func TestWhatCannotBeBelieved(t *testing.T) {
	d := dir(t)
	if err := open(t, d).Begin(gpu, began, []Instance{small}); err != nil {
		t.Fatal(err)
	}
	whole, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	good := string(whole)
	_, body, _ := strings.Cut(good, "\n")
	cases := map[string]string{
		"empty":                       "",
		"zeros, as after a power cut": strings.Repeat("\x00", len(good)),
		"half":                        good[:len(good)/2],
		"the first line alone":        strings.SplitAfter(good, "\n")[0],
		"one byte less":               good[:len(good)-1],
		"one byte more":               good + " ",
		"one digit changed":           strings.Replace(good, `"start": 0`, `"start": 1`, 1),
		"a later version":             strings.Replace(good, "journal 1 ", "journal 2 ", 1),
		"version 10":                  strings.Replace(good, "journal 1 ", "journal 10 ", 1),
		"another node's":              signed(strings.Replace(body, "dgx-1", "dgx-2", 1)),
		"an unknown field":            signed(strings.Replace(body, `"node"`, `"more": 1, "node"`, 1)),
		"an unknown call":             signed(strings.Replace(body, "DestroyComputeInstance", "Explode", 1)),
		"no boot":                     signed(strings.Replace(body, "boot-1", "", 1)),
		"no GPUs":                     signed(`{"node": "dgx-1", "boot": "boot-1"}`),
		"a GPU without name":          signed(`{"node": "dgx-1", "boot": "boot-1", "gpus": {"": {}}}`),
		"an instance twice":           signed(`{"node":"dgx-1","boot":"boot-1","gpus":{"g":{"instances":[{"profile":"1g.5gb","start":0,"id":1},{"profile":"1g.5gb","start":1,"id":1}]}}}`),
		"an instance without profile": signed(`{"node":"dgx-1","boot":"boot-1","gpus":{"g":{"instances":[{"profile":"","start":0,"id":1}]}}}`),
		"not an object":               signed(`[]`),
		"too long":                    good + strings.Repeat(" ", maxBytes),
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			if err := os.WriteFile(d.name(fileName), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			j := open(t, d)
			if j.Doubt() == "" || len(j.Open()) != 0 || len(j.Instances(gpu)) != 0 {
				t.Fatalf("it was believed: %q %v %v", j.Doubt(), j.Open(), j.Instances(gpu))
			}
			if !strings.Contains(j.Doubt(), "unbelieved-") || !strings.Contains(j.Doubt(), "foreign") {
				t.Errorf("it does not say where it is kept and what that means: %s", j.Doubt())
			}
			kept, err := filepath.Glob(d.name("journal.unbelieved-*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept: %v %v", kept, err)
			}
			was, err := os.ReadFile(kept[0])
			if err != nil || string(was) != content {
				t.Errorf("what is kept is not what was there: %v", err)
			}
			doubted(t, d, j)
		})
	}
}

// doubted holds that the doubt outlives restarts, before and after something was
// written, until it is ended or the node is booted.
func doubted(t *testing.T, d *Dir, j *Journal) {
	t.Helper()
	if again := open(t, d); again.Doubt() == "" {
		t.Error("the doubt is gone after a restart")
	}
	if err := j.End(gpu, []Instance{large}); err != nil {
		t.Fatal(err)
	}
	again := open(t, d)
	if again.Doubt() != j.Doubt() || cmp.Diff([]Instance{large}, again.Instances(gpu)) != "" {
		t.Errorf("after a write: %q %v", again.Doubt(), again.Instances(gpu))
	}
	if booted, err := Open(d, "dgx-1", "boot-2"); err != nil || booted.Doubt() != "" {
		t.Errorf("after a boot: %v %q", err, booted.Doubt())
	}
	if err := again.Trust(); err != nil {
		t.Fatal(err)
	}
	if last := open(t, d); last.Doubt() != "" || len(last.Instances(gpu)) != 1 {
		t.Errorf("after the doubt was ended: %q %v", last.Doubt(), last.Instances(gpu))
	}
}

var errCrash = errors.New("crash")

// After a crash at each step of a write the journal is the former one or the new one,
// and never in doubt.
func TestACrashInEachStepOfAWrite(t *testing.T) {
	steps := []string{"write", "sync file", "rename", "sync"}
	for n, step := range steps {
		t.Run(step, func(t *testing.T) {
			d := dir(t)
			j := open(t, d)
			if err := j.End(gpu, []Instance{small}); err != nil {
				t.Fatal(err)
			}
			d.before = func(at string) error {
				if at == step {
					return errCrash
				}
				return nil
			}
			if err := j.Begin(gpu, began, []Instance{large}); !errors.Is(err, errCrash) {
				t.Fatalf("it was said to be written: %v", err)
			}
			d.before = func(string) error { return nil }
			want := small
			if n == len(steps)-1 {
				want = large // renamed; what was not synced is the file system's to keep or not
			}
			again := open(t, d)
			if diff := cmp.Diff([]Instance{want}, again.Instances(gpu)); diff != "" || again.Doubt() != "" {
				t.Errorf("%q %s", again.Doubt(), diff)
			}
			// The process that goes on writes all of it with its next word.
			if err := j.End(gpu, []Instance{large}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Instance{large}, open(t, d).Instances(gpu)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAFullDisk(t *testing.T) {
	d := dir(t)
	j := open(t, d)
	if err := j.Begin(gpu, began, []Instance{small}); err != nil {
		t.Fatal(err)
	}
	d.before = func(step string) error {
		if step == "sync file" {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := j.End(gpu, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	if again := open(t, d); len(again.Open()) != 1 {
		t.Error("what was on disk is gone")
	}
	d.before = func(string) error { return nil }
	// The state is empty now, but the disk has another one.
	if err := j.End(gpu, nil); err != nil {
		t.Fatal(err)
	}
	if again := open(t, d); len(again.Open()) != 0 {
		t.Error("the end was not written when there was room again")
	}
}

func TestOneProcessAlone(t *testing.T) {
	path := t.TempDir()
	first, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(path); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second process may write: %v", err)
	}
	first.Close()
	second, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestADiskThatCannotBeRead(t *testing.T) {
	d := dir(t)
	if err := os.Mkdir(d.name(fileName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(d, "dgx-1", "boot-1"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// FuzzParse: whatever is read, either it is not believed, or it is what was written.
func FuzzParse(f *testing.F) {
	s := state{Node: "dgx-1", Boot: "boot-1", GPUs: map[string]entry{gpu: {Change: &began, Instances: []Instance{small, large}}}}
	content, err := s.format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(signed(`{"node":"a","boot":"b","gpus":{}}`)))
	f.Add([]byte("sluice journal 1 sha256:\n{}"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, content := range [][]byte{raw, []byte(signed(string(raw)))} {
			s, err := parse(content)
			if err != nil {
				continue
			}
			again, err := s.format()
			if err != nil {
				t.Fatalf("what was believed cannot be written: %v", err)
			}
			back, err := parse(again)
			if err != nil || cmp.Diff(s, back) != "" {
				t.Fatalf("%v %s", err, cmp.Diff(s, back))
			}
		}
	})
}

// No change of a single byte is ever believed.
func TestNoByteMayDiffer(t *testing.T) {
	s := state{Node: "dgx-1", Boot: "boot-1", GPUs: map[string]entry{gpu: {Change: &began, Instances: []Instance{small}}}}
	content, err := s.format()
	if err != nil {
		t.Fatal(err)
	}
	for i := range content {
		for _, flip := range []byte{1, 0x20, 0x80} {
			content[i] ^= flip
			if _, err := parse(content); err == nil {
				t.Errorf("byte %d may be %q", i, content[i])
			}
			content[i] ^= flip
		}
	}
}
