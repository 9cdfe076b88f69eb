// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// Kueue renews certificates that do not have these names.
	kueueCAName     = "kueue-ca"
	kueueServerName = "kueue-webhook-service." + kueueNamespace + ".svc"
	// certificateValidity is well above the 90 days before expiry at which Kueue renews
	// certificates. Each start issues new ones.
	certificateValidity = 365 * 24 * time.Hour
	// clockSkewTolerance allows for small clock differences.
	clockSkewTolerance = 5 * time.Minute
	rsaKeyBits         = 2048
)

// kueueCertificates has the PEM files of Kueue's webhooks by their names in its Secret: a
// certificate authority and a server on 127.0.0.1. Kueue itself would issue them for
// a Service only. It keeps the authority's key, and accepts RSA keys only.
type kueueCertificates map[string][]byte

// The files of [kueueCertificates].
const (
	caCertFile     = "ca.crt"
	caKeyFile      = "ca.key"
	serverCertFile = "tls.crt"
	serverKeyFile  = "tls.key"
)

// issueKueueCertificates issues new certificates for a year.
func issueKueueCertificates() (kueueCertificates, error) {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: kueueCAName, Organization: []string{"kueue"}},
		DNSNames:     []string{kueueCAName},
		NotBefore:    now.Add(-clockSkewTolerance), NotAfter: now.Add(certificateValidity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1),
		Subject:      pkix.Name{CommonName: kueueServerName},
		DNSNames:     []string{kueueServerName, "localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    now.Add(-clockSkewTolerance), NotAfter: now.Add(certificateValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	files := kueueCertificates{}
	signer, err := files.add(caCertFile, caKeyFile, authority, authority, nil)
	if err == nil {
		_, err = files.add(serverCertFile, serverKeyFile, server, authority, signer)
	}
	if err != nil {
		return nil, fmt.Errorf("issue Kueue's certificates: %w", err)
	}
	return files, nil
}

// add creates a key and its certificate. Without a signer the certificate is
// self-signed.
func (c kueueCertificates) add(cert, key string, template, parent *x509.Certificate, signer *rsa.PrivateKey) (*rsa.PrivateKey, error) {
	private, err := rsa.GenerateKey(rand.Reader, rsaKeyBits)
	if err != nil {
		return nil, err
	}
	if signer == nil {
		signer = private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		return nil, err
	}
	c[cert] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c[key] = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
	return private, nil
}

// Write writes the server's certificate and key to dir, readable by the owner only.
// A pod would mount them from the Secret.
func (c kueueCertificates) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write Kueue's certificates: %w", err)
	}
	for _, name := range []string{serverCertFile, serverKeyFile} {
		if err := os.WriteFile(filepath.Join(dir, name), c[name], 0o600); err != nil {
			return fmt.Errorf("write Kueue's certificates: %w", err)
		}
	}
	return nil
}
