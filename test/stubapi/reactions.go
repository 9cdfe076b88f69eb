// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
)

// StopSuspended is what the job controller does when a job of the fleet is
// suspended: its pods go at once.
func (f Fleet) StopSuspended(s *Server, kind Kind, _, after map[string]any) {
	spec, _ := after["spec"].(map[string]any)
	if suspended, _ := spec["suspend"].(bool); kind.Kind != "Job" || !suspended {
		return
	}
	namespace, name := named(after)
	for index := range f.PodsPerRoot {
		_ = s.DeletePod(namespace, podName(name, index)) // pods are always served
	}
}

// CountQuotas is what the quota controller does with a new or changed quota: it
// says what is counted. What is used it says to be nothing.
func CountQuotas(s *Server, kind Kind, _, after map[string]any) {
	spec, _ := after["spec"].(map[string]any)
	hard, _ := spec["hard"].(map[string]any)
	if kind.Kind != "ResourceQuota" || len(hard) == 0 {
		return
	}
	used := map[string]any{}
	for resource := range hard {
		used[resource] = "0"
	}
	counted := runtime.DeepCopyJSON(after)
	counted["status"] = map[string]any{"hard": maps.Clone(hard), "used": used}
	_ = s.Put(counted) // quotas are always served
}

// named is an object's namespace and name.
func named(tree map[string]any) (namespace, name string) {
	metadata, _ := tree["metadata"].(map[string]any)
	namespace, _ = metadata["namespace"].(string)
	name, _ = metadata["name"].(string)
	return namespace, name
}
