// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"sluice.dev/test/cluster/process"
)

// ports of a cluster on 127.0.0.1.
type ports struct {
	APIServer         int `json:"apiServer"`
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

const (
	loopback = "127.0.0.1"
	// lowestPort and highestPort bound the ports that are chosen: above the well
	// known ones, below those that the kernel gives to outgoing connections.
	// One of the latter could be taken from a component while it is started
	// again, even by a client that tries to reach it.
	lowestPort, highestPort = 20000, 32000
	portAttempts            = 200
	// startAttempts is how often a component whose port was taken between the
	// choice and the start, by what is no cluster, is given another.
	startAttempts = 5
)

func address(port int) string  { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
func httpsURL(port int) string { return "https://" + address(port) }

// listen needs no context: on loopback it answers at once.
func listen(port int) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", address(port))
}

// portFree reports whether a server could listen on the port now.
func portFree(port int) error {
	listener, err := listen(port)
	if err != nil {
		return err
	}
	return listener.Close()
}

// portTaken reports whether a component did not start because its port was taken.
func portTaken(err error) bool {
	var failed *process.StartError
	return errors.As(err, &failed) && strings.Contains(failed.Tail, "address already in use")
}

// checkPort says who would have to give way for the API server's port.
func checkPort(port int) error {
	if port == 0 {
		return nil
	}
	err := portFree(port)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("port %d: %w; name one above 1023, or 0 for a free one", port, err)
	default:
		return fmt.Errorf("port %d: %w; stop what listens there (`ss -ltnp 'sport = :%d'`), or name another, or 0 for a free one", port, err, port)
	}
}

// portReservations are TCP ports on 127.0.0.1 that were chosen for components, until
// release. Between the choice and a component's start, and while one that crashed
// is away, nobody listens on its port: another cluster would take it for free.
//
// What reserves a port is the UDP port of the same number, which is held open:
// components do not use those. It is seen by every process and user of the machine
// at once, and gone with this process however that ends. The zero value is ready.
type portReservations struct {
	mu   sync.Mutex
	held map[int]io.Closer
}

// reserveAll sets each slot to a port that is free and that nobody else has reserved,
// and keeps those that are set already where they are such.
func (r *portReservations) reserveAll(slots ...*int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// What a slot had before counts no more than any other port.
	for _, slot := range slots {
		r.releasePort(*slot)
	}
	for _, slot := range slots {
		port, err := r.reserveOne(*slot)
		if err != nil {
			return err
		}
		*slot = port
	}
	return nil
}

// reserveOne reserves a port, the preferred one if possible; 0 prefers none.
func (r *portReservations) reserveOne(preferred int) (int, error) {
	if preferred != 0 && r.tryReserve(preferred) {
		return preferred, nil
	}
	for range portAttempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if r.tryReserve(port) {
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
		if r.tryReserve(port) {
			return port, nil
		}
		last = fmt.Errorf("port %d is taken", port)
	}
	return 0, fmt.Errorf("find a free port on %s: %w", loopback, last)
}

// reserveRequested reserves a port that a person has asked for, as far as possible: they
// have it even where somebody else has reserved it, if it is free.
func (r *portReservations) reserveRequested(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releasePort(port)
	r.tryReserve(port)
}

// tryReserve reserves the port, and reports whether it could.
func (r *portReservations) tryReserve(port int) bool {
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

func (r *portReservations) releasePort(port int) {
	if mark, ok := r.held[port]; ok {
		mark.Close()
		delete(r.held, port)
	}
}

// release gives all ports back. It may be called more than once.
func (r *portReservations) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for port := range r.held {
		r.releasePort(port)
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
	reserved := new(portReservations)
	if err := reserved.reserveAll(slots...); err != nil {
		reserved.release()
		return nil, nil, err
	}
	return ports, reserved.release, nil
}
