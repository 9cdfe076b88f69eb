// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StopSuspended acts like the job controller: it deletes the pods of a suspended job of the
// fleet at once.
func (f Fleet) StopSuspended(s *Server, kind Kind, _, after map[string]any) {
	spec, _ := after["spec"].(map[string]any)
	if suspended, _ := spec["suspend"].(bool); kind.Kind != "Job" || !suspended {
		return
	}
	namespace, name := namespacedName(after)
	for index := range f.PodsPerRoot {
		_ = s.DeletePod(namespace, podName(name, index)) // pods are always served
	}
}

// CountQuotas acts like the quota controller: it sets the status of a new or changed quota,
// with a usage of zero.
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

// namespacedName returns an object's namespace and name.
func namespacedName(tree map[string]any) (namespace, name string) {
	metadata, _ := tree["metadata"].(map[string]any)
	namespace, _ = metadata["namespace"].(string)
	name, _ = metadata["name"].(string)
	return namespace, name
}

// PodKind is the kind Pod.
var PodKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// PutPod is [Server.Put] for a pod, without conversion to a tree. It sets the pod's
// resourceVersion. The caller may reuse the pod.
func (s *Server) PutPod(pod *corev1.Pod) error {
	t, err := s.tableOf(PodKind)
	if err != nil {
		return err
	}
	_, err = s.store.put(t, pod.Namespace+"/"+pod.Name, func(_ *object, version uint64) (*object, error) {
		pod.TypeMeta = metav1.TypeMeta{}
		pod.ResourceVersion = strconv.FormatUint(version, 10)
		return newPodObject(pod)
	})
	return err
}

// DeletePod is [Server.Delete] for a pod.
func (s *Server) DeletePod(namespace, name string) error { return s.Delete(PodKind, namespace, name) }
