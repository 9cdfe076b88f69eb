// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

// A configuration that was deleted and applied again, or whose caBundle or rules another program changed, has them again at
// once: long before the next check at an interval.
func TestInjectorFollowsChanges(t *testing.T) {
	c := clustertest.Start(t)
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate([]byte(newCertificate(t, 1, true, 365*24*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	const name = "injector.example.org"
	path, none := "/", admissionv1.SideEffectClassNone
	config := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "none", Path: &path}}
	meta := metav1.ObjectMeta{Name: name}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.ValidatingWebhook{
		{Name: "a.example.org", ClientConfig: config, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
	}}
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.MutatingWebhook{
		{Name: "b.example.org", ClientConfig: config, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
	}}
	apply := func() {
		t.Helper()
		for _, object := range []client.Object{validating, mutating} {
			if err := admin.Create(t.Context(), object.DeepCopyObject().(client.Object)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func() {
		for _, object := range []client.Object{validating, mutating} {
			_ = admin.Delete(context.WithoutCancel(t.Context()), object.DeepCopyObject().(client.Object))
		}
	}
	apply()
	t.Cleanup(remove)

	injector := NewInjector()
	injector.Client, injector.Logger = admin, logr.Discard()
	injector.Registrations = clients.AdmissionregistrationV1().RESTClient()
	injector.Authorities = func() []*x509.Certificate { return []*x509.Certificate{own} }
	injector.Validating, injector.Mutating = name, name
	injector.now = func() time.Time { return testTime }
	injector.interval = time.Hour // only the watch and Update wake it up
	scope := admissionv1.NamespacedScope
	added := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"*"}, Resources: []string{"foos"}, Scope: &scope},
	}}
	var rules atomic.Pointer[[]admissionv1.RuleWithOperations]
	rules.Store(&added)
	injector.Rules = func(context.Context) (EntryRules, error) {
		return EntryRules{"a.example.org": *rules.Load(), "b.example.org": *rules.Load(), "unknown.example.org": added}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- injector.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	injected := func() {
		t.Helper()
		clustertest.Eventually(t, func() error {
			var v admissionv1.ValidatingWebhookConfiguration
			var m admissionv1.MutatingWebhookConfiguration
			if err := errors.Join(admin.Get(t.Context(), client.ObjectKey{Name: name}, &v), admin.Get(t.Context(), client.ObjectKey{Name: name}, &m)); err != nil {
				return err
			}
			if len(v.Webhooks[0].ClientConfig.CABundle) == 0 || len(m.Webhooks[0].ClientConfig.CABundle) == 0 {
				return errors.New("a caBundle is empty")
			}
			want := *rules.Load()
			if !equality.Semantic.DeepEqual(v.Webhooks[0].Rules, want) || !equality.Semantic.DeepEqual(m.Webhooks[0].Rules, want) || len(v.Webhooks) != 1 {
				return fmt.Errorf("the rules are %v and %v, want %v", v.Webhooks[0].Rules, m.Webhooks[0].Rules, want)
			}
			return nil
		})
	}
	injected()
	remove()
	apply()
	injected()
	empty := client.RawPatch("application/json-patch+json", []byte(`[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`))
	if err := admin.Patch(t.Context(), validating.DeepCopy(), empty); err != nil {
		t.Fatal(err)
	}
	injected()
	// The rules, too: they come back, and go with the setting.
	other := client.RawPatch("application/json-patch+json", []byte(`[{"op": "replace", "path": "/webhooks/0/rules/0/resources/0", "value": "bars"}]`))
	for _, object := range []client.Object{validating.DeepCopy(), mutating.DeepCopy()} {
		if err := admin.Patch(t.Context(), object, other); err != nil {
			t.Fatal(err)
		}
	}
	injected()
	rules.Store(&[]admissionv1.RuleWithOperations{})
	injector.Update()
	injected()
}
