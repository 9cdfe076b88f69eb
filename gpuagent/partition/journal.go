// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal is what the agent knows after a crash: on disk, before each write to
// the driver, what is about to be done, and which instances are Sluice's own.
//
// Enters: a change that was begun on a GPU with the next call to the driver, and the
// register of that GPU's instances. Leaves: the same after any crash, or the plain
// statement that it cannot be known.
//
// It never guesses: a content that is damaged, of another version or of another node is
// set aside, and then nothing counts as Sluice's own. It never speaks to the driver.
package partition

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"sluice.dev/api/v1alpha1"
)

// Journal is the register of a node's instances and of what was begun on its GPUs. Its
// methods may be called from several goroutines at once.
type Journal struct {
	store JournalStore

	mu    sync.Mutex
	state journalState
	// written is what the store has; nil where that is not known, or of no account.
	written []byte
	// unused tells that the store has nothing of this boot, nor of this process.
	unused bool
}

// JournalStore keeps a journal's bytes. [Dir] is the one on disk.
type JournalStore interface {
	// Load is the whole content; fs.ErrNotExist where there is none.
	Load() ([]byte, error)
	// Replace puts other content in its place, at once and as a whole: once it returned
	// nil the new content survives a power cut. After an error either is there.
	Replace(content []byte) error
	// SetAside keeps a copy of the content for people, and says where.
	SetAside() (string, error)
}

// OpenJournal opens the journal of a node as of the present boot. What another boot has left
// is forgotten: no instance outlives one. A content that cannot be believed is set
// aside and is no error: [Journal.Doubt] tells, and no instance is known to be
// Sluice's own then. The error is of the store, or says that the node or the boot has no
// name.
func OpenJournal(store JournalStore, node, boot string) (*Journal, error) {
	if node == "" || boot == "" {
		return nil, fmt.Errorf("open the journal of node %q in boot %q: both must be known", node, boot)
	}
	j := &Journal{store: store, unused: true, state: journalState{Node: node, Boot: boot, GPUs: map[string]journalEntry{}}}
	content, err := store.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, nil
	case err != nil:
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	found, err := parseJournal(content)
	if err == nil && found.Node != node {
		err = fmt.Errorf("it is of node %q, and this is %q", found.Node, node)
	}
	if err != nil {
		return j, j.setAside(err)
	}
	if found.Boot == boot {
		j.state, j.written, j.unused = found, content, false
	}
	return j, nil
}

// setAside sets the content aside. It stays where it is, too, until the next is written,
// so that a crash in between loses nothing.
func (j *Journal) setAside(why error) error {
	kept, err := j.store.SetAside()
	if err != nil {
		return fmt.Errorf("the journal cannot be believed (%w), and it cannot be set aside, so that nothing may be written: %w", why, err)
	}
	j.state.UntrustedReason = fmt.Sprintf("the journal of this node's instances cannot be believed: %v. It is kept as %s. "+
		"Instances that the GPUNode does not ask for are left alone as foreign: destroy those that nobody needs "+
		"(nvidia-smi mig -lgi, -dci, -dgi), or restart the node", why, kept)
	return nil
}

// UntrustedReason says why the former journal was not believed, and what to do; "" where it was.
// It stands until the node is booted or [Journal.Trust] is called.
func (j *Journal) UntrustedReason() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.UntrustedReason
}

// RestoreTrust ends the doubt: there is no instance any more of which one could not say whose
// it is. Without doubt it writes nothing.
func (j *Journal) RestoreTrust() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state.UntrustedReason == "" {
		return nil
	}
	j.state.UntrustedReason = ""
	return j.write()
}

// PendingChange is what was begun on the GPU and not yet ended, and false where nothing is.
func (j *Journal) PendingChange(gpu string) (PendingChange, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.state.GPUs[gpu].Change; c != nil {
		return c.clone(), true
	}
	return PendingChange{}, false
}

// PendingGPUs are the GPUs on which something was begun and not yet ended, sorted.
func (j *Journal) PendingGPUs() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var open []string
	for gpu, at := range j.state.GPUs {
		if at.Change != nil {
			open = append(open, gpu)
		}
	}
	slices.Sort(open)
	return open
}

// Instances are the GPU's instances that are Sluice's own.
func (j *Journal) Instances(gpu string) []OwnedInstance {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.state.GPUs[gpu].Instances)
}

// RecordCall announces the change's next call to the driver, together with what is the GPU's
// register up to now. The call may be made only where it returns nil: then both are on
// disk.
func (j *Journal) RecordCall(gpu string, change PendingChange, instances []OwnedInstance) error {
	kept := change.clone()
	return j.setEntry(gpu, journalEntry{Change: &kept, Instances: slices.Clone(instances)})
}

// RecordEnd says that nothing is under way on the GPU, and what its register is. It writes
// nothing where that is so already. After an error it is so for this process, and for
// the next one once anything is written.
func (j *Journal) RecordEnd(gpu string, instances []OwnedInstance) error {
	return j.setEntry(gpu, journalEntry{Instances: slices.Clone(instances)})
}

func (j *Journal) setEntry(gpu string, e journalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Change == nil && len(e.Instances) == 0 {
		delete(j.state.GPUs, gpu)
	} else {
		j.state.GPUs[gpu] = e
	}
	return j.write()
}

// write brings the store up to date. A content that could not be read again is never
// written.
func (j *Journal) write() error {
	content, err := j.state.format()
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if bytes.Equal(content, j.written) || j.unused && j.state.isEmpty() {
		return nil
	}
	j.written, j.unused = nil, false
	if err := j.store.Replace(content); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	j.written = content
	return nil
}

// Placement is an instance of a profile at its place.
type Placement struct {
	// Profile is its name, as the board has it: 3g.40gb.
	Profile v1alpha1.MIGProfile `json:"profile"`
	// Start is its first memory slice.
	Start int `json:"start"`
}

// String is the placement as people write it: 3g.40gb@4.
func (p Placement) String() string { return fmt.Sprintf("%s@%d", p.Profile, p.Start) }

// OwnedInstance is a GPU instance that is Sluice's own. The driver gives identifiers again
// to others, the UUID never.
type OwnedInstance struct {
	Placement
	// ID is the driver's identifier.
	ID uint32 `json:"id"`
	// UUID is that of its MIG device; "" while it has no compute instance.
	UUID string `json:"uuid,omitempty"`
}

// Layout is how Sluice has cut a GPU, or shall.
type Layout struct {
	// MIG is whether it is in MIG mode.
	MIG bool `json:"mig"`
	// Instances are its instances, sorted by start.
	Instances []Placement `json:"instances,omitempty"`
}

// PendingChange is what was begun on a GPU.
type PendingChange struct {
	// Before is the layout that the GPU had, of Sluice's own instances, and Wanted the
	// one that it shall have.
	Before  Layout `json:"before"`
	Desired Layout `json:"wanted"`
	// Next is the call to the driver that is about to be made, or was, or was not.
	Next Call `json:"next"`
}

func (c *PendingChange) clone() PendingChange {
	kept := *c
	kept.Before.Instances = slices.Clone(c.Before.Instances)
	kept.Desired.Instances = slices.Clone(c.Desired.Instances)
	return kept
}

// Operation is a kind of write to the driver.
type Operation string

// The writes to the driver.
const (
	OpCreateInstance         Operation = "CreateInstance"
	OpCreateComputeInstance  Operation = "CreateComputeInstance"
	OpDestroyComputeInstance Operation = "DestroyComputeInstance"
	OpDestroyInstance        Operation = "DestroyInstance"
	OpSetMIGMode             Operation = "SetMIGMode"
	OpReset                  Operation = "Reset"
)

var operations = []Operation{OpCreateInstance, OpCreateComputeInstance, OpDestroyComputeInstance, OpDestroyInstance, OpSetMIGMode, OpReset}

// Call is one write to the driver.
type Call struct {
	// Operation is which.
	Operation Operation `json:"act"`
	// Instance is the GPU instance, with its identifier except where it is being made.
	Instance OwnedInstance `json:"instance,omitzero"`
	// Compute is the identifier of the compute instance that is destroyed.
	Compute uint32 `json:"compute,omitempty"`
	// MIG is the mode that is set.
	MIG bool `json:"mig,omitempty"`
}
