// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
)

// reservations are TCP ports on 127.0.0.1 that were chosen for components, until
// release. Between the choice and a component's start, and while one that crashed
// is away, nobody listens on its port: another cluster would take it for free.
//
// What reserves a port is the UDP port of the same number, which is held open:
// components do not use those. It is seen by every process and user of the machine
// at once, and gone with this process however that ends. The zero value is ready.
type reservations struct {
	mu   sync.Mutex
	held map[int]io.Closer
}

// choose sets each slot to a port that is free and that nobody else has reserved,
// and keeps those that are set already where they are such.
func (r *reservations) choose(slots ...*int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// What a slot had before counts no more than any other port.
	for _, slot := range slots {
		r.drop(*slot)
	}
	for _, slot := range slots {
		port, err := r.one(*slot)
		if err != nil {
			return err
		}
		*slot = port
	}
	return nil
}

// one reserves a port, the preferred one if possible; 0 prefers none.
func (r *reservations) one(preferred int) (int, error) {
	if preferred != 0 && r.take(preferred) {
		return preferred, nil
	}
	for range portAttempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if r.take(port) {
			return port, nil
		}
	}
	// Let the kernel choose: better one from its own range than none.
	var last error
	for range startAttempts {
		listener, err := listen(0)
		if last = err; err != nil {
			continue
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if r.take(port) {
			return port, nil
		}
		last = fmt.Errorf("port %d is taken", port)
	}
	return 0, fmt.Errorf("find a free port on %s: %w", loopback, last)
}

// keep reserves a port that a person has asked for, as far as possible: they
// have it even where somebody else has reserved it, if it is free.
func (r *reservations) keep(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(port)
	r.take(port)
}

// take reserves the port, and reports whether it could.
func (r *reservations) take(port int) bool {
	var config net.ListenConfig
	mark, err := config.ListenPacket(context.Background(), "udp", address(port))
	if err != nil {
		return false
	}
	if portFree(port) != nil {
		mark.Close()
		return false
	}
	if r.held == nil {
		r.held = map[int]io.Closer{}
	}
	r.held[port] = mark
	return true
}

func (r *reservations) drop(port int) {
	if mark, ok := r.held[port]; ok {
		mark.Close()
		delete(r.held, port)
	}
}

// release gives all ports back. It may be called more than once.
func (r *reservations) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for port := range r.held {
		r.drop(port)
	}
}

// FreePorts returns n ports on 127.0.0.1 that nobody listens on, for components
// that are started in Processes. No cluster is given them until release is called
// or this process ends; on an error there is nothing to release.
func FreePorts(n int) (ports []int, release func(), err error) {
	ports = make([]int, n)
	slots := make([]*int, n)
	for i := range ports {
		slots[i] = &ports[i]
	}
	reserved := new(reservations)
	if err := reserved.choose(slots...); err != nil {
		reserved.release()
		return nil, nil, err
	}
	return ports, reserved.release, nil
}
