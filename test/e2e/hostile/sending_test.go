// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// create creates the object in the attacker's namespace. A real one is deleted with the test.
func (a *attacker) create(object *unstructured.Unstructured) error {
	namespaced, err := a.client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace(a.namespace)
	}
	var options []client.CreateOption
	if a.dry {
		options = append(options, client.DryRunAll)
	}
	err = a.retry(func() error { return a.client.Create(a.t.Context(), object, options...) })
	if err == nil && !a.dry {
		a.cleanUp(object)
	}
	return err
}

func (a *attacker) patch(object *unstructured.Unstructured, subresource, body string) error {
	kind := types.MergePatchType
	switch _, builtIn := strategicGroups[object.GroupVersionKind().Group]; {
	case strings.HasPrefix(body, "["):
		kind = types.JSONPatchType
	case builtIn:
		kind = types.StrategicMergePatchType
	}
	raw := client.RawPatch(kind, []byte(a.expand(body)))
	return a.retry(func() error {
		if subresource != "" {
			var options []client.SubResourcePatchOption
			if a.dry {
				options = append(options, client.DryRunAll)
			}
			return a.client.SubResource(subresource).Patch(a.t.Context(), object, raw, options...)
		}
		var options []client.PatchOption
		if a.dry {
			options = append(options, client.DryRunAll)
		}
		return a.client.Patch(a.t.Context(), object, raw, options...)
	})
}

// strategicGroups are the API groups whose lists are merged by name.
var strategicGroups = map[string]bool{"": true, "apps": true, "batch": true, "policy": true, "networking.k8s.io": true}

// retry repeats a request that failed because the machine is busy.
func (a *attacker) retry(request func() error) error {
	for deadline := time.Now().Add(setupTimeout); time.Now().Before(deadline); {
		err := request()
		if !isTransient(err) || a.t.Context().Err() != nil {
			return err
		}
		select {
		case <-a.t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("the API server was busy for %s", setupTimeout)
}

func isTransient(err error) bool {
	return err != nil && (apierrors.IsTooManyRequests(err) && !strings.Contains(err.Error(), "disruption") ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		(apierrors.IsInternalError(err) && (strings.Contains(err.Error(), "failed calling webhook") || strings.Contains(err.Error(), "timed out"))))
}

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 200 {
		return text[:200] + "..."
	}
	return text
}
