// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/emersion/go-msgauth/dkim"
)

// minRSABits is the shortest RSA key in bits that a signer may use: RFC 8301 section
// 3.2, which recommends 2048.
const minRSABits = 1024

// DKIM configures signing (RFC 6376): relaxed/relaxed, with RSA (rsa-sha256) or Ed25519
// (RFC 8463).
type DKIM struct {
	// Domain is the signing domain, usually that of From.
	Domain string
	// Selector names the public key, at <Selector>._domainkey.<Domain>.
	Selector string
	// Key is the private key as PEM: PKCS #8 ("PRIVATE KEY"), or PKCS #1 ("RSA
	// PRIVATE KEY"). It has no passphrase.
	Key []byte
}

// signedFields returns the signed header fields. An absent field is signed as absent, so it
// cannot be added later.
func signedFields() []string {
	return []string{"From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"}
}

func (d *DKIM) signOptions() (*dkim.SignOptions, error) {
	if !isDNSName(d.Domain) {
		return nil, fmt.Errorf("dkim.domain %q: give a DNS name", d.Domain)
	}
	if !isDNSName(d.Selector) {
		return nil, fmt.Errorf("dkim.selector %q: give a DNS label, as mail2026", d.Selector)
	}
	key, err := parsePrivateKey(d.Key)
	if err != nil {
		return nil, fmt.Errorf("dkim.key: %w", err)
	}
	return &dkim.SignOptions{
		Domain:                 d.Domain,
		Selector:               d.Selector,
		Signer:                 key,
		Hash:                   crypto.SHA256,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed,
		BodyCanonicalization:   dkim.CanonicalizationRelaxed,
		HeaderKeys:             signedFields(),
	}, nil
}

func parsePrivateKey(pemBytes []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(pemBytes)
	if block == nil {
		return nil, errors.New("it holds no PEM; give one that begins with -----BEGIN PRIVATE KEY-----")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("it holds %q; give PRIVATE KEY (PKCS #8) or RSA PRIVATE KEY, without a passphrase", block.Type)
	}
	if err != nil {
		return nil, errors.New("it cannot be read; give an RSA or Ed25519 key without a passphrase")
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		if key.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("it is an RSA key of %d bits; give 2048", key.N.BitLen())
		}
		return key, nil
	case ed25519.PrivateKey:
		return key, nil
	default:
		return nil, fmt.Errorf("it is a %T; give an RSA or Ed25519 key", key)
	}
}

// signMessage returns the message with its signature prepended.
func signMessage(message []byte, options *dkim.SignOptions) ([]byte, error) {
	var signed bytes.Buffer
	if err := dkim.Sign(&signed, bytes.NewReader(message), options); err != nil {
		return nil, fmt.Errorf("sign with DKIM for %s: %w", options.Domain, err)
	}
	return signed.Bytes(), nil
}
