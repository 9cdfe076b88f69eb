// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki is the small certificate authority of an embedded cluster.
//
// A folder enters; a CA that is the same each time the folder is opened leaves,
// and with it certificates for servers on loopback, for clients (a user and
// groups) and the key pair that signs service account tokens. All keys are ECDSA
// P-256, all files 0600.
//
// It is for a cluster on one machine that its owner may throw away: it never
// revokes, never renews by itself, and asks nobody.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
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
	pair, err := signCertificate(template, template, key, key)
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

const leafValidity = 365 * 24 * time.Hour

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// Server issues a certificate, valid for a year, for a server that is reached as
// 127.0.0.1, localhost and the given hosts (DNS names or IP addresses). Its
// common name is the first host.
func (ca *CA) Server(hosts ...string) (Pair, error) {
	template := leafTemplate(x509.ExtKeyUsageServerAuth)
	template.Subject.CommonName = "localhost"
	if len(hosts) > 0 {
		template.Subject.CommonName = hosts[0]
	}
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, host := range hosts {
		switch ip := net.ParseIP(host); {
		case host == "":
			return Pair{}, errors.New("issue server certificate: a host is empty")
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.issue(template)
}

// Client issues a certificate, valid for a year, by which Kubernetes knows its
// bearer as this user in these groups.
func (ca *CA) Client(user string, groups ...string) (Pair, error) {
	if user == "" {
		return Pair{}, errors.New("issue client certificate: the user's name is empty")
	}
	template := leafTemplate(x509.ExtKeyUsageClientAuth)
	template.Subject = pkix.Name{CommonName: user, Organization: groups}
	return ca.issue(template)
}

// Peer issues a certificate for a member of etcd: a server on loopback that is
// also its peers' client.
func (ca *CA) Peer(name string) (Pair, error) {
	template := leafTemplate(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	template.Subject.CommonName = name
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return ca.issue(template)
}

// Write stores the pair in two files, both 0600, each whole or not at all.
func (p Pair) Write(certFile, keyFile string) error {
	if err := writeFile(keyFile, p.Key); err != nil {
		return err
	}
	return writeFile(certFile, p.Cert)
}

func (p Pair) parse() (*x509.Certificate, crypto.Signer, error) {
	both, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("the key cannot sign")
	}
	return both.Leaf, signer, nil
}

func leafTemplate(usage ...x509.ExtKeyUsage) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(leafValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usage,
	}
}

func (ca *CA) issue(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate: %w", err)
	}
	pair, err := signCertificate(template, ca.cert, key, ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate for %s: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

// signCertificate makes the certificate that template describes for key. Its serial number
// is left to CreateCertificate, which draws one.
func signCertificate(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func writeFile(path string, content []byte) error {
	aside := path + ".new"
	if err := os.WriteFile(aside, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(aside, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
