// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// group is that of Kueue's own kinds.
const group = "kueue.x-k8s.io"

// convertBelow has the API server ask Kueue for the versions of a kind, where
// that has several that differ. Without an answer it would drop what one version
// calls otherwise than the other: of a queue, the cohort.
func convertBelow(crd *unstructured.Unstructured, base string, authority []byte) error {
	path := []string{"spec", "conversion", "webhook", "clientConfig"}
	client, found, err := unstructured.NestedMap(crd.Object, path...)
	if err != nil || !found {
		return err // one version, or several that are alike
	}
	byURL, err := urlFor(client, base, authority)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(crd.Object, byURL, path...)
}

// callBelow has the API server ask Kueue about its own kinds everywhere, and about
// those of others in projects alone, as Kueue's Helm chart has it: a Kueue that is
// away must not hold up anybody else.
func callBelow(configuration *unstructured.Unstructured, base string, authority []byte) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhooks[%d] is no object", i)
		}
		client, _, err := unstructured.NestedMap(webhook, "clientConfig")
		if err == nil {
			webhook["clientConfig"], err = urlFor(client, base, authority)
		}
		if err != nil {
			return fmt.Errorf("webhooks[%d]: %w", i, err)
		}
		if !ofOwnKinds(webhook) {
			webhook["namespaceSelector"] = map[string]any{"matchExpressions": []any{
				map[string]any{"key": projectLabel, "operator": "Exists"},
			}}
		}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

// urlFor replaces the Service in a webhook's client configuration by a URL.
func urlFor(client map[string]any, base string, authority []byte) (map[string]any, error) {
	path, found, err := unstructured.NestedString(client, "service", "path")
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("clientConfig.service.path is not there")
	}
	return map[string]any{"url": base + path, "caBundle": base64.StdEncoding.EncodeToString(authority)}, nil
}

func ofOwnKinds(webhook map[string]any) bool {
	rules, _, _ := unstructured.NestedSlice(webhook, "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
		return slices.Contains(groups, group)
	})
}
