// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// What policies changed is recorded by Sluice alone: a value from the author of a pod does not
// survive, though the pod be like one that Sluice admitted. Guards invariant 11 of the design.
func TestForgedDecisions(t *testing.T) {
	t.Parallel()
	const ns = "course-ml"
	pods := memberWithToken(t, ns, "forger").CoreV1().Pods(ns)
	admitted, err := pods.Create(t.Context(), newPod(ns, "admitted"), metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		t.Fatal(err)
	}
	var honest map[string][]string
	if err := json.Unmarshal([]byte(admitted.Annotations[v1alpha1.AnnotationDecisions]), &honest); err != nil || len(honest) == 0 {
		t.Fatalf("decisions %q: %v", admitted.Annotations[v1alpha1.AnnotationDecisions], err)
	}
	for name, p := range map[string]*corev1.Pod{
		"a new pod": newPod(ns, "forged"),
		"a pod like an admitted one": newPod(ns, "forged", func(p *corev1.Pod) {
			p.Labels, p.Annotations, p.Spec = admitted.Labels, admitted.Annotations, admitted.Spec
		}),
	} {
		p.Annotations[v1alpha1.AnnotationDecisions] = `{"core.gpu":["forged"]}`
		got, err := pods.Create(t.Context(), p, metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if decisions := got.Annotations[v1alpha1.AnnotationDecisions]; strings.Contains(decisions, "forged") {
			t.Errorf("%s: recorded %s", name, decisions)
		}
	}
}
