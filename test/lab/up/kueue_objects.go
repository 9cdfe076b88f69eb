// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/manifests"
)

// kueueKustomization is the folder of Kueue's release manifests.
const kueueKustomization = "default"

// podOnlyKinds are kinds in Kueue's manifests that only its pod, and the visibility
// API, need.
var podOnlyKinds = []string{"Deployment", "Service", "APIService"}

// kueueObjects returns Kueue's objects without its pod, from the manifests of its module,
// in the order to apply them. The API server reaches the webhooks below the URL base
// and verifies them with certificates. The ConfigMap has configuration.
func kueueObjects(files fs.FS, base string, certificates kueueCertificates, configuration []byte) ([]*unstructured.Unstructured, error) {
	all, err := manifests.BuildFrom(files, kueueKustomization)
	if err != nil {
		return nil, fmt.Errorf("build Kueue's manifests: %w", err)
	}
	all = slices.DeleteFunc(all, func(object *unstructured.Unstructured) bool {
		namespace := object.GetNamespace()
		return slices.Contains(podOnlyKinds, object.GetKind()) || namespace != "" && namespace != kueueNamespace
	})
	for _, object := range all {
		if err := adaptKueueObject(object, base, certificates, configuration); err != nil {
			return nil, fmt.Errorf("adapt Kueue's %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return all, nil
}

// adaptKueueObject changes the fields that differ between a process and a pod.
func adaptKueueObject(object *unstructured.Unstructured, base string, certificates kueueCertificates, configuration []byte) error {
	switch object.GetKind() {
	case "CustomResourceDefinition":
		return setConversionURL(object, base, certificates[caCertFile])
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return setWebhookURLs(object, base, certificates[caCertFile])
	case "ConfigMap":
		return unstructured.SetNestedStringMap(object.Object, map[string]string{kueueConfigurationKey: string(configuration)}, "data")
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

// setConversionURL makes the API server convert a kind through Kueue if the kind has
// several versions. Without conversion it would drop renamed fields, such as a
// queue's cohort.
func setConversionURL(crd *unstructured.Unstructured, base string, authority []byte) error {
	path := []string{"spec", "conversion", "webhook", "clientConfig"}
	client, found, err := unstructured.NestedMap(crd.Object, path...)
	if err != nil || !found {
		return err // the versions have the same fields
	}
	byURL, err := urlClientConfig(client, base, authority)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(crd.Object, byURL, path...)
}

// setWebhookURLs makes the API server call Kueue for its own kinds everywhere, and
// for other kinds only in projects, as Kueue's Helm chart does. A stopped Kueue then
// blocks no other namespace.
func setWebhookURLs(configuration *unstructured.Unstructured, base string, authority []byte) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhooks[%d] is not an object", i)
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

// urlClientConfig replaces the Service of a webhook by a URL.
func urlClientConfig(client map[string]any, base string, authority []byte) (map[string]any, error) {
	path, found, err := unstructured.NestedString(client, "service", "path")
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("clientConfig.service.path is missing")
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
