// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pointTo replaces the Service in a webhook configuration by a URL below base:
// here the webhook listens on the machine and not in a pod. All else stays as
// the manifests have it; other kinds of objects are left alone.
func pointTo(object *unstructured.Unstructured, base string) error {
	if object.GroupVersionKind().Group != "admissionregistration.k8s.io" {
		return nil
	}
	webhooks, found, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if !found { // a policy that the API server evaluates itself
		return nil
	}
	for i := range webhooks {
		webhook, _ := webhooks[i].(map[string]any)
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil || !found {
			return fmt.Errorf("%s %s: webhooks[%d].clientConfig.service.path is not there", object.GetKind(), object.GetName(), i)
		}
		webhook["clientConfig"] = map[string]any{"url": base + path}
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}
