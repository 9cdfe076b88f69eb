// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

const testQuotaResource corev1.ResourceName = "sluice.dev/gpu-milli.dgx"

func quotaResources(value string) corev1.ResourceList {
	if value == "" {
		return nil
	}
	return corev1.ResourceList{"requests." + testQuotaResource: resource.MustParse(value)}
}

func newQuota(name, hard, counted, used string) corev1.ResourceQuota {
	return corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: quotaResources(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: quotaResources(counted), Used: quotaResources(used)},
	}
}

func TestUncountedQuotas(t *testing.T) {
	got := UncountedQuotas([]corev1.ResourceQuota{
		newQuota("counted", "1000", "1k", "0"),
		newQuota("new", "1000", "", ""),
		newQuota("raised", "2000", "1k", "500"),
		newQuota("empty", "", "", ""),
	})
	if diff := cmp.Diff([]string{"new", "raised"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEnforcedLimit(t *testing.T) {
	scoped := newQuota("scoped", "1", "1", "1")
	scoped.Spec.ScopeSelector = &corev1.ScopeSelector{}
	terminating := newQuota("terminating", "1", "1", "1")
	terminating.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	type limit struct {
		Hard, Used int64
		Found      bool
	}
	tests := map[string]struct {
		quotas []corev1.ResourceQuota
		want   limit
	}{
		"none":              {nil, limit{}},
		"not counted yet":   {[]corev1.ResourceQuota{newQuota("a", "5", "", "")}, limit{}},
		"for some pods":     {[]corev1.ResourceQuota{scoped, terminating}, limit{}},
		"for all pods":      {[]corev1.ResourceQuota{scoped, newQuota("a", "1500", "1500", "500")}, limit{1500, 500, true}},
		"several":           {[]corev1.ResourceQuota{newQuota("a", "2k", "2k", "1"), newQuota("b", "1k", "1k", "1")}, limit{1000, 1, true}},
		"as it was counted": {[]corev1.ResourceQuota{newQuota("a", "2k", "1k", "1k")}, limit{1000, 1000, true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			hard, used, found := EnforcedLimit(tc.quotas, testQuotaResource)
			if diff := cmp.Diff(tc.want, limit{hard, used, found}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
