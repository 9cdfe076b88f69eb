// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
)

const testName = "webhook.sluice-system.svc"

var errKilled = errors.New("killed")

// testCluster is a cluster whose API servers observe a changed configuration up to slowAPIServer late, and whose replicas serve a
// former certificate for up to slowKubelet.
type testCluster struct {
	t *testing.T
	// stored writes without being observed.
	stored, client client.Client
	renewal        *Renewal
	now            time.Time
	// killAt is the number of the write before which the run is killed, or after it with afterWrite; 0 is none.
	killAt, writes int
	afterWrite     bool
	// hook is called once, before the write of the number hookAt.
	hook    func()
	hookAt  int
	history []observed
}

const (
	slowAPIServer = 10 * time.Second
	slowKubelet   = 50 * time.Minute
)

// observed is the state from a time on.
type observed struct {
	at      time.Time
	bundles [][]byte
	served  string
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{t: t, now: time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)}
	fail := admissionv1.Fail
	path := "/validate/projects"
	service := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: v1alpha1.SystemNamespace, Name: "webhook", Path: &path}}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: SecretName}, Type: corev1.SecretTypeOpaque},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}, Webhooks: []admissionv1.ValidatingWebhook{
			{Name: "projects.sluice.dev", ClientConfig: service, FailurePolicy: &fail}, {Name: "pods.sluice.dev", ClientConfig: service},
		}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}, Webhooks: []admissionv1.MutatingWebhook{
			{Name: "pods.sluice.dev", ClientConfig: service}, {Name: "decisions.sluice.dev", ClientConfig: service},
		}},
	).Build()
	c.stored = stored
	c.client = interceptor.NewClient(stored, interceptor.Funcs{
		Update: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return c.write(func() error { return w.Update(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return c.write(func() error { return w.Patch(ctx, object, patch, options...) })
		},
	})
	c.renewal = &Renewal{Client: c.client, Names: []string{testName}, Logger: testr.New(t)}
	c.renewal.now = func() time.Time { return c.now }
	c.renewal.wait = func(_ context.Context, d time.Duration) error { c.advance(d); return nil }
	return c
}

func (c *testCluster) write(write func() error) error {
	c.writes++
	if hook := c.hook; hook != nil && c.writes == c.hookAt {
		c.hook = nil
		hook()
	}
	if c.writes == c.killAt && !c.afterWrite {
		return errKilled
	}
	err := write()
	if err == nil {
		c.observe()
	}
	if err == nil && c.writes == c.killAt {
		return errKilled
	}
	return err
}

func (c *testCluster) advance(d time.Duration) {
	c.now = c.now.Add(d)
	c.observe()
}

func (c *testCluster) secret() *corev1.Secret {
	c.t.Helper()
	var secret corev1.Secret
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: SecretName}, &secret); err != nil {
		c.t.Fatal(err)
	}
	return &secret
}

// bundles returns the caBundle of each entry.
func (c *testCluster) bundles() (bundles [][]byte) {
	c.t.Helper()
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	key := client.ObjectKey{Name: configurationName}
	if err := errors.Join(c.client.Get(c.t.Context(), key, &validating), c.client.Get(c.t.Context(), key, &mutating)); err != nil {
		c.t.Fatal(err)
	}
	for i := range validating.Webhooks {
		bundles = append(bundles, validating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range mutating.Webhooks {
		bundles = append(bundles, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	return bundles
}

// observe records the state, and fails if an API server does not trust what a replica serves. Guards invariant 2 of the design: a
// change of certificates refuses no pod.
func (c *testCluster) observe() {
	c.t.Helper()
	c.history = append(c.history, observed{c.now, c.bundles(), string(c.secret().Data[corev1.TLSCertKey])})
	// Before the first certificate no replica serves, and no request can fail.
	first := slices.IndexFunc(c.history, func(state observed) bool { return state.served != "" })
	if first < 0 {
		return
	}
	within := func(d time.Duration) (states []observed) {
		for i, state := range c.history[first:] {
			if until := first + i + 1; until == len(c.history) || !c.history[until].at.Before(c.now.Add(-d)) {
				states = append(states, state)
			}
		}
		return states
	}
	for _, served := range within(slowKubelet) {
		block, _ := pem.Decode([]byte(served.served))
		if block == nil {
			continue // garbage, which no replica serves
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, seen := range within(slowAPIServer) {
			for _, bundle := range seen.bundles {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(bundle)
				if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: testName, CurrentTime: c.now}); err != nil {
					c.t.Fatalf("%s: an API server with the state of %s does not trust the certificate of %s: %v", c.now, seen.at, served.at, err)
				}
			}
		}
	}
}

// setBundle replaces the caBundle of an entry.
func (c *testCluster) setBundle(bundle []byte) {
	c.t.Helper()
	var mutating admissionv1.MutatingWebhookConfiguration
	err := c.stored.Get(c.t.Context(), client.ObjectKey{Name: configurationName}, &mutating)
	if err == nil {
		mutating.Webhooks[0].ClientConfig.CABundle = bundle
		err = c.stored.Update(c.t.Context(), &mutating)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.history = nil
}

func (c *testCluster) run() error { return c.renewal.Run(c.t.Context()) }

func (c *testCluster) mustRun() {
	c.t.Helper()
	if err := c.run(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *testCluster) change(change func(data map[string][]byte)) {
	c.t.Helper()
	secret := c.secret()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	change(secret.Data)
	if err := c.client.Update(c.t.Context(), secret); err != nil {
		c.t.Fatal(err)
	}
}

// checkComplete checks that one usable certificate is served, and that each entry has this many authorities.
func (c *testCluster) checkComplete(authorities int) {
	c.t.Helper()
	data := c.secret().Data
	if err := pairOf(data, servedPrefix).check([]string{testName}, c.now); err != nil {
		c.t.Error(err)
	}
	if next := pairOf(data, nextPrefix); next != (pair{}) {
		c.t.Error("a next certificate is left")
	}
	var mutating admissionv1.MutatingWebhookConfiguration
	if err := c.stored.Get(c.t.Context(), client.ObjectKey{Name: configurationName}, &mutating); err != nil || mutating.Webhooks[0].Name != "pods.sluice.dev" {
		c.t.Errorf("the API server calls %s first, %v", mutating.Webhooks[0].Name, err)
	}
	for i, bundle := range c.bundles() {
		if got := bytes.Count(bundle, []byte("BEGIN CERTIFICATE")); got != authorities {
			c.t.Errorf("entry %d has %d authorities, want %d", i, got, authorities)
		}
	}
}

// The first run creates a certificate without waiting. Further ones write nothing, until it is due: then both authorities are
// trusted while replicas may serve either certificate, and the former one is removed afterwards.
func TestRenewal(t *testing.T) {
	c := newTestCluster(t)
	begin := c.now
	c.mustRun()
	c.checkComplete(1)
	if c.now != begin {
		t.Errorf("the first run waited for %s", c.now.Sub(begin))
	}
	first, writes := string(c.secret().Data[corev1.TLSCertKey]), c.writes
	for _, d := range []time.Duration{time.Minute, time.Hour, 270 * 24 * time.Hour} {
		c.advance(d)
		c.mustRun()
	}
	if c.writes != writes {
		t.Errorf("%d writes although nothing was due", c.writes-writes)
	}
	c.advance(6 * 24 * time.Hour)
	before := c.now
	c.mustRun()
	c.checkComplete(2)
	if second := string(c.secret().Data[corev1.TLSCertKey]); second == first || c.now.Sub(before) < slowAPIServer {
		t.Errorf("not renewed, or after %s", c.now.Sub(before))
	}
	c.advance(slowKubelet)
	c.mustRun()
	c.checkComplete(2)
	c.advance(time.Hour)
	c.mustRun()
	c.checkComplete(1)
	for key := range c.secret().Data {
		if strings.HasPrefix(key, nextPrefix) || strings.Contains(key, "ca.key") {
			t.Errorf("the Secret has %s", key)
		}
	}
}

// A run that is killed before or after any of its writes leaves admission as it is, and the next one completes it. Guards
// invariant 8 of the design.
func TestRenewalIsKilled(t *testing.T) {
	for _, installed := range []bool{false, true} {
		for _, afterWrite := range []bool{false, true} {
			for killAt := 1; killAt <= 4; killAt++ {
				t.Run(fmt.Sprintf("installed=%v,after=%v,write=%d", installed, afterWrite, killAt), func(t *testing.T) {
					c := newTestCluster(t)
					authorities := 1
					if installed {
						c.mustRun()
						c.advance(300 * 24 * time.Hour)
						authorities = 2
					}
					c.killAt, c.writes, c.afterWrite = killAt, 0, afterWrite
					if err := c.run(); !errors.Is(err, errKilled) {
						t.Fatal(err)
					}
					c.killAt = 0
					c.advance(time.Minute)
					c.mustRun()
					c.checkComplete(authorities)
					c.advance(2 * time.Hour)
					c.mustRun()
					c.checkComplete(1)
				})
			}
		}
	}
}

// What others do to the Secret and the configurations is repaired, and refuses nothing that replicas serve.
func TestRenewalRepairs(t *testing.T) {
	foreign, err := newPair([]string{testName}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change  func(c *testCluster)
		renewed bool
	}{
		"an emptied Secret": {func(c *testCluster) { c.change(func(data map[string][]byte) { clear(data) }) }, true},
		"garbage": {func(c *testCluster) {
			c.change(func(data map[string][]byte) { data[corev1.TLSCertKey] = []byte("garbage") })
		}, true},
		"another key": {func(c *testCluster) {
			c.change(func(data map[string][]byte) { data[corev1.TLSPrivateKeyKey] = []byte(foreign.key) })
		}, true},
		"further names": {func(c *testCluster) { c.renewal.Names = []string{testName, "localhost"} }, true},
		"a next certificate that is not needed": {func(c *testCluster) {
			c.change(func(data map[string][]byte) { pair{"garbage", "garbage", "garbage"}.put(data, nextPrefix) })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCluster(t)
			c.mustRun()
			former := string(c.secret().Data[corev1.TLSCertKey])
			c.advance(2 * time.Hour)
			tc.change(c)
			c.mustRun()
			if renewed := string(c.secret().Data[corev1.TLSCertKey]) != former; renewed != tc.renewed {
				t.Errorf("renewed is %v, want %v", renewed, tc.renewed)
			}
			c.advance(2 * time.Hour)
			c.mustRun()
			c.checkComplete(1)
		})
	}
	for name, bundle := range map[string][]byte{"an empty caBundle": nil, "garbage in a caBundle": []byte("garbage"), "a foreign authority": []byte(foreign.authority)} {
		t.Run(name, func(t *testing.T) {
			c := newTestCluster(t)
			c.mustRun()
			c.advance(2 * time.Hour)
			c.setBundle(bundle)
			c.mustRun()
			c.checkComplete(1)
		})
	}
}

// Two runs at once never remove an authority that the other needs.
func TestRenewalsAtOnce(t *testing.T) {
	for hookAt := 1; hookAt <= 4; hookAt++ {
		t.Run(fmt.Sprintf("before write %d", hookAt), func(t *testing.T) {
			c := newTestCluster(t)
			c.mustRun()
			c.advance(300 * 24 * time.Hour)
			other := *c.renewal
			c.writes, c.hookAt = 0, hookAt
			c.hook = func() {
				if err := other.Run(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := c.run(); err != nil && !apierrors.IsConflict(err) {
				t.Error(err)
			}
			c.mustRun()
			c.checkComplete(2)
			c.advance(2 * time.Hour)
			c.mustRun()
			c.checkComplete(1)
		})
	}
}
