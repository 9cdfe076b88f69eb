// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// What policies read of a namespace is bounded, whatever its annotations are, and says if something is missing.
func TestNamespaceIsLimited(t *testing.T) {
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprintf("k%02d", i)] = strings.Repeat("v", 1021)
	}
	for name, tt := range map[string]struct {
		labels, annotations         map[string]string
		wantLabels, wantAnnotations int
		truncated                   bool
	}{
		"nothing":         {},
		"small":           {map[string]string{"a": "b"}, map[string]string{"c": "d"}, 1, 1, false},
		"the limit":       {nil, map[string]string{"a": strings.Repeat("v", 4096)}, 0, 1, false},
		"above the limit": {nil, map[string]string{"a": strings.Repeat("v", 4097), "b": "c"}, 0, 1, true},
		"in all":          {map[string]string{"a": "b"}, many, 1, 63, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: tt.labels, Annotations: tt.annotations}})
			got := []any{n.Name, len(n.Labels), len(n.Annotations), n.Truncated, n.Labels != nil, n.Annotations != nil}
			if diff := cmp.Diff([]any{"a", tt.wantLabels, tt.wantAnnotations, tt.truncated, true, true}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.MapOf(rapid.StringN(0, 64, 64), rapid.StringN(0, 6000, 6000))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: entries.Draw(t, "labels"), Annotations: entries.Draw(t, "annotations")}}
		n := NewNamespace(namespace)
		size := 0
		for _, kept := range []map[string]string{n.Labels, n.Annotations} {
			for key, value := range kept {
				size += len(key) + len(value)
			}
		}
		complete := len(n.Labels) == len(namespace.Labels) && len(n.Annotations) == len(namespace.Annotations)
		if size > maxNamespaceBytes || complete == n.Truncated {
			t.Fatalf("%d bytes, truncated %v, complete %v", size, n.Truncated, complete)
		}
	})
}
