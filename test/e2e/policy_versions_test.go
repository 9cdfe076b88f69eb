// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/store"
	"sluice.dev/test/clustertest"
)

// killComponents kills components, also suspended ones, and waits until they run again.
func (s *sluiceCluster) killComponents(t *testing.T, names ...string) {
	t.Helper()
	before, err := s.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range before.Components {
		for _, name := range names {
			if component.Name != name {
				continue
			}
			if err := syscall.Kill(component.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			clustertest.EventuallyWithin(t, restartTimeout, func() error { return s.restarted(t.Context(), name, component.PID) })
		}
	}
}

// stopWebhook suspends the webhook, so that the API server accepts policies unchecked.
func (s *sluiceCluster) stopWebhook(t *testing.T) {
	t.Helper()
	r, err := s.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range r.Components {
		if component.Name == "webhook" {
			if err := syscall.Kill(component.PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventuallyLong(t, func() error { return processStopped(component.PID) })
		}
	}
}

// A broken edit of a Deny policy, and a restart of every process that had the good version in memory,
// admit nothing that the good version refused. A policy that never was good refuses what it matches.
// Guards invariants 4, 8 and 11 of the design.
func TestLastGoodVersionOfAPolicySurvivesRestarts(t *testing.T) {
	const ns, other = "versions", "versions-other"
	s := newDedicatedCluster(t)
	s.createDepartment(t, "versions", newPoolQuota("dgx", "4", "8"))
	s.createGovernedProject(t, "versions", ns, newPoolQuota("dgx", "2", "4"))
	s.createGovernedProject(t, "versions", other, newPoolQuota("dgx", "0", "1"))
	newPolicy := func(name, rego, project string, enforcement v1alpha1.Enforcement) *v1alpha1.Policy {
		return &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpec{
			Rego: rego, Match: v1alpha1.PolicyMatch{Projects: []string{project}}, Enforcement: enforcement,
		}}
	}
	createPod := func(namespace string, change ...func(*corev1.Pod)) error {
		pod := newPod(namespace, "tried", change...)
		_, err := s.clientset.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	waitForRefusal := func(namespace, message string) {
		t.Helper()
		clustertest.EventuallyWithin(t, restartTimeout, func() error {
			if err := createPod(namespace); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message) {
				return fmt.Errorf("err = %w, want a refusal with %q", err, message)
			}
			return nil
		})
	}
	guard := newPolicy("guard", "package guard\n\ndeny contains \"the pod has no label team\" if not input.object.metadata.labels.team\n", ns, v1alpha1.EnforcementDeny)
	if err := s.adminClient.Create(t.Context(), guard); err != nil {
		t.Fatal(err)
	}
	const refusal = "the pod has no label team (policy guard)"
	waitForRefusal(ns, refusal)
	revision := &appsv1.ControllerRevision{}
	eventuallyLong(t, func() (err error) {
		revision, err = s.policyRevision(t, guard)
		return err
	})

	s.stopWebhook(t)
	edited := guard.DeepCopy()
	eventuallyLong(t, func() error {
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(guard), edited); err != nil {
			return err
		}
		edited.Spec.Rego = "package guard\n\ndeny contains \"broken\" if input.objekt\n"
		return s.adminClient.Update(t.Context(), edited)
	})
	for _, policy := range []*v1alpha1.Policy{
		newPolicy("never-good", "package never\n\ndeny contains \"x\" if input.objekt\n", other, v1alpha1.EnforcementDeny),
		newPolicy("never-good-warning", "package never\n\ndeny contains \"x\" if input.objekt\n", ns, v1alpha1.EnforcementWarn),
	} {
		if err := s.adminClient.Create(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	s.killComponents(t, "webhook", "lifecycle")

	waitForRefusal(ns, refusal)
	waitForRefusal(other, "the policy never-good could not be evaluated: no version of it is in force: never-good:3:")
	if err := createPod(ns, func(p *corev1.Pod) { p.Labels["team"] = "a" }); err != nil {
		t.Errorf("a pod that the last good version admits: %v", err)
	}
	for name, want := range map[string]struct {
		enforced int64
		message  string
	}{
		"guard":              {1, "generation 1 stays in force"},
		"never-good":         {0, "all objects that it matches are refused"},
		"never-good-warning": {0, "so it is skipped"},
	} {
		clustertest.EventuallyWithin(t, restartTimeout, func() error {
			policy := &v1alpha1.Policy{}
			if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, policy); err != nil {
				return err
			}
			status := policy.Status
			if status.ObservedGeneration != policy.Generation || status.EnforcedGeneration != want.enforced ||
				!strings.Contains(status.Conditions[0].Message, want.message) {
				return fmt.Errorf("status %+v, want generation %d in force, and %q", status, want.enforced, want.message)
			}
			return nil
		})
	}

	// Garbage collection deletes it with its policy.
	if err := s.adminClient.Delete(t.Context(), guard); err != nil {
		t.Fatal(err)
	}
	clustertest.EventuallyWithin(t, restartTimeout, func() error {
		err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(revision), &appsv1.ControllerRevision{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the revision of the deleted policy: %w", err)
		}
		return nil
	})
}

// policyRevision returns the revision of a policy.
func (s *sluiceCluster) policyRevision(t *testing.T, policy *v1alpha1.Policy) (*appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := s.adminClient.List(t.Context(), &list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels(store.RevisionLabels()))
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if store.IsRevisionOf(&list.Items[i], policy) {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no revision of policy %s", policy.Name)
}
