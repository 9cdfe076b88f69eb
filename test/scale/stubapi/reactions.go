// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// StopSuspended acts like the job controller when a job of the fleet is suspended: it
// deletes the job's pods at once.
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

// CountQuotas acts like the quota controller on a changed quota: it copies the hard limits
// to the status, with a usage of 0.
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

// Put creates or replaces an object without counting a write. Its kind must be served.
func (s *Server) Put(tree map[string]any) error {
	u := unstructured.Unstructured{Object: runtime.DeepCopyJSON(tree)}
	t, err := s.tableOf(u.GroupVersionKind())
	if err != nil {
		return err
	}
	if u.GetUID() == "" {
		u.SetUID(uuid.NewUUID())
	}
	if u.GetGeneration() == 0 {
		u.SetGeneration(1)
	}
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	}
	_, err = s.store.put(t, u.GetNamespace()+"/"+u.GetName(), func(_ *object, version uint64) (*object, error) {
		return t.kind.newObject(u.Object, version)
	})
	return err
}

// Delete deletes an object at once, without counting a write.
func (s *Server) Delete(kind schema.GroupVersionKind, namespace, name string) error {
	t, err := s.tableOf(kind)
	if err != nil {
		return err
	}
	_, err = s.store.put(t, namespace+"/"+name, func(*object, uint64) (*object, error) { return nil, nil })
	return err
}

func (s *Server) tableOf(kind schema.GroupVersionKind) (*table, error) {
	for _, t := range s.store.tables {
		if t.kind.GroupVersionKind == kind {
			return t, nil
		}
	}
	return nil, fmt.Errorf("stub API server: no kind %s is served", kind)
}
