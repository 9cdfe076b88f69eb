// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// otherCertificateAge is the time for which a certificate stays that only another replica has, in machine time: longer than
	// the replicas' files differ while the certificate authority changes.
	otherCertificateAge = time.Hour
	// maxCertificates limits the bundle.
	maxCertificates = 8
)

// certificate is an X.509 certificate in DER form.
type certificate string

// otherCertificates remembers since when certificates are in the configurations that this replica does not have.
type otherCertificates struct {
	since map[certificate]time.Time
}

// merge returns the own certificates and those of other replicas, in an order that all replicas share. It leaves
// out what is no valid certificate of an authority.
func (o *otherCertificates) merge(own []certificate, present []webhookEntry, now time.Time) []certificate {
	if o.since == nil {
		o.since = map[certificate]time.Time{}
	}
	var found []certificate
	for _, entry := range present {
		found = append(found, decodeBundle(entry.caBundle)...)
	}
	maps.DeleteFunc(o.since, func(other certificate, _ time.Time) bool { return !slices.Contains(found, other) })
	merged := slices.Clone(own)
	for _, other := range found {
		if slices.Contains(merged, other) || len(merged) >= maxCertificates || !isAuthority(other, now) {
			continue
		}
		if _, known := o.since[other]; !known {
			if len(o.since) >= maxCertificates {
				continue
			}
			o.since[other] = now
		}
		if now.Sub(o.since[other]) < otherCertificateAge {
			merged = append(merged, other)
		}
	}
	slices.Sort(merged)
	return merged
}

// isAuthority reports whether a certificate is a valid one of an authority.
func isAuthority(c certificate, now time.Time) bool {
	parsed, err := x509.ParseCertificate([]byte(c))
	return err == nil && parsed.IsCA && !now.Before(parsed.NotBefore) && !now.After(parsed.NotAfter)
}

func encodeBundle(certificates []certificate) []byte {
	var bundle strings.Builder
	for _, c := range certificates {
		bundle.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)}))
	}
	return []byte(bundle.String())
}

func decodeBundle(bundle []byte) []certificate {
	var certificates []certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return certificates
		}
		if block.Type == "CERTIFICATE" && !slices.Contains(certificates, certificate(block.Bytes)) {
			certificates = append(certificates, certificate(block.Bytes))
		}
	}
}

// ownCertificates returns the certificates of this replica.
func ownCertificates(authorities []*x509.Certificate) []certificate {
	var own []certificate
	for _, authority := range authorities {
		own = append(own, certificate(authority.Raw))
	}
	return own
}

// inAll reports whether each entry has a certificate.
func inAll(c certificate, entries []webhookEntry) bool {
	return !slices.ContainsFunc(entries, func(e webhookEntry) bool { return !slices.Contains(decodeBundle(e.caBundle), c) })
}

// noAuthority reports whether no entry has a valid certificate of an authority.
func noAuthority(entries []webhookEntry, now time.Time) bool {
	return !slices.ContainsFunc(entries, func(e webhookEntry) bool {
		return slices.ContainsFunc(decodeBundle(e.caBundle), func(c certificate) bool { return isAuthority(c, now) })
	})
}
