// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/workloadkind"
	"sluice.dev/manifests"
)

// The API server asks about every kind that is stopped, and about every kind's
// scale.
func TestWebhookRulesCoverAllStoppableKinds(t *testing.T) {
	entry := findWebhook(t, "restarts.sluice.dev")
	if *entry.FailurePolicy != admissionv1.Ignore {
		t.Errorf("failurePolicy %s: while the webhook is down, nothing may be held up", *entry.FailurePolicy)
	}
	want := []string{"*/*/scale UPDATE"}
	for _, kind := range workloadkind.All() {
		switch kind.StopAction.Method {
		case workloadkind.StopNever:
		case workloadkind.StopByDeletion:
			want = append(want, kind.Group+"/"+kind.Resource+" CREATE")
		default:
			if kind.Kind == "CronJob" { // whose runs are judged
				want = append(want, kind.Group+"/"+kind.Resource+" UPDATE")
				continue
			}
			want = append(want, kind.Group+"/"+kind.Resource+" CREATE", kind.Group+"/"+kind.Resource+" UPDATE")
		}
	}
	asked := map[string]bool{}
	for _, rule := range entry.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, operation := range rule.Operations {
					asked[group+"/"+resource+" "+string(operation)] = true
				}
			}
		}
	}
	want = slices.DeleteFunc(want, func(one string) bool { return asked[one] })
	if diff := cmp.Diff([]string{}, want); diff != "" {
		t.Errorf("it is not asked about (-none +these):\n%s", diff)
	}
}

func findWebhook(t *testing.T, name string) admissionv1.ValidatingWebhook {
	t.Helper()
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "ValidatingWebhookConfiguration" {
			continue
		}
		var configuration admissionv1.ValidatingWebhookConfiguration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, entry := range configuration.Webhooks {
			if entry.Name == name {
				return entry
			}
		}
	}
	t.Fatalf("no webhook %s", name)
	return admissionv1.ValidatingWebhook{}
}
