// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api/v1alpha1"
)

const testName = "webhook.sluice-system.svc"

// trust is what the API server trusts in a test.
type trust map[string]bool

func (t trust) Trusted(c *x509.Certificate) bool { return t[string(c.Raw)] }
func (trust) Update()                            {}

// testStore is a store whose log and time a test has.
type testStore struct {
	*Store
	log   *bytes.Buffer
	at    time.Time
	trust trust
}

func newTestStore(t *testing.T, issuer *Issuer) *testStore {
	t.Helper()
	s := &testStore{log: &bytes.Buffer{}, at: time.Now(), trust: trust{}}
	logger := funcr.New(func(_, text string) { s.log.WriteString(text + "\n") }, funcr.Options{Verbosity: 10})
	s.Store = &Store{
		Source: Secret{Key: client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "webhook-certificates"}}, Names: []string{testName},
		Trust: s.trust, Logger: logger, Issuer: issuer, now: func() time.Time { return s.at },
	}
	return s
}

// trustAll makes the API server trust the authorities of the store.
func (s *testStore) trustAll() {
	for _, authority := range s.Authorities() {
		s.trust[string(authority.Raw)] = true
	}
}

// servedLeaf returns the served certificate.
func (s *testStore) servedLeaf(t *testing.T) []byte {
	t.Helper()
	pair, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.Raw
}

func newIssuer(t *testing.T, objects ...client.Object) *Issuer {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &Issuer{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Secret: client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "webhook-certificates"}, Names: []string{testName, "localhost"},
	}
}

// issueData returns the data of a Secret with a new authority.
func issueData(t *testing.T, at time.Time, lifetime time.Duration, names ...string) map[string][]byte {
	t.Helper()
	signer := rotator.CertRotator{CAName: authorityName, DNSName: names[0], ExtraDNSNames: names[1:], ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	authority, err := signer.CreateCACert(at.Add(-clockSkew), at.Add(authorityLifetime))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := signer.CreateCertPEM(authority, at.Add(-clockSkew), at.Add(lifetime))
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{keyAuthority: authority.CertPEM, keyAuthorityKey: authority.KeyPEM, keyCertificate: certificate, keyPrivateKey: key}
}

func with(data map[string][]byte, key string, value []byte) map[string][]byte {
	changed := maps.Clone(data)
	changed[key] = value
	return changed
}

// A certificate of a new authority is served only once the API server trusts it; until then, both authorities belong into the
// caBundle. A new certificate of a trusted authority is served at once.
func TestNewAuthorityIsTrustedBeforeItServes(t *testing.T) {
	s := newTestStore(t, nil)
	first, second := issueData(t, s.at, time.Hour, testName), issueData(t, s.at, time.Hour, testName)
	if err := s.Ready(nil); err == nil || !strings.Contains(err.Error(), "waiting for a certificate in Secret sluice-system/webhook-certificates") {
		t.Errorf("ready = %v", err)
	}
	s.observe(Content{Data: first})
	s.promote()
	if err := s.Ready(nil); err == nil || !strings.Contains(err.Error(), "trusts the certificate") {
		t.Errorf("ready before the API server trusts it: %v", err)
	}
	s.trustAll()
	s.promote()
	if err := s.Ready(nil); err != nil {
		t.Error(err)
	}
	before := s.servedLeaf(t)
	s.observe(Content{Data: second})
	for range 3 {
		s.promote()
		if !bytes.Equal(s.servedLeaf(t), before) {
			t.Fatal("served before the API server trusts its authority")
		}
	}
	if n := len(s.Authorities()); n != 2 {
		t.Errorf("%d authorities, want that of the served certificate and that of the next", n)
	}
	if err := s.Ready(nil); err != nil {
		t.Errorf("not ready during a rotation: %v", err)
	}
	s.trustAll()
	s.promote()
	if bytes.Equal(s.servedLeaf(t), before) {
		t.Error("the new certificate is not served")
	}
	if n := len(s.Authorities()); n != 1 {
		t.Errorf("%d authorities after the rotation", n)
	}
	if strings.Contains(s.log.String(), "PRIVATE KEY") {
		t.Error("a key in the log")
	}
}

// An expired certificate has nothing to lose.
func TestExpiredCertificateIsReplacedAtOnce(t *testing.T) {
	s := newTestStore(t, nil)
	s.observe(Content{Data: issueData(t, s.at, time.Hour, testName)})
	before := s.servedLeaf(t)
	s.at = s.at.Add(2 * time.Hour)
	s.observe(Content{Data: issueData(t, s.at, time.Hour, testName)})
	s.promote()
	if bytes.Equal(s.servedLeaf(t), before) {
		t.Error("the expired certificate is still served")
	}
}

// Whatever becomes of the Secret, the last good certificate stays in use and the webhook ready. The failure is logged once, and
// counted. The log contains no key.
func TestLastGoodCertificateStays(t *testing.T) {
	s := newTestStore(t, nil)
	good := issueData(t, s.at, time.Hour, testName)
	other := issueData(t, s.at, time.Hour, testName)
	s.observe(Content{Data: good})
	s.trustAll()
	s.promote()
	served := s.servedLeaf(t)
	for name, tt := range map[string]struct {
		content Content
		want    string
	}{
		"deleted":           {Content{}, "does not exist"},
		"unreadable":        {Content{Err: apierrors.NewForbidden(corev1.Resource("secrets"), "webhook-certificates", nil)}, "forbidden"},
		"empty":             {Content{Data: map[string][]byte{}}, "tls.crt is missing or empty"},
		"garbage":           {Content{Data: with(good, keyCertificate, []byte("garbage"))}, "tls.crt and tls.key"},
		"garbage authority": {Content{Data: with(good, keyAuthority, []byte("garbage"))}, "ca.crt: contains no certificate in PEM form"},
		"another key":       {Content{Data: with(good, keyPrivateKey, other[keyPrivateKey])}, "private key does not match"},
		"a key as garbage":  {Content{Data: with(good, keyPrivateKey, []byte("secret garbage"))}, "tls.key"},
		"a foreign CA":      {Content{Data: with(good, keyAuthority, other[keyAuthority])}, "not issued by an authority in ca.crt"},
		"another name":      {Content{Data: issueData(t, s.at, time.Hour, "another.svc")}, "not valid for the name webhook.sluice-system.svc"},
		"expired":           {Content{Data: issueData(t, s.at, -time.Minute, testName)}, "expired on"},
		"not valid yet":     {Content{Data: issueData(t, s.at.Add(2*time.Hour), time.Hour, testName)}, "check the clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			s.log.Reset()
			before := 0.0
			for _, reason := range []string{reasonMissing, reasonUnreadable, reasonInvalid} {
				before += testutil.ToFloat64(failures.WithLabelValues(reason))
			}
			for range 3 {
				s.observe(tt.content)
				s.promote()
			}
			after := 0.0
			for _, reason := range []string{reasonMissing, reasonUnreadable, reasonInvalid} {
				after += testutil.ToFloat64(failures.WithLabelValues(reason))
			}
			if !bytes.Equal(s.servedLeaf(t), served) {
				t.Error("the last good certificate is not served")
			}
			if err := s.Ready(nil); err != nil {
				t.Errorf("not ready: %v", err)
			}
			if log := s.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, tt.want) || !strings.Contains(log, "Failed to use certificate") {
				t.Errorf("log = %s, want one line with %q", log, tt.want)
			}
			if log := s.log.String(); strings.Contains(log, "PRIVATE KEY") || strings.Contains(log, "secret garbage") {
				t.Error("a key in the log")
			}
			if after-before != 1 || testutil.ToFloat64(problemGauge) != 1 {
				t.Errorf("%v failures, problem %v, want one of each", after-before, testutil.ToFloat64(problemGauge))
			}
			s.observe(Content{Data: good})
			if problem := testutil.ToFloat64(problemGauge); problem != 0 {
				t.Errorf("problem %v with the good Secret", problem)
			}
		})
	}
	s.at = s.at.Add(2 * time.Hour)
	s.observe(Content{})
	s.served.certificate.Leaf.NotAfter = time.Now().Add(-time.Hour)
	if err := s.Ready(nil); err == nil || !strings.Contains(err.Error(), "expired") || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("ready = %v, want the expiry and its cause", err)
	}
}

// Of two replicas that start at once, the first write wins, and the second one uses its certificate.
func TestTwoReplicasIssueOneCertificate(t *testing.T) {
	issuer := newIssuer(t)
	a, b := newTestStore(t, issuer), newTestStore(t, issuer)
	a.observe(Content{})
	b.observe(Content{})
	a.issueIfDue(t.Context())
	b.issueIfDue(t.Context()) // It still knows of no Secret.
	if _, err := b.GetCertificate(nil); err == nil {
		t.Fatal("the second replica serves a certificate that it did not write")
	}
	var secret corev1.Secret
	if err := issuer.Client.Get(t.Context(), issuer.Secret, &secret); err != nil {
		t.Fatal(err)
	}
	b.observe(Content{Data: secret.Data, Secret: &secret})
	b.issueIfDue(t.Context())
	if !bytes.Equal(a.servedLeaf(t), b.servedLeaf(t)) {
		t.Error("two certificates")
	}
	if strings.Contains(b.log.String(), "Failed") {
		t.Errorf("the second replica logs %s", b.log)
	}
	// The same for a renewal of both.
	a.trustAll()
	b.trustAll()
	a.at = a.at.Add(certificateLifetime - renewBefore + time.Hour)
	b.at = a.at
	a.issueIfDue(t.Context())
	b.issueIfDue(t.Context())
	a.promote()
	if err := issuer.Client.Get(t.Context(), issuer.Secret, &secret); err != nil {
		t.Fatal(err)
	}
	b.observe(Content{Data: secret.Data, Secret: &secret})
	b.promote()
	if !bytes.Equal(a.servedLeaf(t), b.servedLeaf(t)) {
		t.Error("two certificates after the renewal")
	}
	if pair, err := parseBundle(secret.Data, issuer.Names, a.at.Add(200*24*time.Hour)); err != nil {
		t.Errorf("the renewed certificate: %v, %v", pair, err)
	}
}

// What is due depends on the Secret and the time.
func TestIssuerRenewsInTime(t *testing.T) {
	now := time.Now()
	issuer := newIssuer(t)
	good, err := issuer.issue(t.Context(), nil, rotationAuthority, now)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(key string, value string) *corev1.Secret {
		secret := good.DeepCopy()
		secret.Data[key] = []byte(value)
		return secret
	}
	other := issueData(t, now, certificateLifetime, testName, "localhost")
	for name, tt := range map[string]struct {
		secret *corev1.Secret
		after  time.Duration
		want   rotation
	}{
		"no Secret":                   {nil, 0, rotationAuthority},
		"a good one":                  {good, 0, noRotation},
		"a clock behind":              {good, -clockSkew + time.Minute, noRotation},
		"long before the expiry":      {good, certificateLifetime - renewBefore - time.Hour, noRotation},
		"before the expiry":           {good, certificateLifetime - renewBefore + time.Hour, rotationCertificate},
		"after it":                    {good, certificateLifetime + time.Hour, rotationCertificate},
		"before the authority's":      {good, authorityLifetime - renewBefore + time.Hour, rotationAuthority},
		"no key of the authority":     {changed(keyAuthorityKey, ""), 0, rotationAuthority},
		"garbage as authority":        {changed(keyAuthority, "garbage"), 0, rotationAuthority},
		"another authority's key":     {changed(keyAuthorityKey, string(other[keyAuthorityKey])), 0, rotationAuthority},
		"no certificate":              {changed(keyCertificate, ""), 0, rotationCertificate},
		"another certificate's key":   {changed(keyPrivateKey, string(other[keyPrivateKey])), 0, rotationCertificate},
		"a certificate without names": {&corev1.Secret{Data: issueData(t, now, certificateLifetime, "another.svc")}, 0, rotationCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			if got := issuer.due(tt.secret, now.Add(tt.after)); got != tt.want {
				t.Fatalf("due = %q, want %q", got, tt.want)
			}
			if tt.want == noRotation || tt.secret == nil {
				return
			}
			// What it issues is good at that time.
			secret := good.DeepCopy()
			secret.Data, secret.ResourceVersion = tt.secret.Data, ""
			issuer := newIssuer(t, secret)
			if err := issuer.Client.Get(t.Context(), issuer.Secret, secret); err != nil {
				t.Fatal(err)
			}
			written, err := issuer.issue(t.Context(), secret, tt.want, now.Add(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			if due := issuer.due(written, now.Add(tt.after)); due != noRotation {
				t.Errorf("due again: %q", due)
			}
			if keeps := bytes.Equal(bytes.TrimSpace(written.Data[keyAuthority]), bytes.TrimSpace(secret.Data[keyAuthority])); keeps != (tt.want == rotationCertificate) {
				t.Errorf("keeps the authority: %t", keeps)
			}
		})
	}
}

// Sluice does not write into a Secret of cert-manager.
func TestIssuerRespectsCertManager(t *testing.T) {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = v1alpha1.SystemNamespace, "webhook-certificates"
	secret.Annotations = map[string]string{annotationCertManager: "webhook"}
	s := newTestStore(t, newIssuer(t, secret))
	s.observe(Content{Data: map[string][]byte{}, Secret: secret})
	s.issueIfDue(t.Context())
	if err := s.Ready(nil); err == nil || !strings.Contains(err.Error(), "certificates.issue") {
		t.Errorf("ready = %v", err)
	}
}

// The files of a directory are read again when they change.
func TestDirectoryIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	write := func(data map[string][]byte) {
		for _, key := range []string{keyCertificate, keyPrivateKey, keyAuthority} {
			if err := os.WriteFile(filepath.Join(dir, key), data[key], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	contents := make(chan Content)
	go Directory(dir).Watch(ctx, contents)
	if content := <-contents; content.Err == nil || !strings.Contains(content.Err.Error(), dir) {
		t.Errorf("without files: %v", content.Err)
	}
	for range 2 {
		data := issueData(t, time.Now(), time.Hour, testName)
		write(data)
		for content := range contents {
			if content.Err == nil && bytes.Equal(content.Data[keyAuthority], data[keyAuthority]) {
				break
			}
		}
	}
	s := &Store{Source: Directory(dir), Trust: trust{}, Logger: logr.Discard()}
	go func() { _ = s.Start(ctx) }()
	for {
		if _, err := s.GetCertificate(nil); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
