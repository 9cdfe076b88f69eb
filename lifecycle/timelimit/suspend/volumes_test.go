// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/test/clustertest"
)

// Volumes are never deleted by Sluice: a StatefulSet that deletes the claims of scaled pods keeps them when Sluice scales
// it to 0, also if its annotations are full. What its user set otherwise stays.
func TestStopKeepsVolumes(t *testing.T) {
	for name, tc := range map[string]struct {
		policy, want string
		full         bool
	}{
		"deletes them":                           {"{whenScaled: Delete, whenDeleted: Delete}", "Retain Delete", false},
		"deletes them, and its annotations full": {"{whenScaled: Delete, whenDeleted: Delete}", "Retain Delete", true},
		"keeps them":                             {"{whenScaled: Retain, whenDeleted: Delete}", "Retain Delete", false},
		"has no policy":                          {"", " ", false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := ""
			if tc.policy != "" {
				policy = ", persistentVolumeClaimRetentionPolicy: " + tc.policy
			}
			set := newObject(t, groupKind("apps", "StatefulSet"), "spec: {replicas: 3"+policy+"}")
			w := newFakeAPI(t, set)
			if tc.full {
				w.callError = func(verb string, _ client.Object) error {
					if verb == "patch" && w.writes == 1 {
						return apierrors.NewRequestEntityTooLargeError("annotations")
					}
					return nil
				}
			}
			if err := w.stopper().Stop(t.Context(), targetOf(set), stopUntil, ""); err != nil {
				t.Fatal(err)
			}
			found, _, _ := unstructured.NestedStringMap(w.get(t, set).Object, "spec", "persistentVolumeClaimRetentionPolicy")
			if got := found["whenScaled"] + " " + found["whenDeleted"]; got != tc.want {
				t.Errorf("the policy is %q, want %q", got, tc.want)
			}
		})
	}
}

// The same with the controllers of Kubernetes: the claims are still there when the pods are gone.
func TestStopKeepsVolumesInCluster(t *testing.T) {
	p := newTestCluster(t)
	set := p.create(`{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: x, replicas: 2, podManagementPolicy: Parallel,
		persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Retain},
		volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}],
		selector: {matchLabels: {app: x}}, ` + podTemplate(corev1.RestartPolicyAlways) + `}}`)
	claims, pods := &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}
	count := func(wantClaims, wantPods int) error {
		if err := errors.Join(p.List(t.Context(), claims, client.InNamespace(p.namespace)), p.List(t.Context(), pods, client.InNamespace(p.namespace))); err != nil {
			return err
		}
		if len(claims.Items) != wantClaims || len(pods.Items) != wantPods {
			return fmt.Errorf("%d claims and %d pods, want %d and %d", len(claims.Items), len(pods.Items), wantClaims, wantPods)
		}
		return nil
	}
	clustertest.Eventually(t, func() error { return count(2, 2) })
	clustertest.Eventually(t, func() error {
		if err := p.stopper.Stop(t.Context(), targetOf(set), stopUntil, ""); err != nil {
			return err
		}
		return count(2, 0)
	})
	for _, claim := range claims.Items {
		if claim.DeletionTimestamp != nil || len(claim.OwnerReferences) > 0 {
			t.Errorf("claim %s: deleted %v, owners %v", claim.Name, claim.DeletionTimestamp, claim.OwnerReferences)
		}
	}
}
