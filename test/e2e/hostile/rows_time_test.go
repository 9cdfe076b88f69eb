// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// What lets work run longer than its limit.
var _ = attacks(
	row{
		class: policyTime, name: "a Job deleted without its pod", roles: []role{l2, l1}, attack: really(orphaned), harmless: keepsClock,
	},
	row{
		class: policyTime, name: "a Job started again after its limit", roles: []role{l1}, alone: true, attack: really(restarted),
		want: "was stopped by Sluice after it had run for 48h", uncontrolled: "the Job ran before",
	},
)

// orphaned creates a Job with a GPU and deletes it once its pod runs, with the propagation policy
// Orphan. It returns the pod.
var orphaned = do("delete a Job with propagationPolicy Orphan", func(a *attacker) (*unstructured.Unstructured, error) {
	job, err := a.runJob()
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	a.eventually(func() error {
		if err := a.client.List(a.t.Context(), &pods, client.InNamespace(a.namespace), client.MatchingLabels{"app": a.intruder()}); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod does not run yet: %d pods", len(pods.Items))
		}
		return nil
	})
	pod := newObject("Pod")
	pod.SetName(pods.Items[0].Name)
	pod.SetNamespace(a.namespace)
	a.cleanUp(pod)
	return pod, a.client.Delete(a.t.Context(), job, client.PropagationPolicy("Orphan"))
})

// runJob creates a Job with a GPU and waits until its time counts.
func (a *attacker) runJob() (*unstructured.Unstructured, error) {
	job, err := a.ordinary("Job", a.intruder(), inTemplate("Job", limits("nvidia.com/gpu")))
	if err == nil {
		err = a.create(job)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFixture, err)
	}
	a.eventually(func() error { return a.checkClock("Job", a.intruder()) })
	return job, nil
}

// restarted starts a Job again that was stopped at its time limit.
var restarted = do("start a Job again that was stopped at its limit", func(a *attacker) (*unstructured.Unstructured, error) {
	job, err := a.runJob()
	if err != nil {
		return nil, err
	}
	clock := &v1alpha1.WorkloadClock{}
	key := client.ObjectKey{Namespace: a.namespace, Name: v1alpha1.WorkloadClockName("batch", "Job", job.GetName())}
	a.eventually(func() error {
		if err := errors.Join(a.world.Admin.Get(a.t.Context(), key, clock), a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(job), job)); err != nil {
			return err
		}
		if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
			return nil
		}
		// A warning that was not sent in time moves the end.
		if end := clock.Status.Deadline; end != nil && a.world.clock.Now().Before(end.At.Time) {
			a.advanceTimeTo(end.At.Time)
		}
		return fmt.Errorf("the Job is not stopped yet: %+v", clock.Status)
	})
	return job, a.patch(job, "", `{"spec":{"suspend":false}}`)
})

// keepsClock checks that the pod ends, or that its clock counts for the attacker.
func keepsClock(a *attacker, pod *unstructured.Unstructured) (problem error) {
	a.eventually(func() error {
		if err := a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.GetDeletionTimestamp() != nil {
			return client.IgnoreNotFound(err)
		}
		if problem = a.checkClock("Pod", pod.GetName()); problem != nil && strings.Contains(problem.Error(), "not found") {
			return problem
		}
		return nil
	})
	return problem
}

// checkClock returns an error unless the workload has a clock that counts for the attacker.
func (a *attacker) checkClock(kind, name string) error {
	var list v1alpha1.WorkloadClockList
	if err := a.world.Admin.List(a.t.Context(), &list, client.InNamespace(a.namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		switch clock := &list.Items[i]; {
		case clock.Spec.Root.Kind != kind || clock.Spec.Root.Name != name:
		case clock.Status.RunningSince == nil:
			return fmt.Errorf("clock %s not found to run", clock.Name)
		case clock.Status.CreatedBy != a.role.user(a.namespace):
			return fmt.Errorf("clock %s counts for %q", clock.Name, clock.Status.CreatedBy)
		default:
			return nil
		}
	}
	return fmt.Errorf("a clock of %s %s was not found", kind, name)
}
