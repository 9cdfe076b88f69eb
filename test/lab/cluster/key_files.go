// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// KeyPair is a certificate and its private key, both PEM-encoded.
type KeyPair struct{ Cert, Key []byte }

// Write stores the pair in two files of mode 0600, each atomically.
func (p KeyPair) Write(certFile, keyFile string) error {
	if err := writeKeyFile(keyFile, p.Key); err != nil {
		return err
	}
	return writeKeyFile(certFile, p.Cert)
}

func (p KeyPair) parse() (*x509.Certificate, crypto.Signer, error) {
	parsed, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := parsed.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("the key cannot sign")
	}
	return parsed.Leaf, signer, nil
}

// openTokenKey reads or creates the private key that signs service account tokens in
// keyFile, and writes the public key that verifies them to publicFile. It keeps an existing
// key: tokens that it signed stay valid.
func openTokenKey(keyFile, publicFile string) error {
	key, err := readTokenKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = createTokenKey(keyFile)
	}
	if err != nil {
		return fmt.Errorf("service account key %s: %w", keyFile, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key %s: %w", keyFile, err)
	}
	return writeKeyFile(publicFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func readTokenKey(file string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the file has no PEM block")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func createTokenKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	content, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, writeKeyFile(file, content)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func writeKeyFile(path string, content []byte) error {
	if err := writeFile(path, content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
