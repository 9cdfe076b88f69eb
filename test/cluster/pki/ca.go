// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	caValidity = 10 * 365 * 24 * time.Hour
	// backdate allows for clocks that differ a little.
	backdate = 5 * time.Minute
)

// CA issues certificates. Its methods may be called from several goroutines.
type CA struct {
	certFile, keyFile string

	cert    *x509.Certificate
	certPEM []byte
	key     crypto.Signer
}

// OpenCA reads the CA from dir/name.crt and dir/name.key, or makes a new one
// there, valid for ten years, if neither exists. One file without the other, or
// two that do not belong together, is an error: a new CA would make worthless
// what the old one has signed.
func OpenCA(dir, name string) (*CA, error) {
	ca := &CA{certFile: filepath.Join(dir, name+".crt"), keyFile: filepath.Join(dir, name+".key")}
	certPEM, certErr := os.ReadFile(ca.certFile)
	keyPEM, keyErr := os.ReadFile(ca.keyFile)
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		return ca, ca.create(name)
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("open CA: %w", err)
	}
	if err := ca.parse(certPEM, keyPEM); err != nil {
		return nil, fmt.Errorf("open CA %s: %w", ca.certFile, err)
	}
	return ca, nil
}

// CertPEM is the CA's certificate, which clients trust.
func (ca *CA) CertPEM() []byte { return ca.certPEM }

// CertFile and KeyFile are the paths of the CA's own certificate and key.
func (ca *CA) CertFile() string { return ca.certFile }

// KeyFile goes with CertFile.
func (ca *CA) KeyFile() string { return ca.keyFile }

func (ca *CA) create(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	if err := pair.Write(ca.certFile, ca.keyFile); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	return ca.parse(pair.Cert, pair.Key)
}

func (ca *CA) parse(certPEM, keyPEM []byte) error {
	pair := Pair{Cert: certPEM, Key: keyPEM}
	cert, key, err := pair.parse()
	if err != nil {
		return err
	}
	if !cert.IsCA {
		return errors.New("the certificate is not a CA's")
	}
	if now := time.Now(); now.After(cert.NotAfter) {
		return fmt.Errorf("the certificate expired on %s", cert.NotAfter.Format(time.DateOnly))
	}
	ca.cert, ca.certPEM, ca.key = cert, certPEM, key
	return nil
}
