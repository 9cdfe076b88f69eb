// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestQueueAppliedCondition(t *testing.T) {
	of := func(queue bool) Failure {
		return Failure{Policy: "p", AffectsQueue: queue, AffectsQuota: !queue, Err: errors.New("refused")}
	}
	tests := map[string]struct {
		queues      []string
		faults      []Failure
		status      metav1.ConditionStatus
		wantMessage string
	}{
		"no engine has queues":   {status: "True", wantMessage: "no queue is needed"},
		"queues":                 {queues: []string{"Cohort a", "Queue b"}, status: "True", wantMessage: "applied: Cohort a, Queue b"},
		"a queue refused":        {queues: []string{"Cohort a"}, faults: []Failure{of(true), of(false)}, status: "False", wantMessage: "policy p: refused"},
		"something else refused": {queues: []string{"Cohort a"}, faults: []Failure{of(false)}, status: "True", wantMessage: "applied: Cohort a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := QueueAppliedCondition(tc.queues, tc.faults)
			if got.Type != "QueueApplied" || got.Status != tc.status || got.Message != tc.wantMessage || got.Reason == "" {
				t.Errorf("%+v", got)
			}
		})
	}
}
