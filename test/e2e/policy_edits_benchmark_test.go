// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// policyEdits is the number of edits in BenchmarkPolicyEdits.
const policyEdits = 48

// BenchmarkPolicyEdits edits a policy while clients create pods through two replicas of the webhook, of which one is
// killed in the middle. One operation is all edits: run it with -benchtime 1x.
//
//	pods      pods that were created meanwhile, without effect
//	refused   those refused, by the policy or another, which all the pods satisfy
//	retries   requests that the webhook did not answer, as those of the killed replica
func BenchmarkPolicyEdits(b *testing.B) {
	b.ReportMetric(0, "ns/op") // the cluster's start would dominate
	r := newReplicasTest(b, newUnsharedCluster(b))
	rego := func(edit int) string {
		return fmt.Sprintf("package team\n\noverrides := {\"metadata\": {\"labels\": {\"team\": \"edit-%d\"}}}\n", edit)
	}
	policy := &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDeny, Match: v1alpha1.PolicyMatch{Projects: []string{r.ns}}, Rego: rego(0)},
	}
	r.createForTest(b, policy)
	r.waitForCondition("team", v1alpha1.ConditionEnforced, "2 of 2 webhook replicas have generation 1")
	for b.Loop() {
		var pods, refused, retries atomic.Int64
		ctx, stop := context.WithCancel(b.Context())
		var load sync.WaitGroup
		for worker := range *creators {
			load.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, err := r.clientset.CoreV1().Pods(r.ns).Create(ctx, newPod(r.ns, fmt.Sprintf("pod-%d-%d", worker, n)),
						metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					switch {
					case err == nil:
						pods.Add(1)
					case isWebhookTimeout(err):
						retries.Add(1)
					case ctx.Err() == nil:
						refused.Add(1)
						b.Log(err)
					}
				}
			})
		}
		for edit := 1; edit <= policyEdits; edit++ {
			before := pods.Load()
			patch := client.MergeFrom(policy.DeepCopy())
			policy.Spec.Rego = rego(edit)
			if err := r.adminClient.Patch(b.Context(), policy, patch); err != nil {
				b.Fatal(err)
			}
			if edit == policyEdits/2 {
				r.replicas.killOne()
			}
			eventuallyLong(b, func() error { return atLeast(pods.Load(), before+int64(*creators)) })
		}
		stop()
		load.Wait()
		b.ReportMetric(float64(pods.Load()), "pods")
		b.ReportMetric(float64(refused.Load()), "refused")
		b.ReportMetric(float64(retries.Load()), "retries")
	}
}

func atLeast(got, want int64) error {
	if got < want {
		return unexpectedState(fmt.Sprintf("at least %d", want), got)
	}
	return nil
}
