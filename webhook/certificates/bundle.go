// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// writeBundles writes the authorities into each entry of both configurations, and nothing else of them. It reports whether one
// changed, and whether an entry had a valid authority before.
func (r *Renewal) writeBundles(ctx context.Context) (changed, trusted bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var validating admissionv1.ValidatingWebhookConfiguration
		var mutating admissionv1.MutatingWebhookConfiguration
		for _, configuration := range []client.Object{&validating, &mutating} {
			if err := r.Client.Get(ctx, client.ObjectKey{Name: configurationName}, configuration); err != nil {
				return fmt.Errorf("read %T %s, which the manifests contain: %w", configuration, configurationName, err)
			}
		}
		// The Secret is read after the configurations, and a patch fails if these have changed since. So a run that removes
		// an authority has observed every certificate whose authority is in them.
		secret, err := r.readSecret(ctx)
		if err != nil {
			return err
		}
		var validatingBundles, mutatingBundles [][]byte
		for i := range validating.Webhooks {
			validatingBundles = append(validatingBundles, validating.Webhooks[i].ClientConfig.CABundle)
		}
		for i := range mutating.Webhooks {
			mutatingBundles = append(mutatingBundles, mutating.Webhooks[i].ClientConfig.CABundle)
		}
		var present []string
		for _, bundles := range [][][]byte{validatingBundles, mutatingBundles} {
			for _, bundle := range bundles {
				present = append(present, authorities(bundle, r.now())...)
			}
		}
		trusted = trusted || len(present) > 0
		bundle, err := desiredBundle(secret.Data, present, r.now())
		if err != nil {
			return err
		}
		for configuration, bundles := range map[client.Object][][]byte{&validating: validatingBundles, &mutating: mutatingBundles} {
			patch := bundlePatch(configuration.GetResourceVersion(), bundles, bundle)
			if patch == nil {
				continue
			}
			raw := client.RawPatch(types.JSONPatchType, patch)
			if err := r.Client.Patch(ctx, configuration, raw, client.FieldOwner(v1alpha1.FieldManagerCertificates)); err != nil {
				return fmt.Errorf("write the caBundle of %T %s: %w", configuration, configurationName, err)
			}
			changed = true
			r.Logger.Info("Wrote caBundle", "configuration", fmt.Sprintf("%T", configuration), "certificates", bytes.Count(bundle, []byte("BEGIN")))
		}
		return nil
	})
	return changed, trusted, err
}

// desiredBundle returns the authorities of the served and the next certificate, and those that are in the configurations, as long
// as a replica may serve a certificate of them.
func desiredBundle(data map[string][]byte, present []string, now time.Time) ([]byte, error) {
	next := authorities([]byte(pairOf(data, nextPrefix).authority), now)
	all := append(authorities([]byte(pairOf(data, servedPrefix).authority), now), next...)
	if len(all) == 0 {
		return nil, errors.New("the Secret " + SecretName + " has no valid authority: run the program again")
	}
	// A certificate that this program did not store has no time, and no certificate before it.
	since, err := time.Parse(time.RFC3339, string(data[keyServedSince]))
	if len(next) > 0 || err == nil && now.Sub(since) < mountDelay {
		all = append(all, present...)
	}
	slices.Sort(all)
	return []byte(strings.Join(slices.Compact(all), "")), nil
}

// authorities returns the valid certificates of authorities in a bundle, each in PEM form.
func authorities(bundle []byte, now time.Time) (all []string) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return all
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if block.Type == "CERTIFICATE" && err == nil && parsed.IsCA && now.Before(parsed.NotAfter) {
			all = append(all, string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})))
		}
	}
}

// bundlePatch returns the patch that sets the caBundle of each entry; nil if all have it. It keeps the order of the entries, in which
// the API server calls them: a strategic merge patch would not.
func bundlePatch(resourceVersion string, bundles [][]byte, bundle []byte) []byte {
	operations := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": resourceVersion}}
	for i, present := range bundles {
		if !bytes.Equal(present, bundle) {
			path := fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i)
			operations = append(operations, map[string]any{"op": "add", "path": path, "value": bundle})
		}
	}
	if len(operations) == 1 {
		return nil
	}
	raw, err := json.Marshal(operations)
	if err != nil {
		panic(err) // strings and bytes always marshal
	}
	return raw
}
