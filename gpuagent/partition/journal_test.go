// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

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

const journalGPU = "GPU-8f6e2a04-0000-0000-0000-000000000001"

var (
	smallInstance = OwnedInstance{Placement: Placement{"1g.10gb", 0}, ID: 1, UUID: "MIG-1"}
	largeInstance = OwnedInstance{Placement: Placement{"3g.40gb", 4}, ID: 2, UUID: "MIG-2"}
	pendingChange = PendingChange{
		Before:  Layout{MIG: true, Instances: []Placement{smallInstance.Placement}},
		Desired: Layout{MIG: true, Instances: []Placement{largeInstance.Placement}},
		Next:    Call{Operation: OpDestroyComputeInstance, Instance: smallInstance, Compute: 3},
	}
)

func newJournalDir(t *testing.T) *JournalDir {
	t.Helper()
	d, err := OpenJournalDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func openJournal(t *testing.T, store JournalStore) *Journal {
	t.Helper()
	j, err := OpenJournal(store, "dgx-1", "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestJournalRoundTrip(t *testing.T) {
	d := newJournalDir(t)
	j := openJournal(t, d)
	if err := j.RecordCall(journalGPU, pendingChange, []OwnedInstance{smallInstance}); err != nil {
		t.Fatal(err)
	}
	again := openJournal(t, d)
	change, ok := again.PendingChange(journalGPU)
	if !ok || cmp.Diff(pendingChange, change) != "" {
		t.Errorf("the change: %v %s", ok, cmp.Diff(pendingChange, change))
	}
	if diff := cmp.Diff([]OwnedInstance{smallInstance}, again.Instances(journalGPU)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{journalGPU}, again.PendingGPUs()); diff != "" {
		t.Error(diff)
	}
	if err := again.RecordEnd(journalGPU, []OwnedInstance{largeInstance}); err != nil {
		t.Fatal(err)
	}
	last := openJournal(t, d)
	if _, ok := last.PendingChange(journalGPU); ok || cmp.Diff([]OwnedInstance{largeInstance}, last.Instances(journalGPU)) != "" ||
		last.UntrustedReason() != "" {
		t.Errorf("after the end: %v %v %q", ok, last.Instances(journalGPU), last.UntrustedReason())
	}
}

// Later changes of the caller's slices do not change the journal.
func TestJournalCopiesSlices(t *testing.T) {
	j := openJournal(t, newJournalDir(t))
	mine, change := []OwnedInstance{smallInstance}, pendingChange
	change.Before.Instances = []Placement{smallInstance.Placement}
	if err := j.RecordCall(journalGPU, change, mine); err != nil {
		t.Fatal(err)
	}
	mine[0].UUID, change.Before.Instances[0].Start = "MIG-9", 9
	kept, _ := j.PendingChange(journalGPU)
	if j.Instances(journalGPU)[0] != smallInstance || kept.Before.Instances[0] != smallInstance.Placement {
		t.Error("the journal changed with its caller's slices")
	}
}

func TestJournalSkipsUnchangedWrites(t *testing.T) {
	d := newJournalDir(t)
	writes := 0
	d.beforeStep = func(step string) error {
		if step == "rename" {
			writes++
		}
		return nil
	}
	j := openJournal(t, d)
	for range 3 {
		if err := j.RecordEnd(journalGPU, nil); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 0 {
		t.Errorf("%d writes of nothing", writes)
	}
	for range 3 {
		if err := j.RecordEnd(journalGPU, []OwnedInstance{smallInstance}); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes of the same", writes)
	}
}

func TestJournalIsDiscardedAfterBoot(t *testing.T) {
	d := newJournalDir(t)
	if err := openJournal(t, d).RecordCall(journalGPU, pendingChange, []OwnedInstance{smallInstance}); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(d, "dgx-1", "boot-2")
	if err != nil {
		t.Fatal(err)
	}
	if len(j.PendingGPUs()) != 0 || len(j.Instances(journalGPU)) != 0 || j.UntrustedReason() != "" {
		t.Errorf("the former boot left %v %v %q", j.PendingGPUs(), j.Instances(journalGPU), j.UntrustedReason())
	}
	if err := j.RecordEnd(journalGPU, []OwnedInstance{largeInstance}); err != nil {
		t.Fatal(err)
	}
	if j, err = OpenJournal(d, "dgx-1", "boot-2"); err != nil || cmp.Diff([]OwnedInstance{largeInstance}, j.Instances(journalGPU)) != "" {
		t.Errorf("of this boot: %v %v", err, j.Instances(journalGPU))
	}
}

func TestJournalRequiresNodeAndBoot(t *testing.T) {
	for _, names := range [][2]string{{"", "boot"}, {"node", ""}} {
		if _, err := OpenJournal(newJournalDir(t), names[0], names[1]); err == nil {
			t.Errorf("%q was opened", names)
		}
	}
}

// withChecksum returns any content with a correct checksum.
func withChecksum(body string) string {
	return fmt.Sprintf("sluice journal 1 sha256:%x\n%s", sha256.Sum256([]byte(body)), body)
}

func TestUntrustedJournalContent(t *testing.T) {
	d := newJournalDir(t)
	if err := openJournal(t, d).RecordCall(journalGPU, pendingChange, []OwnedInstance{smallInstance}); err != nil {
		t.Fatal(err)
	}
	whole, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	good := string(whole)
	_, body, _ := strings.Cut(good, "\n")
	cases := map[string]string{
		"empty":                           "",
		"zeros, as after a power failure": strings.Repeat("\x00", len(good)),
		"half":                            good[:len(good)/2],
		"the first line alone":            strings.SplitAfter(good, "\n")[0],
		"one byte less":                   good[:len(good)-1],
		"one byte more":                   good + " ",
		"one digit changed":               strings.Replace(good, `"start": 0`, `"start": 1`, 1),
		"a later version":                 strings.Replace(good, "journal 1 ", "journal 2 ", 1),
		"version 10":                      strings.Replace(good, "journal 1 ", "journal 10 ", 1),
		"another node's":                  withChecksum(strings.Replace(body, "dgx-1", "dgx-2", 1)),
		"an unknown field":                withChecksum(strings.Replace(body, `"node"`, `"more": 1, "node"`, 1)),
		"an unknown call":                 withChecksum(strings.Replace(body, "DestroyComputeInstance", "Explode", 1)),
		"no boot":                         withChecksum(strings.Replace(body, "boot-1", "", 1)),
		"no GPUs":                         withChecksum(`{"node": "dgx-1", "boot": "boot-1"}`),
		"a GPU without name":              withChecksum(`{"node": "dgx-1", "boot": "boot-1", "gpus": {"": {}}}`),
		"an instance twice":               withChecksum(`{"node":"dgx-1","boot":"boot-1","gpus":{"g":{"instances":[{"profile":"1g.5gb","start":0,"id":1},{"profile":"1g.5gb","start":1,"id":1}]}}}`),
		"an instance without profile":     withChecksum(`{"node":"dgx-1","boot":"boot-1","gpus":{"g":{"instances":[{"profile":"","start":0,"id":1}]}}}`),
		"not an object":                   withChecksum(`[]`),
		"too long":                        good + strings.Repeat(" ", maxJournalBytes),
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			d := newJournalDir(t)
			if err := os.WriteFile(d.filePath(journalFileName), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			j := openJournal(t, d)
			if j.UntrustedReason() == "" || len(j.PendingGPUs()) != 0 || len(j.Instances(journalGPU)) != 0 {
				t.Fatalf("it was believed: %q %v %v", j.UntrustedReason(), j.PendingGPUs(), j.Instances(journalGPU))
			}
			if !strings.Contains(j.UntrustedReason(), "unbelieved-") || !strings.Contains(j.UntrustedReason(), "foreign") {
				t.Errorf("the reason lacks the copy's path or the advice: %s", j.UntrustedReason())
			}
			kept, err := filepath.Glob(d.filePath("journal.unbelieved-*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept: %v %v", kept, err)
			}
			was, err := os.ReadFile(kept[0])
			if err != nil || string(was) != content {
				t.Errorf("the copy differs from the content: %v", err)
			}
			requireUntrusted(t, d, j)
		})
	}
}

// requireUntrusted checks that the journal stays untrusted over restarts and writes, until
// RestoreTrust or a reboot.
func requireUntrusted(t *testing.T, d *JournalDir, j *Journal) {
	t.Helper()
	if again := openJournal(t, d); again.UntrustedReason() == "" {
		t.Error("the reason is empty after a restart")
	}
	if err := j.RecordEnd(journalGPU, []OwnedInstance{largeInstance}); err != nil {
		t.Fatal(err)
	}
	again := openJournal(t, d)
	if again.UntrustedReason() != j.UntrustedReason() || cmp.Diff([]OwnedInstance{largeInstance}, again.Instances(journalGPU)) != "" {
		t.Errorf("after a write: %q %v", again.UntrustedReason(), again.Instances(journalGPU))
	}
	if booted, err := OpenJournal(d, "dgx-1", "boot-2"); err != nil || booted.UntrustedReason() != "" {
		t.Errorf("after a boot: %v %q", err, booted.UntrustedReason())
	}
	if err := again.RestoreTrust(); err != nil {
		t.Fatal(err)
	}
	if last := openJournal(t, d); last.UntrustedReason() != "" || len(last.Instances(journalGPU)) != 1 {
		t.Errorf("after RestoreTrust: %q %v", last.UntrustedReason(), last.Instances(journalGPU))
	}
}

var errSimulatedCrash = errors.New("crash")

// After a crash at each step of a write the journal is the former or the new one, and never
// untrusted.
func TestCrashInEachWriteStep(t *testing.T) {
	steps := []string{"write", "sync file", "rename", "sync"}
	for n, step := range steps {
		t.Run(step, func(t *testing.T) {
			d := newJournalDir(t)
			j := openJournal(t, d)
			if err := j.RecordEnd(journalGPU, []OwnedInstance{smallInstance}); err != nil {
				t.Fatal(err)
			}
			d.beforeStep = func(at string) error {
				if at == step {
					return errSimulatedCrash
				}
				return nil
			}
			if err := j.RecordCall(journalGPU, pendingChange, []OwnedInstance{largeInstance}); !errors.Is(err, errSimulatedCrash) {
				t.Fatalf("no error: %v", err)
			}
			d.beforeStep = func(string) error { return nil }
			want := smallInstance
			if n == len(steps)-1 {
				want = largeInstance // renamed; the file system may keep or lose what was not synced
			}
			again := openJournal(t, d)
			if diff := cmp.Diff([]OwnedInstance{want}, again.Instances(journalGPU)); diff != "" || again.UntrustedReason() != "" {
				t.Errorf("%q %s", again.UntrustedReason(), diff)
			}
			// The surviving process writes all of it with its next record.
			if err := j.RecordEnd(journalGPU, []OwnedInstance{largeInstance}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]OwnedInstance{largeInstance}, openJournal(t, d).Instances(journalGPU)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestJournalOnFullDisk(t *testing.T) {
	d := newJournalDir(t)
	j := openJournal(t, d)
	if err := j.RecordCall(journalGPU, pendingChange, []OwnedInstance{smallInstance}); err != nil {
		t.Fatal(err)
	}
	d.beforeStep = func(step string) error {
		if step == "sync file" {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := j.RecordEnd(journalGPU, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	if again := openJournal(t, d); len(again.PendingGPUs()) != 1 {
		t.Error("the content on disk was removed")
	}
	d.beforeStep = func(string) error { return nil }
	// The state is empty now, but the disk has another one.
	if err := j.RecordEnd(journalGPU, nil); err != nil {
		t.Fatal(err)
	}
	if again := openJournal(t, d); len(again.PendingGPUs()) != 0 {
		t.Error("the end was not written once the disk had room")
	}
}

func TestJournalLock(t *testing.T) {
	path := t.TempDir()
	first, err := OpenJournalDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournalDir(path); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second process may write: %v", err)
	}
	first.Close()
	second, err := OpenJournalDir(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestUnreadableJournal(t *testing.T) {
	d := newJournalDir(t)
	if err := os.Mkdir(d.filePath(journalFileName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(d, "dgx-1", "boot-1"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// FuzzParseJournal: content is either rejected, or equal to what was written.
func FuzzParseJournal(f *testing.F) {
	s := journalState{
		Node: "dgx-1", Boot: "boot-1",
		GPUs: map[string]journalEntry{journalGPU: {Change: &pendingChange, Instances: []OwnedInstance{smallInstance, largeInstance}}},
	}
	content, err := s.format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(withChecksum(`{"node":"a","boot":"b","gpus":{}}`)))
	f.Add([]byte("sluice journal 1 sha256:\n{}"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, content := range [][]byte{raw, []byte(withChecksum(string(raw)))} {
			s, err := parseJournal(content)
			if err != nil {
				continue
			}
			again, err := s.format()
			if err != nil {
				t.Fatalf("an accepted content cannot be written: %v", err)
			}
			back, err := parseJournal(again)
			if err != nil || cmp.Diff(s, back) != "" {
				t.Fatalf("%v %s", err, cmp.Diff(s, back))
			}
		}
	})
}

// A change of any single byte is detected.
func TestCorruptedByteIsDetected(t *testing.T) {
	s := journalState{
		Node: "dgx-1", Boot: "boot-1",
		GPUs: map[string]journalEntry{journalGPU: {Change: &pendingChange, Instances: []OwnedInstance{smallInstance}}},
	}
	content, err := s.format()
	if err != nil {
		t.Fatal(err)
	}
	for i := range content {
		for _, flip := range []byte{1, 0x20, 0x80} {
			content[i] ^= flip
			if _, err := parseJournal(content); err == nil {
				t.Errorf("byte %d may be %q", i, content[i])
			}
			content[i] ^= flip
		}
	}
}

// No instance outlives a load of the driver. Neither a process that starts after a reload nor one that
// continues believes what the journal says of the former load.
func TestJournalIsDiscardedAfterDriverReload(t *testing.T) {
	for name, tc := range map[string]struct {
		loads []string // of the agent that wrote the journal, and then
		kept  bool
	}{
		"the same":                        {[]string{"5", "5"}, true},
		"another":                         {[]string{"5", "6"}, false},
		"another after a while":           {[]string{"5", "5", "6"}, false},
		"unknown now":                     {[]string{"5", ""}, true},
		"unknown for a while":             {[]string{"5", "", "6"}, false},
		"written before loads were known": {[]string{"", "5"}, true},
		"and then another":                {[]string{"", "5", "6"}, false},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %v", name, restarted), func(t *testing.T) {
				d := newJournalDir(t)
				j := openJournal(t, d)
				for i, load := range tc.loads {
					if i > 0 && restarted {
						j = openJournal(t, d)
					}
					if _, err := j.SetDriverLoad(load); err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						if err := j.RecordCall(journalGPU, pendingChange, []OwnedInstance{smallInstance}); err != nil {
							t.Fatal(err)
						}
					}
				}
				if kept := len(j.PendingGPUs()) == 1 && len(j.Instances(journalGPU)) == 1; kept != tc.kept || j.UntrustedReason() != "" {
					t.Errorf("%v %v %q, want kept %v", j.PendingGPUs(), j.Instances(journalGPU), j.UntrustedReason(), tc.kept)
				}
			})
		}
	}
}

func TestDriverReloadRestoresTrust(t *testing.T) {
	d := newJournalDir(t)
	if err := d.Replace([]byte("damaged")); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, d)
	for i, want := range []bool{true, false} { // the damaged journal may be of the first load
		reloaded, err := j.SetDriverLoad(fmt.Sprint("load-", i))
		if err != nil || reloaded == want || (j.UntrustedReason() != "") != want {
			t.Errorf("load %d: reloaded %v, %v, %q", i, reloaded, err, j.UntrustedReason())
		}
	}
}
