// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestQueueAppliedSaysWhatIsThere(t *testing.T) {
	of := func(queue bool) Fault {
		return Fault{Policy: "p", Queue: queue, Quota: !queue, Err: errors.New("refused")}
	}
	tests := map[string]struct {
		queues []string
		faults []Fault
		status metav1.ConditionStatus
		says   string
	}{
		"no engine has queues":   {status: "True", says: "no queue is needed"},
		"queues":                 {queues: []string{"Cohort a", "Queue b"}, status: "True", says: "applied: Cohort a, Queue b"},
		"a queue refused":        {queues: []string{"Cohort a"}, faults: []Fault{of(true), of(false)}, status: "False", says: "policy p: refused"},
		"something else refused": {queues: []string{"Cohort a"}, faults: []Fault{of(false)}, status: "True", says: "applied: Cohort a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := QueueApplied(tc.queues, tc.faults)
			if got.Type != "QueueApplied" || got.Status != tc.status || got.Message != tc.says || got.Reason == "" {
				t.Errorf("%+v", got)
			}
		})
	}
}
