// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// certificatesSecret is the Secret with the webhook's certificates: tls.crt, tls.key and ca.crt.
const certificatesSecret = "webhook-certificates"

// certificateWarning is the time before the end of a certificate from which it is a problem: Sluice and cert-manager
// renew far earlier.
const certificateWarning = 7 * 24 * time.Hour

const seeCertificates = "run kubectl -n " + systemNamespace + " create job --from=cronjob/certificates certificates-now, and see its log" +
	"; with cert-manager see the Certificate webhook"

// checkCertificates checks the authorities in the webhook configurations, and the certificate that the webhook serves.
func checkCertificates(o *Observation) (out outcome) {
	if reason := firstUnread(o.Validating, o.Mutating); reason != "" {
		return skip("%s", reason)
	}
	entries := o.entries()
	if len(entries) == 0 {
		return skip("there are no webhook configurations")
	}
	served, servedErr := parseCertificates(o.ServedCertificate.Value)
	reported := map[string]bool{}
	var end time.Time
	for i := range entries {
		bundle := entries[i].Client.CABundle
		object := entries[i].Object()
		if len(bundle) == 0 || reported[object+string(bundle)] { // the check webhook-configurations reports the former
			continue
		}
		reported[object+string(bundle)] = true
		authorities, err := parseCertificates(bundle)
		if err != nil {
			out.add(Error, object, fmt.Sprintf("the caBundle of webhook %s is invalid: %v", entries[i].Name, err), seeCertificates)
			continue
		}
		last := time.Time{}
		for _, authority := range authorities {
			if authority.NotAfter.After(last) {
				last = authority.NotAfter
			}
		}
		addExpiry(&out, object, "the last certificate authority in the caBundle", last, o.Now)
		if len(served) > 0 && !isIssuedBy(served, authorities, o.Now) {
			out.add(Error, object, "no authority in the caBundle of webhook "+entries[i].Name+
				" issued the certificate that the webhook serves: the API server cannot call it", seeCertificates)
		}
		if end.IsZero() || last.Before(end) {
			end = last
		}
	}
	switch {
	case o.ServedCertificate.Err != nil && len(out.findings) == 0:
		return skip("the caBundle is valid until %s; the end of the webhook's own certificate is unknown: %s",
			formatDay(end), o.ServedCertificate.unread())
	case servedErr != nil && o.ServedCertificate.Err == nil:
		out.add(Error, "Secret "+systemNamespace+"/"+certificatesSecret, fmt.Sprintf("tls.crt is invalid: %v", servedErr), seeCertificates)
	case len(served) > 0:
		addExpiry(&out, "", "the webhook's certificate", served[0].NotAfter, o.Now)
		out.ok = "the webhook's certificate is valid until " + formatDay(served[0].NotAfter) + ", its authority until " + formatDay(end)
	}
	return out
}

func formatDay(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// addExpiry adds a finding for a certificate that has ended or ends soon.
func addExpiry(out *outcome, object, what string, end, now time.Time) {
	switch left := end.Sub(now); {
	case left <= 0:
		out.add(Error, object, what+" ended on "+formatDay(end), seeCertificates)
	case left < certificateWarning:
		out.add(Warning, object, what+" ends on "+formatDay(end)+" and was not renewed", seeCertificates)
	}
}

// isIssuedBy reports whether the first certificate has a chain to one of the authorities. Its end is checked apart.
func isIssuedBy(served, authorities []*x509.Certificate, now time.Time) bool {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	for _, further := range served[1:] {
		intermediates.AddCert(further)
	}
	at := now
	if served[0].NotAfter.Before(now) {
		at = served[0].NotAfter.Add(-time.Second)
	}
	_, err := served[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: at})
	return err == nil
}

// parseCertificates returns the certificates of a PEM text.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("it has no certificate in PEM form")
	}
	return all, nil
}
