// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// RequestsPods tells whether an object wants pods: it is neither suspended nor
// scaled to nothing. A kind that the table does not have is read as most kinds
// write it: spec.suspend, else spec.replicas. A Scale, which is what is asked for
// at the scale subresource of any kind, is known.
func RequestsPods(object *unstructured.Unstructured) bool {
	kind, known := Lookup(object.GroupVersionKind().GroupKind())
	if known {
		return kind.RequestsPods(object)
	}
	if object.GroupVersionKind().GroupKind() == scaleKind {
		// The one kind that leaves a 0 out.
		value, _ := valueAt(object.Object, scaleAction.Path)
		n, _ := asInt64(value)
		return n > 0
	}
	if _, is := valueAt(object.Object, suspendAction.Path); is {
		return Kind{StopAction: suspendAction}.RequestsPods(object)
	}
	return Kind{StopAction: scaleAction}.RequestsPods(object)
}

var scaleKind = schema.GroupKind{Group: "autoscaling", Kind: "Scale"}

// RequestsPods is the function of that name for an object whose row is known.
func (k Kind) RequestsPods(object *unstructured.Unstructured) bool {
	if k.StopAction.Method == StopByDeletion {
		return object.GetDeletionTimestamp() == nil && !k.IsFinished(object)
	}
	value, is := valueAt(object.Object, k.StopAction.Path)
	switch k.StopAction.Method {
	case StopByField:
		return !is || value != k.StopAction.StopValue
	case StopByAnnotation:
		return !is
	case StopByScaling:
		return ReplicasAt(object, k.StopAction.Path) > 0
	}
	return true
}

// StartsWorkload tells whether a change makes an object that did not ask to run ask for
// it. Whether it may is another question.
func StartsWorkload(before, after *unstructured.Unstructured) bool {
	return !RequestsPods(before) && RequestsPods(after)
}

// ReplicasAt is the number at a path, and 1 where there is none: so it is
// defaulted everywhere.
func ReplicasAt(object *unstructured.Unstructured, path []string) int64 {
	value, _ := valueAt(object.Object, path)
	if n, ok := asInt64(value); ok {
		return max(n, 0)
	}
	return 1
}

// IsFinished tells whether an object came to its end by itself.
func (k Kind) IsFinished(object *unstructured.Unstructured) bool {
	if phase, _ := valueAt(object.Object, k.Completion.PhasePath); len(k.Completion.PhasePath) > 0 {
		word, _ := phase.(string)
		if slices.Contains(k.Completion.Phases, word) {
			return true
		}
	}
	conditions, _ := valueAt(object.Object, []string{"status", "conditions"})
	for _, element := range asSlice(conditions) {
		condition := asMap(element)
		name, _ := condition["type"].(string)
		switch condition["status"] {
		case "True":
			if slices.Contains(k.Completion.Conditions, name) || (name != "" && name == k.Completion.ResultCondition) {
				return true
			}
		case "False":
			if name != "" && name == k.Completion.ResultCondition {
				return true
			}
		}
	}
	return false
}

// HasActivePods tells whether an object says that it still has pods. What does not
// count them is never busy.
func (k Kind) HasActivePods(object *unstructured.Unstructured) bool {
	if len(k.ActivePodsPath) == 0 {
		return false
	}
	value, _ := valueAt(object.Object, k.ActivePodsPath)
	n, _ := asInt64(value)
	return n > 0
}

// asInt64 reads a number as the decoders of Kubernetes and of Go leave it.
func asInt64(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		if n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
			return 0, false
		}
		return int64(n), true
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	}
	return 0, false
}

// IsStoppable tells whether there may be a way to stop objects of a kind. It is
// false for what is never touched: the built-in kinds that make no pods, Node
// and Namespace among them, DaemonSets, and Sluice's own kinds.
func IsStoppable(kind schema.GroupKind) bool {
	if k, known := Lookup(kind); known {
		return k.StopAction.Method != StopNever
	}
	return kind.Group != "" && kind.Group != groupApps && kind.Group != groupBatch && kind.Group != v1alpha1.GroupVersion.Group
}

// ControllerOf is the kind of the controller that an object says it is part of;
// false where it says none. Anybody may say so of an object of theirs.
func ControllerOf(object map[string]any) (schema.GroupKind, bool) {
	for _, element := range asSlice(asMap(object["metadata"])["ownerReferences"]) {
		reference := asMap(element)
		if is, _ := reference["controller"].(bool); !is {
			continue
		}
		version, _ := reference["apiVersion"].(string)
		kind, _ := reference["kind"].(string)
		group, _, grouped := strings.Cut(version, "/")
		if !grouped {
			group = "" // v1
		}
		return schema.GroupKind{Group: group, Kind: kind}, true
	}
	return schema.GroupKind{}, false
}
