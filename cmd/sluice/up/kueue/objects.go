// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/manifests"
)

// kustomization is the one of Kueue's manifests that its releases are made of.
const kustomization = "default"

// inPods are the kinds of Kueue's manifests that are there for its pod, and for
// the API that is left out.
var inPods = []string{"Deployment", "Service", "APIService"}

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
		return slices.Contains(inPods, object.GetKind()) || namespace != "" && namespace != Namespace
	})
	for _, object := range all {
		if err := fit(object, base, certificates, configuration); err != nil {
			return nil, fmt.Errorf("kueue's %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return all, nil
}

// fit changes what a process on this machine has otherwise than a pod.
func fit(object *unstructured.Unstructured, base string, certificates Certificates, configuration []byte) error {
	switch object.GetKind() {
	case "CustomResourceDefinition":
		return convertBelow(object, base, certificates[authorityCert])
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return callBelow(object, base, certificates[authorityCert])
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
