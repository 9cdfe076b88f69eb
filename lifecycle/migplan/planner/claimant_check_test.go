// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/migplan/preemption"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/eviction"
)

type fixedPods map[types.UID]*podcache.Pod

func (p fixedPods) ByUID(uid types.UID) (*podcache.Pod, bool) {
	pod, known := p[uid]
	return pod, known
}

// A pod is evicted only while its claimant still waits for exactly this room, and its project may have it.
func TestClaimantCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(fixedPods, *v1alpha1.Project, *v1alpha1.GPUNode)
		withdrawn bool
	}{
		"it still waits":       {func(fixedPods, *v1alpha1.Project, *v1alpha1.GPUNode) {}, false},
		"it is gone":           {func(p fixedPods, _ *v1alpha1.Project, _ *v1alpha1.GPUNode) { delete(p, "p") }, true},
		"it is being deleted":  {func(p fixedPods, _ *v1alpha1.Project, _ *v1alpha1.GPUNode) { p["p"].Deleting = true }, true},
		"it has a node":        {func(p fixedPods, _ *v1alpha1.Project, _ *v1alpha1.GPUNode) { p["p"].Node = "n2" }, true},
		"its project expired":  {func(_ fixedPods, p *v1alpha1.Project, _ *v1alpha1.GPUNode) { p.Status.ClosedAt = ptr.To(metav1.Now()) }, true},
		"its namespace left":   {func(_ fixedPods, p *v1alpha1.Project, _ *v1alpha1.GPUNode) { p.Status.Namespace = nil }, true},
		"nothing is reserved":  {func(_ fixedPods, _ *v1alpha1.Project, n *v1alpha1.GPUNode) { n.Annotations = nil }, true},
		"reserved for another": {func(_ fixedPods, _ *v1alpha1.Project, n *v1alpha1.GPUNode) { reserve(n, "q") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			pods := fixedPods{
				"p": {UID: "p", Namespace: "thesis", Name: "notebook"},
				"a": {UID: "a", Namespace: "course", Name: "train", Node: "n1"},
			}
			project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}
			project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "thesis"}
			node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			reserve(node, "p")
			tc.change(pods, project, node)
			kinds := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(kinds); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(project, node).
				WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string {
					return []string{o.(*v1alpha1.Project).NamespaceName()}
				}).Build()
			why, err := ClaimantCheck(c, c, pods)(t.Context(), eviction.Announcement{UID: "a", Claimant: "p"})
			if err != nil || (why != "") != tc.withdrawn {
				t.Errorf("withdrawn because %q, %v; want withdrawn %t", why, err, tc.withdrawn)
			}
		})
	}
}

func reserve(node *v1alpha1.GPUNode, claimant types.UID) {
	r := preemption.Reservation{Claimant: claimant, GPU: "GPU-1", Profile: "7g.40gb", Since: time.Now()}
	node.Annotations = map[string]string{v1alpha1.PreemptionAnnotation: r.String()}
}
