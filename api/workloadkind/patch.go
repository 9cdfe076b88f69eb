// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
)

// IsReversible reports whether an object of the kind can be stopped and then started again.
func (k Kind) IsReversible() bool {
	switch k.StopAction.Method {
	case StopByField, StopByAnnotation, StopByScaling:
		return !k.StopAction.Irreversible
	}
	return false
}

// StopPatch returns the JSON merge patch with the stop action for an object; empty for a kind that is deleted or
// never stopped. now is the value of an annotation that stops. Sluice deletes no volumes: a kind that would
// delete them when it is scaled keeps them instead, from the same write on.
func (k Kind) StopPatch(object *unstructured.Unstructured, now time.Time) map[string]any {
	body := map[string]any{}
	switch k.StopAction.Method {
	case StopByField:
		SetPatchValue(body, k.StopAction.StopValue, k.StopAction.Path...)
	case StopByScaling:
		SetPatchValue(body, 0, k.StopAction.Path...)
		if k.DeletesScaledVolumes(object) {
			SetPatchValue(body, VolumesRetained, k.ScaledVolumesPath...)
		}
	case StopByAnnotation:
		SetPatchValue(body, now.UTC().Format(time.RFC3339), k.StopAction.Path...)
	}
	return body
}

// StopAnnotations returns the annotations to write with a stop: the present number of replicas of a kind that
// is scaled.
func (k Kind) StopAnnotations(object *unstructured.Unstructured) map[string]any {
	if k.StopAction.Method != StopByScaling || !k.RequestsPods(object) {
		return map[string]any{}
	}
	before := ReplicasAt(object, k.StopAction.Path)
	return map[string]any{v1alpha1.AnnotationReplicasBefore: strconv.FormatInt(before, 10)}
}

// StartPatch returns the JSON merge patch that starts a stopped object again, with its former number of
// replicas; nil if it must be created again.
func (k Kind) StartPatch(object *unstructured.Unstructured) map[string]any {
	if !k.IsReversible() {
		return nil
	}
	body := map[string]any{}
	SetPatchValue(body, k.startValue(PreviousReplicas(object)), k.StopAction.Path...)
	return body
}

// startValue returns the value that starts a workload, nil to remove the field.
func (k Kind) startValue(replicas int64) any {
	if k.StopAction.Method == StopByScaling {
		return max(replicas, 1)
	}
	return k.StopAction.StartValue
}

// SetPatchValue sets a value at a path of a patch.
func SetPatchValue(body map[string]any, v any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := body[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			body[key] = next
		}
		body = next
	}
	body[path[len(path)-1]] = v
}
