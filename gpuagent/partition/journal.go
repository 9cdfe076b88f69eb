// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

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

// Journal is the register of a node's instances and of the unfinished changes of its GPUs. Its
// methods may be called from several goroutines.
type Journal struct {
	store JournalStore

	mu    sync.Mutex
	state journalState
	// written is the content of the store; nil if unknown or irrelevant.
	written []byte
	// unused reports whether the store has nothing of this load of the driver or this process.
	unused bool
}

// JournalStore stores a journal's bytes. [JournalDir] stores them on disk.
type JournalStore interface {
	// Load returns the whole content; fs.ErrNotExist if there is none.
	Load() ([]byte, error)
	// Replace replaces the whole content atomically. Once it returns nil, the new content survives
	// a power failure. After an error the store has either content.
	Replace(content []byte) error
	// SetAside keeps a copy of the content for people and returns its location.
	SetAside() (string, error)
}

// OpenJournal opens the journal of a node for the current boot. It discards another boot's content:
// no instance outlives a boot. It sets unusable content aside without an error; then
// [Journal.UntrustedReason] says why, and no instance counts as Sluice's own. It returns the
// store's errors, and one for a missing node or boot.
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
		err = fmt.Errorf("it belongs to node %q, not to %q", found.Node, node)
	}
	if err != nil {
		return j, j.setAside(err)
	}
	if found.Boot == boot {
		j.state, j.written, j.unused = found, content, false
	}
	return j, nil
}

// SetDriverLoad sets the current load of the driver within the boot. Call it after each connection to the
// driver. If the journal is of another load it discards the content and returns true: no instance outlives
// a load, and a later one may have the same identifiers and UUID. An unknown load ("") changes nothing, and
// a journal without a load counts as of the current one.
func (j *Journal) SetDriverLoad(load string) (reloaded bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if load == "" || load == j.state.Load {
		return false, nil
	}
	if reloaded = j.state.Load != ""; reloaded {
		j.state = journalState{Node: j.state.Node, Boot: j.state.Boot, GPUs: map[string]journalEntry{}}
		j.written, j.unused = nil, true
	}
	j.state.Load = load
	return reloaded, j.write()
}

// setAside copies the content aside. The content also stays in place until the next write, so that
// a crash in between loses nothing.
func (j *Journal) setAside(why error) error {
	kept, err := j.store.SetAside()
	if err != nil {
		return fmt.Errorf("the journal is unusable (%w) and cannot be set aside, so the agent writes nothing: %w", why, err)
	}
	j.state.UntrustedReason = fmt.Sprintf("the journal of this node's instances is unusable: %v. It is kept as %s. "+
		"Instances that the GPUNode does not request count as foreign and stay: destroy those that are not needed "+
		"(nvidia-smi mig -lgi, -dci, -dgi), or reboot the node", why, kept)
	return nil
}

// UntrustedReason returns why the former journal was unusable and what to do; "" if it was usable.
// It holds until the driver is loaded again or RestoreTrust is called.
func (j *Journal) UntrustedReason() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.UntrustedReason
}

// RestoreTrust clears the reason once no instance of unknown ownership is left. Without a reason it
// writes nothing.
func (j *Journal) RestoreTrust() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state.UntrustedReason == "" {
		return nil
	}
	j.state.UntrustedReason = ""
	return j.write()
}

// PendingChange returns the unfinished change of the GPU, if any.
func (j *Journal) PendingChange(gpu string) (PendingChange, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.state.GPUs[gpu].Change; c != nil {
		return c.clone(), true
	}
	return PendingChange{}, false
}

// PendingGPUs returns the GPUs with an unfinished change, sorted.
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

// Instances returns the GPU's instances that are Sluice's own.
func (j *Journal) Instances(gpu string) []OwnedInstance {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.state.GPUs[gpu].Instances)
}

// RecordCall records the change's next driver call and the GPU's register. Make the call only if it
// returns nil: then both are on disk.
func (j *Journal) RecordCall(gpu string, change PendingChange, instances []OwnedInstance) error {
	kept := change.clone()
	return j.setEntry(gpu, journalEntry{Change: &kept, Instances: slices.Clone(instances)})
}

// RecordEnd records that no change is in progress on the GPU, and its register. It writes nothing
// if the journal agrees. After an error this holds for the current process, and for the next one
// after any later write.
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

// write brings the store up to date. It refuses content that could not be parsed again.
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
	// Profile is the profile's name on the GPU model: 3g.40gb.
	Profile v1alpha1.MIGProfile `json:"profile"`
	// Start is its first memory slice.
	Start int `json:"start"`
}

// String returns the placement as people write it: 3g.40gb@4.
func (p Placement) String() string { return fmt.Sprintf("%s@%d", p.Profile, p.Start) }

// OwnedInstance is one of Sluice's own GPU instances. The driver reuses identifiers, but never
// UUIDs.
type OwnedInstance struct {
	Placement
	// ID is the driver's identifier.
	ID uint32 `json:"id"`
	// UUID is the UUID of its MIG device; "" while it has no compute instance.
	UUID string `json:"uuid,omitempty"`
}

// Layout is a current or desired layout of a GPU.
type Layout struct {
	// MIG reports whether the GPU is in MIG mode.
	MIG bool `json:"mig"`
	// Instances are its instances, sorted by start.
	Instances []Placement `json:"instances,omitempty"`
}

// PendingChange is an unfinished change of a GPU.
type PendingChange struct {
	// Before is the former layout of Sluice's own instances; Desired is the layout to reach.
	Before  Layout `json:"before"`
	Desired Layout `json:"desired"`
	// Next is the next driver call. It may have been made already.
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
	Operation Operation `json:"operation"`
	// Instance is the GPU instance, without an identifier while it is being created.
	Instance OwnedInstance `json:"instance,omitzero"`
	// Compute is the identifier of the compute instance to destroy.
	Compute uint32 `json:"compute,omitempty"`
	// MIG is the mode to set.
	MIG bool `json:"mig,omitempty"`
}
