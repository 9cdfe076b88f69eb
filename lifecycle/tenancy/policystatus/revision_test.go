// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/store"
	"sluice.dev/test/clustertest"
)

// waitForRevisions waits until exactly these generations of a policy are kept.
func (l testEnv) waitForRevisions(policy *v1alpha1.Policy, generations ...int64) {
	l.Helper()
	clustertest.Eventually(l, func() error {
		var list appsv1.ControllerRevisionList
		if err := l.List(l.Context(), &list, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
			return err
		}
		var kept []int64
		for i := range list.Items {
			if revision := &list.Items[i]; store.IsRevisionOf(revision, policy) {
				source, err := store.RevisionSource(revision, policy)
				if err != nil || source.Rego == "" {
					return fmt.Errorf("revision %s: %w", revision.Name, err)
				}
				kept = append(kept, revision.Revision)
			}
		}
		if diff := cmp.Diff(generations, kept); diff != "" {
			return fmt.Errorf("kept generations of %s (-want +got):\n%s", policy.Name, diff)
		}
		return nil
	})
}

// waitForEnforced waits until the status names the generation in force, and the reason.
func (l testEnv) waitForEnforced(policy *v1alpha1.Policy, generation int64, message string) {
	l.Helper()
	clustertest.Eventually(l, func() error {
		now, err := l.getPolicy(policy.Name)
		if err != nil {
			return err
		}
		if status := now.Status; status.ObservedGeneration != policy.Generation || status.EnforcedGeneration != generation ||
			!strings.Contains(status.Conditions[1].Message, message) {
			return fmt.Errorf("%s of generation %d has the status %+v, want %d in force, and %q", policy.Name, policy.Generation, status, generation, message)
		}
		return nil
	})
}

// update writes the spec of a policy, whose status changes meanwhile.
func (l testEnv) update(policy *v1alpha1.Policy) {
	l.Helper()
	spec := policy.Spec
	clustertest.Eventually(l, func() error {
		if err := l.Get(l.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		policy.Spec = spec
		return l.Update(l.Context(), policy)
	})
}

// The last good version of a policy is kept in the cluster, only that one, and is in force again after
// a restart. Guards invariants 4 and 11 of the design.
func TestLastGoodVersionIsKeptInTheCluster(t *testing.T) {
	l := startTestEnv(t)
	policy := &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "team.kept"},
		Spec:       v1alpha1.PolicySpec{Rego: "package team\n\ndeny contains \"first\"\n"},
	}
	edit := func(rego string) {
		t.Helper()
		policy.Spec.Rego = rego
		l.update(policy)
	}
	if err := l.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	l.waitForRevisions(policy, 1)
	edit("package team\n\ndeny contains \"second\"\n")
	l.waitForRevisions(policy, 2)
	edit("package team\n\ndeny contains \"third\" if {\n")
	l.waitForEnforced(policy, 2, "generation 2 stays in force")
	l.waitForRevisions(policy, 2)

	l.stop()
	edit("package team\n\ndeny := 4\n")
	l.stop = l.start()
	l.waitForEnforced(policy, 2, "generation 2 stays in force")
	l.waitForRevisions(policy, 2)

	edit("package team\n\ndeny contains \"fifth\"\n")
	l.waitForEnforced(policy, 5, "in force")
	l.waitForRevisions(policy, 5)

	// A deleted revision comes again.
	if err := l.DeleteAllOf(t.Context(), &appsv1.ControllerRevision{}, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	l.waitForRevisions(policy, 5)
}

// The parameters of a mirror are kept too: those as shipped may be weaker. Guards invariant 4 of the
// design.
func TestLastGoodParametersOfAMirrorSurviveARestart(t *testing.T) {
	l := startTestEnv(t)
	mirror := l.waitForMirror(testBuiltIn[0])
	l.waitForRevisions(mirror)
	setParameters := func(raw string) {
		t.Helper()
		mirror.Spec.Parameters = nil
		if raw != "" {
			mirror.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(raw)}
		}
		l.update(mirror)
	}
	setParameters(`{"minimumGraceSeconds": 60}`)
	l.waitForRevisions(mirror, mirror.Generation)
	good := mirror.Generation
	l.stop()
	setParameters(`{"minimumGraceSeconds": "soon"}`)
	l.stop = l.start()
	l.waitForEnforced(mirror, good, fmt.Sprintf("the parameters of generation %d stay in force", good))
	l.waitForRevisions(mirror, good)
	setParameters("")
	l.waitForEnforced(mirror, mirror.Generation, "in force")
	l.waitForRevisions(mirror)
}

// A policy without a good version says what it does.
func TestStatusOfAPolicyWithoutAGoodVersion(t *testing.T) {
	l := startTestEnv(t)
	for enforcement, message := range map[v1alpha1.Enforcement]string{
		v1alpha1.EnforcementDeny:   "no version of this policy is in force, so all objects that it matches are refused: fix or delete it",
		v1alpha1.EnforcementWarn:   "no version of this policy is in force, so it is skipped",
		v1alpha1.EnforcementDryRun: "no version of this policy is in force, so it is skipped",
	} {
		policy := &v1alpha1.Policy{
			ObjectMeta: metav1.ObjectMeta{Name: "broken-" + strings.ToLower(string(enforcement))},
			Spec:       v1alpha1.PolicySpec{Rego: "package team\n\ndeny := 4\n", Enforcement: enforcement},
		}
		if err := l.Create(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		l.waitForEnforced(policy, 0, message)
		l.waitForRevisions(policy)
	}
}
