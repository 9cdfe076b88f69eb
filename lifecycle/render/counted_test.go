// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const currency corev1.ResourceName = "sluice.dev/gpu-milli.dgx"

func amount(value string) corev1.ResourceList {
	if value == "" {
		return nil
	}
	return corev1.ResourceList{"requests." + currency: resource.MustParse(value)}
}

func quota(name, hard, counted, used string) corev1.ResourceQuota {
	return corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: amount(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: amount(counted), Used: amount(used)},
	}
}

func TestUncounted(t *testing.T) {
	got := Uncounted([]corev1.ResourceQuota{
		quota("counted", "1000", "1k", "0"),
		quota("new", "1000", "", ""),
		quota("raised", "2000", "1k", "500"),
		quota("empty", "", "", ""),
	})
	if diff := cmp.Diff([]string{"new", "raised"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLimit(t *testing.T) {
	scoped := quota("scoped", "1", "1", "1")
	scoped.Spec.ScopeSelector = &corev1.ScopeSelector{}
	terminating := quota("terminating", "1", "1", "1")
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
		"not counted yet":   {[]corev1.ResourceQuota{quota("a", "5", "", "")}, limit{}},
		"for some pods":     {[]corev1.ResourceQuota{scoped, terminating}, limit{}},
		"for all pods":      {[]corev1.ResourceQuota{scoped, quota("a", "1500", "1500", "500")}, limit{1500, 500, true}},
		"several":           {[]corev1.ResourceQuota{quota("a", "2k", "2k", "1"), quota("b", "1k", "1k", "1")}, limit{1000, 1, true}},
		"as it was counted": {[]corev1.ResourceQuota{quota("a", "2k", "1k", "1k")}, limit{1000, 1000, true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			hard, used, found := Limit(tc.quotas, currency)
			if diff := cmp.Diff(tc.want, limit{hard, used, found}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
