// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// fakeReplicas differ from the replica that asks.
type fakeReplicas replica.Difference

func (f fakeReplicas) Difference(context.Context, *engine.Set) replica.Difference {
	return replica.Difference(f)
}

// While replicas of two program versions run whose policies desire different things, the client repeats the creation of a
// pod that one replica mutated and the other one does not allow, and no refusal is final that another version may explain.
// Guards invariant 4 of the design.
func TestUpgradeOfAReplicaRefusesNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former, upgraded := newBase(t, teamLabel("former")), newBase(t, teamLabel("upgraded"))
		const reverted = "another webhook reverted what this policy requires: metadata.labels[team]"
		handle := func(base evaluation.Base, replicas pod.Replicas) admission.Response {
			t.Helper()
			return (&pod.Validator{Base: base, Replicas: replicas}).Handle(t.Context(), mutated(t, former, 1))
		}
		for what, tt := range map[string]struct {
			replicas pod.Replicas
			code     int32
			message  string
		}{
			"without other replicas":               {nil, http.StatusForbidden, reverted},
			"beside replicas of the same policies": {fakeReplicas(replica.NoDifference), http.StatusForbidden, reverted},
			"beside another version":               {fakeReplicas(replica.OtherProgram), http.StatusTooManyRequests, "run different versions, since an upgrade is in progress"},
			"beside other policies":                {fakeReplicas(replica.OtherPolicies), http.StatusTooManyRequests, "have different policies, since a policy was just changed"},
			"beside other data":                    {fakeReplicas(replica.OtherData), http.StatusTooManyRequests, "have different data, since an object or a ConfigMap that policies read just changed"},
		} {
			response := handle(upgraded, tt.replicas)
			status := response.Result
			if response.Allowed || status.Code != tt.code || !strings.Contains(status.Message, tt.message) || !strings.Contains(status.Message, reverted) {
				t.Errorf("%s: %+v", what, response)
			}
			// The API server turns this into the header Retry-After, without which client-go does not repeat a request.
			if repeated := status.Details != nil && status.Details.RetryAfterSeconds == 1; repeated != (tt.code == http.StatusTooManyRequests) {
				t.Errorf("%s: details %+v", what, status.Details)
			}
			if response := handle(former, tt.replicas); !response.Allowed {
				t.Errorf("%s: mutated by the same replica: %+v", what, response)
			}
		}
	})
}
