// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OpenTokenKey reads or creates the private key that signs service account tokens in
// keyFile, and writes the public key that verifies them to publicFile. It keeps an existing
// key: tokens that it signed stay valid.
func OpenTokenKey(keyFile, publicFile string) error {
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
	return writeFile(publicFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
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
	return key, writeFile(file, content)
}
