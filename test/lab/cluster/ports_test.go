// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sluice.dev/test/lab/cluster/process"
)

// listenLater returns a component whose port is taken until its given start.
func listenLater(t *testing.T, works int) (component func() (process.Spec, error), starts *int) {
	marker := filepath.Join(t.TempDir(), "serving")
	starts = new(int)
	return func() (process.Spec, error) {
		*starts++
		script := "echo listen tcp 127.0.0.1:1: bind: address already in use; exit 1"
		if *starts >= works {
			script = "touch " + marker + "; exec sleep 1000"
		}
		ready := func(context.Context) error { _, err := os.Stat(marker); return err }
		return process.Spec{Name: Etcd, Args: []string{"-c", script}, Ready: ready}, nil
	}, starts
}

func TestStartReplacesTakenPort(t *testing.T) {
	tests := []struct {
		name       string
		works      int // the successful start
		requested  int // Options.Port
		wantStarts int
		wantErr    string
	}{
		{"free at the first start", 1, 0, 1, ""},
		{"free at the third", 3, 0, 3, ""},
		{"never free", 100, 0, startAttempts, "address already in use"},
		{"the requested port", 2, 1, 1, "address already in use"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &controlPlaneSetup{
				options:  Options{Progress: io.Discard},
				programs: map[string]string{Etcd: "/bin/sh"},
				reserved: new(portReservations),
			}
			t.Cleanup(p.reserved.release)
			slot := &p.ports.Etcd
			if tt.requested != 0 {
				p.ports.APIServer = freePort(t)
				slot, p.options.Port = &p.ports.APIServer, p.ports.APIServer
			}
			group := newTestGroup(t)
			component, starts := listenLater(t, tt.works)
			err := p.startWithPorts(t.Context(), group, component, slot)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("got %v, want %q", err, tt.wantErr)
			}
			if *starts != tt.wantStarts {
				t.Errorf("%d starts, want %d", *starts, tt.wantStarts)
			}
		})
	}
}

func TestStartRetriesOnlyOnTakenPort(t *testing.T) {
	for tail, want := range map[string]bool{
		"listen tcp 127.0.0.1:2379: bind: address already in use": true,
		"unknown flag: --nonsense":                                false,
	} {
		if got := portTaken(&process.StartError{Err: errors.New("x"), Tail: tail}); got != want {
			t.Errorf("%q: %v", tail, got)
		}
	}
	if portTaken(errors.New("address already in use")) {
		t.Error("portTaken accepts an error without a component")
	}
}

func TestCheckPort(t *testing.T) {
	listener, err := net.Listen("tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := checkPort(port); err == nil || !strings.Contains(err.Error(), "port "+strconv.Itoa(port)) {
		t.Errorf("a taken port: %v", err)
	}
	listener.Close()
	for _, free := range []int{0, port} {
		if err := checkPort(free); err != nil {
			t.Error(err)
		}
	}
}

func newTestGroup(t *testing.T) *process.Group {
	t.Helper()
	group, err := process.NewGroup(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { group.Stop(context.Background()) })
	return group
}

// freePort returns a port that no process uses during the test.
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

func newReservations(t *testing.T) *portReservations {
	t.Helper()
	r := new(portReservations)
	t.Cleanup(r.release)
	return r
}

func TestReserveAllPorts(t *testing.T) {
	listener, err := net.Listen("tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port

	r := newReservations(t)
	var first ports
	if err := r.reserveAll(first.slots()...); err != nil {
		t.Fatal(err)
	}
	used := map[int]bool{}
	for _, port := range first.slots() {
		if *port < lowestPort || *port >= highestPort || used[*port] {
			t.Errorf("invalid or repeated port %d of %+v", *port, first)
		}
		used[*port] = true
	}
	second := first
	second.Etcd = taken
	if err := r.reserveAll(second.slots()...); err != nil {
		t.Fatal(err)
	}
	if second.Etcd == taken || second.Etcd == 0 {
		t.Errorf("port %d, which is taken, became %d", taken, second.Etcd)
	}
	if second.Etcd = first.Etcd; second != first {
		t.Errorf("free ports were replaced: %+v, then %+v", first, second)
	}
}

// A mark that names one port twice must not give two components the same port.
func TestReservedPortsAreDistinct(t *testing.T) {
	port := freePort(t)
	slots := [2]int{port, port}
	if err := newReservations(t).reserveAll(&slots[0], &slots[1]); err != nil {
		t.Fatal(err)
	}
	if slots[0] == slots[1] {
		t.Errorf("both slots have port %d", slots[0])
	}
}

// Clusters that start at the same moment choose ports concurrently, and all find them free.
// Many choosers draw the same number often.
func TestConcurrentReservationsAreDistinct(t *testing.T) {
	const choosers, each = 20, 50
	chosen := make([][each]int, choosers)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range chosen {
		r := newReservations(t)
		all.Go(func() {
			<-begin
			for at := range chosen[i] {
				if err := r.reserveAll(&chosen[i][at]); err != nil {
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
				t.Errorf("clusters %d and %d both have port %d", other, i, port)
			}
			owner[port] = i
		}
	}
}

func TestReservedPortIsHeldUntilRelease(t *testing.T) {
	first, second := newReservations(t), newReservations(t)
	var port int
	if err := first.reserveAll(&port); err != nil {
		t.Fatal(err)
	}
	chosen := port
	if err := second.reserveAll(&chosen); err != nil {
		t.Fatal(err)
	}
	if chosen == port {
		t.Fatalf("port %d is reserved twice", port)
	}
	if err := portFree(port); err != nil {
		t.Errorf("its own component cannot listen: %v", err)
	}
	first.release()
	chosen = port
	if err := second.reserveAll(&chosen); err != nil {
		t.Fatal(err)
	}
	if chosen != port {
		t.Errorf("port %d was released, got %d", port, chosen)
	}
}

func TestRequestedPortIsReserved(t *testing.T) {
	port := freePort(t) // reserved by another cluster, and free
	r := newReservations(t)
	r.reserveRequested(port)
	if err := portFree(port); err != nil {
		t.Error(err)
	}
	requested, release, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	r.reserveRequested(requested[0])
	chosen := requested[0]
	if err := newReservations(t).reserveAll(&chosen); err != nil {
		t.Fatal(err)
	}
	if chosen == requested[0] {
		t.Errorf("port %d was reserved twice", chosen)
	}
}

func TestFreePorts(t *testing.T) {
	free, release, err := FreePorts(7)
	if err != nil {
		t.Fatal(err)
	}
	release()
	release() // a second call has no effect
	slices.Sort(free)
	if len(slices.Compact(free)) != 7 {
		t.Errorf("%v", free)
	}
}
