// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// A Job is put back by its Kueue Workload, whose place in the queue stays, and not a third time if it is its own fault that it does
// not start. Workloads without quota that have the Job's label are anyone's.
func TestPutBack(t *testing.T) {
	now := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
	withQuota := func(w *unstructured.Unstructured, record string) *unstructured.Unstructured {
		w.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "QuotaReserved", "status": "True"}}}
		if record != "" {
			w.SetAnnotations(map[string]string{v1alpha1.AnnotationPutBack: record})
		}
		return w
	}
	for name, tc := range map[string]struct {
		record   string
		ownFault bool
		active   bool
		forged   bool
		want     string
	}{
		"the first time":                {active: true, ownFault: true, want: "1 2026-10-24T12:05:00Z"},
		"the second time":               {record: "1", active: true, ownFault: true, want: "2 2026-10-24T12:10:00Z"},
		"the third time, its own fault": {record: "2", active: true, ownFault: true, want: "2"},
		"the third time":                {record: "2", active: true, want: "3 2026-10-24T12:20:00Z"},
		"already":                       {record: "1 2026-10-24T12:05:00Z", want: "1 2026-10-24T12:05:00Z"},
		"another's Workload":            {active: true, forged: true},
	} {
		t.Run(name, func(t *testing.T) {
			job := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
			queued := newQueuedWorkload(t, "job-x-1a2b3", "uid-of-x")
			if !tc.forged {
				queued = withQuota(queued, tc.record)
			}
			queued.Object["spec"] = map[string]any{"active": tc.active}
			w := newFakeAPI(t, job, queued)
			until, first, err := w.stopper().PutBack(t.Context(), targetOf(job), now, tc.ownFault)
			if err != nil {
				t.Fatal(err)
			}
			got := w.get(t, queued)
			record := workloadkind.ParsePutBack(tc.want)
			changed := tc.want != tc.record && !tc.forged
			if got.GetAnnotations()[v1alpha1.AnnotationPutBack] != tc.want || !until.Equal(record.Until) || first != changed || workloadkind.RequestsPods(got) != (tc.active && !changed) {
				t.Errorf("until %s, first %t: %v", until, first, got.Object)
			}
			if workloadkind.IsPaused(w.get(t, job)) {
				t.Error("the Job itself was suspended")
			}
		})
	}
}

// A root that is gone, whose pods still hold their GPUs, cannot be put back: it is stopped as others are.
func TestPutBackOfDeletedRoot(t *testing.T) {
	job := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
	until, first, err := newFakeAPI(t).stopper().PutBack(t.Context(), targetOf(job), time.Now(), false)
	if !until.IsZero() || first || err != nil {
		t.Errorf("until %s, first %t, %v", until, first, err)
	}
}
