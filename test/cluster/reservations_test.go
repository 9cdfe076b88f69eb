// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"slices"
	"sync"
	"testing"
)

// freePort is a port that nobody listens on, for the length of the test.
func freePort(t *testing.T) int {
	t.Helper()
	free, release, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return free[0]
}

func (p *ports) slots() []*int {
	return []*int{&p.APIServer, &p.Etcd, &p.EtcdPeer, &p.ControllerManager, &p.Scheduler}
}

func reserving(t *testing.T) *reservations {
	t.Helper()
	r := new(reservations)
	t.Cleanup(r.release)
	return r
}

func TestChosenPortsAreFreeAndKept(t *testing.T) {
	listener, err := net.Listen("tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port

	r := reserving(t)
	var first ports
	if err := r.choose(first.slots()...); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range first.slots() {
		if *port < lowestPort || *port >= highestPort || seen[*port] {
			t.Errorf("port %d of %+v", *port, first)
		}
		seen[*port] = true
	}
	second := first
	second.Etcd = taken
	if err := r.choose(second.slots()...); err != nil {
		t.Fatal(err)
	}
	if second.Etcd == taken || second.Etcd == 0 {
		t.Errorf("port %d, which is taken, became %d", taken, second.Etcd)
	}
	if second.Etcd = first.Etcd; second != first {
		t.Errorf("free ports were not kept: %+v, then %+v", first, second)
	}
}

// A folder's mark that names one port twice must not give two components one port.
func TestAPortIsChosenOnce(t *testing.T) {
	port := freePort(t)
	slots := [2]int{port, port}
	if err := reserving(t).choose(&slots[0], &slots[1]); err != nil {
		t.Fatal(err)
	}
	if slots[0] == slots[1] {
		t.Errorf("both slots have port %d", slots[0])
	}
}

// Clusters that start at the same moment are several choosers, each of which
// finds all ports free of listeners. That many draw the same number many times.
func TestChoosersNeverShareAPort(t *testing.T) {
	const choosers, each = 20, 50
	chosen := make([][each]int, choosers)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range chosen {
		r := reserving(t)
		all.Go(func() {
			<-begin
			for at := range chosen[i] {
				if err := r.choose(&chosen[i][at]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	close(begin)
	all.Wait()
	owner := map[int]int{}
	for i, ports := range chosen {
		for _, port := range ports {
			if other, twice := owner[port]; twice {
				t.Errorf("choosers %d and %d both have port %d", other, i, port)
			}
			owner[port] = i
		}
	}
}

func TestAReservedPortIsAnothersUntilItIsReleased(t *testing.T) {
	first, second := reserving(t), reserving(t)
	var port int
	if err := first.choose(&port); err != nil {
		t.Fatal(err)
	}
	wanted := port
	if err := second.choose(&wanted); err != nil {
		t.Fatal(err)
	}
	if wanted == port {
		t.Fatalf("port %d is reserved twice", port)
	}
	if err := portFree(port); err != nil {
		t.Errorf("the component that it is for cannot listen: %v", err)
	}
	first.release()
	wanted = port
	if err := second.choose(&wanted); err != nil {
		t.Fatal(err)
	}
	if wanted != port {
		t.Errorf("port %d was released, and yet %d is chosen", port, wanted)
	}
}

func TestAPortThatWasAskedForIsKeptFromOthers(t *testing.T) {
	port := freePort(t) // reserved by somebody else, and free
	r := reserving(t)
	r.keep(port)
	if err := portFree(port); err != nil {
		t.Error(err)
	}
	asked, release, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	r.keep(asked[0])
	wanted := asked[0]
	if err := reserving(t).choose(&wanted); err != nil {
		t.Fatal(err)
	}
	if wanted == asked[0] {
		t.Errorf("port %d went to another", wanted)
	}
}

func TestFreePorts(t *testing.T) {
	free, release, err := FreePorts(7)
	if err != nil {
		t.Fatal(err)
	}
	release()
	release() // a second time is harmless
	slices.Sort(free)
	if len(slices.Compact(free)) != 7 {
		t.Errorf("%v", free)
	}
}
