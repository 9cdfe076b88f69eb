// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package watched

import (
	"fmt"
	"sync"
	"time"
)

// Watch knows the calls of a driver that have not returned yet.
type Watch struct {
	// Returned is told of each call that returned: its name, how long it took and what
	// came of it. May be nil.
	Returned func(call string, took time.Duration, err error)
	// Now is machine time. Default: time.Now.
	Now func() time.Time

	mu      sync.Mutex
	last    uint64
	pending map[uint64]begun
}

type begun struct {
	call string
	at   time.Time
}

func (w *Watch) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// begin notes that a call begins; what it returns, that it returned.
func (w *Watch) begin(call string) func(error) {
	at := w.now()
	w.mu.Lock()
	w.last++
	id := w.last
	if w.pending == nil {
		w.pending = map[uint64]begun{}
	}
	w.pending[id] = begun{call, at}
	w.mu.Unlock()
	return func(err error) {
		w.mu.Lock()
		delete(w.pending, id)
		w.mu.Unlock()
		if w.Returned != nil {
			w.Returned(call, w.now().Sub(at), err)
		}
	}
}

// Stuck is an error that names the oldest call which has not returned for longer than
// that; nil where there is none.
func (w *Watch) Stuck(longer time.Duration) error {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	var oldest begun
	for _, each := range w.pending {
		if oldest.at.IsZero() || each.at.Before(oldest.at) {
			oldest = each
		}
	}
	if waited := now.Sub(oldest.at); !oldest.at.IsZero() && waited > longer {
		// Since when, not for how long: who writes this down shall not write it anew each time.
		return fmt.Errorf("the driver has not answered the call %s since %s: look for Xid errors in the kernel's log (dmesg); the node may have to be booted",
			oldest.call, oldest.at.UTC().Format(time.RFC3339))
	}
	return nil
}
