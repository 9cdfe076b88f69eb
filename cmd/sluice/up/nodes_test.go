// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
)

func TestIsStaleNode(t *testing.T) {
	simulated := map[string]string{kwok.NodeAnnotation: kwok.NodeAnnotationValue}
	tests := map[string]struct {
		name        string
		annotations map[string]string
		want        bool
	}{
		"one of this run":            {"dgx-1", simulated, false},
		"one of a larger run":        {"dgx-2", simulated, true},
		"one that somebody has made": {"mine", nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.name, Annotations: tc.annotations}}
			if got := isStaleNode(node, sampleSpecs[schedulerKube].nodes(1)); got != tc.want {
				t.Errorf("retired = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCheckComponentsRunning(t *testing.T) {
	runs := process.Status{Name: "etcd", State: process.Running}
	if err := checkComponentsRunning([]process.Status{runs, runs}); err != nil {
		t.Errorf("all run, and yet %v", err)
	}
	crashed := process.Status{Name: "kwok", State: process.BackOff, LastExit: "exit status 1", LogPath: "/d/logs/kwok.log"}
	err := checkComponentsRunning([]process.Status{runs, crashed})
	if err == nil {
		t.Fatal("a component in BackOff is not said")
	}
	for _, want := range []string{"kwok", "BackOff", "exit status 1", "/d/logs/kwok.log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// The most that --dir may have is what the fake kubelet takes, and not a byte more.
func TestMaxDirLength(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "sluice-up-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	list := sampleSpecs[schedulerKube].nodes(12)
	for over, want := range map[int]bool{0: true, 1: false} {
		dir := filepath.Join(base, strings.Repeat("d", maxDirLength(list)-len(base)-1+over))
		ended, cancel := context.WithCancel(t.Context())
		cancel() // the paths are looked at before anything begins
		err := fakekubelet.Run(ended, fakekubelet.Config{Dir: dir, Nodes: list, API: &rest.Config{Host: "127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)})
		if (err == nil) != want {
			t.Errorf("a folder of %d bytes: %v, want it taken: %v", len(dir), err, want)
		}
	}
}
