// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/manifests"
)

// kustomization is the one of Kueue's manifests that its releases are made of.
const kustomization = "default"

// podOnlyKinds are the kinds of Kueue's manifests that are there for its pod, and for
// the API that is left out.
var podOnlyKinds = []string{"Deployment", "Service", "APIService"}

// Objects are Kueue's own, from the manifests of its module, in the order in which
// they can be applied, but for its pod. Its webhooks are reached below the URL
// base, which certificates vouch for; its ConfigMap holds configuration.
func Objects(files fs.FS, base string, certificates Certificates, configuration []byte) ([]*unstructured.Unstructured, error) {
	all, err := manifests.BuildFrom(files, kustomization)
	if err != nil {
		return nil, fmt.Errorf("kueue's manifests: %w", err)
	}
	all = slices.DeleteFunc(all, func(object *unstructured.Unstructured) bool {
		namespace := object.GetNamespace()
		return slices.Contains(podOnlyKinds, object.GetKind()) || namespace != "" && namespace != Namespace
	})
	for _, object := range all {
		if err := adaptObject(object, base, certificates, configuration); err != nil {
			return nil, fmt.Errorf("kueue's %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return all, nil
}

// adaptObject changes what a process on this machine has otherwise than a pod.
func adaptObject(object *unstructured.Unstructured, base string, certificates Certificates, configuration []byte) error {
	switch object.GetKind() {
	case "CustomResourceDefinition":
		return setConversionURL(object, base, certificates[caCertFile])
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return setWebhookURLs(object, base, certificates[caCertFile])
	case "ConfigMap":
		return unstructured.SetNestedStringMap(object.Object, map[string]string{configurationKey: string(configuration)}, "data")
	case "Secret":
		encoded := make(map[string]string, len(certificates))
		for name, content := range certificates {
			encoded[name] = base64.StdEncoding.EncodeToString(content)
		}
		return unstructured.SetNestedStringMap(object.Object, encoded, "data")
	default:
		return nil
	}
}

// kueueGroup is that of Kueue's own kinds.
const kueueGroup = "kueue.x-k8s.io"

// setConversionURL has the API server ask Kueue for the versions of a kind, where
// that has several that differ. Without an answer it would drop what one version
// calls otherwise than the other: of a queue, the cohort.
func setConversionURL(crd *unstructured.Unstructured, base string, authority []byte) error {
	path := []string{"spec", "conversion", "webhook", "clientConfig"}
	client, found, err := unstructured.NestedMap(crd.Object, path...)
	if err != nil || !found {
		return err // one version, or several that are alike
	}
	byURL, err := urlClientConfig(client, base, authority)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(crd.Object, byURL, path...)
}

// setWebhookURLs has the API server ask Kueue about its own kinds everywhere, and about
// those of others in projects alone, as Kueue's Helm chart has it: a Kueue that is
// away must not hold up anybody else.
func setWebhookURLs(configuration *unstructured.Unstructured, base string, authority []byte) error {
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
			webhook["clientConfig"], err = urlClientConfig(client, base, authority)
		}
		if err != nil {
			return fmt.Errorf("webhooks[%d]: %w", i, err)
		}
		if !servesKueueGroup(webhook) {
			webhook["namespaceSelector"] = map[string]any{"matchExpressions": []any{
				map[string]any{"key": projectLabel, "operator": "Exists"},
			}}
		}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

// urlClientConfig replaces the Service in a webhook's client configuration by a URL.
func urlClientConfig(client map[string]any, base string, authority []byte) (map[string]any, error) {
	path, found, err := unstructured.NestedString(client, "service", "path")
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("clientConfig.service.path is not there")
	}
	return map[string]any{"url": base + path, "caBundle": base64.StdEncoding.EncodeToString(authority)}, nil
}

func servesKueueGroup(webhook map[string]any) bool {
	rules, _, _ := unstructured.NestedSlice(webhook, "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
		return slices.Contains(groups, kueueGroup)
	})
}
