// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
)

// Journal is the register of a node's instances and of what was begun on its GPUs. Its
// methods may be called from several goroutines at once.
type Journal struct {
	store Store

	mu    sync.Mutex
	state state
	// written is what the store has; nil where that is not known, or of no account.
	written []byte
	// untouched tells that the store has nothing of this boot, nor of this process.
	untouched bool
}

// Store keeps a journal's bytes. [Dir] is the one on disk.
type Store interface {
	// Load is the whole content; fs.ErrNotExist where there is none.
	Load() ([]byte, error)
	// Replace puts other content in its place, at once and as a whole: once it returned
	// nil the new content survives a power cut. After an error either is there.
	Replace(content []byte) error
	// SetAside keeps a copy of the content for people, and says where.
	SetAside() (string, error)
}

// Open opens the journal of a node as of the present boot. What another boot has left
// is forgotten: no instance outlives one. A content that cannot be believed is set
// aside and is no error: [Journal.Doubt] tells, and no instance is known to be
// Sluice's own then. The error is of the store, or says that the node or the boot has no
// name.
func Open(store Store, node, boot string) (*Journal, error) {
	if node == "" || boot == "" {
		return nil, fmt.Errorf("open the journal of node %q in boot %q: both must be known", node, boot)
	}
	j := &Journal{store: store, untouched: true, state: state{Node: node, Boot: boot, GPUs: map[string]entry{}}}
	content, err := store.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, nil
	case err != nil:
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	found, err := parse(content)
	if err == nil && found.Node != node {
		err = fmt.Errorf("it is of node %q, and this is %q", found.Node, node)
	}
	if err != nil {
		return j, j.doubt(err)
	}
	if found.Boot == boot {
		j.state, j.written, j.untouched = found, content, false
	}
	return j, nil
}

// doubt sets the content aside. It stays where it is, too, until the next is written,
// so that a crash in between loses nothing.
func (j *Journal) doubt(why error) error {
	kept, err := j.store.SetAside()
	if err != nil {
		return fmt.Errorf("the journal cannot be believed (%w), and it cannot be set aside, so that nothing may be written: %w", why, err)
	}
	j.state.Doubt = fmt.Sprintf("the journal of this node's instances cannot be believed: %v. It is kept as %s. "+
		"Instances that the GPUNode does not ask for are left alone as foreign: destroy those that nobody needs "+
		"(nvidia-smi mig -lgi, -dci, -dgi), or restart the node", why, kept)
	return nil
}

// Doubt says why the former journal was not believed, and what to do; "" where it was.
// It stands until the node is booted or [Journal.Trust] is called.
func (j *Journal) Doubt() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.Doubt
}

// Trust ends the doubt: there is no instance any more of which one could not say whose
// it is. Without doubt it writes nothing.
func (j *Journal) Trust() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state.Doubt == "" {
		return nil
	}
	j.state.Doubt = ""
	return j.write()
}

// Change is what was begun on the GPU and not yet ended, and false where nothing is.
func (j *Journal) Change(gpu string) (Change, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.state.GPUs[gpu].Change; c != nil {
		return c.clone(), true
	}
	return Change{}, false
}

// Open are the GPUs on which something was begun and not yet ended, sorted.
func (j *Journal) Open() []string {
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
func (j *Journal) Instances(gpu string) []Instance {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.state.GPUs[gpu].Instances)
}

// Begin announces the change's next call to the driver, together with what is the GPU's
// register up to now. The call may be made only where it returns nil: then both are on
// disk.
func (j *Journal) Begin(gpu string, change Change, instances []Instance) error {
	kept := change.clone()
	return j.record(gpu, entry{Change: &kept, Instances: slices.Clone(instances)})
}

// End says that nothing is under way on the GPU, and what its register is. It writes
// nothing where that is so already. After an error it is so for this process, and for
// the next one once anything is written.
func (j *Journal) End(gpu string, instances []Instance) error {
	return j.record(gpu, entry{Instances: slices.Clone(instances)})
}

func (j *Journal) record(gpu string, e entry) error {
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
	if bytes.Equal(content, j.written) || j.untouched && j.state.empty() {
		return nil
	}
	j.written, j.untouched = nil, false
	if err := j.store.Replace(content); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	j.written = content
	return nil
}
