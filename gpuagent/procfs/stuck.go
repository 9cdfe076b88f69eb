// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// ErrStuck is that the kernel has not told something of a process in time. A command line
// lies in the process's own memory: reading it waits for one that hangs in a driver with
// its memory locked, as those on a broken GPU do, and then for ever.
var ErrStuck = errors.New("it does not let its memory be read")

// patience is for how long one process is waited for.
const patience = 2 * time.Second

// waiting are the files that are still being read though nobody waits any more. They are
// not read again meanwhile: each would take a thread.
var waiting sync.Map

// readWithin reads a file of the process, but waits no longer than that.
func (p *Process) readWithin(file string, limit time.Duration) ([]byte, error) {
	type answer struct {
		raw []byte
		err error
	}
	path := filepath.Join(p.folder.Name(), file)
	if _, waits := waiting.LoadOrStore(path, nil); waits {
		return nil, fmt.Errorf("read %s: %w", path, ErrStuck)
	}
	f, err := p.open(file)
	if err != nil {
		waiting.Delete(path)
		return nil, err
	}
	answers := make(chan answer, 1)
	go func() {
		defer waiting.Delete(path)
		raw, err := readAll(f)
		answers <- answer{raw, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.raw, a.err
	case <-timer.C:
		return nil, fmt.Errorf("read %s: %w within %v", path, ErrStuck, limit)
	}
}
