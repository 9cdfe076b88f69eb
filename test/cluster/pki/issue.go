// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"net"
	"os"
	"time"
)

const leafValidity = 365 * 24 * time.Hour

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// Server issues a certificate, valid for a year, for a server that is reached as
// 127.0.0.1, localhost and the given hosts (DNS names or IP addresses). Its
// common name is the first host.
func (ca *CA) Server(hosts ...string) (Pair, error) {
	template := leaf(x509.ExtKeyUsageServerAuth)
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
	template := leaf(x509.ExtKeyUsageClientAuth)
	template.Subject = pkix.Name{CommonName: user, Organization: groups}
	return ca.issue(template)
}

// Peer issues a certificate for a member of etcd: a server on loopback that is
// also its peers' client.
func (ca *CA) Peer(name string) (Pair, error) {
	template := leaf(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
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

func leaf(usage ...x509.ExtKeyUsage) *x509.Certificate {
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
	pair, err := sign(template, ca.cert, key, ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate for %s: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

// sign makes the certificate that template describes for key. Its serial number
// is left to CreateCertificate, which draws one.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (Pair, error) {
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
