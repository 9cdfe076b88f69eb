// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

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
