// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// The keys of the Secret. The pods of the webhook mount those of the certificate that they serve.
const (
	servedPrefix = ""
	// nextPrefix begins the keys of a certificate that the API servers do not trust yet.
	nextPrefix = "next-"
	// keyServedSince has the time of the last replacement, in the form RFC 3339.
	keyServedSince = "served-since"
)

const (
	lifetime = 365 * 24 * time.Hour
	// renewBefore is the time before the expiry at which a certificate is renewed.
	renewBefore = 90 * 24 * time.Hour
	// clockSkew is how far the clock of an API server may be behind.
	clockSkew = time.Hour
)

// pair is a serving certificate with its key and its authority, in PEM form. Each certificate has an authority of its own, whose
// key is never stored: a thief of the Secret can serve as the webhook, and sign nothing.
type pair struct{ certificate, key, authority string }

func pairOf(data map[string][]byte, prefix string) pair {
	return pair{
		string(data[prefix+corev1.TLSCertKey]), string(data[prefix+corev1.TLSPrivateKeyKey]), string(data[prefix+corev1.ServiceAccountRootCAKey]),
	}
}

// put sets the pair in the data of a Secret. An empty pair is removed.
func (p pair) put(data map[string][]byte, prefix string) {
	for key, value := range map[string]string{
		corev1.TLSCertKey: p.certificate, corev1.TLSPrivateKeyKey: p.key, corev1.ServiceAccountRootCAKey: p.authority,
	} {
		if data[prefix+key] = []byte(value); value == "" {
			delete(data, prefix+key)
		}
	}
}

// check returns why the certificate cannot be served at a time. Errors contain no key.
func (p pair) check(names []string, at time.Time) error {
	if p == (pair{}) {
		return errors.New("the Secret has no certificate")
	}
	loaded, err := tls.X509KeyPair([]byte(p.certificate), []byte(p.key))
	if err != nil {
		return fmt.Errorf("%s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: at}
	options.Roots.AppendCertsFromPEM([]byte(p.authority))
	options.Intermediates.AppendCertsFromPEM([]byte(p.certificate))
	for _, options.DNSName = range names {
		if _, err := loaded.Leaf.Verify(options); err != nil {
			return fmt.Errorf("%s: %w", corev1.TLSCertKey, err)
		}
	}
	return nil
}

// newPair returns a certificate of a new authority.
func newPair(names []string, now time.Time) (pair, error) {
	authority := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "sluice-webhook-ca", Organization: []string{v1alpha1.Group}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	serving := &x509.Certificate{
		Subject:   pkix.Name{CommonName: names[0], Organization: []string{v1alpha1.Group}},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("create certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("create certificate: %w", err)
	}
	rawAuthority, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return pair{}, fmt.Errorf("create certificate: %w", err)
	}
	if authority, err = x509.ParseCertificate(rawAuthority); err != nil { // with the key's identifier
		return pair{}, fmt.Errorf("create certificate: %w", err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, serving, authority, key.Public(), authorityKey)
	if err != nil {
		return pair{}, fmt.Errorf("create certificate: %w", err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("create certificate: %w", err)
	}
	encode := func(kind string, raw []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
	}
	return pair{encode("CERTIFICATE", raw), encode("PRIVATE KEY", rawKey), encode("CERTIFICATE", rawAuthority)}, nil
}
