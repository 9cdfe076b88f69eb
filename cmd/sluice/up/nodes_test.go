// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
)

func TestRetired(t *testing.T) {
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
			if got := retired(node, samples[schedulerKube].nodes(1)); got != tc.want {
				t.Errorf("retired = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAllRun(t *testing.T) {
	runs := process.Status{Name: "etcd", State: process.Running}
	if err := allRun([]process.Status{runs, runs}); err != nil {
		t.Errorf("all run, and yet %v", err)
	}
	crashed := process.Status{Name: "kwok", State: process.BackOff, LastExit: "exit status 1", LogPath: "/d/logs/kwok.log"}
	err := allRun([]process.Status{runs, crashed})
	if err == nil {
		t.Fatal("a component in BackOff is not said")
	}
	for _, want := range []string{"kwok", "BackOff", "exit status 1", "/d/logs/kwok.log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}
