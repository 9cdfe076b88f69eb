// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	// backdate allows for small differences between clocks.
	backdate = 5 * time.Minute
)

// CA is the certificate authority of an embedded cluster. It issues certificates for servers on
// loopback and for clients (a user and groups), and never revokes or renews them. All keys are
// ECDSA P-256. Its methods are safe for concurrent use.
type CA struct {
	certFile, keyFile string

	cert    *x509.Certificate
	certPEM []byte
	key     crypto.Signer
}

// OpenCA reads the CA from dir/name.crt and dir/name.key. If neither file exists, it
// creates a CA that is valid for ten years. It fails if one file is missing or the two do
// not match: a new CA would invalidate all certificates of the old one.
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

// CertPEM returns the CA's certificate, which clients trust.
func (ca *CA) CertPEM() []byte { return ca.certPEM }

// CertFile returns the path of the CA's own certificate.
func (ca *CA) CertFile() string { return ca.certFile }

// KeyFile returns the path of the CA's own key.
func (ca *CA) KeyFile() string { return ca.keyFile }

func (ca *CA) create(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create CA: %w", err)
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
		return fmt.Errorf("create CA: %w", err)
	}
	if err := pair.Write(ca.certFile, ca.keyFile); err != nil {
		return fmt.Errorf("create CA: %w", err)
	}
	return ca.parse(pair.Cert, pair.Key)
}

func (ca *CA) parse(certPEM, keyPEM []byte) error {
	pair := KeyPair{Cert: certPEM, Key: keyPEM}
	cert, key, err := pair.parse()
	if err != nil {
		return err
	}
	if !cert.IsCA {
		return errors.New("the certificate is not a CA certificate")
	}
	if now := time.Now(); now.After(cert.NotAfter) {
		return fmt.Errorf("the certificate expired on %s", cert.NotAfter.Format(time.DateOnly))
	}
	ca.cert, ca.certPEM, ca.key = cert, certPEM, key
	return nil
}

const leafValidity = 365 * 24 * time.Hour

// Server issues a certificate, valid for a year, for a server that clients reach as
// 127.0.0.1, localhost and the given hosts (DNS names or IP addresses). The first host is
// its common name.
func (ca *CA) Server(hosts ...string) (KeyPair, error) {
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
			return KeyPair{}, errors.New("issue server certificate: a host is empty")
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.issue(template)
}

// Client issues a certificate, valid for a year, that identifies its holder to Kubernetes
// as this user in these groups.
func (ca *CA) Client(user string, groups ...string) (KeyPair, error) {
	if user == "" {
		return KeyPair{}, errors.New("issue client certificate: the user's name is empty")
	}
	template := leafTemplate(x509.ExtKeyUsageClientAuth)
	template.Subject = pkix.Name{CommonName: user, Organization: groups}
	return ca.issue(template)
}

// Peer issues a certificate for an etcd member, which is a server on loopback and a client
// of its peers.
func (ca *CA) Peer(name string) (KeyPair, error) {
	template := leafTemplate(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	template.Subject.CommonName = name
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return ca.issue(template)
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

func (ca *CA) issue(template *x509.Certificate) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate: %w", err)
	}
	pair, err := signCertificate(template, ca.cert, key, ca.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate for %s: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

// signCertificate creates the certificate that template describes, for key.
// CreateCertificate chooses the serial number.
func signCertificate(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (KeyPair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return KeyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}
