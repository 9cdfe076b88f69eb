// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret, and the files of a directory, as those of cert-manager.
const (
	keyCertificate = corev1.TLSCertKey
	keyPrivateKey  = corev1.TLSPrivateKeyKey
	keyAuthority   = corev1.ServiceAccountRootCAKey
	// keyAuthorityKey is the private key of the authority. Only a Secret that Sluice issues has it.
	keyAuthorityKey = "ca.key"
)

// bundle is a serving certificate with its authorities.
type bundle struct {
	certificate *tls.Certificate
	authorities []*x509.Certificate // of ca.crt
	root        *x509.Certificate   // the authority of the certificate, one of authorities
}

// parseBundle returns the bundle in the data of a Secret or directory. The certificate must be valid now, for all names, and
// issued by an authority in ca.crt. Errors contain no key.
func parseBundle(data map[string][]byte, names []string, now time.Time) (*bundle, error) {
	for _, key := range []string{keyCertificate, keyPrivateKey, keyAuthority} {
		if len(bytes.TrimSpace(data[key])) == 0 {
			return nil, fmt.Errorf("%s is missing or empty", key)
		}
	}
	pair, err := tls.X509KeyPair(data[keyCertificate], data[keyPrivateKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyCertificate, keyPrivateKey, err)
	}
	b := &bundle{certificate: &pair}
	if b.authorities, err = parseCertificates(data[keyAuthority]); err != nil {
		return nil, fmt.Errorf("%s: %w", keyAuthority, err)
	}
	if now.Before(pair.Leaf.NotBefore) {
		return nil, fmt.Errorf("%s is valid only from %s: check the clocks", keyCertificate, pair.Leaf.NotBefore.Format(time.RFC3339))
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s expired on %s", keyCertificate, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	if b.root, err = findRoot(pair, b.authorities, now); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return nil, fmt.Errorf("%s is not valid for the name %s of certificates.dnsNames: %w", keyCertificate, name, err)
		}
	}
	return b, nil
}

func parseCertificates(raw []byte) ([]*x509.Certificate, error) {
	var parsed []*x509.Certificate
	for {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, c)
	}
	if len(parsed) == 0 {
		return nil, errors.New("contains no certificate in PEM form")
	}
	return parsed, nil
}

// findRoot returns the authority to which the certificate chains.
func findRoot(pair tls.Certificate, authorities []*x509.Certificate, now time.Time) (*x509.Certificate, error) {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	for _, der := range pair.Certificate[1:] {
		if intermediate, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(intermediate)
		}
	}
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("%s is not issued by an authority in %s: %w", keyCertificate, keyAuthority, err)
	}
	return chains[0][len(chains[0])-1], nil
}

// sameCertificate reports whether two bundles have the same serving certificate.
func (b *bundle) sameCertificate(other *bundle) bool {
	return bytes.Equal(b.certificate.Leaf.Raw, other.certificate.Leaf.Raw)
}

func (b *bundle) expired(now time.Time) bool { return now.After(b.certificate.Leaf.NotAfter) }
