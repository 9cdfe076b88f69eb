// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestNamespacePatternMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern NamespacePattern
		name    string
		want    bool
	}{
		{"cert-manager", "cert-manager", true},
		{"cert-manager", "cert-manager-2", false},
		{"*-system", "metallb-system", true},
		{"*-system", "system", false},
		{"*-system", "ecosystem", false},
		{"kube-*", "kube-flannel", true},
		{"kube-*", "kubeflow", false},
		{"*-gpu-*", "nvidia-gpu-operator", true},
		{"*-gpu-*", "gpu-operator", false},
	} {
		if got := tc.pattern.Matches(tc.name); got != tc.want {
			t.Errorf("%s matches %s: %v, want %v", tc.pattern, tc.name, got, tc.want)
		}
	}
}
