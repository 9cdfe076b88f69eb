// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// inhabited is a namespace to be adopted by a project of its name, in which a pod
// runs that has that part of a GPU of pool dgx-mig.
func inhabited(t *testing.T, name, fraction string) (*corev1.Namespace, *corev1.Pod) {
	t.Helper()
	ns := create(t, namespace(name, v1alpha1.AnnotationAdoptBy, name))
	pod := podIn(ns.Name, "before", func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{v1alpha1.LabelNodePool: "dgx-mig"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	// A new namespace takes pods once its service account is there.
	eventually(t, func() error { return client.IgnoreAlreadyExists(shared.admin.Create(t.Context(), pod.DeepCopy())) })
	t.Cleanup(func() { remove(t, pod) })
	shared.awaitBound(t, pod, "dgx-mig", true)
	// Nobody may make such a pod here; one that was there already looks like this.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"gpu-fraction":"`+fraction+`"}}}`))
	if err := shared.admin.Patch(t.Context(), pod, patch); err != nil {
		t.Fatal(err)
	}
	return ns, pod
}

// What runs there already is taken off the limit, and given back when it ends.
func TestAdoptionTakesWhatRunsOffTheLimit(t *testing.T) {
	makeRoom(t)
	ns, pod := inhabited(t, "adopted-part", "0.25")
	p := create(t, project(ns.Name, having("500m", "1")))
	awaitReady(t, p)
	awaitQuotas(t, ns.Name, "250", "750")
	eventually(t, func() error {
		if err := get(t, p); err != nil {
			return err
		}
		if use := p.Status.NodePools; len(use) != 1 || use[0].Uncounted.String() != "250m" || use[0].Limit.String() != "1" {
			return errNotYet("250m of a limit of 1 are uncounted", use)
		}
		return hasCondition(p.Status.Conditions, v1alpha1.ConditionUncounted, metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted)
	})
	says := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionUncounted).Message
	if want := "lower by what they hold, 0.25 of a GPU of node pool dgx-mig"; !strings.Contains(says, want) {
		t.Errorf("Uncounted says %q, want %q", says, want)
	}

	remove(t, pod)
	within(t, func() error {
		if err := get(t, p); err != nil {
			return err
		}
		return hasCondition(p.Status.Conditions, v1alpha1.ConditionUncounted, metav1.ConditionFalse, "AllCounted")
	})
	awaitQuotas(t, ns.Name, "500", "1000")
	awaitApplied(t, p)
}

// Where more runs than the project may have, its namespace is not governed, and
// is by itself once there is room.
func TestAdoptionWaitsForRoom(t *testing.T) {
	makeRoom(t)
	ns, pod := inhabited(t, "adopted-full", "0.75")
	p := create(t, project(ns.Name, having("0", "500m")))
	eventually(t, func() error {
		if err := get(t, p); err != nil {
			return err
		}
		return hasCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied, metav1.ConditionFalse, v1alpha1.ReasonNoRoomForUncounted)
	})
	says := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied).Message
	if want := "before: they hold 0.75 of a GPU of node pool dgx-mig, and the project may have 0.5 of a GPU there"; !strings.Contains(says, want) {
		t.Errorf("QuotaApplied says %q, want %q", says, want)
	}
	if err := get(t, ns); err != nil || ns.Labels[v1alpha1.LabelProject] != "" {
		t.Errorf("the namespace is governed: %v, %v", ns.Labels, err)
	}

	remove(t, pod)
	within(t, func() error {
		if err := get(t, p); err != nil {
			return err
		}
		return hasCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	})
	awaitApplied(t, p)
	awaitQuotas(t, ns.Name, "0", "500")
	if err := get(t, ns); err != nil || ns.Labels[v1alpha1.LabelProject] != p.Name {
		t.Errorf("the namespace is not governed: %v, %v", ns.Labels, err)
	}
}
