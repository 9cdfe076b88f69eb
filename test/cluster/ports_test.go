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
	"strconv"
	"strings"
	"testing"

	"sluice.dev/test/cluster/process"
)

// late is a component that finds its port taken until its nth start.
func late(t *testing.T, works int) (component func() (process.Spec, error), starts *int) {
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

func TestTakenPortIsReplaced(t *testing.T) {
	tests := []struct {
		name       string
		works      int // at which start
		asked      int // Options.Port
		wantStarts int
		wantErr    string
	}{
		{"free at once", 1, 0, 1, ""},
		{"free at the third", 3, 0, 3, ""},
		{"never free", 100, 0, startAttempts, "address already in use"},
		{"the port that was asked for", 2, 1, 1, "address already in use"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &plane{
				options:  Options{Progress: io.Discard},
				programs: map[string]string{Etcd: "/bin/sh"},
				reserved: new(reservations),
			}
			t.Cleanup(p.reserved.release)
			slot := &p.ports.Etcd
			if tt.asked != 0 {
				p.ports.APIServer = freePort(t)
				slot, p.options.Port = &p.ports.APIServer, p.ports.APIServer
			}
			group := newTestGroup(t)
			component, starts := late(t, tt.works)
			err := p.startOn(t.Context(), group, component, slot)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("got %v, want %q", err, tt.wantErr)
			}
			if *starts != tt.wantStarts {
				t.Errorf("%d starts, want %d", *starts, tt.wantStarts)
			}
		})
	}
}

func TestOnlyATakenPortIsWorthAnotherTry(t *testing.T) {
	for tail, want := range map[string]bool{
		"listen tcp 127.0.0.1:2379: bind: address already in use": true,
		"unknown flag: --nonsense":                                false,
	} {
		if got := portTaken(&process.StartError{Err: errors.New("x"), Tail: tail}); got != want {
			t.Errorf("%q: %v", tail, got)
		}
	}
	if portTaken(errors.New("address already in use")) {
		t.Error("an error that is no component's")
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
