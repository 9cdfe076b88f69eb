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

// The webhook is registered for every kind that Sluice stops, and for the scale of every kind.
func TestWebhookRulesCoverAllStoppableKinds(t *testing.T) {
	entry := findWebhook(t, "restarts.sluice.dev")
	if *entry.FailurePolicy != admissionv1.Ignore {
		t.Errorf("failurePolicy %s: an unavailable webhook must not deny starts", *entry.FailurePolicy)
	}
	want := []string{"*/*/scale UPDATE"}
	for _, kind := range workloadkind.All() {
		switch kind.StopAction.Method {
		case workloadkind.StopNever:
		case workloadkind.StopByDeletion:
			want = append(want, kind.Group+"/"+kind.Resource+" CREATE")
		default:
			if kind.Kind == "CronJob" { // its Jobs are validated
				want = append(want, kind.Group+"/"+kind.Resource+" UPDATE")
				continue
			}
			want = append(want, kind.Group+"/"+kind.Resource+" CREATE", kind.Group+"/"+kind.Resource+" UPDATE")
		}
	}
	registered := map[string]bool{}
	for _, rule := range entry.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, operation := range rule.Operations {
					registered[group+"/"+resource+" "+string(operation)] = true
				}
			}
		}
	}
	want = slices.DeleteFunc(want, func(rule string) bool { return registered[rule] })
	if diff := cmp.Diff([]string{}, want); diff != "" {
		t.Errorf("missing rules (-none +missing):\n%s", diff)
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
