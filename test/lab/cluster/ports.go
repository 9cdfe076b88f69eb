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

	"sluice.dev/test/lab/cluster/process"
)

// ports holds the cluster's ports on 127.0.0.1.
type ports struct {
	APIServer         int `json:"apiServer"`
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

const (
	loopback = "127.0.0.1"
	// lowestPort and highestPort bound the chosen ports: above the well-known ports and
	// below the range that the kernel gives to outgoing connections. A connection could
	// take a port of that range while its component restarts.
	lowestPort, highestPort = 20000, 32000
	portAttempts            = 200
	// startAttempts limits how often a component gets new ports because another program
	// took its port before it started.
	startAttempts = 5
)

func address(port int) string  { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
func httpsURL(port int) string { return "https://" + address(port) }

// listen needs no context: it never blocks on loopback.
func listen(port int) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", address(port))
}

// portFree returns an error if a server cannot listen on the port now.
func portFree(port int) error {
	listener, err := listen(port)
	if err != nil {
		return err
	}
	return listener.Close()
}

// portTaken reports whether a component failed to start because its port was taken.
func portTaken(err error) bool {
	var failed *process.StartError
	return errors.As(err, &failed) && strings.Contains(failed.Tail, "address already in use")
}

// checkPort returns an error with a remedy if the API server cannot listen on the port.
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
		return fmt.Errorf("port %d: %w; stop what listens there (`ss -ltnp 'sport = :%d'`), or name another, or 0 for a free one",
			port, err, port)
	}
}

// portReservations holds TCP ports on 127.0.0.1 that were chosen for components, until
// release. No component listens on its port before it starts and while it restarts after a
// crash; another cluster would take such a port for a free one.
//
// The open UDP socket of the same number reserves a port: components do not use UDP. All
// processes and users of the machine see it, and it closes with this process. The zero
// value is ready to use.
type portReservations struct {
	mu   sync.Mutex
	held map[int]io.Closer
}

// reserveAll sets each slot to a free port that no other cluster has reserved. It keeps the
// values of slots that fulfill this already.
func (r *portReservations) reserveAll(slots ...*int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Earlier values of the slots are like any other port.
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

// reserveOne reserves a port, the preferred one if possible; 0 means no preference.
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
	// Let the kernel choose: a port of its own range is better than none.
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

// reserveRequested reserves the port that the user requested, if possible. The user gets a
// free port even if another cluster has reserved it.
func (r *portReservations) reserveRequested(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releasePort(port)
	r.tryReserve(port)
}

// tryReserve reserves the port and reports whether it succeeded.
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

// release frees all ports. It may be called more than once.
func (r *portReservations) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for port := range r.held {
		r.releasePort(port)
	}
}

// FreePorts returns n free ports on 127.0.0.1, for components in Processes. No cluster uses
// them until release is called or this process ends. After an error release is nil.
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
