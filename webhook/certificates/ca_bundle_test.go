// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var testTime = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

func newCertificate(t *testing.T, serial int64, isCA bool, validity time.Duration) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "sluice"},
		NotBefore: testTime.Add(-time.Hour), NotAfter: testTime.Add(validity),
		IsCA: isCA, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate(der)
}

// Two replicas with different files end with one bundle that trusts both, whichever writes last, and the old
// authority leaves after an hour.
func TestReplicasDoNotFightWhileAuthorityChanges(t *testing.T) {
	year := 365 * 24 * time.Hour
	before, after := newCertificate(t, 1, true, year), newCertificate(t, 2, true, year)
	var old, young otherCertificates
	bundle := encodeBundle([]certificate{before})
	write := func(replica *otherCertificates, own certificate, at time.Duration) bool {
		t.Helper()
		next := encodeBundle(replica.merge([]certificate{own}, []webhookEntry{{"a", bundle, nil}, {"b", bundle, nil}}, testTime.Add(at)))
		changed := !bytes.Equal(next, bundle)
		bundle = next
		return changed
	}
	if !write(&young, after, 0) {
		t.Error("the new authority was not added")
	}
	for at := range 10 {
		if write(&old, before, time.Duration(at)*time.Minute) || write(&young, after, time.Duration(at)*time.Minute) {
			t.Fatalf("the replicas write against each other")
		}
	}
	if trusted := decodeBundle(bundle); !slices.Contains(trusted, before) || !slices.Contains(trusted, after) {
		t.Errorf("%d certificates, want both", len(trusted))
	}
	write(&old, after, 20*time.Minute) // it has the new file now
	write(&young, after, otherCertificateAge)
	if trusted := decodeBundle(bundle); !slices.Equal(trusted, []certificate{after}) {
		t.Errorf("%d certificates after an hour, want the new one", len(trusted))
	}
}

// What others write into the configurations is only kept if it is a valid authority, and never without limit.
func TestForeignCertificatesAreLimited(t *testing.T) {
	year := 365 * 24 * time.Hour
	own := newCertificate(t, 1, true, year)
	hostile := []certificate{newCertificate(t, 2, false, year), newCertificate(t, 3, true, -time.Minute), "no certificate"}
	var o otherCertificates
	if merged := o.merge([]certificate{own}, []webhookEntry{{"a", encodeBundle(hostile), nil}, {"b", []byte("no PEM"), nil}}, testTime); len(merged) != 1 {
		t.Errorf("%d certificates, want only the own one", len(merged))
	}
	var many []certificate
	for serial := range int64(2 * maxCertificates) {
		many = append(many, newCertificate(t, 10+serial, true, year))
	}
	if merged := o.merge([]certificate{own}, []webhookEntry{{"a", encodeBundle(many), nil}}, testTime); len(merged) > maxCertificates || !slices.Contains(merged, own) {
		t.Errorf("%d certificates, want at most %d with the own one", len(merged), maxCertificates)
	}
}

// A certificate that is in one configuration only, since the other was written before the write of
// this one failed, leaves after an hour too.
func TestCertificateInOneConfigurationLeaves(t *testing.T) {
	year := 365 * 24 * time.Hour
	before, after := newCertificate(t, 1, true, year), newCertificate(t, 2, true, year)
	own, err := x509.ParseCertificate([]byte(after))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := admissionv1.WebhookClientConfig{CABundle: encodeBundle([]certificate{after, before})}
	validating := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice"},
		Webhooks:   []admissionv1.ValidatingWebhook{{Name: "a", ClientConfig: admissionv1.WebhookClientConfig{CABundle: encodeBundle([]certificate{after})}}},
	}
	mutating := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "b", ClientConfig: config}},
	}
	now := testTime
	i := &Injector{
		Client:      fake.NewClientBuilder().WithScheme(scheme).WithObjects(validating, mutating).Build(),
		Authorities: func() []*x509.Certificate { return []*x509.Certificate{own} }, Validating: "sluice", Mutating: "sluice", now: func() time.Time { return now },
	}
	for now.Sub(testTime) <= otherCertificateAge {
		if err := i.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Minute)
	}
	if err := i.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(mutating), mutating); err != nil {
		t.Fatal(err)
	}
	if trusted := decodeBundle(mutating.Webhooks[0].ClientConfig.CABundle); !slices.Equal(trusted, []certificate{after}) {
		t.Errorf("%d certificates after an hour, want the own one", len(trusted))
	}
}
