// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/manifests"
)

// newLive returns the shipped configurations with a caBundle and the rules of added kinds, as a cluster has them.
func newLive(t *testing.T, added map[string][]admissionv1.RuleWithOperations) Configurations {
	t.Helper()
	live, err := Shipped(manifests.Files)
	if err != nil {
		t.Fatal(err)
	}
	for i := range live.Validating.Webhooks {
		w := &live.Validating.Webhooks[i]
		w.ClientConfig.CABundle, w.Rules = []byte("bundle"), append(w.Rules, added[w.Name]...)
	}
	for i := range live.Mutating.Webhooks {
		w := &live.Mutating.Webhooks[i]
		w.ClientConfig.CABundle, w.Rules = []byte("bundle"), append(w.Rules, added[w.Name]...)
	}
	return live
}

// Each way to read, change or let pass what users create is severe, and what cloud providers change is not. Guards that a stolen
// right to write the configurations is noticed.
func TestCompare(t *testing.T) {
	kinds := []v1alpha1.PodTemplates{
		{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}},
		{Kind: "Tuner.example.org", Resource: "tuners", Paths: []string{"spec.template"}},
	}
	added := workloadkind.AddedRules(kinds)
	all := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}
	never := []admissionv1.MatchCondition{{Name: "never", Expression: "false"}}
	for name, tc := range map[string]struct {
		change func(c Configurations)
		want   string // of the first difference; "" for none
		severe bool
	}{
		"as shipped": {func(Configurations) {}, "", false},
		"rules of added kinds in another order": {func(c Configurations) {
			for i := range c.Mutating.Webhooks {
				if rules := c.Mutating.Webhooks[i].Rules; c.Mutating.Webhooks[i].Name == workloadkind.AddedWorkloadsWebhook {
					rules[0], rules[1] = rules[1], rules[0]
				}
			}
		}, "", false},
		"a foreign URL": {func(c Configurations) {
			c.Mutating.Webhooks[0].ClientConfig.URL, c.Mutating.Webhooks[0].ClientConfig.Service = ptr.To("https://evil.example/"), nil
		}, "sends objects to https://evil.example/", true},
		"a foreign Service": {func(c Configurations) { c.Mutating.Webhooks[0].ClientConfig.Service.Namespace = "evil" }, "calls evil/webhook:443/mutate/forged-decisions", true},
		"another port":      {func(c Configurations) { c.Mutating.Webhooks[0].ClientConfig.Service.Port = ptr.To[int32](8443) }, "calls sluice-system/webhook:8443/", true},
		"it fails open":     {func(c Configurations) { c.Validating.Webhooks[0].FailurePolicy = ptr.To(admissionv1.Ignore) }, "was changed in failurePolicy", true},
		"it never matches":  {func(c Configurations) { c.Validating.Webhooks[0].MatchConditions = never }, "was changed in matchConditions", true},
		"it selects no object": {func(c Configurations) {
			c.Validating.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "was changed in objectSelector", true},
		"it sees everything": {func(c Configurations) { c.Validating.Webhooks[0].Rules = append(c.Validating.Webhooks[0].Rules, all) }, "has other rules", true},
		"no rules":           {func(c Configurations) { c.Validating.Webhooks[0].Rules = nil }, "has other rules", true},
		"no caBundle":        {func(c Configurations) { c.Validating.Webhooks[0].ClientConfig.CABundle = nil }, "has no caBundle", true},
		"a missing webhook":  {func(c Configurations) { c.Validating.Webhooks = c.Validating.Webhooks[1:] }, "is missing", true},
		"a webhook at a foreign URL": {func(c Configurations) {
			c.Validating.Webhooks = append(c.Validating.Webhooks, admissionv1.ValidatingWebhook{
				Name: "x.sluice.dev", ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://evil.example/")},
			})
		}, "is not one of this version; it sends objects to https://evil.example/", true},
		"a webhook of a newer version": {func(c Configurations) {
			further := *c.Validating.Webhooks[0].DeepCopy()
			further.Name = "new.sluice.dev"
			c.Validating.Webhooks = append(c.Validating.Webhooks, further)
		}, "is not one of this version", false},
		"a namespace of a cloud provider": {func(c Configurations) {
			c.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"control-plane": "x"}}
		}, "was changed in namespaceSelector", false},
		"a timeout": {func(c Configurations) { c.Validating.Webhooks[0].TimeoutSeconds = ptr.To[int32](9) }, "was changed in timeoutSeconds", false},
	} {
		t.Run(name, func(t *testing.T) {
			shipped, err := Shipped(manifests.Files)
			if err != nil {
				t.Fatal(err)
			}
			live := newLive(t, added)
			tc.change(live)
			found := Compare(live, shipped, added)
			if tc.want == "" {
				if len(found) > 0 {
					t.Errorf("%v", found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0].Message, tc.want) || found[0].Severe != tc.severe {
				t.Errorf("got %+v, want %q, severe %v", found, tc.want, tc.severe)
			}
		})
	}
	shipped, err := Shipped(manifests.Files)
	if err != nil {
		t.Fatal(err)
	}
	if found := Compare(newLive(t, added), shipped, nil); len(found) > 0 {
		t.Errorf("with an unknown setting: %v", found)
	}
	if found := Compare(newLive(t, nil), shipped, added); len(found) != 2 {
		t.Errorf("added kinds without rules: %v", found)
	}
}

// The metric counts severe differences, and is negative while the configurations cannot be read.
func TestMonitor(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	live := newLive(t, nil)
	forbidden := false
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(live.Validating, live.Mutating).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if forbidden {
				return apierrors.NewForbidden(schema.GroupResource{}, key.Name, errors.New("test"))
			}
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	m := &Monitor{Live: reader, Files: manifests.Files}
	shipped, err := Shipped(m.Files)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want float64) {
		t.Helper()
		m.observe(t.Context(), shipped)
		if got := testutil.ToFloat64(differences); got != want {
			t.Errorf("%v differences, want %v", got, want)
		}
	}
	expect(0)
	var mutating admissionv1.MutatingWebhookConfiguration
	if err := reader.Get(t.Context(), client.ObjectKey{Name: Name}, &mutating); err != nil {
		t.Fatal(err)
	}
	mutating.Webhooks[0].ClientConfig = admissionv1.WebhookClientConfig{URL: ptr.To("https://evil.example/"), CABundle: []byte("x")}
	if err := reader.Update(t.Context(), &mutating); err != nil {
		t.Fatal(err)
	}
	expect(1)
	forbidden = true
	expect(-1)
	forbidden = false
	if err := reader.Delete(t.Context(), &mutating); err != nil {
		t.Fatal(err)
	}
	expect(float64(len(live.Mutating.Webhooks)))
}
