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

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/kwok"
	"sluice.dev/test/lab/cluster/process"
)

func TestIsStaleNode(t *testing.T) {
	simulated := map[string]string{kwok.NodeAnnotation: kwok.NodeAnnotationValue}
	tests := map[string]struct {
		name        string
		annotations map[string]string
		want        bool
	}{
		"one of this run":     {"dgx-1", simulated, false},
		"one of a larger run": {"dgx-2", simulated, true},
		"a Node of a user":    {"mine", nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.name, Annotations: tc.annotations}}
			if got := isStaleNode(node, sampleSpecs[schedulerKube].nodes(1)); got != tc.want {
				t.Errorf("isStaleNode = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCheckComponentsRunning(t *testing.T) {
	runs := process.Status{Name: "etcd", State: process.Running}
	if err := checkComponentsRunning([]process.Status{runs, runs}); err != nil {
		t.Errorf("all run, but %v", err)
	}
	crashed := process.Status{Name: "kwok", State: process.BackOff, LastExit: "exit status 1", LogPath: "/d/logs/kwok.log"}
	err := checkComponentsRunning([]process.Status{runs, crashed})
	if err == nil {
		t.Fatal("a component in BackOff is accepted")
	}
	for _, want := range []string{"kwok", "BackOff", "exit status 1", "/d/logs/kwok.log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

// The limit on --dir is the one of the fake kubelet.
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
		cancel() // it checks the paths first
		err := fakekubelet.Run(
			ended,
			fakekubelet.Config{Dir: dir, Nodes: list, API: &rest.Config{Host: "127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)},
		)
		if (err == nil) != want {
			t.Errorf("a folder of %d bytes: %v, want it accepted: %v", len(dir), err, want)
		}
	}
}

func TestGPUModelsKnown(t *testing.T) {
	model := func(gpus int32, profiles ...v1alpha1.MIGProfile) v1alpha1.GPUModel {
		return v1alpha1.GPUModel{GPUs: gpus, MIGProfiles: profiles}
	}
	for name, tc := range map[string]struct {
		sharing v1alpha1.Sharing
		status  v1alpha1.NodePoolStatus
		want    bool
	}{
		"whole GPUs":            {v1alpha1.SharingNone, v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{model(8)}}, true},
		"an empty pool":         {v1alpha1.SharingMIG, v1alpha1.NodePoolStatus{}, true},
		"no agent has reported": {v1alpha1.SharingMIG, v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{model(8)}}, false},
		"one of two": {
			v1alpha1.SharingMIG,
			v1alpha1.NodePoolStatus{GPUs: 16, Products: []v1alpha1.GPUModel{model(8), model(8, "1g.5gb")}},
			false,
		},
		"all": {
			v1alpha1.SharingMIG,
			v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{model(8, "1g.5gb")}},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Sharing: tc.sharing}, Status: tc.status}
			if got := gpuModelsKnown(pool); got != tc.want {
				t.Errorf("gpuModelsKnown = %v, want %v", got, tc.want)
			}
		})
	}
}
